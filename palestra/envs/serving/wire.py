"""Wire v1: what goes over HTTP and the stream, typed once for the server and its clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from palestra.core.types import Example, Step, Task
from palestra.envs.serving.validation import CHARACTERS, is_cut
from palestra.envs.serving.validation import cut as shortened

BODY_BYTES = 1024 * 1024
"""The largest request, and the largest frame of calls."""
OBSERVATION_CHARACTERS = CHARACTERS
ANSWER_BYTES = 8 * 1024 * 1024
"""The size limit of an answer. `info` can be long too, not only the observation."""
BATCH_CALLS = 1000
LONGEST_LEASE_S = 3600.0

STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "not_allowed": 405,
    "too_slow": 408,
    "out_of_order": 409,
    "expired": 410,
    "too_large": 413,
    "busy": 429,
    "internal": 500,
    "env_fault": 502,
    "stopping": 503,
    "timeout": 504,
}
"""Every error code, and its HTTP status."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no message: msgspec gives up on deep ones by a
RecursionError.
"""


class WireError(Exception):
    """A refusal with a code that programs can act on."""

    def __init__(self, code: str, message: str, *, is_collateral: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.is_collateral = code, message, is_collateral

    @property
    def error(self) -> Error:
        """As it is sent."""
        return Error(self.code, self.message, self.is_collateral)


class Error(Struct, omit_defaults=True):
    code: str
    message: str
    is_collateral: bool = False
    """Whether another session broke the worker process that both were in. It is left out if not."""

    @property
    def exception(self) -> WireError:
        return WireError(self.code, self.message, is_collateral=self.is_collateral)


Text = Annotated[str, Meta(max_length=BODY_BYTES)]
Key = Annotated[int, Meta(ge=1, le=2**53)]


class TaskName(Struct, forbid_unknown_fields=True):
    split: str
    id: str


# Calls. Over HTTP their `call` and `session` stand in the path, and the other fields in the body.


class Call(
    Struct,
    tag_field="call",
    tag=str.lower,
    forbid_unknown_fields=True,
    omit_defaults=True,
    kw_only=True,
):
    id: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """The answer carries the same."""


class Open(Call):
    """The same key again gives the same session, while it lives: a client that lost the answer gets
    it back.
    """

    env: str
    key: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """Random: whoever knows it has the session."""
    lease_s: Annotated[float, Meta(gt=0, le=LONGEST_LEASE_S)] | None = None
    """Default: the server's own. For clients that cannot renew while their model is training."""


class SessionCall(Call):
    session: str


class Change(SessionCall):
    """A call that changes the environment: the first of a session has key 1, the next 2.

    The same key again gives the stored answer and does not act again. Without a key nothing can be
    repeated safely.
    """

    key: Key | None = None


class Reset(Change, kw_only=True):
    """Begin a task. After a fault the session gets another environment for it."""

    task: TaskName


class Act(Change, tag="step", kw_only=True):
    action: Text


class Actions(SessionCall):
    """Which actions are valid now."""


class Expert(SessionCall):
    """What an oracle would do now."""


class Observe(SessionCall):
    """The last observation again."""


class Renew(SessionCall):
    """Every call renews the lease; this one does nothing else."""


class Close(SessionCall):
    pass


AnyCall = Open | Reset | Act | Actions | Expert | Observe | Renew | Close

# Results.


class Opened(Struct):
    session: str
    """Whoever has it can act: keep it secret."""
    lease_s: float
    """Seconds without any call after which the session is closed."""
    free: int
    """Seats that are left."""


class Observed(Struct):
    observation: str
    info: dict[str, Any] = {}
    score: float = 0.0
    """All rewards since the reset."""


class ActionList(Struct):
    actions: list[str] | None


class ExpertAction(Struct):
    action: str | None


class Lease(Struct):
    lease_s: float


class Done(Struct):
    """Nothing more is to be said."""


class Answer(Struct, omit_defaults=True):
    id: int
    result: Any = None
    error: Error | None = None


class RawAnswer(Struct):
    """An answer as a client reads it: what kind the result is depends on the call."""

    id: int
    result: msgspec.Raw = msgspec.Raw(msgspec.msgpack.encode(None))
    error: Error | None = None


# What a server has.


class EnvAbout(Struct):
    name: str
    splits: dict[str, int]
    """With the number of tasks of each."""
    max_turns: int
    instructions: str
    example: list[Example]
    vocabulary: list[str] | None


class EnvList(Struct):
    envs: list[str]
    capacity: int
    free: int


class TaskPage(Struct):
    tasks: list[Task]
    total: int
    next: int | None
    """The offset of the next page."""


class Health(Struct):
    status: str
    """ "ok", or "stopping" while sessions are waited for."""
    sessions: int


def cut(step: Step) -> Step:
    """A step whose observation is short enough to be sent. `info` says if it was cut."""
    observation = shortened(step.observation, OBSERVATION_CHARACTERS)
    if not (len(observation) == OBSERVATION_CHARACTERS and is_cut(observation)):
        return step
    return replace(step, observation=observation, info={**step.info, "observation_cut": True})


def unsendable(result: Any) -> str:
    """Why a result cannot be sent, or an empty text. Causes: lone surrogates, integers of 100
    digits, deep nesting, megabytes of `info`.
    """
    try:
        size = len(msgspec.msgpack.encode(result))
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        return f"the answer cannot be sent: {error}"
    if size > ANSWER_BYTES:
        return f"the answer has {size} bytes, and at most {ANSWER_BYTES} can be sent"
    return ""


def frames(parts: list[msgspec.Raw]) -> list[bytes]:
    """Encoded calls or answers, as frames of at most the allowed size unless
    one alone is larger.
    """
    found: list[bytes] = []
    waiting: list[msgspec.Raw] = []
    size = 0
    for part in parts:
        length = memoryview(part).nbytes
        if waiting and (size + length > BODY_BYTES - 16 or len(waiting) == BATCH_CALLS):
            found.append(msgspec.msgpack.encode(waiting))
            waiting, size = [], 0
        waiting.append(part)
        size += length
    if waiting:
        found.append(msgspec.msgpack.encode(waiting))
    return found
