"""Environments that run behind AgentGym's own servers (arXiv:2406.04151)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from palestra.core.files import CannotRead, read_json
from palestra.core.registry import nearest
from palestra.core.types import Step, Task
from palestra.core.untrusted import Unreadable, check_nesting
from palestra.envs.adapters.agentgym_dialects import DIALECTS, write_action
from palestra.envs.base import UNLISTED, Environment

ANSWER_BYTES = 8 * 1024 * 1024
CLOSE_S = 5.0
"""The time limit for closing a session.

A server that hangs has already cost `timeout_s`.
"""

INSTRUCTIONS = {
    "textcraft": """\
You are crafting an item by Minecraft's recipes. You are shown crafting commands, some of them of \
no use, and then the goal. Each turn you \
take one action:
- get <amount> <item>: fetch an item that no command crafts
- craft <amount> <item> using <amount> <item>, <amount> <item>: follow one of the commands with \
what you hold, in its amounts
- inventory: see what you hold
Where a command names a kind of item, such as planks, use any item of that kind that you hold.""",
    "babyai": """\
You are in a world of rooms with doors, keys, balls and boxes, and you are given a goal. You see \
only what is in front of you. After each \
action you are told what you see and which actions are available: answer with one of these, word \
for word.""",
    "sciworld": """\
