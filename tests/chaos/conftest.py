"""One undisturbed run to compare with, and a table of what was survived."""

import time
from collections import Counter

import pytest

from tests.chaos.trainer import finish

survived: Counter[str] = Counter()
tried: Counter[str] = Counter()


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The run that nothing happened to, and how long it took after its folder was there."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = finish(folder)
    run.took_s = time.time() - (folder / "config.toml").stat().st_mtime
    return run


@pytest.fixture
def count():
    """`with count("kills"):` around each thing that is to be survived."""
    return _Count


class _Count:
    def __init__(self, what):
        self.what = what

    def __enter__(self):
        tried[self.what] += 1

    def __exit__(self, kind, *_):
        survived[self.what] += kind is None


def pytest_terminal_summary(terminalreporter):
    if tried:
        terminalreporter.section("survived")
        for what in tried:
            terminalreporter.line(f"{what:<60}{survived[what]:>5} of {tried[what]}")
