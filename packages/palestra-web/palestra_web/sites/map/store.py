"""What the map reads from an instance's file and writes to it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .geo import Point, distance_km
from .seed import fold

PAGE = 15
"""Search results on one page."""
PLACE = (
    "SELECT place.*, country.name AS country_name FROM place "
    "JOIN country ON country.code = place.country"
)

Row = sqlite3.Row


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The database for one request. Changes are committed unless the request fails."""
    connection = sqlite3.connect(file)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode=MEMORY")
    connection.execute("PRAGMA synchronous=OFF")
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def point(place: Row) -> Point:
    return place["latitude"], place["longitude"]


def full_name(place: Row) -> str:
    return ", ".join(
        part for part in (place["name"], place["region"], place["country_name"]) if part
    )


def search(base: sqlite3.Connection, text: str, country: str, page: int) -> tuple[list[Row], int]:
    """One page of places whose name has the text in it, the most likely first, and how many there
    are.
    """
    folded = fold(text)
    where = "instr(place.folded, :text) AND (:country = '' OR place.country = :country)"
    values = {"text": folded, "country": country, "offset": (page - 1) * PAGE, "page": PAGE}
    (count,) = base.execute(f"SELECT count(*) FROM place WHERE {where}", values).fetchone()  # noqa: S608
    order = (
        "place.folded = :text DESC, instr(place.folded, :text) = 1 DESC, place.population DESC, "
        "place.id"
    )
    rows = base.execute(
        f"{PLACE} WHERE {where} ORDER BY {order} LIMIT :page OFFSET :offset", values
    ).fetchall()
    return rows, count


def named(base: sqlite3.Connection, text: str) -> list[Row]:
    """Places that match "Paris" or "Paris, Texas, United States", the largest first."""
    name, *qualifiers = [fold(part) for part in text.split(",")]
    if not name:
        return []
    rows = base.execute(
        f"{PLACE} WHERE place.folded = ? ORDER BY place.population DESC, place.id", (name,)
    ).fetchall()
    if not rows:
        rows = base.execute(
            f"{PLACE} WHERE place.folded LIKE ? || '%' ORDER BY place.population DESC LIMIT 10",
            (name,),
        ).fetchall()
    fitting: list[Row] = []
    for row in rows:
        names = {fold(row["region"]), fold(row["country_name"]), fold(row["country"])}
        if names.issuperset(qualifiers):
            fitting.append(row)
    return fitting


def place(base: sqlite3.Connection, place_id: int) -> Row | None:
    row: Row | None = base.execute(f"{PLACE} WHERE place.id = ?", (place_id,)).fetchone()
    return row


def country(base: sqlite3.Connection, code: str) -> Row | None:
    row: Row | None = base.execute("SELECT * FROM country WHERE code = ?", (code,)).fetchone()
    return row


def largest(base: sqlite3.Connection, code: str, count: int) -> list[Row]:
    return base.execute(
        f"{PLACE} WHERE place.country = ? ORDER BY place.population DESC LIMIT ?", (code, count)
    ).fetchall()


def nearby(
    base: sqlite3.Connection, center: Row, within_km: float, population: int, count: int
) -> list[tuple[float, Row]]:
    """The nearest other places with at least this population, and their distances."""
    degrees = within_km / 111
    rows = base.execute(
        f"{PLACE} WHERE place.latitude BETWEEN ? AND ? AND place.population >= ? AND place.id != ?",
        (center["latitude"] - degrees, center["latitude"] + degrees, population, center["id"]),
    )
    distances = [(distance_km(point(center), point(row)), row) for row in rows]
    far = sorted(distances, key=lambda pair: (pair[0], pair[1]["id"]))
    return [(km, row) for km, row in far if km <= within_km][:count]


def lists(base: sqlite3.Connection, user_id: int) -> list[Row]:
    return base.execute(
        "SELECT list.*, count(list_item.id) AS places FROM list "
        "LEFT JOIN list_item ON list_item.list = list.id WHERE list.user = ? GROUP BY list.id "
        "ORDER BY list.id",
        (user_id,),
    ).fetchall()


def own_list(base: sqlite3.Connection, user_id: int, list_id: int) -> Row | None:
    row: Row | None = base.execute(
        "SELECT * FROM list WHERE id = ? AND user = ?", (list_id, user_id)
    ).fetchone()
    return row


def items(base: sqlite3.Connection, list_id: int) -> list[Row]:
    return base.execute(
        "SELECT list_item.id AS item, list_item.note, place.*, country.name AS country_name "
        "FROM list_item JOIN place ON place.id = list_item.place "
        "JOIN country ON country.code = place.country WHERE list_item.list = ? "
        "ORDER BY list_item.id",
        (list_id,),
    ).fetchall()


def routes(base: sqlite3.Connection, user_id: int) -> list[Row]:
    return base.execute("SELECT * FROM route WHERE user = ? ORDER BY id", (user_id,)).fetchall()
