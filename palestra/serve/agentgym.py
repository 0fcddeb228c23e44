"""Routes on which AgentGym's own clients play our environments.

Their servers run one environment each; here each has its folder, so that a client's `env_server_base` ends in, say, `/agentgym/textcraft`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from palestra.agents.formats import ReAct
from palestra.envs.agentgym_dialects import DIALECTS, GENERIC
from palestra.serve.handle import EnvFault, EnvHandle, EnvTimeout
from palestra.types import Step, Task

T = TypeVar("T")
OpenHandle = Callable[[str], Awaitable[EnvHandle]]
Handler = Callable[[web.Request], Awaitable[Any]]

log = logging.getLogger(__name__)

OBSERVATION_CHARACTERS = 1_000_000


class Refusal(Exception):
    """An answer other than 200. Their clients look at the status before they read; the body has their servers' field `error`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def add_agentgym_routes(
    app: web.Application,
    open_handle: OpenHandle,
    tasks_of: Mapping[str, Mapping[str, Sequence[Task]]],
    *,
    prefix: str = "/agentgym",
    capacity: int = 1024,
    lease_s: float = 3600.0,
    deadline_s: float = 60.0,
) -> None:
    """Serve every environment of `tasks_of` (environment -> split -> tasks) under `prefix`, as AgentGym serves it.

    `lease_s` is long: their clients open a session once, hold it while the learner is at work, and most never close it.
    """
    sessions = Sessions(open_handle, capacity=capacity, lease_s=lease_s, deadline_s=deadline_s)
    for env, splits in tasks_of.items():
        _EnvRoutes(env, splits, sessions).add_to(app, f"{prefix}/{env}")

    async def closed_in_time(_: web.Application) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(sessions.keep_sweeping())
        yield
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        await sessions.close()

    app.cleanup_ctx.append(closed_in_time)


class Session:
    """One client's environment, and what it has seen of it."""

    def __init__(self, number: int, env: str) -> None:
        self.number, self.env = number, env
        self.handle: EnvHandle | None = None
        """None after a fault: the next reset opens another."""
        self.expires = math.inf
        self.lock = asyncio.Lock()
        self.index = 0
        self.observation: str | None = None
        self.score = 0.0


