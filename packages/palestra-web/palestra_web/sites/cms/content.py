"""What the museum publishes: news and events with gaps, and pages that are written out."""

AUTHORS = ("Nadia Brandt", "Paul Ekström", "Wen Zhao", "Ada Winther")
THINGS = (
    "brass sextant",
    "ship's bell",
    "sail loom",
    "lighthouse lens",
    "rope walk model",
    "diver's helmet",
    "fishing smack",
    "tide gauge",
    "figurehead",
    "harbour chart",
    "net needle collection",
    "steam launch",
    "signal lamp",
    "herring barrel",
    "pilot's logbook",
)
NEWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # title, summary, paragraphs
    (
        "The {thing} is back on show",
        "After {weeks} weeks in the workshop the {thing} can be seen again.",
        (
            (
                "Our restorers cleaned and mended the {thing} over {weeks} weeks. It stands in "
                "{room} again."
            ),
            "The work cost {money} euros and was paid for by the Friends of the Museum.",
        ),
    ),
    (
        "A gift: the {thing}",
        "A family from {town} has given us a {thing}.",
        (
            (
                "The {thing} was in the family for {years} years. It comes to us with letters and "
                "photographs."
            ),
            "It will be shown in {room} from next month.",
        ),
    ),
    (
        "What the {thing} tells us",
        "New research on the {thing} by our curators.",
        (
            "Our curators have dated the {thing} anew. It is {years} years older than we thought.",
            "A talk about it is planned. Ask in {room} for the leaflet.",
        ),
    ),
)
EVENTS: tuple[tuple[str, str], ...] = (
    (
        "Guided tour: the {thing}",
        "A walk of {minutes} minutes with one of our curators, with time for questions.",
    ),
    (
        "Workshop: drawing the {thing}",
        "Pencils and paper are provided. There is room for {places} people.",
    ),
    (
        "Talk: the story of the {thing}",
        "A talk of {minutes} minutes, followed by tea. There is room for {places} people.",
    ),
)
ROOMS = ("the Long Gallery", "the Boat Hall", "the Chart Room", "the Net Loft", "the Reading Room")
TOWNS = ("Harlen", "Westmouth", "Brack", "Ostrand", "Kelby")
TIMES = ("10:00", "11:30", "14:00", "16:30", "18:30")
PRICES = ("free", "4 euros", "6 euros", "9 euros", "12 euros")

PEOPLE: tuple[tuple[str, str, str], ...] = (
    (
        "Ada Winther",
        "Director",
        "Ada Winther has led the museum since 2014. She trained as an archivist.",
    ),
    (
        "Nadia Brandt",
        "Head of communication",
        "Nadia Brandt writes our news and looks after this website.",
    ),
    (
        "Paul Ekström",
        "Curator of ships",
        "Paul Ekström looks after everything that floats, or once did.",
    ),
    ("Wen Zhao", "Curator of charts", "Wen Zhao is responsible for the charts and the library."),
    ("Ruth Adeyemi", "Restorer", "Ruth Adeyemi mends wood, rope and canvas."),
    ("Ivo Marek", "Restorer", "Ivo Marek mends brass and glass. He rebuilt the lighthouse lens."),
    ("Sunniva Dahl", "Education officer", "Sunniva Dahl plans workshops and visits of schools."),
    (
        "Tobias Keller",
        "Archivist",
        "Tobias Keller answers questions about ships, crews and families.",
    ),
    ("Maite Ochoa", "Café manager", "Maite Ochoa bakes the lemon cake herself."),
    ("Leander Voss", "Head of security", "Leander Voss knows every key in the house."),
    ("Pilar Serrano", "Bookshop manager", "Pilar Serrano orders the books and the postcards."),
    (
        "Josef Hanke",
        "Volunteer coordinator",
        "Josef Hanke brings 60 volunteers and their hours together.",
    ),
)
VISIT: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Opening hours",
        (
            "We are open from Tuesday to Sunday, from 10:00 to 17:30.",
            "On Thursdays we stay open until 20:00. We are closed on Mondays.",
        ),
    ),
    (
        "Prices",
        (
            "Adults pay 11 euros, students 7 euros. Children under 12 come in free.",
            "A ticket for the year costs 38 euros.",
        ),
    ),
    (
        "Getting here",
        (
            "Tram 4 stops at Quayside. The walk from the railway station takes 15 minutes.",
            "There is no car park at the museum.",
        ),
    ),
    (
        "Café",
        (
            "The café is open from 10:30 to 17:00. Soup is served from noon.",
            "Groups of more than 8 should book by telephone.",
        ),
    ),
    (
        "Groups and schools",
        (
            "Classes come in free on weekdays. Please book 3 weeks ahead.",
            "Sunniva Dahl answers your questions.",
        ),
    ),
    (
        "Access",
        (
            "All floors but the Net Loft can be reached by lift.",
            "Wheelchairs can be borrowed at the cloakroom. Guide dogs are welcome.",
        ),
    ),
    (
        "House rules",
        (
            "Large bags stay in the cloakroom. Photographs without flash are welcome.",
            "Please do not touch the figureheads.",
        ),
    ),
)
