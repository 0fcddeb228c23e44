"""Handles on environments that run on servers, with the same interface as local ones."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

from palestra.core.credentials import token_for
from palestra.core.types import Step, Task
from palestra.envs.serving.connection import RECONNECT_S, Connection
from palestra.envs.serving.handles import CollateralFault, EnvFault, EnvTimeout
from palestra.envs.serving.remote import Http, Unreachable, split_url
from palestra.envs.serving.wire import (
    BATCH_CALLS,
    Act,
    ActionList,
    Actions,
    AnyCall,
    Close,
    Expert,
    ExpertAction,
    Observed,
    Open,
    Opened,
    Renew,
    Reset,
    TaskName,
    WireError,
)

SEAT_WAIT_S = 600.0
"""How long an episode waits while all servers are full."""
OTHERS_S = 5.0
"""How long one of several servers may be unreachable before the next one is asked for a seat."""
ASK_AGAIN_S = 10.0
"""A server that was full or away is asked again after so long, though others have seats."""
CLOSE_S = 5.0
UNKNOWN_SEATS = 1 << 30


class SessionGone(EnvFault):
    """The server no longer knows the session: its lease expired, or the server was restarted."""


class Seats:
    """A server and its free seats."""

    def __init__(self, url: str) -> None:
        self.address, self.env = split_url(url)
        token = token_for(self.address)
        self.connection = Connection(
            self.address, headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        self.keeper = Keeper(Http(self.address, token))
        self.free = UNKNOWN_SEATS
        """The last known number; 0 after a refusal."""
        self.asked = 0
        """Pending requests for seats."""
        self.asked_at = 0.0

    @property
    def room(self) -> int:
        """Free seats without pending requests.

        A server that refused is asked again after a while, by one episode only, because it may
        still be full.
        """
        is_unknown = self.free == 0 and time.monotonic() - self.asked_at > ASK_AGAIN_S
        free = UNKNOWN_SEATS if is_unknown else self.free
        return free - self.asked


class EnvSlot(NamedTuple):
    server: Seats
    session: str


class Servers:
    """All servers of one environment. Their connections are open while any handle is."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.servers = [Seats(url) for url in urls]
        self._handles = 0

    def join(self) -> None:
        self._handles += 1

    async def leave(self) -> None:
        self._handles -= 1
        if not self._handles:
            for server in self.servers:
                await server.connection.close()

    async def open(self, timeout_s: float) -> EnvSlot:
        """A seat on the server with the most free ones. Waits if all servers are full."""
        until, delay = time.monotonic() + SEAT_WAIT_S, 0.1
        while True:
            refusals: list[WireError | EnvFault] = []
            for server in sorted(self.servers, key=lambda server: -server.room):
                try:
                    return await self._ask(server, timeout_s)
                except (WireError, EnvFault) as error:
                    refusals.append(error)
            codes = {error.code for error in refusals if isinstance(error, WireError)}
            is_full = bool(codes & {"busy", "stopping"})
            if not is_full or time.monotonic() > until:
                is_collateral = all(error.is_collateral for error in refusals)
                kind = CollateralFault if is_collateral else EnvFault
                raise kind("; ".join(f"{error}" for error in refusals))
            await asyncio.sleep(delay)
            delay = min(2 * delay, 2.0)

    async def _ask(self, server: Seats, timeout_s: float) -> EnvSlot:
        server.asked, server.asked_at = server.asked + 1, time.monotonic()
        call = Open(env=server.env, key=secrets.token_urlsafe(12))
        away_s = OTHERS_S if len(self.servers) > 1 else None
        try:
            opened: Opened = await server.connection.call(
                call, Opened, timeout_s=timeout_s, away_s=away_s
            )
        except (WireError, EnvFault):
            server.free = 0
            raise
        finally:
            server.asked -= 1
        server.free = opened.free
        server.keeper.keep(opened.session, opened.lease_s)
        return EnvSlot(server, opened.session)


