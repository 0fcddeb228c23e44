"""Where the shop's customers live. The towns are real, the streets are not theirs."""

COUNTRIES = (
    ("US", "USA", "840", "United States"), ("GB", "GBR", "826", "United Kingdom"), ("DE", "DEU", "276", "Germany"),
    ("FR", "FRA", "250", "France"), ("ES", "ESP", "724", "Spain"), ("IT", "ITA", "380", "Italy"), ("NL", "NLD", "528", "Netherlands"),
    ("SE", "SWE", "752", "Sweden"), ("CA", "CAN", "124", "Canada"), ("AU", "AUS", "036", "Australia"),
)  # fmt: skip
"""ISO codes and names of the countries that the shop sends to."""
TOWNS = (
    ("Denver", "80202", "US"), ("Leeds", "LS1 4AP", "GB"), ("Hamburg", "20095", "DE"), ("Lyon", "69002", "FR"), ("Valencia", "46001", "ES"),
    ("Bologna", "40121", "IT"), ("Utrecht", "3511 AD", "NL"), ("Uppsala", "753 10", "SE"), ("Calgary", "T2P 1J9", "CA"),
    ("Adelaide", "5000", "AU"), ("Seattle", "98101", "US"), ("Bristol", "BS1 5TR", "GB"), ("Leipzig", "04109", "DE"),
    ("Toulouse", "31000", "FR"), ("Sevilla", "41001", "ES"), ("Turin", "10121", "IT"), ("Rotterdam", "3011 AA", "NL"),
    ("Malmö", "211 22", "SE"), ("Winnipeg", "R3B 0N2", "CA"), ("Brisbane", "4000", "AU"),
)  # fmt: skip
STREETS = (
    "Maple Street", "Station Road", "Mill Lane", "Harbour Street", "Chestnut Avenue", "Garden Row", "Bridge Street", "Hill Road",
    "Orchard Close", "Market Square", "River Walk", "Park Terrace",
)  # fmt: skip
