"""The description and the addresses of a distribution; all else is in pyproject.toml.

The README's links and pictures are files of the repository. Outside of it they need its address,
which is that of the git remote `origin`. Where that is no web address, the description has neither
links into the repository nor pictures of it.
"""

from __future__ import annotations

import re
import subprocess
from email import message_from_string
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
REMOTE = re.compile(r"(?:https://(?:[^@/]+@)?|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?")
PICTURE = re.compile(r"!\[([^]]*)\]\((?!https?:)([^)]+)\)")
LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?:|#)([^)]+)\)")


def git(*words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(HERE), *words],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def addresses() -> tuple[str, dict[str, str]]:
    """The description and the project's URLs. A source distribution has them in its PKG-INFO."""
    built = HERE / "PKG-INFO"
    if built.is_file():
        known = message_from_string(built.read_text())
        pairs = [line.split(", ", 1) for line in known.get_all("Project-URL", [])]
        return known.get_payload(), dict(pairs)
    readme = (HERE / "README.md").read_text()
    origin = git("remote", "get-url", "origin") if (HERE / ".git").exists() else ""
    remote = REMOTE.fullmatch(origin)
    if remote is None:
        return LINK.sub(r"\1", PICTURE.sub("", readme)), {}
    url, commit = f"https://{remote[1]}/{remote[2]}", git("rev-parse", "HEAD")
    readme = PICTURE.sub(rf"![\1]({url}/raw/{commit}/\2)", readme)
    readme = LINK.sub(rf"[\1]({url}/blob/{commit}/\2)", readme)
    pages = {
        "Repository": url,
        "Documentation": f"{url}/tree/main/docs",
        "Issues": f"{url}/issues",
        "Changelog": f"{url}/blob/main/CHANGELOG.md",
    }
    return readme, pages


description, urls = addresses()
setup(
    long_description=description,
    long_description_content_type="text/markdown",
    project_urls=urls,
)