class Sessions:
    """Sessions by number: random ones that only whoever opened a session knows. Closed when nobody called for `lease_s`."""

    def __init__(self, open_handle: OpenHandle, *, capacity: int, lease_s: float, deadline_s: float) -> None:
        self.open_handle = open_handle
        self.capacity, self.lease_s, self.deadline_s = capacity, lease_s, deadline_s
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, env: str) -> Session:
        if len(self) >= self.capacity:
            raise Refusal(503, f"all {self.capacity} sessions are taken")  # the one status after which some of their clients try again
        session = Session(secrets.randbelow(2**53 - 1) + 1, env)
        self._sessions[session.number] = session
        return session

    def find(self, env: str, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None or session.env != env:
            raise Refusal(404, f"there is no session {number}: it was never opened, was closed, or had no call for {self.lease_s:g} s")
        return session

    @asynccontextmanager
    async def turn(self, session: Session) -> AsyncIterator[None]:
        """One call at a time, in the order in which they came; each renews the lease."""
        async with session.lock:
            self.find(session.env, session.number)  # it may have been closed while this call waited
            try:
                yield
            finally:
                session.expires = time.monotonic() + self.lease_s

    async def ready(self, session: Session) -> EnvHandle:
        """Its environment, opened anew where the last one broke."""
        if session.handle is None:
            session.handle = await self.within_deadline(session, self.open_handle(session.env))
        return session.handle

    async def within_deadline(self, session: Session, call: Awaitable[T]) -> T:
        """What the environment answers. One that broke or hangs is thrown away, and the session must be reset."""
        try:
            async with asyncio.timeout(self.deadline_s):
                return await call
        except asyncio.CancelledError:  # it may be in the middle of an answer that nobody will read
            await self._break(session)
            raise
        except (EnvFault, TimeoutError) as error:
            fault = error if isinstance(error, EnvFault) else EnvTimeout(f"no answer within {self.deadline_s:g} s")
            log.warning("agentgym: session of %s: %s", session.env, fault)
            await self._break(session)
            raise Refusal(504 if isinstance(fault, EnvTimeout) else 502, f"the environment broke: {_one_line(fault)}") from None

    async def _break(self, session: Session) -> None:
        session.observation = None
        await self._let_go(session)

    async def end(self, session: Session) -> None:
        self._sessions.pop(session.number, None)
        await self._let_go(session)

    async def keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(min(self.lease_s / 4, 5.0))
            for session in list(self._sessions.values()):
                if session.expires < time.monotonic() and not session.lock.locked():
                    log.info("agentgym: a session of %s had no call for %g s and is closed", session.env, self.lease_s)
                    await self.end(session)

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            await self.end(session)

    async def _let_go(self, session: Session) -> None:
        handle, session.handle = session.handle, None
        if handle is not None:
            try:
                async with asyncio.timeout(self.deadline_s):
                    await handle.close()
            except (EnvFault, TimeoutError) as error:
                log.warning("agentgym: an environment of %s could not be closed: %s", session.env, error)


class _EnvRoutes:
    """The handlers of one environment. Each gives what is sent as JSON, or raises a `Refusal`."""

    def __init__(self, env: str, splits: Mapping[str, Sequence[Task]], sessions: Sessions) -> None:
        self.env, self.splits, self.sessions = env, splits, sessions
        self.dialect = DIALECTS.get(env, GENERIC)
        self.tasks = [task for tasks in splits.values() for task in tasks]

    def add_to(self, app: web.Application, folder: str) -> None:
        posts: dict[str, Handler] = {"/create": self.create, "/reset": self.reset, "/step": self.step, "/close": self.close}
        gets: dict[str, Handler] = {"": self.about, "/": self.about, "/observation": self.observe, "/action_hint": self.hint}
        for path, handler in posts.items():
            app.router.add_post(folder + path, _answered(handler))
        for path, handler in gets.items():
            app.router.add_get(folder + path, _answered(handler))

    async def about(self, _: web.Request) -> str:
        ranges, first = [], 0
        for split, tasks in self.splits.items():
            ranges.append(f"{split} {first} to {first + len(tasks) - 1}" if tasks else f"{split} none")
            first += len(tasks)
        return f"This is environment {self.env}. Tasks: {', '.join(ranges)}."

    async def create(self, request: web.Request) -> Any:
        body = await _body(request)
        for field in ("commands", "goal"):
            if body.get(field) is not None:
                raise Refusal(422, f"{field}: games of one's own cannot be played here; leave it out")
        begins = self.dialect.created == "begun" or body.get(self.dialect.task) is not None
        index = self._index(body, 0)
        session = self.sessions.open(self.env)
        try:
            async with self.sessions.turn(session):
                await (self._begin(session, index) if begins else self.sessions.ready(session))
        except BaseException:  # nobody will ever know its number
            await self.sessions.end(session)
            raise
        if self.dialect.created == "number":
            return session.number
        return self._begun(session) if begins else {self.dialect.session: session.number}

    async def reset(self, request: web.Request) -> Any:
        body = await _body(request)
        session = self._session(body)
        async with self.sessions.turn(session):
            await self._begin(session, self._index(body, session.index))
            return self._begun(session)

    async def step(self, request: web.Request) -> Any:
        body = await _body(request)
        session = self._session(body)
        if not isinstance(body.get("action"), str):
            raise Refusal(422, f"action: expected a text, came {_short(body.get('action'))}")
        async with self.sessions.turn(session):
            handle = self._playing(session)
            step = await self._stepped(session, handle, body["action"])
            session.observation = _cut(step.observation)
            session.score += step.reward
            return self._step_answer(session, step)

    async def close(self, request: web.Request) -> Any:
        session = self._session(await _body(request))
        async with self.sessions.turn(session):
            await self.sessions.end(session)
        return {"closed": True}

    async def observe(self, request: web.Request) -> str:
        session = self._session(request.query)
        async with self.sessions.turn(session):
            self._playing(session)
            return session.observation or ""

    async def hint(self, request: web.Request) -> Any:
        session = self._session(request.query)
        async with self.sessions.turn(session):
            handle = self._playing(session)
            actions = await self.sessions.within_deadline(session, handle.actions())
        return {"possible_actions": actions or [], "possible_objects": []}

    def _session(self, fields: Mapping[str, Any]) -> Session:
        return self.sessions.find(self.env, _whole_number(fields, self.dialect.session))

    def _playing(self, session: Session) -> EnvHandle:
        if session.handle is None or session.observation is None:
            raise Refusal(409, f"session {session.number}: POST /reset before this")
        return session.handle

    def _index(self, body: Mapping[str, Any], default: int) -> int:
        field = self.dialect.task
        index = default if body.get(field) is None else _whole_number(body, field)
        if not 0 <= index < len(self.tasks):
            raise Refusal(422, f"{field}: {self.env} has the tasks 0 to {len(self.tasks) - 1}, not {index}")
        return index

    async def _begin(self, session: Session, index: int) -> None:
        handle = await self.sessions.ready(session)
        session.observation = _cut(await self.sessions.within_deadline(session, handle.reset(self.tasks[index])))
        session.index, session.score = index, 0.0

    async def _stepped(self, session: Session, handle: EnvHandle, said: str) -> Step:
        """Most of their clients send the action alone, others all that the model wrote."""
        parsed = ReAct().parse(said) if "Action:" in said else None
        if parsed is not None and parsed.action is None:
            return Step(parsed.error, invalid=True)
        return await self.sessions.within_deadline(session, handle.step(said if parsed is None else parsed.action or ""))

    def _begun(self, session: Session) -> Any:
        dialect, observation = self.dialect, session.observation
        if dialect.begun == "text":
            return observation
        if dialect.begun == "pair":
            return [observation, None]
        fields = {dialect.session: session.number, dialect.observation: observation, "reward": 0.0, "done": False, "deleted": False}
        if dialect.has_score:
            fields["score"] = 0.0
        if self.env == "sciworld":
            fields |= _sciworld_fields(self.tasks[session.index], observation or "")
        return fields

    def _step_answer(self, session: Session, step: Step) -> dict[str, Any]:
        dialect = self.dialect
        fields: dict[str, Any] = {
            dialect.observation: session.observation,
            "reward": round(step.reward * dialect.full_score, 6),
            "done": step.terminated or step.truncated,
        }
        if dialect.has_score:
            fields["score"] = round(session.score * dialect.full_score, 6)
        if dialect.session == "env_idx":
            fields |= {"terminated": step.terminated, "truncated": step.truncated, "info": step.info}
        return fields


def _sciworld_fields(task: Task, observation: str) -> dict[str, Any]:
    """Their clients put description and observation together with a line break, so that whatever the parts are the whole is ours."""
    description, _, rest = observation.partition("\n")
    kind, _, variation = task.id.partition("/")
    return {
        "task_name": kind,
        "var_num": int(variation) if variation.isascii() and variation.isdecimal() else 0,
        "task_description": description,
        "observation": rest,
    }


def _answered(handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler with its answer as JSON, refusals included; what nobody foresaw is logged here and not told."""

    async def answer(request: web.Request) -> web.Response:
        try:
            status, said = 200, await handler(request)
        except Refusal as refusal:
            status, said = refusal.status, {"error": str(refusal)}
        except web.HTTPException as refusal:
            status, said = refusal.status, {"error": refusal.reason}
        except Exception:
            log.exception("agentgym: %s", request.path)
            status, said = 500, {"error": "the server broke; its log says why"}
        return web.json_response(status=status, body=msgspec.json.encode(said))

    return answer


async def _body(request: web.Request) -> Mapping[str, Any]:
    """The fields of the body; none where it is empty, as in their POST /create."""
    said = await request.read()
    try:
        body = msgspec.json.decode(said) if said.strip() else {}
    except (msgspec.DecodeError, RecursionError):
        raise Refusal(422, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(422, f"expected a JSON object, came {_short(body)}")
    return body


def _whole_number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:  # out of an address
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Refusal(422, f"{name}: expected a whole number, came {_short(value)}")


def _cut(observation: str) -> str:
    if len(observation) <= OBSERVATION_CHARACTERS:
        return observation
    return f"{observation[:OBSERVATION_CHARACTERS]} [cut: {len(observation)} characters]"


def _short(value: Any) -> str:
    text = _one_line(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}..."


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:500]
