"""The code host's bridge to fossil and the records that its repository is made of, as far as they
go without fossil.
"""

import hashlib
import io
import json
import re
import shutil
import sqlite3
import tempfile
import zlib
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from palestra_web.sites import django_common
from palestra_web.sites.code_host import fossil
from palestra_web.sites.code_host.app import Application, login, present, reply, request
from palestra_web.sites.code_host.artifacts import Records, escaped
from palestra_web.sites.code_host.seed import FOLDER, seed
from palestra_web.sites.code_host.source import BRANCH, commits

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
    assert sorted(headers) == [
        b"Content-Length: 3",
        b"Content-Type: text/plain",
        b"Host: code.test",
    ]
    assert body == b"x=1"


def test_a_reply_is_taken_apart():
    output = (
        b"HTTP/1.0 302 Moved\r\nLocation: /wiki\r\nConnection: close\r\nContent-Length: 2\r\n"
        b"\r\nhi\r\n\r\n"
    )
    assert reply(output) == ("302 Moved", [("Location", "/wiki")], b"hi\r\n\r\n")
    assert reply(b"")[0] == ""


def test_a_wiki_page_is_cards_with_a_checksum():
    records = Records()
    name = records.wiki(NOON, "mira", "Style guide", "Be\nbrief.")
    cards = (
        b"D 2025-01-07T12:00:00.000\nL Style\\sguide\nN text/x-markdown\nU mira\nW 9\nBe\nbrief.\n"
    )
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
    rows = (
        sqlite3.connect(file).execute("SELECT rid, uuid, content FROM blob ORDER BY rid").fetchall()
    )
    # four bytes for the length, then zlib
    assert [
        (rid, name, zlib.decompress(content[4:]), content[:4]) for rid, name, content in rows
    ] == [
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
    assert [commit.tag for commit in commits("trunk") if commit.tag] == [
        "v0.1.0",
        "v0.2.0",
        "v0.3.0",
        "v0.4.0",
        "v0.5.0",
    ]


@pytest.fixture
def users(tmp_path):
    file = tmp_path / "repository"
    base = sqlite3.connect(file)
    base.executescript(
        "CREATE TABLE config (name, value); INSERT INTO config VALUES ('project-code', "
        "'0123456789abcdef0123');"
        "CREATE TABLE user (login, pw, cookie, cexpire); INSERT INTO user VALUES "
        "('nobody', '', NULL, NULL), ('mira', 'hash', NULL, NULL);"
        "CREATE TABLE rcvfrom (rcvid); INSERT INTO rcvfrom VALUES (1)"
    )
    base.close()
    return file


def test_nobody_is_logged_in_who_has_no_password(users):
    ((name, value),) = login(users, "mira").items()
    assert name == "fossil-0123456789abcdef"
    assert re.fullmatch(r"[0-9A-F]{50}/0123456789abcdef/mira", value)
    for user in ("nobody", "eve"):
        with pytest.raises(LookupError, match="no user"):
            login(users, user)


def test_a_session_is_the_same_in_every_episode_of_a_seed(users):
    found = []
    for task in ("code-new-ticket/0", "code-new-ticket/0", "code-new-ticket/1"):
        (users.parent / "seed").write_text(task)
        found.append(
            (
                login(users, "mira"),
                sqlite3.connect(users).execute("SELECT cookie, cexpire FROM user").fetchall(),
            )
        )
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]


def test_an_episodes_time_and_chance_move_on_with_what_is_written(users):
    before = present(users)
    assert present(users) == before
    with sqlite3.connect(users) as base:
        base.execute("INSERT INTO rcvfrom VALUES (2)")
    after = present(users)
    assert (after[0] - before[0]).total_seconds() == 60
    assert after[1] != before[1]
    (users.parent / "seed").write_text("code-new-ticket/0")
    assert present(users)[0] == after[0]
    assert present(users)[1] not in (before[1], after[1])


def test_the_present_is_that_of_the_other_sites():
    clock = Path(django_common.__file__).with_name("clock.py").read_text()
    assert f"NOW = datetime({fossil.NOW:%Y, %-m, %-d, %-H}, 0, tzinfo=UTC)" in clock


def test_the_programs_random_numbers_are_a_file_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install fossil"):
        fossil.install(tmp_path)
    machines = tmp_path / "fossil"
    machines.write_bytes(b'ELF...\0Device "/dev/urandom" is missing\0/dev/urandom\0...')
    machines.chmod(0o700)
    (tmp_path / "base").mkdir()
    ours = fossil.install(tmp_path / "base")
    assert ours.read_bytes() == b'ELF...\0Device "/dev/urandom" is missing\0.dev/urandom\0...'
    # Other words of the program may be the end of that name, and are left as they are.
    changed = [
        one
        for one, other in zip(machines.read_bytes(), ours.read_bytes(), strict=True)
        if one != other
    ]
    assert changed == [*b"/"]
    assert [file.name for file in ours.parent.iterdir()] == ["fossil"]
    machines.write_bytes(b"ELF...")
    with pytest.raises(SystemExit, match="does not name /dev/urandom"):
        fossil.install(tmp_path / "base")


