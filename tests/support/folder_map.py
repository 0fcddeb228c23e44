"""The folders of the package with what each is for, from the docstrings of their `__init__.py`.

`make map` writes the map into CONTRIBUTING.md; a test compares the two.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "palestra"
PAGE = ROOT / "CONTRIBUTING.md"

FOLDERS = ["core", "envs", "models", "engines", "agents", "algos", "horizons", "config", "rollout"]
FOLDERS += ["learner", "runs", "training", "launch", "view", "tools", "api", "cli"]
"""Each may import those before it."""

PLACE = re.compile(r"(?<=<!-- map: made by `make map` -->\n```text\n).*?(?=```\n)", re.DOTALL)


def packages() -> list[Path]:
    """All folders of the package, in the order in which they may import each other."""
    found = []
    for name in FOLDERS:
        inside = sorted(path.parent for path in (PACKAGE / name).rglob("__init__.py"))
        found += inside
    return found


def sentence(package: Path) -> str:
    """What a folder is for: the first paragraph of its docstring."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def folder_map() -> str:
    lines = ["palestra/\n"]
    for package in packages():
        depth = len(package.relative_to(PACKAGE).parts)
        name = f"{'  ' * depth}{package.name}/"
        lines.append(f"{name:<16} {sentence(package)}\n")
    return "".join(lines)


if __name__ == "__main__":
    page, count = PLACE.subn(lambda _: folder_map(), PAGE.read_text())
    assert count == 1, f"{PAGE}: expected one place for the map"
    PAGE.write_text(page)