You are in a house with a workshop, a kitchen and other rooms, and you are given a scientific \
task. Each turn you take one action, such as \
these: look around; look at OBJ; look in OBJ; read OBJ; open OBJ; close OBJ; go to LOC; pick up \
OBJ; put down OBJ; move OBJ to OBJ; \
pour OBJ into OBJ; dunk OBJ into OBJ; mix OBJ; use OBJ on OBJ; activate OBJ; deactivate OBJ; \
connect OBJ to OBJ; disconnect OBJ; eat OBJ; \
flush OBJ; focus on OBJ; wait; wait1; task; inventory. Focus only on what the task names: focusing \
on a wrong thing ends it.""",
}


class ServerError(RuntimeError):
    """The server failed. A fault of the environment, not of the agent."""


class AgentGym(Environment):
    """An environment on an AgentGym server.

    `url`: the server's address. `env`: which environment it serves. `train`, `test`: how many
    tasks, numbered from 0 and one split after the other, or a JSON file of item ids such as
    AgentGym's own lists. `timeout_s`: the limit for one request, in seconds. `instructions`: the
    system prompt's part about the environment. Default: ours for textcraft, babyai and sciworld.
    """

    name: ClassVar[str] = "agentgym"

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        env: str = "textcraft",
        *,
        train: int | str = 400,
        test: int | str = 100,
        instructions: str | None = None,
        max_turns: int = 30,
        timeout_s: float = 30.0,
    ) -> None:
        if env not in DIALECTS:
            raise ValueError(
                f"agentgym: env is {env!r}, which AgentGym does not have; {nearest(env, DIALECTS)}"
            )
        for option, value in (("max_turns", max_turns), ("timeout_s", timeout_s)):
            if not value > 0:
                raise ValueError(f"agentgym: {option} is {value}; it must be more than 0")
        self.server = Server(url, timeout_s)
        self.env, self.dialect = env, DIALECTS[env]
        self.numbers = _numbers(env, train, test)
        self.max_turns = max_turns
        self.instructions = INSTRUCTIONS.get(env, "") if instructions is None else instructions
        self._session: int | None = None
        self._score = 0.0
        self._end: Step | None = None
        """The answer to every action after the end of the episode."""

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.numbers:
            raise ValueError(f"agentgym has no split {split!r}; {nearest(split, self.numbers)}")
        return [
            Task(self.name, split, f"{self.env}_{number}", self.env)
            for number in self.numbers[split]
        ]

    def task(self, id: str) -> Task:
        """Any number is accepted, because only the server knows how many tasks it has."""
        number = _number(self.env, id)
        split = next(
            (split for split, numbers in self.numbers.items() if number in numbers), UNLISTED
        )
        return Task(self.name, split, f"{self.env}_{number}", self.env)

    def reset(self, task: Task) -> str:
        number = _number(self.env, task.id)
        if self._session is None:
            self._session = self._create()
        answer = self._call("/reset", {self.dialect.task: number, **self.dialect.more})
        self._score, self._end = 0.0, None
        if self.dialect.begun == "pair" and isinstance(answer, list) and answer:
            answer = answer[0]
        if isinstance(answer, dict):
            told = (answer.get("task_description"), answer.get(self.dialect.observation))
            answer = "\n".join(text for text in told if isinstance(text, str))
        has_begun = answer != "TimeoutError"  # what AgentGym's WebArena answers with status 200
        if not isinstance(answer, str) or not answer or not has_begun:
            raise ServerError(
                f"{self.server.url}/reset: expected an observation, came {_short(answer)}"
            )
        return self._observe() if self.dialect.observes_first else answer

    def _observe(self) -> str:
        seen = self.server.get("/observation", {self.dialect.session: self._session})
        if not isinstance(seen, str) or not seen:
            raise ServerError(
                f"{self.server.url}/observation: expected an observation, came {_short(seen)}"
            )
        return seen

    def step(self, action: str) -> Step:
        if self._end is not None:
            return self._end
        answer = self._call("/step", {"action": write_action(self.dialect, action)})
        observation = self._field(answer, self.dialect.observation)
        reward = self._field(answer, "reward")
        ended = self._field(answer, self.dialect.end)
        truncated = answer.get("truncated") is True
        if not isinstance(observation, str) or not isinstance(ended, bool):
            raise ServerError(
                f"{self.server.url}/step: expected a text and whether it is the end, came "
                f"{_short(answer)}"
            )
        gained, success = self._judge(
            answer, _as_number(reward), ended=ended, is_over=ended or truncated
        )
        if ended or truncated:
            self._end = Step(
                "The episode is over.", terminated=ended, truncated=not ended, success=success
            )
        return Step(
            observation,
            gained,
            terminated=ended,
            truncated=truncated and not ended,
            success=success,
            info={"raw_reward": reward},
        )

    def close(self) -> None:
        """Ask the server to close the session. Many servers cannot, which is not an error."""
        session, self._session = self._session, None
        if session is not None:
            try:
                self.server.post("/close", {self.dialect.session: session}, most_s=CLOSE_S)
            except ServerError:
                return

    def _create(self) -> int:
        answer = self.server.post("/create", {} if self.dialect.session == "id" else {"id": 0})
        number = answer.get(self.dialect.session) if isinstance(answer, dict) else answer
        if not isinstance(number, int) or isinstance(number, bool):
            raise ServerError(
                f"{self.server.url}/create: expected the number of a session, came {_short(answer)}"
            )
        return number

    def _call(self, path: str, fields: dict[str, Any]) -> Any:
        if self._session is None:
            raise RuntimeError("agentgym: call reset(task) before this")
        return self.server.post(path, {self.dialect.session: self._session, **fields})

    def _judge(
        self, answer: dict[str, Any], reward: float, *, ended: bool, is_over: bool
    ) -> tuple[float, bool | None]:
        """The step's reward, such that the sum over an episode is its score, and at the end whether
        it is solved.
        """
        before, last = self._score, reward
        match self.dialect.rewards:
            case "score":
                last = _as_number(self._field(answer, "score")) / self.dialect.full_score
                self._score = min(max(last, 0.0), 1.0)
            case "final":
                last = reward if ended else 0.0
                self._score = last
            case "last":
                self._score = reward
            case "highest":
                self._score = max(before, reward)
        success = last >= self.dialect.solved_at if is_over else None
        if self.dialect.rewards == "each":
            return reward, success
        return self._score - before, success

    def _field(self, answer: Any, name: str) -> Any:
        if not isinstance(answer, dict) or name not in answer:
            raise ServerError(
                f"{self.server.url}/step: expected the field {name!r}, came {_short(answer)}"
            )
        return answer[name]


class Server:
    """One address.

    A request is never sent twice: these servers cannot tell a repeated step from a new one.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise ValueError(f"agentgym: url is {url!r}; it must be such as http://127.0.0.1:8000")
        self.url, self.timeout_s = url.rstrip("/"), timeout_s
        self._address = (parts.hostname, port)
        self._folder = parts.path.rstrip("/")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection

    def post(self, path: str, body: dict[str, Any], *, most_s: float = math.inf) -> Any:
        return self._ask("POST", path, path, json.dumps(body), most_s)

    def get(self, path: str, query: dict[str, Any]) -> Any:
        return self._ask("GET", path, f"{path}?{urlencode(query)}", None, math.inf)

    def _ask(self, method: str, path: str, target: str, body: str | None, most_s: float) -> Any:
        """The decoded answer. These servers report most errors with status 200."""
        connection = self._kind(*self._address, timeout=min(self.timeout_s, most_s))
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, self._folder + target, body, headers)
            response = connection.getresponse()
            said = response.read(ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise ServerError(f"{self.url}{path}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if len(said) > ANSWER_BYTES:
            raise ServerError(f"{self.url}{path}: the answer has more than {ANSWER_BYTES} bytes")
        if response.status != 200:
            raise ServerError(
                f"{self.url}{path}: status {response.status}: "
                f"{_short(said.decode(errors='replace'))}"
            )
        try:
            check_nesting(said)
            answer = json.loads(said)
        except (ValueError, RecursionError, Unreadable):
            raise ServerError(
                f"{self.url}{path}: expected JSON, came {_short(said.decode(errors='replace'))}"
            ) from None
        if isinstance(answer, dict) and "error" in answer:
            raise ServerError(f"{self.url}{path}: {_short(answer['error'])}")
        return answer


def _numbers(env: str, train: int | str, test: int | str) -> dict[str, Sequence[int]]:
    """The numbers of the tasks of each split."""
    found: dict[str, Sequence[int]] = {}
    counted = 0
    for split, wanted in (("train", train), ("test", test)):
        if isinstance(wanted, str):
            found[split] = _read_items(env, split, wanted)
        elif wanted < 0:
            raise ValueError(f"agentgym: {split} is {wanted}; it must be at least 0")
        else:
            found[split] = range(counted, counted + wanted)
            counted += wanted
    if shared := {*found["train"]} & {*found["test"]}:
        raise ValueError(
            f"agentgym: {env}_{min(shared)} stands in train and in test; a split of its "
            "own file each keeps them apart"
        )
    return found


def _read_items(env: str, split: str, path: str) -> list[int]:
    """AgentGym's lists of tasks: `[{"item_id": "textcraft_12"}]`."""
    try:
        items = read_json(Path(path))
        numbers = [_number(env, item["item_id"]) for item in items]
    except CannotRead as error:
        raise ValueError(
            f'agentgym: {split} is {path!r}; expected [{{"item_id": "{env}_12"}}]: {error}'
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f'agentgym: {split} is {path!r}; expected [{{"item_id": "{env}_12"}}]: {error}'
        ) from error
    return list(dict.fromkeys(numbers))


def _number(env: str, item_id: str) -> int:
    kind, _, number = item_id.rpartition("_")
    if kind != env or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"agentgym has no task {item_id!r}: expected {env}_<number>")
    return int(number)


def _as_number(value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ServerError(f"expected a number as reward or score, came {_short(value)}")
    return float(value)


def _short(said: Any) -> str:
    """What a server said, fit for one line."""
    text = " ".join((said if isinstance(said, str) else json.dumps(said, default=str)).split())
    return text if len(text) <= 200 else f"{text[:200]}..."
