"""Make the code host's repository: `python -m code_host.seed` fills `$SITE_BASE`."""

import hashlib
import json
import os
import random
import sqlite3
import subprocess
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from . import fossil
from .artifacts import Records
from .content import FORUM, REMARKS, SEEN, TICKETS, WIKI, WISHES
from .source import BRANCH, Commit, commits

FOLDER = Path(__file__).parent
START = datetime(2025, 1, 7, 9, 12)
PROJECT = hashlib.sha1(b"tidewatch", usedforsecurity=False).hexdigest()
"""Fossil draws it by chance; passwords are hashed with it."""
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0")
ANYBODY = "hjorz2"
"""The rights of a visitor without a login: read everything."""


def seed(out: Path) -> None:
    records = Records()
    chance = random.Random(5)
    _add_source(records, chance)
    _add_wiki(records, chance)
    _add_tickets(records, chance)
    _add_forum(records, chance)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch, "draft.fossil")
        _fossil(scratch, "init", "--admin-user", "mira", "--project-name", "Tidewatch", str(draft))
        records.write(draft)
        _configure(draft)
        _fossil(scratch, "rebuild", "--quiet", "--noindex", str(draft))
        _settle(draft, out)


def _fossil(home: str, *arguments: str) -> None:
    subprocess.run(  # noqa: S603
        ["fossil", *arguments],  # noqa: S607
        env=os.environ | {"HOME": home, "FOSSIL_HOME": home},
        capture_output=True,
        check=True,
    )


def _add_source(records: Records, chance: random.Random) -> None:
    """The trunk, and a branch that leaves it before the last commits and is not merged yet."""
    texts: dict[str, str] = {}
    moment, parent, branched = START, "", ""
    branch_texts: dict[str, str] = {}
    trunk = commits("trunk")
    for number, commit in enumerate(trunk):
        tags = [f"+sym-{commit.tag} *"] if commit.tag else []
        tags += [] if parent else ["*branch * trunk", "*sym-trunk *"]
        parent = _check_in(records, texts, moment, commit, parent, tags)
        if number == len(trunk) - 6:
            branched, branch_texts = parent, dict(texts)
        moment += timedelta(hours=chance.randint(40, 110), minutes=chance.randint(0, 59))
    moment -= timedelta(days=12)
    tags = [f"*branch * {BRANCH}", f"*sym-{BRANCH} *", "-sym-trunk *"]
    for commit in commits(BRANCH):
        branched = _check_in(records, branch_texts, moment, commit, branched, tags)
        moment, tags = moment + timedelta(hours=chance.randint(20, 60)), []


def _check_in(
    records: Records,
    texts: dict[str, str],
    moment: datetime,
    commit: Commit,
    parent: str,
    tags: list[str],
) -> str:
    for path, text in commit.added.items():
        texts[path] = texts.get(path, "") + text
    files = {path: records.add(text.encode()) for path, text in texts.items()}
    in_order = sorted(tags, key=lambda tag: (tag[1:], tag[0]))  # fossil wants them by name
    return records.checkin(
        moment, commit.user, commit.comment, files, [parent] if parent else [], in_order
    )


def _add_wiki(records: Records, chance: random.Random) -> None:
    moment = START + timedelta(days=2)
    for title, user, text in WIKI:
        records.wiki(moment, user, title, text)
        moment += timedelta(hours=chance.randint(50, 180))


