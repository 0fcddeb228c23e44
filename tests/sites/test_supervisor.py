"""`palestra web`: up, down, and what happens when processes are killed. Beside the sites of the
other tests, on the same bases.
"""

import http.client
import json
import os
import signal
import time
from pathlib import Path

import pytest

from palestra_web.sites.catalogue import cache_folder
from tests.sites.conftest import palestra


@pytest.fixture
def own(sites, tmp_path, monkeypatch):
    """A cache of its own, in which all is made already."""
    made = cache_folder()
    (tmp_path / "web").mkdir()
    for name in ("environments", "bases"):
        (tmp_path / "web" / name).symlink_to(made / name)
    monkeypatch.setenv("PALESTRA_CACHE", str(tmp_path))
    yield tmp_path / "web"
    palestra("web", "down")


def status():
    return json.loads(palestra("web", "status", "--json"))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds, seconds=15.0):
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        time.sleep(0.1)


def answers(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 400
    except OSError:
        return False


def test_up_is_idempotent_adds_sites_and_down_leaves_nothing(own):
    said = palestra("web", "up", "--only", "map")
    assert "http://map.test/" in said
    first = status()
    assert answers(first["sites"]["map"]["port"])
    assert (own / "up.json").stat().st_mode & 0o777 == 0o600
    palestra("web", "up", "--only", "map")
    assert status()["pid"] == first["pid"]
    palestra("web", "up", "--only", "forum")
    both = status()
    assert set(both["sites"]) == {"forum", "map"}
    pids = [both["pid"], *(site["pid"] for site in both["sites"].values())]
    palestra("web", "down")
    assert not any(is_alive(pid) for pid in [first["pid"], *pids])
    assert not (own / "up.json").exists()
    assert not (own / "instances").exists()


def test_a_site_that_is_killed_comes_back_at_its_address(own):
    palestra("web", "up", "--only", "map")
    site = status()["sites"]["map"]
    os.kill(site["pid"], signal.SIGKILL)
    wait_until(lambda: answers(site["port"]))
    again = status()["sites"]["map"]
    assert (again["port"], again["starts"]) == (site["port"], 2)


def test_sites_end_with_a_supervisor_that_is_killed(own):
    palestra("web", "up", "--only", "map,shop")
    up = status()
    pids = [site["pid"] for site in up["sites"].values()]
    os.kill(up["pid"], signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    palestra("web", "up", "--only", "map")  # the file that it left behind is no hindrance
    assert status()["pid"] != up["pid"]
