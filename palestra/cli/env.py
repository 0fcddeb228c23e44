"""`palestra env ...`: list, check, play and serve environments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palestra.cli.command import Command, Group, Json, SettingsCommand, find_modules_here
from palestra.core.errors import UserError
from palestra.core.printing import print_json, print_table, print_text
from palestra.core.tables import Table

if TYPE_CHECKING:
    from palestra.envs import Environment

app = typer.Typer(cls=Group, help="List, check, play and serve environments.")


@app.command("list", cls=Command)
def list_all(as_json: Json = False) -> None:
    """All environments, plugins included."""
    from palestra.envs import envs

    find_modules_here()
    rows = [_row(name) for name in envs.names()]
    if as_json:
        return print_json(rows)
    columns = ["environment", "what it is", "tasks"]
    print_table(Table(columns, [[row["name"], row["summary"], _tasks_of(row)] for row in rows]))


@app.command("check", cls=SettingsCommand)
def check(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="options can follow, e.g. --max_turns 30")],
    tasks: Annotated[int, typer.Option(min=1, help="how many tasks to try it on")] = 20,
    as_json: Json = False,
) -> None:
    """Try every promise of the environments' contract."""
    from dataclasses import asdict

    find_modules_here()
    close_env(name, _make_here(name, ctx.obj))

    from palestra.envs.check import check_environment

    checks = check_environment(name, ctx.obj, tasks=tasks)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        rows = [["ok" if check.ok else "FAILED", check.name, check.detail] for check in checks]
        print_table(Table(["", "promise", ""], rows))
    if not all(check.ok for check in checks):
        raise SystemExit(1)


@app.command("play", cls=SettingsCommand)
def play(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="options can follow, e.g. --max_turns 30")],
    split: Annotated[str, typer.Option(help="the split of the tasks")] = "train",
    task_id: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="default: a random one")
    ] = None,
) -> None:
    """Be the agent."""
    import random

    from palestra.core.registry import UnknownName, nearest
    from palestra.envs.serving.handles import guarded, listed
    from palestra.envs.serving.validation import ValidatedEnv

    find_modules_here()
    env = _make_here(name, ctx.obj)
    if split not in env.splits:
        raise UserError(f"--split {split}: {name} has no such split; {nearest(split, env.splits)}")
    with guarded(name, f"tasks({split!r})"):
        tasks = {task.id: task for task in listed(name, env, split)}
    if not tasks:
        raise UserError(f"{name}: the split {split!r} has no tasks")
    if task_id is not None and task_id not in tasks:
        raise UnknownName(
            f"--task {task_id}: {name} has no such task in {split}; "
            f"{nearest(task_id, list(tasks)[:1000])}"
        )
    task = tasks[task_id or random.choice(list(tasks))]
    played = ValidatedEnv(env)
    with guarded(name, "reset", telling=(UserError,)):
        first = played.reset(task)
    print_text(f"task {task.id} ({task.category or task.split}); also: :actions, :expert, :quit\n")
    if env.instructions:
        print_text(f"{env.instructions}\n")
    print_text(first)
    turns, reward = 0, 0.0
    while (line := _ask()) not in (None, ":quit"):
        if line == ":actions":
            with guarded(name, "actions"):
                actions = played.actions()
            print_text("\n".join(actions or ["this environment does not list its actions"]))
            continue
        if line == ":expert":
            with guarded(name, "expert"):
                line = played.expert()
            print_text(f"> {line}" if line else "the expert has no answer")
        if not line:
            continue
        with guarded(name, "step"):
            step = played.step(line)
        turns, reward = turns + 1, reward + step.reward
        print_text(step.observation)
        if step.terminated or step.truncated:
            break
    print(f"\n{turns} turns, reward {reward:.3f}")
    close_env(name, env)


def _ask() -> str | None:
    try:
        return input("> ").strip()
    except EOFError:
        return None


def _row(name: str) -> dict[str, Any]:
    """What there is to say about an environment; one that cannot be made here says why."""
    from palestra.envs import envs
    from palestra.envs.serving.handles import check_attributes, guarded, listed

    try:
        with guarded(name, "making it"):
            kind = envs[name]
            env = kind()
            check_attributes(name, env)
            tasks = {split: len(listed(name, env, split)) for split in kind.splits}
            summary = _first_sentence(kind.__doc__ or "")
        return {
            "name": name,
            "summary": summary,
            "tasks": tasks,
            "max_turns": env.max_turns,
            "error": None,
        }
    except Exception as error:  # noqa: BLE001  a plugin may fail in any way; the list continues
        return {"name": name, "summary": "", "tasks": {}, "max_turns": None, "error": str(error)}


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def _tasks_of(row: dict[str, Any]) -> str:
    return row["error"] or ", ".join(f"{count} {split}" for split, count in row["tasks"].items())


def make_checked(
    name: str, make: Callable[[], Environment], deadline_s: float = 60.0
) -> Environment:
    from palestra.envs.serving.handles import check_attributes, guarded

    with guarded(name, "its constructor", deadline_s=deadline_s, telling=(UserError,)):
        try:
            env = make()
        except ValueError as error:  # of `make_env`, about the name or the options
            raise UserError(str(error)) from error
    check_attributes(name, env)
    return env


def _make_here(name: str, options: dict[str, Any]) -> Environment:
    from palestra.envs import make_env

    return make_checked(name, lambda: make_env(name, options))


def close_env(name: str, env: Environment, deadline_s: float = 60.0) -> None:
    from palestra.envs.serving.handles import guarded

    with guarded(name, "close()", deadline_s=deadline_s):
        env.close()
