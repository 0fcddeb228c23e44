"""Runs to look at, servers that show them, and a browser that notes all that goes wrong in it."""

import os
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from palestra.envs.web.browser import find_chromium
from tests.support.viewed import viewing

if find_spec("axe_playwright_python") is None:  # `make test-browser` brings it
    collect_ignore_glob = ["test_*.py"]

FLAGS = [
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync"),
]
WIDE, NARROW = 1440, 390


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)
            item.add_marker(
                pytest.mark.timeout(300)
            )  # the first one trains the runs that all look at


@pytest.fixture(scope="package")  # its event loop would be in the way of other tests'
def chromium():
    """One browser with an empty profile; every page gets a context of its own."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # of a busy machine; what is there is found at once
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as home:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=FLAGS, env={**os.environ, "HOME": home}
        )
        yield browser
        browser.close()


class Visitor:
    """A page of the viewer, and what went wrong in it."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.troubles = []
        self.forgiven = []
        """Parts of messages that a test expects."""
        page.on(
            "dialog",
            lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()),
        )
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def _heard(self, message):
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def _asked(self, request):
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.troubles.append(f"left the server: {request.url}")

    def go(self, place=""):
        """To a place after the hash; None is the address itself."""
        self.page.goto(self.address if place is None else f"{self.address}/#/{place}")
        return self.page

    def check(self):
        left = [
            trouble
            for trouble in self.troubles
            if not any(part in trouble for part in self.forgiven)
        ]
        assert left == []

    @property
    def overflow(self):
        """Pixels that the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )


@pytest.fixture
def visit(chromium):
    """`visit(server, place)` opens a page of the viewer; after the test nothing may have gone wrong
    in it.
    """
    with ExitStack() as contexts:
        visitors = []

        def begin(server, place="", *, width=WIDE, scheme="light", **options):
            context = chromium.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,
                reduced_motion="reduce",
                **options,
            )
            contexts.callback(context.close)
            context.set_default_timeout(20_000)
            visitor = Visitor(context.new_page(), getattr(server, "address", server))
            visitors.append(visitor)
            visitor.go(place)
            return visitor

        yield begin
        for visitor in visitors:
            visitor.check()


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two seeds of a tiny run on BabyAI, and a third run of another algorithm."""
    from tests.browser.runs import trained_runs

    return trained_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def server(runs):
    with viewing(*runs) as running:
        yield running
