"""The viewer's built page belongs to its source, and needs nothing from elsewhere.

No node is needed to know.
"""

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "viewer"
PAGE = ROOT / "palestra" / "view" / "page"
SINGLE_FILES = (
    "index.html",
    "package-lock.json",
    "package.json",
    "source-digest.ts",
    "tsconfig.json",
    "vite.config.ts",
)
BUILT = ("index.html", "app.js", "app.css")
MARKUP = (
    r"dangerouslySetInnerHTML|innerHTML|insertAdjacentHTML|document\.write|outerHTML\s*=[^=]|\beval\(|"
    r"new Function"
)
NAMESPACES = {
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/1998/Math/MathML",
    "http://www.w3.org/1999/xlink",
}
"""Names that look like addresses; nothing is fetched from them."""


def source_digest():
    """As viewer/source-digest.ts computes it."""
    names = sorted(
        [
            *SINGLE_FILES,
            *(
                path.relative_to(SOURCE).as_posix()
                for path in (SOURCE / "src").rglob("*")
                if path.is_file()
            ),
        ]
    )
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (SOURCE / name).read_bytes() + b"\0")
    return digest.hexdigest()


def built(name):
    return (PAGE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BUILT)
def test_the_page_is_built_from_this_source(name):
    assert source_digest() in built(name)[:500], f"{name} is older than its source: make viewer"


def test_the_page_is_these_files():
    assert {path.name for path in PAGE.iterdir()} == set(BUILT)


@pytest.mark.parametrize("name", BUILT)
def test_nothing_is_fetched_from_elsewhere(name):
    addresses = set(re.findall(r"(?:https?|wss?):/{2}[^\s\"'`)<]+", built(name)))
    assert addresses <= NAMESPACES
    assert "sourceMappingURL" not in built(name)


def test_the_page_asks_only_for_its_own_two_files_and_has_no_inline_script():
    html = built("index.html")
    assert set(re.findall(r'(?:src|href)="([^"]*)"', html)) == {"./app.js", "./app.css", "data:,"}
    assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == [""]
    assert not re.search(r"\son\w+=|<style", html)


def test_styles_fetch_nothing():
    assert not re.search(r"@import|url\((?!['\"]?data:)", built("app.css"))


def test_texts_never_become_markup():
    """What models and environments write is shown by text nodes alone; reading markup, for saving a
    file, is allowed.
    """
    for path in (SOURCE / "src").rglob("*.ts*"):
        assert not re.search(MARKUP, path.read_text(encoding="utf-8")), path.name


def test_the_lock_file_names_no_registry():
    assert '"resolved"' not in (SOURCE / "package-lock.json").read_text(encoding="utf-8")
