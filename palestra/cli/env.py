"""`palestra env ...`: list, check, play and serve environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from palestra.cli.command import Command, Json, SettingsCommand, find_modules_here
from palestra.core.addresses import tokens_for
from palestra.core.errors import UserError
from palestra.core.printing import print_json, print_table
from palestra.core.tables import Table

if TYPE_CHECKING:
    from palestra.envs import Environment

app = typer.Typer(help="List, check, play and serve environments.")


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
    _close(name, _made_here(name, ctx.obj))

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
    split: str = "train",
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
    env = _made_here(name, ctx.obj)
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


@app.command("serve", cls=SettingsCommand)
def serve(
    ctx: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="options can follow, e.g. --babyai.max_turns 30"),
    ],
    host: Annotated[str, typer.Option(help="any other than loopback needs a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one")] = 8100,
    token_env: Annotated[
        str | None,
        typer.Option(
            metavar="VAR", help="the variable with the tokens (default: PALESTRA_ENV_TOKEN)"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a further name that this server is called by"),
    ] = None,
    capacity: Annotated[int, typer.Option(min=1, metavar="N", help="sessions at most")] = 1024,
    lease: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="a session without a call for so long is closed"),
    ] = 60.0,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="for each call of an environment")
    ] = 60.0,
    drain: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="for sessions to end when the server is stopped"),
    ] = 30.0,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="behind the one address")] = 1,
    isolation: Annotated[
        Literal["inline", "process"], typer.Option(help="where environments run")
    ] = "process",
    memory_mb: Annotated[
        int, typer.Option(min=1, metavar="MB", help="a worker process that holds more is replaced")
    ] = 4096,
    max_processes: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="a worker that has more, itself included, is killed"),
    ] = 128,
    connections: Annotated[
        int, typer.Option(metavar="N", help="at most so many to one process")
    ] = 4096,
    connections_per_client: Annotated[
        int, typer.Option(metavar="N", help="of one address; 0 is half of all")
    ] = 0,
    seats_per_token: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="sessions of one token; 0 is all, or half of all where there are several tokens",
        ),
    ] = 0,
    max_lease: Annotated[
        float, typer.Option(metavar="SECONDS", help="the longest lease that a client can ask for")
    ] = 3600,
    headers_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="for the headers of a request")
    ] = 10,
    body_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="for the body of a request, or a frame of a stream"),
    ] = 30,
    idle_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="between two requests of a connection")
    ] = 75,
    stream_idle_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="of a stream without a call")
    ] = 600,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="an environment variable that worker processes get although it looks like a "
            "secret",
        ),
    ] = None,
    sandbox: Annotated[
        Literal["none", "bwrap"],
        typer.Option(help="run worker processes under bubblewrap, without network"),
    ] = "none",
    sandbox_read: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="what a sandbox can read besides Python"),
    ] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"], typer.Option()] = "info",
) -> None:
    """Let trainers on this or other machines play environments here."""
    from palestra.core.credentials import TOKEN_VARIABLE
    from palestra.envs.serving.catalogue import Served
    from palestra.envs.serving.connection_limits import Limits
    from palestra.envs.serving.sandbox import misuse, objection
    from palestra.envs.serving.wire import LONGEST_LEASE_S

    try:
        tokens = tokens_for(host, token_env or TOKEN_VARIABLE, is_asked_for=token_env is not None)
    except ValueError as error:
        raise UserError(str(error)) from None
    options = _options_by_name(names, ctx.obj)
    for flag, seconds in (
        ("lease", lease),
        ("deadline", deadline),
        ("drain", drain),
        ("max-lease", max_lease),
        ("headers-timeout", headers_timeout),
        ("body-timeout", body_timeout),
        ("idle-timeout", idle_timeout),
        ("stream-idle-timeout", stream_idle_timeout),
    ):
        if not (0 if flag == "drain" else 0.1) <= seconds < float("inf"):
            raise UserError(f"--{flag} {seconds:g}: expected some seconds")
    for flag, count, least in (
        ("connections", connections, 1),
        ("connections-per-client", connections_per_client, 0),
        ("seats-per-token", seats_per_token, 0),
    ):
        if count < least:
            raise UserError(f"--{flag} {count}: expected at least {least}")
    if not lease <= max_lease <= LONGEST_LEASE_S:
        raise UserError(
            f"--max-lease {max_lease:g}: expected at least --lease ({lease:g}) and at most "
            f"{LONGEST_LEASE_S:g} seconds"
        )
    readable = tuple(sandbox_read or ())
    for name in names:
        if reason := misuse(name, sandbox, readable, isolation):
            raise UserError(f"--{reason}")
    if sandbox != "none" and (reason := objection(list(readable))):
        raise UserError(f"--sandbox {sandbox}: {reason}")
    find_modules_here()
    served = [
        Served(
            name,
            options[name],
            isolation,
            deadline,
            memory_mb,
            max_processes,
            tuple(pass_env or ()),
            sandbox,
            readable,
        )
        for name in options
    ]
    limits = Limits(
        connections,
        connections_per_client,
        headers_timeout,
        body_timeout,
        idle_timeout,
        stream_idle_timeout,
        seats_per_token,
        max_lease,
    )

    from palestra.envs.serving.main import ServerSettings
    from palestra.envs.serving.main import serve as run_server

    try:
        for one in served:
            _close(one.name, _made(one.name, one.make, one.deadline_s), one.deadline_s)
        code = run_server(
            ServerSettings(
                served,
                host,
                port,
                capacity=capacity,
                lease_s=lease,
                drain_s=drain,
                processes=processes,
                tokens=tokens,
                hosts=tuple(allow_host or ()),
                log_level=log_level.upper(),
                limits=limits,
            )
        )
    except OSError as error:
        raise UserError(f"--port {port}: {error}") from None
    except ValueError as error:
        raise UserError(str(error)) from None
    raise SystemExit(code)


def _options_by_name(names: list[str], settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`--babyai.max_turns 30` -> {"babyai": {"max_turns": 30}}"""
    options: dict[str, dict[str, Any]] = {name: {} for name in names}
    for dotted, value in settings.items():
        name, _, option = dotted.partition(".")
        if name not in options or not option:
            raise UserError(
                f"--{dotted}: there is no such flag; options of an environment are given "
                f"as --{names[0]}.OPTION VALUE"
            )
        options[name][option] = value
    return options


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
        raise UserError(str(error)) from None
    check_attributes(name, env)
    return env


def _made_here(name: str, options: dict[str, Any]) -> Environment:
    from palestra.envs import make_env

    return _made(name, lambda: make_env(name, options))


def _close(name: str, env: Environment, deadline_s: float = 60.0) -> None:
    from palestra.envs.serving.handles import guarded

    with guarded(name, "close()", deadline_s=deadline_s):
        env.close()
