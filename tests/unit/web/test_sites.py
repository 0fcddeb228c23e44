"""The self-hosted sites, as far as they can be tried without being up."""

import ast
import json
import socket
import sqlite3
import sys
from pathlib import Path

import pytest

from palestra.cli.main import main
from palestra.core.errors import UserError
from palestra_web.client import Change, Instance, Sites, SitesDown
from palestra_web.seeds import seed_rows, seed_users
from palestra_web.sites import building
from palestra_web.sites.catalogue import SITES, SOURCE, cache_folder
from palestra_web.sites.wsgi_common import instance


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PALESTRA_CACHE", str(tmp_path))
    return tmp_path / "web"


def database(path, script):
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return str(path)


def test_without_a_supervisor_the_user_is_told_what_to_run(cache, capsys):
    with pytest.raises(SitesDown, match="run `palestra web up`"):
        Sites.find()
    main(["web", "status"])
    assert "palestra web up" in capsys.readouterr().out
    main(["web", "down"])
    assert "no sites are up" in capsys.readouterr().out


def test_a_supervisor_that_was_killed_is_as_good_as_none(cache, capsys):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    cache.mkdir()
    (cache / "up.json").write_text(
        json.dumps({"control": f"http://127.0.0.1:{port}", "pid": 1, "token": "x", "sites": {}})
    )
    with pytest.raises(SitesDown, match="do not answer"):
        Sites.find().open()
    main(["web", "status", "--json"])
    assert json.loads(capsys.readouterr().out) is None


def test_an_unknown_site_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["web", "up", "--only", "shop,nowhere"])
    assert stopped.value.code == 2
    assert "nowhere: there is no such site; there are: " in capsys.readouterr().err


def test_a_missing_program_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="code needs fossil: apt-get install fossil"):
        building.need_program("fossil", "code", print)


def test_a_missing_program_is_installed_where_that_may_be_done(tmp_path, monkeypatch):
    told = []
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / "apt-get").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = update ] || cp /bin/true '
        f"{tmp_path}/no-such-program\n"
    )
    (tmp_path / "apt-get").chmod(0o755)
    for _ in range(2):
        building.need_program("no-such-program", "code", told.append)
    assert (
        (tmp_path / "asked").read_text()
        == "update --quiet\ninstall --yes --quiet --no-install-recommends no-such-program\n"
    )
    assert told == ["code: installing no-such-program (apt-get)"]


def test_changes_are_rows_added_and_removed_but_not_who_has_looked(tmp_path):
    tables = (
        "CREATE TABLE item (id, name); CREATE TABLE django_session (id); CREATE TABLE user "
        "(id, last_login);"
    )
    seed = database(
        tmp_path / "seed.sqlite3",
        tables + "INSERT INTO item VALUES (1, 'a'), (2, 'b'); INSERT INTO user VALUES (1, NULL)",
    )
    now = database(
        tmp_path / "now.sqlite3",
        tables + "INSERT INTO item VALUES (1, 'a'), (2, 'c'), (3, NULL); INSERT INTO user VALUES "
        "(1, 'today');"
        "INSERT INTO django_session VALUES (9)",
    )
    own = Instance(Sites("", "", {}), "0" * 16, {"shop": now}, {"shop": seed})
    change = Change(
        "item",
        removed=[{"id": 2, "name": "b"}],
        added=[{"id": 2, "name": "c"}, {"id": 3, "name": None}],
    )
    assert own.changes("shop") == [change]
    assert own.query("shop", "SELECT name FROM item WHERE id = ?", [2]) == [{"name": "c"}]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        own.query("shop", "DELETE FROM item")


def test_instances_are_known_by_their_ids_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SITE_INSTANCES", str(tmp_path))
    monkeypatch.setenv("SITE_NAME", "shop")
    name = "0123456789abcdef"
    (tmp_path / name).mkdir()
    file = Path(database(tmp_path / name / "shop.sqlite3", "CREATE TABLE t (x)"))
    assert instance.file_of(name) == file
    for other in (
        "",
        ".",
        f"../{tmp_path.name}/{name}",
        f"{name}/.",
        f"{name}\n",
        name.upper(),
        "f" * 16,
    ):
        assert instance.file_of(other) is None


@pytest.mark.parametrize("site", SITES.values(), ids=SITES)
def test_a_site_is_complete(site):
    folder = SOURCE / site.module
    pins = [
        line
        for line in (folder / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert all("==" in pin for pin in pins)
    assert (folder / "seed.py").is_file()
    assert all(user["password"] for user in seed_users(site.name).values())
    assert (
        site.module not in sys.stdlib_module_names
    )  # it would stand in its place on the sites' PYTHONPATH
    assert building.base(site).name.startswith(f"{site.name}-")


def test_what_runs_in_the_sites_own_environments_does_not_import_palestra():
    for folder in [*building.SHARED, *(site.module for site in SITES.values())]:
        for path in (SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any(name.split(".")[0] == "palestra" for name in names), path


def test_sites_processes_do_not_get_our_own_python(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "ours")
    variables = building.site_variables(SITES["shop"])
    assert (variables["PYTHONPATH"], variables["PYTHONHASHSEED"]) == (str(SOURCE), "0")
    assert "DJANGO_SETTINGS_MODULE" not in variables


def test_a_seed_that_is_not_there_is_said():
    with pytest.raises(FileNotFoundError, match="run `palestra web up --only shop`"):
        seed_rows("shop", "SELECT 1")


def test_the_cache_is_where_it_is_asked_for(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "web"
    monkeypatch.delenv("PALESTRA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/other")
    assert cache_folder() == Path("/other/palestra/web")