class Keeper:
    """Renews leases from its own thread, because the learner blocks the event loop."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._sessions: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._every_s = 20.0
        self._changed = threading.Event()

    def keep(self, session: str, lease_s: float) -> None:
        with self._lock:
            self._sessions.add(session)
            self._every_s = lease_s / 3
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._renew, daemon=True, name="leases")
                self._thread.start()

    def drop(self, session: str) -> None:
        with self._lock:
            self._sessions.discard(session)
            if not self._sessions:
                self._changed.set()

    def _renew(self) -> None:
        while True:
            self._changed.wait(self._every_s)
            with self._lock:
                self._changed.clear()
                sessions = list(self._sessions)
                if not sessions:
                    self._thread = None
                    return
            for start in range(0, len(sessions), BATCH_CALLS):
                calls: list[AnyCall] = [
                    Renew(session=session) for session in sessions[start : start + BATCH_CALLS]
                ]
                try:
                    self._http.ask("POST", "/v1/batch", Any, calls, timeout_s=self._every_s)
                except (Unreachable, WireError):
                    break  # the calls themselves will find out


class RemotePool:
    """Opens a session per episode. The server reuses environments."""

    def __init__(self, urls: Sequence[str], deadline_s: float) -> None:
        self.servers, self.deadline_s = Servers(urls), deadline_s
        self._handles: WeakSet[RemoteHandle] = WeakSet()

    async def open(self) -> RemoteHandle:
        handle = RemoteHandle(self.servers, self.deadline_s)
        self._handles.add(handle)
        return handle

    async def close(self) -> None:
        await asyncio.gather(*(handle.close() for handle in list(self._handles)))


class RemoteHandle:
    """One session on one of the servers.

    Opened by the first reset, and opened again by a reset that finds it gone.
    """

    def __init__(self, servers: Servers, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.seconds = 0.0
        self._servers = servers
        self._seat: EnvSlot | None = None
        self._key = 0
        self._is_closed = False
        servers.join()

    @property
    def _timeout_s(self) -> float:
        """For a server that does not answer at all. The server itself enforces the deadline."""
        return self.deadline_s + RECONNECT_S

    async def reset(self, task: Task) -> str:
        self._check_open()
        if self._seat is not None:
            try:
                return await self._reset(task)
            except SessionGone:
                self._give_up_seat()
        began = time.monotonic()
        await self._open_seat()
        self.seconds += time.monotonic() - began
        return await self._reset(task)

    async def _open_seat(self) -> None:
        # The handle may be closed during the wait. Joining keeps the connection open until the seat
        # is given back.
        self._servers.join()
        try:
            self._seat, self._key = await self._servers.open(self._timeout_s), 0
            if self._is_closed:
                await self._close_seat()
        finally:
            await self._servers.leave()
        self._check_open()

    async def _reset(self, task: Task) -> str:
        self._key += 1
        call = Reset(session=self._session, task=TaskName(task.split, task.id), key=self._key)
        observed: Observed = await self._call(call, Observed)
        return observed.observation

    async def step(self, action: str) -> Step:
        self._key += 1
        step: Step = await self._call(
            Act(session=self._session, action=action, key=self._key), Step
        )
        return step

    async def actions(self) -> list[str] | None:
        found: ActionList = await self._call(Actions(session=self._session), ActionList)
        return found.actions

    async def expert(self) -> str | None:
        found: ExpertAction = await self._call(Expert(session=self._session), ExpertAction)
        return found.action

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._close_seat()
        finally:
            await self._servers.leave()

    async def _close_seat(self) -> None:
        if self._seat is None:
            return
        seat = self._give_up_seat()
        try:
            await seat.server.connection.call(Close(session=seat.session), Any, timeout_s=CLOSE_S)
            seat.server.free += 1
        except (WireError, EnvFault):
            return  # its lease ends it

    def _check_open(self) -> None:
        if self._is_closed:
            raise EnvFault("the handle was closed")

    @property
    def _session(self) -> str:
        self._check_open()
        if self._seat is None:
            raise EnvFault("the session was not reset")
        return self._seat.session

    def _give_up_seat(self) -> EnvSlot:
        assert self._seat is not None
        seat, self._seat = self._seat, None
        seat.server.keeper.drop(seat.session)
        return seat

    async def _call(self, call: AnyCall, kind: Any) -> Any:
        assert self._seat is not None
        began = time.monotonic()
        try:
            return await self._seat.server.connection.call(call, kind, timeout_s=self._timeout_s)
        except WireError as error:
            address = self._seat.server.address
            if error.code == "timeout":
                raise EnvTimeout(f"{address}: {error.message}") from error
            if error.code in ("not_found", "expired"):
                raise SessionGone(f"{address}: {error.message}") from error
            if error.is_collateral:
                raise CollateralFault(error.message) from error
            raise EnvFault(
                f"{address}: {error}" if error.code != "env_fault" else error.message
            ) from error
        finally:
            self.seconds += time.monotonic() - began