def test_the_clock_is_a_library_beside_its_program(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(SystemExit, match="apt-get install faketime"):
        fossil.faketime()
    (tmp_path / "bin" / "faketime").touch(0o700)
    with pytest.raises(SystemExit, match=r"libfaketime\.so\.1 does not lie beside"):
        fossil.faketime()
    library = tmp_path / "lib" / "faketime" / "libfaketime.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert fossil.faketime() == library


# With the programs themselves.

REAL = pytest.mark.skipif(
    not all(map(shutil.which, ("fossil", "faketime"))), reason="needs fossil and faketime"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    seed(base / "base.sqlite3")
    return Application(base), base / "base.sqlite3"


class Episode:
    """Somebody who uses an instance of their own."""

    def __init__(self, host, folder, seed):
        self.application, base = host
        folder.mkdir()
        self.file = folder / "code.sqlite3"
        shutil.copyfile(base, self.file)
        (folder / "seed").write_text(seed)
        self.cookies = login(self.file, "priya")
        self.seen = []

    def ask(self, path, **form):
        place, _, query = path.partition("?")
        body = urlencode(form).encode()
        environ = {
            **{
                "REQUEST_METHOD": "POST" if form else "GET",
                "PATH_INFO": place,
                "QUERY_STRING": query,
                "HTTP_HOST": "code.test",
            },
            **{
                "CONTENT_LENGTH": str(len(body)),
                "CONTENT_TYPE": "application/x-www-form-urlencoded" if form else "",
            },
            **{
                "HTTP_COOKIE": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
                "wsgi.input": io.BytesIO(body),
            },
            **({"HTTP_REFERER": f"http://code.test{place}"} if form else {}),
        }
        begun = []
        (body,) = self.application(
            self.file, environ, lambda status, headers: begun.extend((status, headers))
        )
        self.seen.append((*begun, body))
        return body.decode()

    def ticket(self, title):
        """File one, and give its id."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.ask("/tktnew"))[1]
        self.ask(
            "/tktnew",
            title=title,
            type="Incident",
            icomment="It rained.",
            csrf=token,
            submit="Submit ticket",
        )
        (id,) = re.findall(r"/tktview/(\w+)", str(self.seen[-1]))[:1]
        self.ask(f"/tktview/{id}")
        return id

    def play(self):
        """All that shows chance or time: ids, hashes, dates, ages, suggested passwords and
        captchas.
        """
        ids = [self.ticket("First"), self.ticket("Second")]
        for path in (
            "/timeline",
            "/brlist",
            "/forum",
            "/login",
            "/rptview/1",
            "/wcontent",
            "/wikiedit?name=Cache",
            "/forumnew",
        ):
            self.ask(path)
        self.cookies = {}
        self.ask("/login")
        return ids


@REAL
def test_episodes_of_one_seed_show_the_same_pages(host, tmp_path):
    one, other, third = (
        Episode(host, tmp_path / str(n), seed) for n, seed in enumerate(("a/0", "a/0", "a/1"))
    )
    ids = [one.play(), other.play(), third.play()]
    assert one.seen == other.seen
    assert ids[0] == ids[1]
    assert (
        len({*ids[0], *ids[2]}) == 4
    )  # two tickets of an episode are two, and another seed has others
    assert one.file.read_bytes() == other.file.read_bytes()
    captchas = [episode.seen[-1][-1] for episode in (one, third)]
    assert all(b"hexadecimal password" in captcha for captcha in captchas)
    assert captchas[0] != captchas[1]
    assert {status for status, *_ in one.seen} == {"200 OK", "302 Moved Temporarily"}
    pages = str(one.seen)
    assert all(words in pages for words in ("2026-06-15 10:0", "It rained.", "Suggestion"))
    assert f"{datetime.now():%Y-%m-%d}" not in pages
    assert (
        "<div id='hbdrop' data-anim-ms='0'>" in captchas[0].decode()
    )  # a menu that does not slide


@REAL
def test_a_program_whose_clock_or_chance_is_not_ours_is_refused(host, tmp_path, monkeypatch):
    application, base = host
    nothing = tmp_path / "libnothing.so"
    with pytest.raises(SystemExit, match="does not take its clock from libfaketime"):
        fossil.check(application._program, nothing, base)
    machines = Path(shutil.copy(shutil.which("fossil"), tmp_path))
    with pytest.raises(SystemExit, match="does not take its random numbers from us"):
        fossil.check(machines, application._library, base)


@REAL
def test_the_first_program_on_a_machine_shows_what_later_ones_show(host, tmp_path, monkeypatch):
    """Where nobody has run fossil before: it creates a file of settings, and draws for it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    seen = []
    for number in range(2):
        base = tmp_path / f"base-{number}"
        base.mkdir()
        shutil.copyfile(host[1], base / "base.sqlite3")
        first = Episode((Application(base), host[1]), tmp_path / f"episode-{number}", "a/0")
        first.play()
        seen.append(first.seen)
    again = Episode(host, tmp_path / "again", "a/0")
    again.play()
    assert seen == [again.seen] * 2
    assert [*temporary.iterdir()] == []
