"""`palestra env ...`: list, check, play and serve environments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palestra.core.addresses import tokens_for
from palestra.printing import fail, print_json, print_table

if TYPE_CHECKING:
    from palestra.envs import Environment
    from palestra.envs.serving.connection_limits import Limits


def list_all(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.envs import envs

    rows = [_row(name) for name in envs.names()]
    if known.json:
        return print_json(rows)
    print_table(
        ["environment", "what it is", "tasks"],
        [[row["name"], row["summary"], _tasks_of(row)] for row in rows],
    )


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
            summary = (kind.__doc__ or "").strip().partition("\n")[0]
        return {
            "name": name,
            "summary": summary,
            "tasks": tasks,
            "max_turns": env.max_turns,
            "error": None,
        }
    except Exception as error:  # noqa: BLE001  a plugin may fail in any way; the list goes on
        return {"name": name, "summary": "", "tasks": {}, "max_turns": None, "error": str(error)}


def _tasks_of(row: dict[str, Any]) -> str:
    return row["error"] or ", ".join(f"{count} {split}" for split, count in row["tasks"].items())


def _made(name: str, make: Callable[[], Environment], deadline_s: float = 60.0) -> Environment:
    from palestra.envs.serving.handles import check_attributes, guarded

    try:
        with guarded(name, "its constructor", deadline_s=deadline_s):
            env = make()
    except ValueError as error:
        fail(str(error))
    check_attributes(name, env)
    return env


def _made_here(name: str, options: dict[str, Any]) -> Environment:
    from palestra.envs import make_env

    return _made(name, lambda: make_env(name, options))


def _close(name: str, env: Environment, deadline_s: float = 60.0) -> None:
    from palestra.envs.serving.handles import guarded

    with guarded(name, "close()", deadline_s=deadline_s):
        env.close()


def check(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from dataclasses import asdict

    from palestra.envs.check import check_environment

    _close(known.name, _made_here(known.name, settings))
    checks = check_environment(known.name, settings, tasks=known.tasks)
    if known.json:
        print_json([asdict(check) for check in checks])
    else:
        print_table(
            ["", "promise", ""],
            [["ok" if check.ok else "FAILED", check.name, check.detail] for check in checks],
        )
    if not all(check.ok for check in checks):
        raise SystemExit(1)


def play(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    import random

    from palestra.core.registry import UnknownName, nearest
    from palestra.envs.serving.handles import guarded, listed
    from palestra.envs.serving.validation import ValidatedEnv

    name = known.name
    env = _made_here(name, settings)
    if known.split not in env.splits:
        fail(f"--split {known.split}: {name} has no such split; {nearest(known.split, env.splits)}")
    with guarded(name, f"tasks({known.split!r})"):
        tasks = {task.id: task for task in listed(name, env, known.split)}
    if not tasks:
        fail(f"{name}: the split {known.split!r} has no tasks")
    if known.task is not None and known.task not in tasks:
        raise UnknownName(
            f"--task {known.task}: {name} has no such task in {known.split}; "
            f"{nearest(known.task, list(tasks)[:1000])}"
        )
    task = tasks[known.task or random.choice(list(tasks))]
    print(f"task {task.id} ({task.category or task.split}); also: :actions, :expert, :quit\n")
    if env.instructions:
        print(env.instructions, "\n")
    played = ValidatedEnv(env)
    with guarded(name, "reset"):
        first = played.reset(task)
    print(first)
    turns, reward = 0, 0.0
    while (line := _ask()) not in (None, ":quit"):
        if line == ":actions":
            with guarded(name, "actions"):
                actions = played.actions()
            print("\n".join(actions or ["this environment does not list its actions"]))
            continue
        if line == ":expert":
            with guarded(name, "expert"):
                line = played.expert()
            print(f"> {line}" if line else "the expert has no answer")
        if not line:
            continue
        with guarded(name, "step"):
            step = played.step(line)
        turns, reward = turns + 1, reward + step.reward
        print(step.observation)
        if step.terminated or step.truncated:
            break
    print(f"\n{turns} turns, reward {reward:.3f}")
    _close(name, env)


def _ask() -> str | None:
    try:
        return input("> ").strip()
    except EOFError:
        return None


def add_limits(serve: argparse.ArgumentParser) -> None:
    """The flags of `env serve` that bound what clients can take."""
    for flag, kind, default, metavar, said in LIMITS:
        serve.add_argument(
            flag, type=kind, default=default, metavar=metavar, help=f"{said} (default: {default:g})"
        )
    said = "an environment variable that worker processes get although it looks like a secret"
    serve.add_argument("--pass-env", action="append", default=[], metavar="NAME", help=said)


LIMITS: tuple[tuple[str, Callable[[str], float], float, str, str], ...] = (
    ("--connections", int, 4096, "N", "at most so many to one process"),
    ("--connections-per-client", int, 0, "N", "of one address; 0 is half of all"),
    (
        "--seats-per-token",
        int,
        0,
        "N",
        "sessions of one token; 0 is all, or half of all where there are several tokens",
    ),
    ("--max-lease", float, 3600, "SECONDS", "the longest lease that a client can ask for"),
    ("--headers-timeout", float, 10, "SECONDS", "for the headers of a request"),
    ("--body-timeout", float, 30, "SECONDS", "for the body of a request, or a frame of a stream"),
    ("--idle-timeout", float, 75, "SECONDS", "between two requests of a connection"),
    ("--stream-idle-timeout", float, 600, "SECONDS", "of a stream without a call"),
)


def _limits(known: argparse.Namespace) -> Limits:
    from palestra.envs.serving.connection_limits import Limits
    from palestra.envs.serving.wire import LONGEST_LEASE_S

    flags = vars(known)
    for name in (
        "lease",
        "deadline",
        "drain",
        "max_lease",
        "headers_timeout",
        "body_timeout",
        "idle_timeout",
        "stream_idle_timeout",
    ):
        if not (0 if name == "drain" else 0.1) <= flags[name] < float("inf"):
            fail(f"--{name.replace('_', '-')} {flags[name]:g}: expected some seconds")
    for name, least in (("connections", 1), ("connections_per_client", 0), ("seats_per_token", 0)):
        if flags[name] < least:
            fail(f"--{name.replace('_', '-')} {flags[name]}: expected at least {least}")
    if not known.lease <= known.max_lease <= LONGEST_LEASE_S:
        fail(
            f"--max-lease {known.max_lease:g}: expected at least --lease "
            f"({known.lease:g}) and at most {LONGEST_LEASE_S:g} seconds"
        )
    return Limits(
        known.connections, known.connections_per_client, known.headers_timeout, known.body_timeout,
        known.idle_timeout,
        known.stream_idle_timeout, known.seats_per_token, known.max_lease,
    )  # fmt: skip


def _check_sandbox(known: argparse.Namespace) -> None:
    from palestra.envs.serving.sandbox import misuse, objection

    for name in known.names:
        if reason := misuse(name, known.sandbox, tuple(known.sandbox_read), known.isolation):
            fail(f"--{reason}")
    if known.sandbox != "none" and (reason := objection(known.sandbox_read)):
        fail(f"--sandbox {known.sandbox}: {reason}")


def serve(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.core.credentials import TOKEN_VARIABLE
    from palestra.envs.serving.catalogue import Served
    from palestra.envs.serving.main import ServerSettings
    from palestra.envs.serving.main import serve as run_server

    variable = known.token_env or TOKEN_VARIABLE
    try:
        tokens = tokens_for(known.host, variable, is_asked_for=known.token_env is not None)
    except ValueError as error:
        fail(str(error))
    options: dict[str, dict[str, Any]] = {name: {} for name in known.names}
    for dotted, value in settings.items():
        name, _, option = dotted.partition(".")
        if name not in options or not option:
            fail(
                f"--{dotted}: there is no such flag; options of an environment are given "
                f"as --{known.names[0]}.OPTION VALUE"
            )
        options[name][option] = value
    limits = _limits(known)
    _check_sandbox(known)
    bounds = (
        known.isolation,
        known.deadline,
        known.memory_mb,
        known.max_processes,
        tuple(known.pass_env),
    )
    served = [
        Served(name, options[name], *bounds, known.sandbox, tuple(known.sandbox_read))
        for name in options
    ]
    try:
        for one in served:
            _close(one.name, _made(one.name, one.make, one.deadline_s), one.deadline_s)
        code = run_server(
            ServerSettings(
                served, known.host, known.port, capacity=known.capacity, lease_s=known.lease,
                drain_s=known.drain,
                processes=known.processes, tokens=tokens, hosts=tuple(known.allow_host),
                log_level=known.log_level.upper(), limits=limits,
            )
        )  # fmt: skip
    except OSError as error:
        fail(f"--port {known.port}: {error}")
    except ValueError as error:
        fail(str(error))
    raise SystemExit(code)
