"""Routes for AgentGym's own clients, whose requests are translated to calls of wire v1.

An AgentGym server runs one environment. Here each environment has its own path, so a client's
`env_server_base` ends in, for example, `/agentgym/textcraft`.
"""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from aiohttp import web

from palestra.core.action_formats import Parsed, ReAct, Tags
from palestra.core.types import Step, Task
from palestra.envs.adapters.agentgym_dialects import GENERIC, SERVED, find_action
from palestra.envs.serving.catalogue import Catalogue
from palestra.envs.serving.connection_limits import Limits, body_of
from palestra.envs.serving.request_auth import RequestAuth
from palestra.envs.serving.wire import (
    LONGEST_LEASE_S,
    STATUS,
    UNREADABLE,
    Act,
    ActionList,
    Actions,
    AnyCall,
    Close,
    Observe,
    Observed,
    Open,
    Opened,
    Reset,
    TaskName,
    WireError,
)

PREFIX = "/agentgym"
LEASE_S = LONGEST_LEASE_S
"""The lease for AgentGym's clients: they open a session once, hold it during training, and mostly
never close it.
"""
STATUS_HERE = STATUS | {"bad_request": 422, "busy": 503}
"""The status codes of AgentGym's servers, and 503, the one status after which some clients retry.
"""
SECRET_BYTES = 16

T = TypeVar("T")

log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any], str], Awaitable[Any]]
"""Takes a request's fields and its caller. Returns what is sent as JSON, or raises a `WireError`.
"""


class Answers(Protocol):
    """The server, as far as it is needed here."""

    catalogue: Catalogue
    guard: RequestAuth
    limits: Limits

    async def answer(self, call: AnyCall, caller: str) -> Any: ...


def add_agentgym_routes(app: web.Application, server: Answers) -> None:
    for place, env in enumerate(server.catalogue.about):
        _EnvRoutes(server, env, place).add_to(app)


