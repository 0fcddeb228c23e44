"""The public pages. Each returns a title and a body, or None if there is no such page."""

from html import escape
from itertools import pairwise
from sqlite3 import Connection, Row

from . import store
from .geo import bearing, distance_km, wind
from .html import choice, drawing, facts, field, form, length, link, place_link, table, url
from .request import Request

Page = tuple[str, str] | None
SPEEDS = {"foot": 5, "bicycle": 16, "car": 80, "plane": 800}
"""Kilometres an hour along the straight line."""
KINDS = ("Wrong name", "Wrong position", "Wrong population", "Wrong time zone")


def search_form(
    text: str = "", code: str = "", countries: list[tuple[str, str]] | None = None
) -> str:
    return form(
        "/search",
        field("Search for a place", "q", text, "search")
        + choice("Country", "country", [("", "Any country"), *(countries or [])], code),
        "Search",
        method="get",
        css="row",
    )


def _countries(base: Connection) -> list[tuple[str, str]]:
    return [
        (row["code"], row["name"])
        for row in base.execute(
            "SELECT code, name FROM country WHERE code IN (SELECT country FROM place) ORDER BY name"
        )
    ]


def home(request: Request) -> Page:
    (count,) = request.base.execute("SELECT count(*) FROM place").fetchone()
    body = (
        f"<p>{count:,} towns with at least 50,000 inhabitants, the ways between them, and your own "
        "lists.</p>"
    )
    return "Find your way", search_form() + body + route_form("", "", "", "car")


def search(request: Request) -> Page:
    text, code, number = (
        request.text("q"),
        request.text("country"),
        max(1, request.number("page", 1)),
    )
    again = search_form(text, code, _countries(request.base))
    if not text:
        return "Search", again
    rows, count = store.search(request.base, text, code, number)
    found = table(
        ("Place", "Population", "Time zone"),
        ((place_link(row), f"{row['population']:,}", escape(row["timezone"])) for row in rows),
        f"{count} {'place' if count == 1 else 'places'} found",
    )
    more = [(number - 1, "Previous page")] if number > 1 else []
    more += [(number + 1, "Next page")] if number * store.PAGE < count else []
    ways = " ".join(link(url("/search", q=text, country=code, page=to), name) for to, name in more)
    return f"Search results for {text}", again + found + ways


def place(request: Request) -> Page:
    row = store.place(request.base, request.id)
    if row is None:
        return None
    about = facts(
        [
            ("Country", link(f"/country/{row['country']}", row["country_name"])),
            *([("State", escape(row["region"]))] if row["region"] else []),
            ("Population", f"{row['population']:,}"),
            ("Latitude", f"{row['latitude']:.4f}"),
            ("Longitude", f"{row['longitude']:.4f}"),
            ("Time zone", escape(row["timezone"])),
        ]
    )
    ways = (
        link(f"/place/{row['id']}/nearby", "Nearest towns")
        + " "
        + link(url("/route", **{"from": store.full_name(row)}), "Directions from here")
    )
    sheet = drawing([(store.point(row), row["name"])], False, f"Map of {row['name']}")
    return store.full_name(row), about + ways + _own_forms(request, row) + sheet


def _own_forms(request: Request, row: Row) -> str:
    """Saving and reporting are for users."""
    if request.user is None:
        return f"<p>{link('/login', 'Log in')} to save this place.</p>"
    names = [
        (str(entry["id"]), entry["name"]) for entry in store.lists(request.base, request.user_id)
    ]
    save = ""
    if names:
        fields = choice("List", "list", names) + field("Note", "note")
        save = form(f"/place/{row['id']}/save", fields, "Save to list")
    kinds = choice("What is wrong", "kind", [(kind, kind) for kind in KINDS])
    report = form(f"/place/{row['id']}/report", kinds + field("Details", "text"), "Send report")
    return f"<h2>Save this place</h2>{save}<h2>Report a problem</h2>{report}"


def nearby(request: Request) -> Page:
    center = store.place(request.base, request.id)
    if center is None:
        return None
    within = min(request.number("within", 200), 2000)
    population = request.number("population", 50_000)
    ask = form(
        f"/place/{center['id']}/nearby",
        field("Within (km)", "within", str(within))
        + field("At least so many inhabitants", "population", str(population)),
        "Show",
        method="get",
        css="row",
    )
    rows = store.nearby(request.base, center, within, population, 10)
    cells: list[tuple[str, str, str, str]] = []
    points = [(store.point(center), center["name"])]
    for km, row in rows:
        direction = wind(bearing(store.point(center), store.point(row)))
        people = f"{row['population']:,}"
        cells.append((place_link(row), length(km, request.units), direction, people))
        points.append((store.point(row), row["name"]))
    caption = "The nearest towns" if rows else "No town is that near"
    found = table(("Place", "Distance", "Direction", "Population"), cells, caption)
    sheet = drawing(points, False, "Map of the nearest towns")
    return f"Towns near {store.full_name(center)}", ask + found + sheet


