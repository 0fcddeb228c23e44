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

HERE = Path(__file__).parent
REMOTE = re.compile(r"(?:https://(?:[^@/]+@)?|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?")
PICTURE = re.compile(r"!\[([^]]*)\]\((?!https?:)([^)]+)\)")
IMG = re.compile(r"""<img\b[^>]*?\bsrc="(?!https?:)([^"]+)"[^>]*>""")
LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?:|mailto:|#)([^)]+)\)")


def git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(folder), *words],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def addresses(folder: Path) -> tuple[str, dict[str, str]]:
    """The description and the project's URLs. A source distribution has them in its PKG-INFO."""
    built = folder / "PKG-INFO"
    if built.is_file():
        known = message_from_string(built.read_text())
        pairs = [line.split(", ", 1) for line in known.get_all("Project-URL", [])]
        return known.get_payload(), dict(pairs)
    readme = (folder / "README.md").read_text()
    origin = git(folder, "remote", "get-url", "origin") if (folder / ".git").exists() else ""
    remote = REMOTE.fullmatch(origin)
    if remote is None:
        return LINK.sub(r"\1", IMG.sub("", PICTURE.sub("", readme))), {}
    url, commit = f"https://{remote[1]}/{remote[2]}", git(folder, "rev-parse", "HEAD")
    raw = f"{url}/raw/{commit}"
    readme = PICTURE.sub(rf"![\1]({raw}/\2)", readme)
    readme = IMG.sub(lambda tag: tag[0].replace(f'"{tag[1]}"', f'"{raw}/{tag[1]}"'), readme)
    readme = LINK.sub(rf"[\1]({url}/blob/{commit}/\2)", readme)
    pages = {
        "Repository": url,
        "Documentation": f"{url}/tree/main/docs",
        "Issues": f"{url}/issues",
        "Changelog": f"{url}/blob/main/CHANGELOG.md",
    }
    return readme, pages


if __name__ == "__main__":  # not in a test, which calls the functions
    from setuptools import setup

    description, urls = addresses(HERE)
    setup(
        long_description=description,
        long_description_content_type="text/markdown",
        project_urls=urls,
    )
