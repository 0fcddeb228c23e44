"""`palestra init`: begin a project of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    folder: Annotated[Path, typer.Argument(help="a new folder, or one without these files")],
) -> None:
    """Write an environment, a recipe and a test that train at once."""
    from palestra.tools.init import init_project

    for path in init_project(folder):
        print(path)
    print(f"next: cd {folder} && palestra train recipe.toml")
