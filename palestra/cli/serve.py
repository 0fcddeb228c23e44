"""`palestra env serve`: let trainers on this or other machines play environments here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from palestra.cli.command import find_modules_here
from palestra.cli.env import close_env, make_checked
from palestra.core.addresses import tokens_for
from palestra.core.credentials import TOKEN_VARIABLE
from palestra.core.errors import UserError

if TYPE_CHECKING:
    from palestra.envs.serving.connection_limits import Limits

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME", help="options can follow, e.g. --babyai.max_turns 30"),
]
Host = Annotated[str, typer.Option(help="any other than loopback needs a token")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="VAR", help="the variable with the tokens (default: PALESTRA_ENV_TOKEN)"),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="a further name that this server is called by"),
]
Capacity = Annotated[int, typer.Option(min=1, metavar="N", help="sessions at most")]
Lease = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="a session without a call for so long is closed"),
]
Deadline = Annotated[float, typer.Option(metavar="SECONDS", help="for each call of an environment")]
Drain = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="for sessions to end when the server is stopped"),
]
Processes = Annotated[int, typer.Option(min=1, metavar="N", help="behind the one address")]
Isolation = Annotated[Literal["inline", "process"], typer.Option(help="where environments run")]
MemoryMb = Annotated[
    int, typer.Option(min=1, metavar="MB", help="a worker process that holds more is replaced")
]
MaxProcesses = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="a worker that has more, itself included, is killed"),
]
Connections = Annotated[int, typer.Option(metavar="N", help="at most so many to one process")]
ConnectionsPerClient = Annotated[
    int, typer.Option(metavar="N", help="of one address; 0 is half of all")
]
SeatsPerToken = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="sessions of one token; 0 is all, or half of all where there are several tokens",
    ),
]
MaxLease = Annotated[
    float, typer.Option(metavar="SECONDS", help="the longest lease that a client can ask for")
]
HeadersTimeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="for the headers of a request")
]
BodyTimeout = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="for the body of a request, or a frame of a stream"),
]
IdleTimeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="between two requests of a connection")
]
StreamIdleTimeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="of a stream without a call")
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="an environment variable that worker processes get although it looks like a secret",
    ),
]
Sandbox = Annotated[
    Literal["none", "bwrap"],
    typer.Option(help="run worker processes under bubblewrap, without network"),
]
SandboxRead = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="what a sandbox can read besides Python"),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="the least that is logged")
]


def serve(
    ctx: typer.Context,
    names: Names,
    host: Host = "127.0.0.1",
    port: Port = 8100,
    token_env: TokenEnv = None,
    allow_host: AllowHost = None,
    capacity: Capacity = 1024,
    lease: Lease = 60.0,
    deadline: Deadline = 60.0,
    drain: Drain = 30.0,
    processes: Processes = 1,
    isolation: Isolation = "process",
    memory_mb: MemoryMb = 4096,
    max_processes: MaxProcesses = 128,
    connections: Connections = 4096,
    connections_per_client: ConnectionsPerClient = 0,
    seats_per_token: SeatsPerToken = 0,
    max_lease: MaxLease = 3600,
    headers_timeout: HeadersTimeout = 10,
    body_timeout: BodyTimeout = 30,
    idle_timeout: IdleTimeout = 75,
    stream_idle_timeout: StreamIdleTimeout = 600,
    pass_env: PassEnv = None,
    sandbox: Sandbox = "none",
    sandbox_read: SandboxRead = None,
    log_level: LogLevel = "info",
) -> None:
    """Let trainers on this or other machines play environments here."""
    from palestra.envs.serving.catalogue import Served
    from palestra.envs.serving.connection_limits import Limits

    try:
        tokens = tokens_for(host, token_env or TOKEN_VARIABLE, is_asked_for=token_env is not None)
    except ValueError as error:
        raise UserError(str(error)) from None
    options = _options_by_name(names, ctx.obj)
    limits = Limits(
        connections=connections,
        per_client=connections_per_client,
        headers_s=headers_timeout,
        body_s=body_timeout,
        idle_s=idle_timeout,
        stream_idle_s=stream_idle_timeout,
        seats_per_token=seats_per_token,
        longest_lease_s=max_lease,
    )
    _check_limits(limits, lease=lease, deadline=deadline, drain=drain)
    readable = tuple(sandbox_read or ())
    _check_sandbox(names, sandbox, readable, isolation)
    find_modules_here()
    passed = tuple(pass_env or ())
    worker = (isolation, deadline, memory_mb, max_processes, passed, sandbox, readable)
    served = [Served(name, options[name], *worker) for name in options]

    from palestra.envs.serving.main import ServerSettings
    from palestra.envs.serving.main import serve as run_server

    try:
        for one in served:
            close_env(one.name, make_checked(one.name, one.make, one.deadline_s), one.deadline_s)
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


def _check_limits(limits: Limits, *, lease: float, deadline: float, drain: float) -> None:
    from palestra.envs.serving.wire import LONGEST_LEASE_S

    seconds = {
        "lease": lease,
        "deadline": deadline,
        "drain": drain,
        "max-lease": limits.longest_lease_s,
        "headers-timeout": limits.headers_s,
        "body-timeout": limits.body_s,
        "idle-timeout": limits.idle_s,
        "stream-idle-timeout": limits.stream_idle_s,
    }
    for flag, value in seconds.items():
        if not (0 if flag == "drain" else 0.1) <= value < float("inf"):
            raise UserError(f"--{flag} {value:g}: expected some seconds")
    for flag, count, least in (
        ("connections", limits.connections, 1),
        ("connections-per-client", limits.per_client, 0),
        ("seats-per-token", limits.seats_per_token, 0),
    ):
        if count < least:
            raise UserError(f"--{flag} {count}: expected at least {least}")
    if not lease <= limits.longest_lease_s <= LONGEST_LEASE_S:
        raise UserError(
            f"--max-lease {limits.longest_lease_s:g}: expected at least --lease ({lease:g}) and "
            f"at most {LONGEST_LEASE_S:g} seconds"
        )


def _check_sandbox(
    names: list[str], sandbox: str, readable: tuple[str, ...], isolation: str
) -> None:
    from palestra.envs.serving.sandbox import misuse, objection

    for name in names:
        if reason := misuse(name, sandbox, readable, isolation):
            raise UserError(f"--{reason}")
    if sandbox != "none" and (reason := objection(list(readable))):
        raise UserError(f"--sandbox {sandbox}: {reason}")


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