class _EnvRoutes:
    """The handlers of one environment."""

    def __init__(self, server: Answers, env: str, place: int) -> None:
        self.server, self.env, self.place = server, env, place
        self.dialect = SERVED.get(env, GENERIC)
        self.tasks = list(server.catalogue.tasks[env].values())

    def add_to(self, app: web.Application) -> None:
        folder = f"{PREFIX}/{self.env}"
        posts: dict[str, Handler] = {
            "/create": self.create,
            "/reset": self.reset,
            "/step": self.step,
            "/close": self.close,
        }
        gets: dict[str, Handler] = {
            "": self.about,
            "/": self.about,
            "/observation": self.observe,
            "/action_hint": self.hint,
        }
        for path, handler in posts.items():
            app.router.add_post(folder + path, self._answered(handler))
        for path, handler in gets.items():
            app.router.add_get(folder + path, self._answered(handler))

    def _answered(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler with its answer as JSON; refusals have their servers' field `error`."""

        async def answer(request: web.Request) -> web.Response:
            try:
                caller = self.server.guard.admit(request)
                fields: Mapping[str, Any] = request.query
                if request.method != "GET":
                    fields = _fields(await body_of(request, self.server.limits.body_s))
                status, said = 200, await handler(fields, caller)
            except WireError as refusal:
                status, said = STATUS_HERE[refusal.code], {"error": refusal.message}
            except web.HTTPException as refusal:
                status, said = refusal.status, {"error": refusal.reason}
            except Exception:
                log.exception("failed", extra={"fields": {"path": request.path}})
                status, said = 500, {"error": "the server failed; its log says how"}
            return web.json_response(status=status, body=msgspec.json.encode(said))

        return answer

    async def about(self, _: Mapping[str, Any], caller: str) -> str:
        ranges, first = [], 0
        for split, count in self.server.catalogue.about[self.env].splits.items():
            ranges.append(f"{split} {first} to {first + count - 1}" if count else f"{split} none")
            first += count
        return f"This is environment {self.env}. Tasks: {', '.join(ranges)}."

    async def create(self, fields: Mapping[str, Any], caller: str) -> Any:
        for field in ("commands", "goal"):
            if fields.get(field) is not None:
                raise WireError(
                    "bad_request",
                    f"{field}: games of one's own cannot be played here; leave it out",
                )
        begins = self.dialect.created == "begun" or fields.get(self.dialect.task) is not None
        task = self._task(fields)
        opened = await self._answer(Open(env=self.env, lease_s=LEASE_S), caller, Opened)
        number = session_number(self.place, opened.session)
        if not begins:
            return number if self.dialect.created == "number" else {self.dialect.session: number}
        try:
            observed = await self._begin(opened.session, task, caller)
        except BaseException:  # nobody will ever know its number
            await self.server.answer(Close(session=opened.session), caller)
            raise
        return number if self.dialect.created == "number" else self._begun(number, task, observed)

    async def reset(self, fields: Mapping[str, Any], caller: str) -> Any:
        number, session = self._session(fields)
        task = self._task(fields)
        return self._begun(number, task, await self._begin(session, task, caller))

    async def step(self, fields: Mapping[str, Any], caller: str) -> Any:
        _, session = self._session(fields)
        said = fields.get("action")
        if not isinstance(said, str):
            raise WireError("bad_request", f"action: expected a text, came {_short(said)}")
        parsed = self._read(said)
        if parsed.action is None:
            now = await self._observed(session, caller)
            return self._stepped(Step(parsed.error, invalid=True), now)
        step = await self._answer(Act(session=session, action=parsed.action), caller, Step)
        now = Observed("")
        if self.dialect.has_score:
            now = await self._observed(session, caller)
        return self._stepped(step, now)

    async def close(self, fields: Mapping[str, Any], caller: str) -> Any:
        _, session = self._session(fields)
        await self.server.answer(Close(session=session), caller)
        return {"closed": True}

    async def observe(self, fields: Mapping[str, Any], caller: str) -> str:
        _, session = self._session(fields)
        return (await self._observed(session, caller)).observation

    async def hint(self, fields: Mapping[str, Any], caller: str) -> Any:
        _, session = self._session(fields)
        found = await self._answer(Actions(session=session), caller, ActionList)
        return {"possible_actions": found.actions or [], "possible_objects": []}

    def _read(self, said: str) -> Parsed:
        """Most of their clients send the action alone, others all that the model wrote."""
        action = find_action(self.dialect, said)
        if action is not None:
            return Parsed(action)
        if self.dialect.action == "tagged" and "<think>" in said:
            return Tags().parse(said)
        return ReAct().parse(said) if "Action:" in said else Parsed(said)

    def _session(self, fields: Mapping[str, Any]) -> tuple[int, str]:
        number = _whole_number(fields, self.dialect.session)
        session = session_token(self.place, number)
        if session is None:
            raise WireError("not_found", "there is no such session")
        return number, session

    def _task(self, fields: Mapping[str, Any]) -> Task:
        field = self.dialect.task
        place = 0 if fields.get(field) is None else _whole_number(fields, field)
        if not 0 <= place < len(self.tasks):
            raise WireError(
                "bad_request",
                f"{field}: {self.env} has the tasks 0 to {len(self.tasks) - 1}, not "
                f"{_short(place)}",
            )
        return self.tasks[place]

    async def _begin(self, session: str, task: Task, caller: str) -> Observed:
        return await self._answer(
            Reset(session=session, task=TaskName(task.split, task.id)), caller, Observed
        )

    async def _observed(self, session: str, caller: str) -> Observed:
        return await self._answer(Observe(session=session), caller, Observed)

    async def _answer(self, call: AnyCall, caller: str, kind: type[T]) -> T:
        """What comes from another process of the server has no type yet."""
        result = await self.server.answer(call, caller)
        return result if isinstance(result, kind) else msgspec.convert(result, kind)

    def _begun(self, number: int, task: Task, observed: Observed) -> Any:
        dialect, observation = self.dialect, observed.observation
        if dialect.begun == "text":
            return observation
        if dialect.begun == "pair":
            return [observation, None]
        fields = {
            dialect.session: number,
            dialect.observation: observation,
            "reward": 0.0,
            "done": False,
            "deleted": False,
        }
        if dialect.has_score:
            fields["score"] = 0.0
        if self.env == "sciworld":
            fields |= _sciworld_fields(task, observation)
        return fields

    def _stepped(self, step: Step, now: Observed) -> dict[str, Any]:
        dialect = self.dialect
        fields: dict[str, Any] = {
            dialect.observation: step.observation,
            "reward": round(step.reward * dialect.full_score, 6),
            "done": step.terminated or step.truncated,
        }
        if dialect.has_score:
            fields["score"] = round(now.score * dialect.full_score, 6)
        if dialect.session == "env_idx":
            fields |= {
                "terminated": step.terminated,
                "truncated": step.truncated,
                "info": step.info,
            }
        if step.terminated or step.truncated:
            fields[dialect.end] = True  # WebArena's client plays on until it is told so here
        return fields


class _Number(NamedTuple):
    """A session's token as their clients name sessions: nothing of it is lost, neither the secret
    nor whose process has the session.
    """

    mark: int
    """Keeps zeros that follow."""
    place: int
    """The index of the environment among those of the server."""
    process: int
    session: int
    secret: bytes


LAYOUT = struct.Struct(f">BBHQ{SECRET_BYTES}s")


def session_number(place: int, token: str) -> int:
    process, session, secret = token.split(".")
    secret_bytes = base64.urlsafe_b64decode(secret + "==")
    parts = _Number(1, place, int(process), int(session), secret_bytes)
    return int.from_bytes(LAYOUT.pack(*parts), "big")


def session_token(place: int, number: int) -> str | None:
    """The inverse of `session_number`; None if no session of that environment has this number."""
    if number < 0 or number.bit_length() > 8 * LAYOUT.size:
        return None
    parts = _Number(*LAYOUT.unpack(number.to_bytes(LAYOUT.size, "big")))
    if (parts.mark, parts.place) != (1, place):
        return None
    secret = base64.urlsafe_b64encode(parts.secret).decode().rstrip("=")
    return f"{parts.process}.{parts.session}.{secret}"


def _sciworld_fields(task: Task, observation: str) -> dict[str, Any]:
    """The client joins description and observation with a line break, so that the result is our
    text.
    """
    description, _, rest = observation.partition("\n")
    kind, _, variation = task.id.partition("/")
    return {
        "task_name": kind,
        "var_num": int(variation) if variation.isascii() and variation.isdecimal() else 0,
        "task_description": description,
        "observation": rest,
    }


def _fields(body: bytes) -> Mapping[str, Any]:
    """The fields of a JSON body; none if it is empty, as in the client's POST /create."""
    try:
        fields = msgspec.json.decode(body) if body.strip() else {}
    except UNREADABLE:
        raise WireError("bad_request", "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise WireError("bad_request", f"expected a JSON object, came {_short(fields)}")
    return fields


def _whole_number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    # In a query string, numbers are text.
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 100:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise WireError("bad_request", f"{name}: expected a whole number, came {_short(value)}")


def _short(value: Any) -> str:
    text = (
        " ".join(value.split()) if isinstance(value, str) else msgspec.json.encode(value).decode()
    )
    return text if len(text) <= 100 else f"{text[:100]}..."
