"""The sessions of a server: their environments, leases and last answers."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from palestra.core.types import Step, Task
from palestra.envs.serving.handles import EnvFault, EnvHandle, EnvPool, EnvTimeout, PoolExhausted
from palestra.envs.serving.wire import (
    LONGEST_LEASE_S,
    Act,
    ActionList,
    Actions,
    AnyCall,
    Change,
    Close,
    Done,
    Error,
    Expert,
    ExpertAction,
    Lease,
    Observe,
    Observed,
    Open,
    Opened,
    Reset,
    SessionCall,
    TaskName,
    WireError,
    cut,
    unsendable,
)

log = logging.getLogger(__name__)

WAITING_CALLS = 16
"""The limit of pending calls per session. Beyond it, the session is reported as busy."""
REMEMBERED = 2000
"""Expired sessions that are told so; those before them were never there."""


class Session:
    """One client's environment. Its calls run one at a time, in order of arrival."""

    def __init__(
        self, number: int, call: Open, caller: str, handle: EnvHandle, lease_s: float
    ) -> None:
        self.number, self.env, self.caller, self.key, self.handle, self.lease_s = (
            number,
            call.env,
            caller,
            call.key,
            handle,
            lease_s,
        )
        self.secret = secrets.token_urlsafe(16)
        self.holds_seat = True
        self.expires = 0.0
        self.turn = asyncio.Lock()
        self.calls = 0
        """Running or waiting."""
        self.changes = 0
        """Resets and steps so far: the key of the last one."""
        self.last_change: Change | None = None
        self.last_result: Any = None
        self.observed: Observed | None = None
        self.fault: Error | None = None
        """What broke its environment. It can be reset, which gets it another one, or closed."""


