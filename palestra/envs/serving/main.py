"""Runs the environment server in one process or in several supervised ones, and drains its sessions
before it stops.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any

import msgspec
from aiohttp import web

from palestra.core.credentials import hidden, without_secrets
from palestra.envs.serving.catalogue import Catalogue, Served
from palestra.envs.serving.connection_limits import Limits
from palestra.envs.serving.peers import ProcessPeers, socket_path
from palestra.envs.serving.request_auth import RequestAuth
from palestra.envs.serving.server import Server
from palestra.envs.serving.sessions import Sessions

log = logging.getLogger(__name__)

RESTART_S = 0.5


class ServerSettings(msgspec.Struct, frozen=True):
    served: list[Served]
    host: str = "127.0.0.1"
    port: int = 8100
    capacity: int = 1024
    """Sessions of all processes together."""
    lease_s: float = 60.0
    drain_s: float = 30.0
    processes: int = 1
    tokens: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Additional host names under which the server is reached."""
    log_level: str = "INFO"
    process: int = 0
    folder: str = ""
    """Where the processes' sockets are."""
    peer_secret: str = ""
    limits: Limits = Limits()

    @property
    def seats_per_token(self) -> int:
        """The seats of one token, over all processes."""
        half = self.capacity if len(self.tokens) < 2 else -(-self.capacity // 2)
        return self.limits.seats_per_token or half


class JsonLines(logging.Formatter):
    """One event, one line."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        event |= record.__dict__.get("fields", {})
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        for name, value in event.items():
            if isinstance(value, str):
                event[name] = hidden(value)
        return json.dumps(event)


def log_as_json(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def event(name: str, **fields: Any) -> None:
    log.info(name, extra={"fields": fields})


def serve(settings: ServerSettings) -> int:
    """Serve until a signal stops the server. Returns the exit code."""
    log_as_json(settings.log_level)
    if settings.processes == 1:
        return run_fast(serve_one(settings))
    with tempfile.TemporaryDirectory(prefix="palestra-") as folder, _reserved(settings) as reserved:
        shared = {
            "folder": folder,
            "peer_secret": secrets.token_urlsafe(16),
            "port": reserved.getsockname()[1],
        }
        return Supervisor(msgspec.structs.replace(settings, **shared)).run()


def run_fast(main: Coroutine[Any, Any, int]) -> int:
    """Run with uvloop if it is installed."""
    if find_spec("uvloop") is None:
        return asyncio.run(main)
    import uvloop

    return int(uvloop.run(main))


async def serve_one(settings: ServerSettings) -> int:
    catalogue = Catalogue(settings.served)
    share = _share(settings.capacity, settings)
    sessions = Sessions(
        catalogue.pools, catalogue.tasks, capacity=share, lease_s=settings.lease_s,
        process=settings.process,
        longest_lease_s=settings.limits.longest_lease_s,
        seats_per_caller=_share(settings.seats_per_token, settings),
    )  # fmt: skip
    guard = RequestAuth(settings.tokens, (settings.host, *settings.hosts), settings.peer_secret)
    peers = None
    if settings.processes > 1:
        peers = ProcessPeers(
            settings.folder, settings.process, settings.processes, settings.peer_secret
        )
    server = Server(catalogue, sessions, guard, peers=peers, limits=settings.limits)
    server.gate.fit_to_descriptors()
    runner = server.runner()
    await runner.setup()
    try:
        if peers is not None:
            await web.UnixSite(runner, socket_path(settings.folder, settings.process)).start()
        site = web.TCPSite(runner, settings.host, settings.port, reuse_port=settings.processes > 1)
        await site.start()
        port = runner.addresses[-1][1]
        url, most = f"http://{settings.host}:{port}", server.gate.most
        event(
            "listening",
            url=url,
            process=settings.process,
            envs=list(catalogue.about),
            capacity=share,
            connections=most,
        )
        await _until_stopped(server, settings.drain_s)
    except OSError as error:
        log.error(
            "cannot listen",
            extra={"fields": {"host": settings.host, "port": settings.port, "reason": str(error)}},
        )
        return 2
    finally:
        if peers is not None:
            await peers.close()
        await runner.cleanup()
    event("stopped", process=settings.process)
    return 0


def _share(count: int, settings: ServerSettings) -> int:
    """This process's share of a total over all processes."""
    return count // settings.processes + (settings.process < count % settings.processes)


async def _until_stopped(server: Server, drain_s: float) -> None:
    """Wait for a signal, then drain the sessions. A second signal ends the draining."""
    loop = asyncio.get_running_loop()
    signals = asyncio.Semaphore(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.release)
    await signals.acquire()
    event("draining", sessions=len(server.sessions), limit_s=drain_s)
    draining = asyncio.create_task(server.drain(drain_s))
    again = asyncio.create_task(signals.acquire())
    await asyncio.wait([draining, again], return_when=asyncio.FIRST_COMPLETED)
    draining.cancel()
    again.cancel()


def _reserved(settings: ServerSettings) -> socket.socket:
    """A socket that reserves the port for the processes, and chooses one if it is 0."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    reserved = socket.socket(family)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((settings.host, settings.port))
    return reserved


class Supervisor:
    """Starts the processes, restarts those that die, and forwards signals."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.is_stopping = False
        self.is_hopeless = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        for process in range(self.settings.processes):
            self._start(process)
        while self.children:
            time.sleep(0.1)
            for process, child in list(self.children.items()):
                if child.poll() is not None:
                    self._ended(process, child)
        return 2 if self.is_hopeless else 0

    def _ended(self, process: int, child: subprocess.Popen[bytes]) -> None:
        del self.children[process]
        # Exit code 2: it could not listen, and neither could another one.
        if child.returncode == 2:
            self.is_hopeless = True
            self._pass_on(signal.SIGTERM, None)
        if not self.is_stopping:
            log.error(
                "process died",
                extra={"fields": {"process": process, "exit_code": child.returncode}},
            )
            time.sleep(RESTART_S)
            if not self.is_stopping:
                self._start(process)

    def _start(self, process: int) -> None:
        kept: list[str] = []
        for one in self.settings.served:
            kept += one.pass_env
        environment = {
            **without_secrets(kept),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        command = [sys.executable, "-m", "palestra.envs.serving.main"]
        child = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, env=environment, start_new_session=True
        )
        assert child.stdin is not None
        child.stdin.write(
            msgspec.json.encode(msgspec.structs.replace(self.settings, process=process)) + b"\n"
        )
        # The pipe stays open: the child exits when it is closed, so it never outlives us.
        child.stdin.flush()
        self.children[process] = child

    def _pass_on(self, number: int, frame: object) -> None:
        self.is_stopping = True
        for child in self.children.values():
            child.send_signal(number)


def main() -> None:
    """The entry point of one of several processes. Reads its settings as a line of JSON."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServerSettings)
    log_as_json(settings.log_level)
    threading.Thread(target=_die_with_supervisor, daemon=True).start()
    sys.exit(run_fast(serve_one(settings)))


def _die_with_supervisor() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
