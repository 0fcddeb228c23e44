"""Tests that need the self-hosted sites: `make test-sites` runs them. The first run installs and
seeds them, which takes minutes.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

if find_spec("playwright") is None:  # the extra `web` brings it
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/sites" in str(item.path):
            item.add_marker(pytest.mark.sites)


def palestra(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "palestra", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def sites():
    """Those that are up already stay up."""
    from palestra_web.client import Sites, SitesDown

    try:
        Sites.find()
        was_up = True
    except SitesDown:
        was_up = False
    palestra("web", "up")
    yield Sites.find()
    if not was_up:
        palestra("web", "down")


@pytest.fixture
def instance(sites):
    made = sites.open()
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def no_browser_is_left():
    yield
    from palestra.envs.web.browser import close_browsers

    close_browsers()
