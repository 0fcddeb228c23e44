"""The map, asked in process over a file with a small world in it."""

import io
import sqlite3
from urllib.parse import urlencode

import pytest

from palestra_web.sites.map import store
from palestra_web.sites.map.app import application, login
from palestra_web.sites.map.geo import bearing, distance_km, wind
from palestra_web.sites.map.seed import SCHEMA, fold, hashed

PLACES = [
    (1, "Alto", "XA", "", 0.0, 0.0, 900_000, "Xa/Alto"),
    (2, "Bréa", "XA", "", 0.0, 1.0, 80_000, "Xa/Alto"),
    (3, "Brea", "US", "Texas", 0.0, 10.0, 60_000, "America/Chicago"),
    (4, "Cim", "XB", "", 1.0, 0.0, 500_000, "Xb/Cim"),
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "map.sqlite3"
    base = sqlite3.connect(path)
    base.executescript(SCHEMA)
    countries = [("XA", "Xandria", "XB"), ("XB", "Xbeland", "XA"), ("US", "United States", "")]
    base.executemany(
        "INSERT INTO country VALUES (?, ?, 'Nowhere', 'Alto', 5, 7, 'Crown', '9', ?)", countries
    )
    base.executemany(
        "INSERT INTO place (id, name, folded, country, region, latitude, longitude, "
        "population, timezone) VALUES (?,?,?,?,?,?,?,?,?)",
        [(place[0], place[1], fold(place[1]), *place[2:]) for place in PLACES],
    )
    base.execute(
        "INSERT INTO user (login, name, password, home) VALUES ('ada', 'Ada', ?, 1)",
        (hashed("secret", "ada"),),
    )
    base.execute(
        "INSERT INTO user (login, name, password, home) VALUES ('ben', 'Ben', ?, 1)",
        (hashed("other", "ben"),),
    )
    base.execute("INSERT INTO list (user, name) VALUES (1, 'Trips')")
    base.commit()
    base.close()
    return path


def ask(file, path, query=None, cookies=None, post=None):
    """Status, headers and body of one request."""
    body = urlencode(post or {}).encode()
    environ = {
        "REQUEST_METHOD": "GET" if post is None else "POST",
        "PATH_INFO": path,
        "QUERY_STRING": urlencode(query or {}),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_COOKIE": "; ".join(f"{name}={value}" for name, value in (cookies or {}).items()),
        "wsgi.input": io.BytesIO(body),
    }
    told = []
    (content,) = application(
        file, environ, lambda status, headers: told.extend((status, dict(headers)))
    )
    return told[0], told[1], content.decode()


def rows(file, query):
    with store.opened(file) as base:
        return [tuple(row) for row in base.execute(query)]


def test_straight_lines():
    # a degree of a great circle is 2 * pi * 6371.0088 / 360 = 111.195 km
    assert distance_km((0.0, 0.0), (0.0, 1.0)) == pytest.approx(111.195, abs=0.001)
    assert [wind(bearing((0.0, 0.0), end)) for end in ((1.0, 0.0), (0.0, 1.0), (-1.0, -1.0))] == [
        "north",
        "east",
        "south-west",
    ]


def test_search_does_not_mind_accents(file):
    _, _, page = ask(file, "/search", {"q": "BREA"})
    assert "2 places found" in page
    assert page.index("Bréa, Xandria") < page.index("Brea, Texas, United States")
    assert "1 place found" in ask(file, "/search", {"q": "brea", "country": "US"})[2]


def test_a_route_goes_by_way_of_a_place_and_says_what_else_was_meant(file):
    _, _, page = ask(file, "/route", {"from": "Alto", "via": "Cim", "to": "Brea", "by": "plane"})
    # Alto-Cim 111 km; Cim (1, 0) to Bréa (0, 1): 157 km; together 268 km at 800 km/h: 20 minutes
    assert "Total distance</th><td>268 km" in page
    assert "20 min" in page
    assert "Brea, Texas, United States" in page
    assert "Alto to Brea" in ask(file, "/route", {"from": "Alto", "to": "Brea, United States"})[2]
    assert (
        "No place is called Atlantis" in ask(file, "/route", {"from": "Atlantis", "to": "Brea"})[2]
    )


def test_logging_in_by_the_form(file):
    status, _, page = ask(file, "/login", post={"login": "ada", "password": "wrong"})
    assert status == "200 OK"
    assert "do not fit together" in page
    status, headers, _ = ask(file, "/login", post={"login": "ada", "password": "secret"})
    name, _, value = headers["Set-Cookie"].partition(";")[0].partition("=")
    assert status.startswith("303")
    assert "Trips" in ask(file, "/lists", cookies={name: value})[2]


def test_places_are_saved_for_their_owner_alone(file):
    mine, theirs = login(file, "ada"), login(file, "ben")
    assert ask(file, "/place/4/save", post={"list": "1", "note": "x"})[1]["Location"] == "/login"
    ask(file, "/place/4/save", cookies=theirs, post={"list": "1", "note": "not theirs"})
    ask(file, "/place/4/save", cookies=mine, post={"list": "1", "note": "<b>mine</b>"})
    assert rows(file, "SELECT list, place, note FROM list_item") == [(1, 4, "<b>mine</b>")]
    page = ask(file, "/list/1", cookies=mine)[2]
    assert "&lt;b&gt;mine" in page
    assert "<b>mine" not in page
    assert ask(file, "/list/1", cookies=theirs)[0] == "404 Not Found"
    ask(file, "/item/1/remove", cookies=theirs, post={})
    assert rows(file, "SELECT count(*) FROM list_item") == [(1,)]
    ask(file, "/item/1/remove", cookies=mine, post={})
    assert rows(file, "SELECT count(*) FROM list_item") == [(0,)]


def test_miles_are_a_setting(file):
    mine = login(file, "ada")
    ask(file, "/settings", cookies=mine, post={"name": "Ada", "home": "Cim", "units": "miles"})
    assert rows(file, "SELECT units, home FROM user WHERE login = 'ada'") == [("miles", 4)]
    assert (
        "69 miles" in ask(file, "/route", {"from": "Alto", "to": "Bréa, Xandria"}, cookies=mine)[2]
    )


@pytest.mark.parametrize("path", ["/place/999", "/country/ZZ", "/nowhere", "/place/" + "9" * 40])
def test_what_there_is_not(file, path):
    assert ask(file, path)[0] == "404 Not Found"
