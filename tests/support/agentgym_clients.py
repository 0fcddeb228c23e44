"""What AgentGym's clients send, as data (`agentgym_requests.json`), and the environments that these
requests are played in.

A sequence is an episode of one of their client classes: the calls of its methods, and the requests
that each call sends. `{session}` stands for what /create answered. `reads` has the fields that the
client takes out of each answer; [] where it takes the bare answer.
"""

import json
import os
import sys
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

import pytest

from palestra.core.types import Step
from palestra.envs.web.actions import ActionError, parse
from tests.support.environments import Echo

RECORDED = json.loads((Path(__file__).parent / "agentgym_requests.json").read_text())
HERE = __name__


class SaysOnAPage(Echo):
    """Where there is no browser: actions are read as the browser's are,
    and the answer is the word.
    """

    name = "web"
    max_turns = 6

    def reset(self, task):
        super().reset(task)
        return f'Task: Say {self.word}.\n[1] textbox\n[2] button "Done"'

    def step(self, action):
        if self.left == 0:
            return Step("over", terminated=True, success=False)
        try:
            wanted = parse(action)
        except ActionError as error:
            return Step(str(error), invalid=True)
        if wanted.kind != "stop":
            return Step(f'[1] textbox value="{wanted.text}"\n[2] button "Done"')
        self.left = 0
        return Step(
            "over",
            float(wanted.text == self.word),
            terminated=True,
            success=wanted.text == self.word,
        )

    def expert(self):
        return f"stop [{self.word}]"


class Weather(Echo):
    name = "weather"
    max_turns = 6


SERVED = {
    "search": "tests.support.search_world:TinySearch",
    "web": f"{HERE}:SaysOnAPage",
    "weather": f"{HERE}:Weather",
}
"""What is served under a name where it is not the environment itself."""
OPTIONS = {"babyai": {"levels": ["GoToObj"]}}


def send(base, request, session):
    """Status and decoded answer of one recorded request."""
    body = (
        None
        if request["body"] is None
        else json.dumps(with_session(request["body"], session)).encode()
    )
    where = urlsplit(base)
    connection = HTTPConnection(where.hostname, where.port, timeout=60)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(
        request["method"],
        where.path + request["path"].replace("{session}", str(session)),
        body,
        headers,
    )
    response = connection.getresponse()
    status, answer = response.status, json.loads(response.read())
    connection.close()
    return status, answer


def with_session(body, session):
    return {name: session if value == "{session}" else value for name, value in body.items()}


class Output(NamedTuple):
    """What `step` of their clients returns."""

    state: str
    reward: float
    done: bool


class SearchQAEnvClient:
    """Sends, reads and decides what theirs does."""

    created, task = {"id": 0}, "id"
    more: ClassVar[dict] = {}

    def __init__(self, env_server_base, data_len):
        self.base = env_server_base
        self.env_id = self._named(self._ask("POST", "/create", self.created))

    def _named(self, created):
        return created

    def _ask(self, method, path, body):
        session = getattr(self, "env_id", None)
        status, answer = send(self.base, {"method": method, "path": path, "body": body}, session)
        assert status == 200, answer
        return answer

    def _post(self, path, fields):
        return self._ask("POST", path, {**fields, "env_idx": self.env_id})

    def observe(self):
        return self._ask("GET", "/observation?env_idx={session}", None)

    def reset(self, number):
        return self._post("/reset", {**self.more, self.task: number})

    def step(self, reply):
        answer = self._post("/step", {"action": reply})
        return Output(answer["observation"], answer["reward"], answer["done"])

    def close(self):
        return self._post("/close", {})


class WebarenaEnvClient(SearchQAEnvClient):
    created, task = None, "idx"
    more: ClassVar[dict] = {"seed": 0}

    def _named(self, created):
        return created["env_idx"]

    def step(self, reply):
        if "```" not in reply.partition("```")[2]:
            return Output("Cannot parse action from response.", 0, False)
        answer = self._post("/step", {"action": reply})
        return Output(
            answer["observation"],
            answer["reward"] if answer["terminated"] else 0,
            answer["terminated"],
        )


def their_clients():
    """AgentGym's own classes, out of the folder that the variable AGENTGYM
    names or as installed.
    """
    folder = os.environ.get("AGENTGYM")
    if folder is None:
        reason = "needs AgentGym's package agentenv; AGENTGYM names its folder"
        return pytest.importorskip("agentenv.envs", reason=reason, exc_type=ImportError)
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module("agentenv.envs")
