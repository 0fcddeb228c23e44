"""The sites, and the paths of their files on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent
"""On the sites' PYTHONPATH: a site's modules are imported from here, without palestra."""


@dataclass(frozen=True, slots=True)
class Site:
    name: str
    about: str
    module: str
    """Its folder, with `requirements.txt`. `python -m <module>.seed` fills `$SITE_BASE`."""
    serve: tuple[str, ...]
    """The arguments of `python -m` that serve it."""
    programs: tuple[str, ...] = ()
    """Requirements beyond pip, as names that a Debian package and its program share."""

    @property
    def host(self) -> str:
        return f"{self.name}.test"

    @property
    def url(self) -> str:
        return f"http://{self.host}/"


def _django(name: str, about: str) -> Site:
    return Site(name, about, module=name, serve=("django_common.serve", name))


SITES = {
    site.name: site
    for site in [
        _django("shop", "a shop and its dashboard (django-oscar)"),
        _django("forum", "a forum of kitchen gardeners (django-spirit)"),
        _django("cms", "a museum's website and its editors (wagtail)"),
        Site(
            "code",
            "a code host with tickets, wiki and forum (fossil)",
            "code_host",
            ("code_host.serve",),
            programs=("fossil", "faketime"),
        ),
        Site("map", "a map of the world's towns", "map", ("map.serve",)),
    ]
}


def cache_folder() -> Path:
    """Virtual environments, seeded bases, instances and logs: `$PALESTRA_CACHE/web`, else
    `~/.cache/palestra/web`.
    """
    own = os.environ.get("PALESTRA_CACHE")
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palestra"
    return (Path(own) if own else shared) / "web"
