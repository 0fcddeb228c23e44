"""The code host's bridge to fossil and the records that its repository is made of, as far as they go without fossil."""

import hashlib
import io
import json
import sqlite3
import zlib
from datetime import datetime

import pytest

from palestra.sites.code_host.app import login, reply, request
from palestra.sites.code_host.artifacts import Records, escaped
from palestra.sites.code_host.seed import FOLDER
from palestra.sites.code_host.source import BRANCH, commits

NOON = datetime(2025, 1, 7, 12, 0)


def test_a_request_goes_to_fossil_as_it_was_sent():
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/wiki/Caf\u00c3\u00a9 au lait",  # UTF-8 as latin-1, as WSGI has it
        "QUERY_STRING": "a=1&b=%20",
        "CONTENT_LENGTH": "3",
        "CONTENT_TYPE": "text/plain",
        "HTTP_HOST": "code.test",
        "HTTP_CONNECTION": "keep-alive",
        "wsgi.input": io.BytesIO(b"x=1 and more"),
    }
    head, _, body = request(environ).partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert first == b"POST /wiki/Caf%C3%A9%20au%20lait?a=1&b=%20 HTTP/1.0"
    assert sorted(headers) == [b"Content-Length: 3", b"Content-Type: text/plain", b"Host: code.test"]
    assert body == b"x=1"


def test_a_reply_is_taken_apart():
    output = b"HTTP/1.0 302 Moved\r\nLocation: /wiki\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi\r\n\r\n"
    assert reply(output) == ("302 Moved", [("Location", "/wiki")], b"hi\r\n\r\n")
    assert reply(b"")[0] == ""


def test_a_wiki_page_is_cards_with_a_checksum():
    records = Records()
    name = records.wiki(NOON, "mira", "Style guide", "Be\nbrief.")
    cards = b"D 2025-01-07T12:00:00.000\nL Style\\sguide\nN text/x-markdown\nU mira\nW 9\nBe\nbrief.\n"
    assert records.contents[name] == cards + f"Z {hashlib.md5(cards).hexdigest()}\n".encode()
    assert name == hashlib.sha3_256(records.contents[name]).hexdigest()
    assert escaped("a b\\c\n") == "a\\sb\\\\c\\n"


def test_a_reply_in_the_forum_knows_its_thread():
    records = Records()
    thread = records.post(NOON, "sam", "Which?", title="Which harbour?")
    answer = records.post(NOON, "oskar", "That one.", thread=thread, reply_to=thread)
    assert b"H Which\\sharbour?\n" in records.contents[thread]
    assert f"G {thread}\nI {thread}\n".encode() in records.contents[answer]


def test_records_are_written_in_their_order(tmp_path):
    records = Records()
    names = [records.add(content) for content in (b"one", b"two")]
    file = tmp_path / "repository"
    base = sqlite3.connect(file)
    base.execute("CREATE TABLE blob (rid, rcvid, size, uuid, content)")
    base.close()
    records.write(file)
    rows = sqlite3.connect(file).execute("SELECT rid, uuid, content FROM blob ORDER BY rid").fetchall()
    # four bytes for the length, then zlib
    assert [(rid, name, zlib.decompress(content[4:]), content[:4]) for rid, name, content in rows] == [
        (1, names[0], b"one", b"\0\0\0\3"),
        (2, names[1], b"two", b"\0\0\0\3"),
    ]


def test_every_commit_is_by_a_user_and_changes_a_file():
    users = json.loads((FOLDER / "users.json").read_text())
    for branch in ("trunk", BRANCH):
        for commit in commits(branch):
            assert commit.user in users
            assert commit.added
            assert all(text.strip() for text in commit.added.values())
    assert [commit.tag for commit in commits("trunk") if commit.tag] == ["v0.1.0", "v0.2.0", "v0.3.0", "v0.4.0", "v0.5.0"]


def test_nobody_is_logged_in_who_has_no_password(tmp_path):
    file = tmp_path / "repository"
    base = sqlite3.connect(file)
    base.executescript(
        "CREATE TABLE config (name, value); INSERT INTO config VALUES ('project-code', '0123456789abcdef0123');"
        "CREATE TABLE user (login, pw, cookie, cexpire); INSERT INTO user VALUES ('nobody', '', NULL, NULL), ('mira', 'hash', NULL, NULL)"
    )
    base.close()
    ((name, value),) = login(file, "mira").items()
    assert name == "fossil-0123456789abcdef"
    assert value.endswith("/0123456789abcdef/mira")
    for user in ("nobody", "eve"):
        with pytest.raises(LookupError, match="no user"):
            login(file, user)