class Sessions:
    """The table of sessions of one server process."""

    def __init__(
        self,
        pools: Mapping[str, EnvPool],
        tasks: Mapping[str, Mapping[tuple[str, str], Task]],
        *,
        capacity: int = 1024,
        lease_s: float = 60.0,
        longest_lease_s: float = LONGEST_LEASE_S,
        seats_per_caller: int | None = None,
        process: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pools, self.tasks = pools, tasks
        self.capacity, self.lease_s, self.process, self.clock = capacity, lease_s, process, clock
        self.longest_lease_s = longest_lease_s
        self.seats_per_caller = capacity if seats_per_caller is None else seats_per_caller
        self.accepts_new = True
        self.expired_total = 0
        self._sessions: dict[int, Session] = {}
        self._keyed: dict[tuple[str, str, str | None], asyncio.Task[Opened]] = {}
        """By caller, environment and key: the pending or finished answer to an `Open` with a key.
        """
        self._expired: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._seats: Counter[str] = Counter()
        """The number of taken seats, by caller."""
        self._opened = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def free(self) -> int:
        return max(0, self.capacity - self._seats.total())

    def free_for(self, caller: str) -> int:
        """Seats that a caller can have."""
        return min(self.free, max(0, self.seats_per_caller - self._seats[caller]))

    async def answer(self, call: AnyCall, caller: str) -> Any:
        """The result of a call, or a `WireError`."""
        if isinstance(call, Open):
            return await self.open(call, caller)
        session = self._find(call, caller)
        if session.calls >= WAITING_CALLS:
            raise WireError("busy", f"{WAITING_CALLS} calls of this session are waiting already")
        session.calls += 1
        try:
            async with session.turn:
                return await self._answer_in_turn(session, call)
        finally:
            session.calls -= 1
            session.expires = self.clock() + session.lease_s

    async def open(self, call: Open, caller: str) -> Opened:
        if call.key is None:
            return await self._open(call, caller)
        place = (caller, call.env, call.key)
        opening = self._keyed.get(place)
        if opening is None:
            opening = self._keyed[place] = asyncio.create_task(self._open(call, caller))
        try:
            return await asyncio.shield(opening)
        except Exception:
            self._keyed.pop(place, None)
            raise

    async def _open(self, call: Open, caller: str) -> Opened:
        env, lease_s = call.env, min(call.lease_s or self.lease_s, self.longest_lease_s)
        if not self.accepts_new:
            raise WireError("stopping", "this server is being stopped")
        if env not in self.pools:
            raise WireError(
                "not_found",
                f"there is no environment {env[:100]!r}; there are: {', '.join(self.pools)}",
            )
        handle = await self._seated(env, caller)
        session = Session(self._opened, call, caller, handle, lease_s)
        self._opened += 1
        session.expires = self.clock() + lease_s
        self._sessions[session.number] = session
        log.debug("opened", extra={"fields": {"session": session.number, "env": env}})
        return Opened(
            f"{self.process}.{session.number}.{session.secret}", lease_s, self.free_for(caller)
        )

    async def _seated(self, env: str, caller: str) -> EnvHandle:
        """An environment, and a seat for it."""
        if not self.free:
            raise WireError("busy", f"all {self.capacity} seats are taken")
        if not self.free_for(caller):
            raise WireError("busy", f"all {self.seats_per_caller} seats of this token are taken")
        self._seats[caller] += 1
        handle = None
        try:
            handle = await self.pools[env].open()
        except PoolExhausted as full:
            raise WireError("busy", str(full)) from None
        except EnvFault as fault:
            raise _as_wire(fault) from None
        finally:
            if handle is None:
                self._seats[caller] -= 1
        return handle

    def _find(self, call: SessionCall, caller: str) -> Session:
        """The caller's session.

        The number in a token is no secret; the rest is compared without telling how much of it was
        right.
        """
        _, _, rest = call.session.partition(".")
        number, _, secret = rest.partition(".")
        key = int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else -1
        session = self._sessions.get(key)
        if session is None:
            was_secret, was_caller = self._expired.get(key, ("", ""))
            if was_secret and _equal(secret, was_secret) and _equal(caller, was_caller):
                raise WireError(
                    "expired", "the session had no call before its lease ended, and was closed"
                )
        elif _equal(secret, session.secret) and _equal(caller, session.caller):
            return session
        raise WireError("not_found", "there is no such session")

    async def _answer_in_turn(self, session: Session, call: AnyCall) -> Any:
        # The session may have been closed while this call waited for its turn.
        if session.number not in self._sessions:
            raise WireError("not_found", "there is no such session")
        if isinstance(call, Close):
            self._forget(session)
            await self._let_go(session)
            return Done()
        # A repeated key: the client lost the answer and sent the call again over a new connection.
        # The stored answer is returned, because a second execution would change the episode.
        if isinstance(call, Change) and call.key is not None and call.key == session.changes:
            return self._again(session, call)
        if session.fault is not None and not isinstance(call, Reset):
            raise session.fault.exception
        if isinstance(call, Change) and call.key not in (None, session.changes + 1):
            raise WireError(
                "out_of_order", f"the next key is {session.changes + 1}, not {call.key}"
            )
        # Only a reset gets here after a fault. It continues with another environment.
        if session.fault is not None:
            session.handle = await self._seated(session.env, session.caller)
            session.fault, session.holds_seat = None, True
        try:
            result = await self._act(session, call)
            if problem := unsendable(result):
                raise EnvFault(problem)
            return result
        except EnvFault as fault:
            error = _as_wire(fault)
            session.fault = error.error
            log.warning(
                "fault",
                extra={
                    "fields": {"session": session.number, "env": session.env, "fault": str(fault)}
                },
            )
            await self._let_go(session)
            raise error from None
        except (WireError, asyncio.CancelledError):
            raise
        except Exception:
            session.fault = Error("internal", "the server failed; its log says how")
            await self._let_go(session)
            raise

    def _again(self, session: Session, call: Change) -> Any:
        """The stored answer to a call whose key was used already."""
        last = session.last_change
        if last is None or type(last) is not type(call) or _argument(last) != _argument(call):
            raise WireError("out_of_order", f"the key {call.key} was used for another call")
        if session.fault is not None:
            raise session.fault.exception
        return session.last_result

    async def _act(self, session: Session, call: AnyCall) -> Any:
        if session.observed is None and isinstance(call, Act | Observe | Actions | Expert):
            raise WireError("bad_request", "reset the session first")
        if isinstance(call, Act):
            assert session.observed is not None
            self._begin(session, call)
            step = cut(await session.handle.step(call.action))
            session.observed = Observed(
                step.observation, step.info, session.observed.score + step.reward
            )
            session.last_result = step
            return step
        if isinstance(call, Reset):
            task = self._task(session.env, call.task)
            self._begin(session, call)
            first = cut(Step(await session.handle.reset(task)))
            session.observed = session.last_result = Observed(first.observation, first.info)
            return session.observed
        if isinstance(call, Observe):
            return session.observed
        if isinstance(call, Actions):
            return ActionList(await session.handle.actions())
        if isinstance(call, Expert):
            return ExpertAction(await session.handle.expert())
        return Lease(session.lease_s)

    def _begin(self, session: Session, call: Change) -> None:
        # Counted before the environment is called: if the call fails, a repetition of its key gets
        # the fault and is not executed again.
        session.changes += 1
        session.last_change, session.last_result = call, None

    def _task(self, env: str, name: TaskName) -> Task:
        try:
            return self.tasks[env][name.split, name.id]
        except KeyError:
            raise WireError(
                "bad_request",
                f"{env} has no task {name.id[:100]!r} in the split {name.split[:100]!r}",
            ) from None

    async def _let_go(self, session: Session) -> None:
        """Close the session's environment, unless it was already closed after a fault."""
        session.observed = None
        if session.holds_seat:
            # Cleared before the await, so that a concurrent call does not free the seat twice.
            session.holds_seat = False
            self._seats[session.caller] -= 1
            await session.handle.close()

    def _forget(self, session: Session) -> None:
        del self._sessions[session.number]
        self._keyed.pop((session.caller, session.env, session.key), None)

    async def sweep(self) -> None:
        """Close the sessions whose lease has expired and that have no pending call."""
        now = self.clock()
        late = [one for one in self._sessions.values() if one.expires < now and not one.calls]
        # All are forgotten before the first await: no call can reach a session that is closing.
        for session in late:
            self._forget(session)
            self._expired[session.number] = (session.secret, session.caller)
            while len(self._expired) > REMEMBERED:
                self._expired.popitem(last=False)
        for session in late:
            await self._let_go(session)
        if late:
            self.expired_total += len(late)
            log.info("expired", extra={"fields": {"sessions": len(late)}})

    async def close(self) -> None:
        sessions, self._sessions, self._keyed = list(self._sessions.values()), {}, {}
        for session in sessions:
            await self._let_go(session)


def _argument(call: Change) -> Any:
    if isinstance(call, Reset):
        return call.task
    return call.action if isinstance(call, Act) else None


def _equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def _as_wire(fault: EnvFault) -> WireError:
    """What broke, in one line: tracebacks stay here."""
    said = str(fault).encode(errors="replace").decode()
    before, _, _ = said.partition("Traceback (most recent call last)")
    text = " ".join(before.split())[:500]
    code = "timeout" if isinstance(fault, EnvTimeout) else "env_fault"
    return WireError(code, text, is_collateral=fault.is_collateral)
