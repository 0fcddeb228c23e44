"""Reads files of task ids, AgentGym's or our own, and finds the tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from palestra.core.errors import ConfigError
from palestra.core.files import read_regular
from palestra.core.types import Task
from palestra.core.untrusted import Unreadable, check_nesting
from palestra.envs import Environment
from palestra.envs.serving.handles import DEADLINE_S, guarded

EXPECTED = 'expected one id a line, or JSON such as [{"item_id": "textcraft_12"}]'


class NamedTask(NamedTuple):
    id: str
    place: str
    """The position in the file, such as "line 3"."""


def tasks_in(
    path: Path, envs: Mapping[str, Environment], *, deadline_s: float = DEADLINE_S
) -> list[Task]:
    """The tasks that a file names, in its order and of any split.

    `envs`: the run's environments, by label. `deadline_s`: how long one may take to find a task.
    """
    found: dict[Task, NamedTask] = {}
    for named in read_ids(path):
        task = _find(path, named, envs, deadline_s)
        if task in found:
            first = found[task]
            raise ConfigError(
                f"--ids {path}, {named.place}: {named.id} is the same task as {first.id} "
                f"in {first.place}; name it once"
            )
        found[task] = named
    return list(found)


def _find(
    path: Path,
    named: NamedTask,
    envs: Mapping[str, Environment],
    deadline_s: float,
) -> Task:
    found: list[Task] = []
    objections: list[str] = []
    for label, env in envs.items():
        try:
            with guarded(label, "task()", deadline_s=deadline_s, telling=(ValueError,)):
                found.append(replace(env.task(named.id), env=label))
        except ValueError as error:
            objections.append(str(error))
    if not found:
        raise ConfigError(f"--ids {path}, {named.place}: {'; '.join(objections)}")
    if len(found) > 1:
        several = " and ".join(task.env for task in found)
        raise ConfigError(
            f"--ids {path}, {named.place}: {named.id} is a task of {several}; choose one "
            "of them with --env"
        )
    return found[0]


def read_ids(path: Path) -> Sequence[NamedTask]:
    """Plain text with one id a line, a JSON list, or JSON lines; in JSON an id is text, or the
    `item_id` of an object.
    """
    try:
        text = read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"--ids {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--ids {path}: is not text; {EXPECTED}") from error
    named = list(_listed(path, text) if text.lstrip().startswith("[") else _by_line(path, text))
    if not named:
        raise ConfigError(f"--ids {path}: names no task; {EXPECTED}")
    return named


def _listed(path: Path, text: str) -> Iterator[NamedTask]:
    for number, item in enumerate(_decoded(path, text, first_line=1), 1):
        yield NamedTask(_id_of(path, f"item {number}", item), f"item {number}")


def _by_line(path: Path, text: str) -> Iterator[NamedTask]:
    for number, line in enumerate(text.split("\n"), 1):
        content = line.strip()
        if content.startswith("{"):
            item = _decoded(path, content, first_line=number)
            yield NamedTask(_id_of(path, f"line {number}", item), f"line {number}")
        elif content:
            yield NamedTask(content, f"line {number}")


def _decoded(path: Path, text: str, *, first_line: int) -> Any:
    try:
        check_nesting(text.encode())
        return json.loads(text)
    except (ValueError, RecursionError, Unreadable) as error:
        line = first_line
        if isinstance(error, json.JSONDecodeError):
            line += error.lineno - 1
        raise ConfigError(f"--ids {path}, line {line}: is no JSON ({error}); {EXPECTED}") from error


def _id_of(path: Path, place: str, item: Any) -> str:
    id = item.get("item_id") if isinstance(item, dict) else item
    if not isinstance(id, str):
        raise ConfigError(f"--ids {path}, {place}: has no id ({json.dumps(item)[:80]}); {EXPECTED}")
    return id
