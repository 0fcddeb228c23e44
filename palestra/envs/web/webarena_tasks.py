"""WebArena's 812 tasks (arXiv:2307.13854), as the package `libwebarena` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from palestra.envs.web.tasks import Evaluation, PageCheck, WebTask


@dataclass(frozen=True, slots=True)
class WebArenaCheck(PageCheck):
    prep_actions: list[str] = field(default_factory=list)
    """JavaScript to run on the page before it is read, such as a click that opens a section."""


@dataclass(frozen=True, slots=True)
class WebArenaEvaluation(Evaluation):
    url_note: str = "GOLD in PRED"
    string_note: str = ""
    """Why the task is impossible, if the answer must be "N/A"."""
    program_html: Sequence[WebArenaCheck] = ()

    @property
    def reads_pages(self) -> bool:
        """Whether the evaluation reads the sites' final content. Most such tasks change data."""
        return bool(self.program_html)


@dataclass(frozen=True, slots=True)
class WebArenaTask(WebTask):
    eval: WebArenaEvaluation


def package_folder() -> Path:
    """The package is not imported: it would ask for keys and addresses of its own."""
    spec = find_spec("webarena")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(folder) for folder in folders if (Path(folder) / "test.raw.json").is_file()]
    if not found:
        raise RuntimeError("needs libwebarena's tasks; pip install --no-deps libwebarena")
    return found[0]


@cache
def webarena_tasks() -> Mapping[str, WebArenaTask]:
    """All 812, by number."""
    file = package_folder() / "test.raw.json"
    try:
        tasks = msgspec.json.decode(file.read_bytes(), type=list[WebArenaTask])
    except msgspec.ValidationError as error:
        raise ValueError(f"{file.name}: {error}") from error
    return {str(task.task_id): task for task in tasks}
