"""A new project: an environment, a recipe, a test and a page that says what to do with them."""

from __future__ import annotations

from pathlib import Path

from palestra.core.errors import UserError
from palestra.core.files import writing

PROJECT = Path(__file__).parent / "project"
"""Files named `*.template`: they are a user's, and no modules of the package."""
FILES = ("environment.py", "recipe.toml", "test_environment.py", "README.md")


def init_project(folder: Path) -> list[Path]:
    """Write the files of a new project. Nothing that is there is overwritten."""
    written = [folder / name for name in FILES]
    for path in written:
        if path.exists():
            raise UserError(f"{path}: is there already; choose another folder")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in written:
            template = PROJECT / f"{path.name}.template"
            path.write_text(template.read_text())
    return written
