"""Tests that need Chromium: `make test-browser` runs them."""

from importlib.util import find_spec

import pytest

if find_spec("playwright") is None:  # the extra `web` brings it
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/web" in str(item.path):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def site():
    from tests.web.pages import serving

    with serving() as host:
        yield host


@pytest.fixture(scope="session", autouse=True)
def no_browser_is_left():
    yield
    from palestra.envs.web.browser import close_browsers

    close_browsers()
