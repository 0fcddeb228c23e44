"""The tasks on the self-hosted sites, as files: `palestra_web.generate` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from palestra.envs.web.tasks import WebTask, read_tasks

FOLDER = Path(__file__).parent / "task_files"


@cache
def shipped_tasks(split: str) -> Mapping[str, WebTask]:
    """All tasks on the self-hosted sites, by id."""
    found: dict[str, WebTask] = {}
    for file in sorted(FOLDER.glob("*.json")):
        for task in read_tasks(file):
            if task.split == split:
                found[str(task.task_id)] = task
    return found
