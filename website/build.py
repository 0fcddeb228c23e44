"""Builds the documentation site: `make docs`.

The pages are those of `docs/`, which also read well on a code host. There, a link such as
`../../SECURITY.md` leads to a file of the repository, and one to a folder lists its files. On the
site such a link needs the address of the repository. It is the `Repository` URL of the installed
package, which setup.py takes from the git remote `origin`. Without such an address, the link's text
stays and the link goes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import metadata
from pathlib import Path
from textwrap import indent
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ASSETS = ROOT / "website" / "assets"
SOURCE = ROOT / "build" / "docs"
"""The pages as the site's generator reads them; `docs_dir` in zensical.toml."""
SITE = ROOT / "site"

FENCE = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
API = re.compile(r"^### (\w+)\n\n(?=::: palestra\.\1$)", re.MULTILINE)
"""A heading of the API's page, which a code host shows. On the site mkdocstrings writes it."""
IN_LIST = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)
"""The indent of what belongs to an item of a list. The generator's Markdown wants four blanks."""
ITEM = re.compile(r"\n(?:- |\d+\. )\S?")
"""A list that the generator took for the rest of a paragraph: a blank line before it is missing."""
ELEMENTS = {"a": "href", "link": "href", "script": "src", "img": "src", "iframe": "src"}
LOADED = {"stylesheet", "preload", "preconnect", "icon", "modulepreload"}
"""Values of `rel` with which a browser fetches what a `link` names."""


def repository() -> str:
    """The web address of the repository; empty where the package was installed without one."""
    pairs = (line.split(", ", 1) for line in metadata("palestra").get_all("Project-URL", []))
    return dict(pairs).get("Repository", "")


def for_site(text: str, page: Path, repository: str) -> str:
    """A page as the generator reads it.

    Links to folders and out of `docs/` lead into the repository, and the contents of lists are
    indented by four blanks.
    """

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = (page.parent / target).resolve()
        if path.is_relative_to(DOCS) and not path.is_dir():
            return found[0]
        if not path.exists():
            raise SystemExit(f"{page.relative_to(ROOT)}: a link to {target}, which does not exist")
        if not repository:
            return words
        kind = "tree" if path.is_dir() else "blob"
        return f"[{words}]({repository}/{kind}/main/{path.relative_to(ROOT)}{anchor})"

    def prose(piece: str) -> str:
        return IN_LIST.sub(" " * 4, LINK.sub(link, piece))

    text = API.sub(r'<a id="\1"></a>\n\n', text)
    pieces, end = [], 0
    for fence in FENCE.finditer(text):
        block = indent(fence[0], " " * (4 - len(fence[1]))) if fence[1] else fence[0]
        pieces += [prose(text[end : fence.start()]), block]
        end = fence.end()
    return "".join([*pieces, prose(text[end:])])


def prepare() -> None:
    """Copy `docs/` and the site's assets to where the generator reads them."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE)
    shutil.copytree(ASSETS, SOURCE / "assets")
    url = repository()
    for page in DOCS.rglob("*.md"):
        copy = SOURCE / page.relative_to(DOCS)
        copy.write_text(for_site(page.read_text(), page, url))


class Page(HTMLParser):
    """What a built page links to, what can be linked to in it, what it loads, and what is not
    rendered as it was meant.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "__top"}
        self.loaded: list[str] = []
        self.lost: list[str] = []
        self._is_paragraph = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._is_paragraph = tag == "p" or (self._is_paragraph and tag not in ("pre", "li"))
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag not in ELEMENTS or ELEMENTS[tag] not in values:
            return
        target = values[ELEMENTS[tag]]
        self.links.append(target)
        if tag not in ("a", "link") or LOADED & set(values.get("rel", "").split()):
            self.loaded.append(target)

    def handle_endtag(self, tag: str) -> None:
        self._is_paragraph = self._is_paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._is_paragraph and ITEM.search(data):
            self.lost.append(" ".join(data.split())[-60:])


def problems(site: Path) -> list[str]:
    """Broken links and anchors of a built site, lists that are no lists, and what a page loads from
    other hosts.

    The generator checks links between pages. It does not check links to pictures and data, those
    that mkdocstrings writes, and what its own theme loads.
    """
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or name.name == "404.html":
                continue  # the page for errors is shown at any depth: its links start with /
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            goal = goal / "index.html" if goal.is_dir() else goal
            if not goal.is_file():
                found.append(f"{name}: {target} does not exist")
            elif goal in pages and unquote(parts.fragment) not in pages[goal].anchors:
                found.append(f"{name}: {target} has no such anchor")
        outside = [target for target in page.loaded if urlsplit(target).netloc]
        found += [f"{name}: loads {target} from another host" for target in outside]
        found += [f"{name}: a list needs a blank line before it: {text}" for text in page.lost]
    return found


def main() -> None:
    prepare()
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(zensical, cwd=ROOT, check=False).returncode != 0:
        raise SystemExit(1)
    if found := problems(SITE):
        raise SystemExit("\n".join(found))
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