def _add_tickets(records: Records, chance: random.Random) -> None:
    """Older tickets are more often closed than newer ones."""
    moment = START + timedelta(days=9, hours=3)
    for number, (kind, subsystem, severity, title) in enumerate(TICKETS):
        ticket = hashlib.sha1(title.encode(), usedforsecurity=False).hexdigest()
        version = VERSIONS[min(number // 10, 4)]
        text = chance.choice(WISHES if kind == "Feature_Request" else SEEN).format(version=version)
        priority = chance.choice(("High", "Medium", "Medium", "Low"))
        author = chance.choice(("sam", "lena", "oskar", "priya"))
        first = {
            "title": title,
            "type": kind,
            "subsystem": subsystem,
            "severity": severity,
            "priority": priority,
            "foundin": version,
        }
        said = {"icomment": text, "mimetype": "text/plain", "login": author, "username": author}
        records.ticket(
            moment, author, ticket, first | said | {"status": "Open", "resolution": "Open"}
        )
        later = moment + timedelta(hours=chance.randint(3, 30))
        developer = chance.choice(("mira", "jonas", "priya", "oskar"))
        if chance.random() < 0.5:
            remark = {
                "icomment": chance.choice(REMARKS),
                "mimetype": "text/plain",
                "login": developer,
                "username": developer,
            }
            records.ticket(later, developer, ticket, remark)
        if chance.random() < 0.75 - number / 80:
            status, resolution = chance.choice(
                (
                    ("Closed", "Fixed"),
                    ("Closed", "Fixed"),
                    ("Closed", "Works_As_Designed"),
                    ("Fixed", "Fixed"),
                )
            )
            records.ticket(
                later + timedelta(days=2),
                developer,
                ticket,
                {"status": status, "resolution": resolution},
            )
        moment += timedelta(hours=chance.randint(20, 70), minutes=chance.randint(0, 59))


def _add_forum(records: Records, chance: random.Random) -> None:
    moment = START + timedelta(days=60)
    for user, title, text, replies in FORUM:
        thread = records.post(moment, user, text, title=title)
        last = thread
        answered = moment
        for author, answer in replies:
            answered += timedelta(hours=chance.randint(1, 30), minutes=chance.randint(0, 59))
            last = records.post(answered, author, answer, thread=thread, reply_to=last)
        moment += timedelta(days=chance.randint(3, 9), minutes=chance.randint(0, 59))


def _configure(repository: Path) -> None:
    """Users, rights and appearance, and no background work of fossil's own."""
    settings = {
        "project-code": PROJECT,
        "server-code": PROJECT[::-1],
        "project-description": "Tide tables for small harbours",
        # fossil's own footer says how long the page took
        "footer": "<div class='footer'>Tidewatch is hosted with Fossil.</div>\n",
        "index-page": "/wiki?name=Tidewatch",
        "mainmenu": (FOLDER / "templates" / "main_menu.txt").read_text(),
        "ticket-common": (FOLDER / "templates" / "ticket_common.th1").read_text(),
        "ticket-newpage": (FOLDER / "templates" / "ticket_new.html").read_text(),
        "ticket-editpage": (FOLDER / "templates" / "ticket_edit.html").read_text(),
        **dict.fromkeys(
            (
                "search-ci",
                "search-doc",
                "search-tkt",
                "search-wiki",
                "search-forum",
                "backoffice-disable",
            ),
            "1",
        ),
        **dict.fromkeys(
            ("auto-hyperlink", "access-log", "admin-log", "auto-captcha", "autosync"), "0"
        ),
    }
    base = sqlite3.connect(repository)
    with base:
        base.executemany(
            "REPLACE INTO config (name, value, mtime) VALUES (?, ?, 0)", settings.items()
        )
        base.execute(
            "DELETE FROM user WHERE login NOT IN ('nobody', 'anonymous', 'developer', 'reader')"
        )
        base.execute("UPDATE user SET pw = '0' WHERE login = 'anonymous'")
        base.execute("UPDATE user SET cap = ? WHERE login = 'nobody'", (ANYBODY,))
        for login, user in json.loads((FOLDER / "users.json").read_text()).items():
            secret = hashlib.sha1(
                f"{PROJECT}/{login}/{user['password']}".encode(), usedforsecurity=False
            ).hexdigest()
            base.execute(
                "INSERT INTO user (login, pw, cap, info) VALUES (?, ?, ?, ?)",
                (login, secret, user["rights"], user["name"]),
            )
        _add_report(base, "Open tickets", "status IN ('Open', 'Verified', 'Review')", "tkt_ctime")
        _add_report(
            base,
            "Open defects by severity",
            "status = 'Open' AND type = 'Code_Defect'",
            "severity, tkt_ctime",
        )
    base.close()


def _add_report(base: sqlite3.Connection, title: str, where: str, order: str) -> None:
    query = (
        "SELECT substr(tkt_uuid, 1, 10) AS '#', type, status, severity, priority, subsystem, title"  # noqa: S608
        f" FROM ticket WHERE {where} ORDER BY {order}"
    )
    base.execute(
        "INSERT INTO reportfmt (owner, title, mtime, cols, sqlcode) VALUES ('mira', ?, 0, '', ?)",
        (title, query),
    )


def _settle(repository: Path, out: Path) -> None:
    """Remove the creation time and the machine's name."""
    out.unlink(missing_ok=True)
    base = sqlite3.connect(repository)
    with base:
        base.execute("UPDATE config SET mtime = 0")
        base.execute("UPDATE reportfmt SET mtime = 0")
        base.execute("UPDATE user SET mtime = 0")
        base.execute("UPDATE rcvfrom SET mtime = 2460000.5, ipaddr = NULL, nonce = NULL")
        base.execute("DELETE FROM config WHERE name IN ('last-sync-url', 'repository')")
        base.execute("DELETE FROM unsent")
    base.execute("VACUUM INTO ?", (str(out),))
    base.close()


if __name__ == "__main__":
    base_file = Path(os.environ["SITE_BASE"], "base.sqlite3")
    seed(base_file)
    fossil.check(fossil.install(base_file.parent), fossil.faketime(), base_file)