def route_form(start: str, via: str, finish: str, travel: str) -> str:
    fields = field("From", "from", start) + field("Via", "via", via) + field("To", "to", finish)
    by = choice("Travel by", "by", [(name, name.capitalize()) for name in SPEEDS], travel)
    return "<h2>Directions</h2>" + form("/route", fields + by, "Get directions", method="get")


def route(request: Request) -> Page:
    start, via, finish = (request.text(name) for name in ("from", "via", "to"))
    travel = request.text("by") if request.text("by") in SPEEDS else "car"
    again = route_form(start, via, finish, travel)
    if not (start and finish):
        return "Directions", again
    stops, doubts = [], ""
    for text in (start, via, finish):
        if not text:
            continue
        rows = store.named(request.base, text)
        if not rows:
            return (
                "Directions",
                f'<p class="note" role="status">No place is called {escape(text)}.</p>' + again,
            )
        stops.append(rows[0])
        others = ", ".join(place_link(row) for row in rows[1:6])
        doubts += f"<p>Other places called {escape(text)}: {others}</p>" if others else ""
    title = " to ".join(row["name"] for row in stops)
    return title, _legs(stops, travel, request.units) + _save_route(
        request, stops, travel
    ) + doubts + again


def _legs(stops: list[Row], travel: str, units: str) -> str:
    pairs = list(pairwise(stops))
    lengths = [distance_km(store.point(start), store.point(end)) for start, end in pairs]
    rows = [
        (
            place_link(start),
            place_link(end),
            length(km, units),
            wind(bearing(store.point(start), store.point(end))),
            duration(km, travel),
        )
        for (start, end), km in zip(pairs, lengths, strict=True)
    ]
    total = facts(
        [
            ("Total distance", length(sum(lengths), units)),
            (f"Time by {travel}", duration(sum(lengths), travel)),
        ]
    )
    sheet = drawing([(store.point(row), row["name"]) for row in stops], True, "Map of the way")
    return (
        table(("From", "To", "Distance", "Direction", "Time"), rows, "The way in a straight line")
        + total
        + sheet
    )


def _save_route(request: Request, stops: list[Row], travel: str) -> str:
    if request.user is None:
        return ""
    ids = {
        "start": stops[0]["id"],
        "via": stops[1]["id"] if len(stops) == 3 else "",
        "finish": stops[-1]["id"],
        "travel": travel,
    }
    return form(
        "/routes",
        "".join(
            f'<input type="hidden" name="{name}" value="{value}">' for name, value in ids.items()
        ),
        "Save this route",
    )


def duration(km: float, travel: str) -> str:
    minutes = round(km / SPEEDS[travel] * 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def countries(request: Request) -> Page:
    names = [
        row["continent"]
        for row in request.base.execute(
            "SELECT DISTINCT continent FROM country WHERE continent != '' ORDER BY continent"
        )
    ]
    continent = request.text("continent")
    ways = (
        "<p>" + " ".join(link(url("/countries", continent=name), name) for name in names) + "</p>"
    )
    if continent not in names:
        return "Countries", ways
    rows = request.base.execute(
        "SELECT * FROM country WHERE continent = ? ORDER BY name", (continent,)
    )
    listed = table(
        ("Country", "Capital", "Population"),
        (
            (
                link(f"/country/{row['code']}", row["name"]),
                escape(row["capital"]),
                f"{row['population']:,}",
            )
            for row in rows
        ),
        f"Countries of {continent}",
    )
    return f"Countries of {continent}", ways + listed


def country(request: Request) -> Page:
    row = store.country(request.base, request.arguments[0])
    if row is None:
        return None
    codes = [code for code in row["neighbours"].split(",") if code]
    neighbours = [found for code in codes if (found := store.country(request.base, code))]
    about = facts(
        [
            ("Capital", escape(row["capital"])),
            ("Continent", escape(row["continent"])),
            ("Population", f"{row['population']:,}"),
            ("Area", f"{row['area_km2']:,} km²"),
            ("Currency", escape(row["currency"])),
            ("Telephone prefix", escape(f"+{row['phone'].lstrip('+')}")),
            (
                "Neighbours",
                ", ".join(link(f"/country/{other['code']}", other["name"]) for other in neighbours)
                or "none",
            ),
        ]
    )
    cities = table(
        ("Place", "Population"),
        (
            (place_link(city), f"{city['population']:,}")
            for city in store.largest(request.base, row["code"], 10)
        ),
        "The largest towns",
    )
    return row["name"], about + cities


def login_form(request: Request) -> tuple[str, str]:
    inner = field("User name", "login", request.text("login")) + field(
        "Password", "password", kind="password"
    )
    return "Log in", form("/login", inner, "Log in")
