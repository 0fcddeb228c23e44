"""A served environment as a synchronous `Environment`, over plain HTTP requests.

Training uses `client` instead.
"""

from __future__ import annotations

import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from palestra.core.credentials import (
    TOKEN_VARIABLE,
    has_password,
    hidden,
    how_to_give_token,
    token_for,
)
from palestra.core.registry import UnknownName, nearest
from palestra.core.types import Step, Task
from palestra.envs.base import Environment
from palestra.envs.serving.wire import (
    STATUS,
    UNREADABLE,
    ActionList,
    EnvAbout,
    EnvList,
    Error,
    ExpertAction,
    Observed,
    Opened,
    TaskPage,
    WireError,
)

CONNECT_S = 5.0
ANSWER_S = 120.0
RETRY_S = 15.0
ANSWER_BYTES = 64 * 1024 * 1024
"""The size limit of an answer. A page of 5,000 tasks may be long."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect stays the answer: following it would take the token along to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
"""Ignores the machine's web proxies, as the stream does."""


class Unreachable(Exception):
    """No environment server answers at an address."""


def split_url(url: str) -> tuple[str, str]:
    """http://host:8100/textcraft -> the server's address, and the environment's name there."""
    if has_password(url):
        raise UnknownName(
            f"{hidden(url)}: expected a URL without user and password; a server's token "
            f"goes into {TOKEN_VARIABLE}"
        )
    parts = urlsplit(url)
    try:
        is_complete = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_complete = False
    name = unquote(parts.path.strip("/"))
    if not is_complete or not name or parts.query or parts.fragment:
        raise UnknownName(
            "expected the URL of a served environment, like http://host:8100/textcraft"
        )
    return f"{parts.scheme}://{parts.netloc}", name


class Http:
    """Sends requests to one server. Those with a key, and read-only ones, can be repeated."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self._token = address, token

    def ask(
        self,
        method: str,
        path: str,
        kind: Any,
        body: Any = None,
        *,
        retry_s: float = 0.0,
        timeout_s: float = ANSWER_S,
    ) -> Any:
        until, delay = time.monotonic() + retry_s, 0.05
        while True:
            try:
                return self._once(method, path, kind, body, timeout_s)
            except Unreachable:
                if time.monotonic() + delay > until:
                    raise
            time.sleep(delay)
            delay = min(2 * delay, 1.0)

    def _once(self, method: str, path: str, kind: Any, body: Any, timeout_s: float) -> Any:
        data = msgspec.json.encode(body if body is not None else {}) if method == "POST" else None
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(self.address + path, data, headers, method=method)  # noqa: S310
        try:
            status, content = _exchange(request, timeout_s)
        except (OSError, ValueError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Unreachable(
                f"no environment server answers at {self.address}: {reason}"
            ) from error
        if 300 <= status < 400:
            raise Unreachable(
                f"{self.address} redirects (HTTP {status}), which is not followed; give "
                "the URL of the server itself"
            )
        if status >= 400:
            raise self._refusal(status, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except UNREADABLE as error:
            raise Unreachable(f"{self.address} is not an environment server: {error}") from error

    def _refusal(self, status: int, content: bytes) -> Exception:
        try:
            error = msgspec.json.decode(content, type=dict[str, Error])["error"]
        except (*UNREADABLE, KeyError):
            return Unreachable(f"no environment server answers at {self.address}: HTTP {status}")
        if error.code == "unauthorized":
            return WireError(
                error.code, f"{self.address} needs a token; {how_to_give_token(self.address)}"
            )
        if error.code not in STATUS or error.code == "stopping":
            return Unreachable(f"{self.address}: {error.message}")
        return error.exception


def _exchange(request: urllib.request.Request, timeout_s: float) -> tuple[int, bytes]:
    """The status and the body of the answer, whole, whether it is a refusal or not."""
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            return response.status, _whole(response)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, _whole(refusal)


def _whole(response: Any) -> bytes:
    if response.length is not None and response.length <= ANSWER_BYTES:
        return bytes(response.read())  # raises for one that is cut, unlike a read of so many bytes
    content: bytes = response.read(ANSWER_BYTES + 1)
    if len(content) > ANSWER_BYTES:
        raise ValueError(f"its answer has more than {ANSWER_BYTES} bytes")
    return content


@lru_cache
def remote_kind(url: str) -> type[RemoteEnvironment]:
    """The class of a served environment: its name and splits are the server's."""
    address, name = split_url(url)
    http = Http(address, token_for(address))
    try:
        about: EnvAbout = http.ask(
            "GET", f"/v1/envs/{quote(name, safe='')}", EnvAbout, timeout_s=CONNECT_S
        )
    except (Unreachable, WireError) as error:
        if isinstance(error, WireError) and error.code == "not_found":
            there: EnvList = http.ask("GET", "/v1/envs", EnvList, timeout_s=CONNECT_S)
            raise UnknownName(
                f"{address} has no environment {name!r}; {nearest(name, there.envs)}"
            ) from None
        raise UnknownName(error.message if isinstance(error, WireError) else str(error)) from None

    class Remote(RemoteEnvironment):
        __doc__ = f"{about.name} on {address}."

        def __init__(self) -> None:
            super().__init__(http, about)

    Remote.name, Remote.splits = about.name, tuple(about.splits)
    return Remote


class RemoteEnvironment(Environment):
    """An environment that a server plays."""

    def __init__(self, http: Http, about: EnvAbout) -> None:
        self._http, self._about = http, about
        self.max_turns = about.max_turns
        self.instructions = about.instructions
        self.example = tuple(about.example)
        self._session = ""
        self._key = 0

    def tasks(self, split: str) -> Sequence[Task]:
        found: list[Task] = []
        offset: int | None = 0
        path = f"/v1/envs/{quote(self.name, safe='')}/tasks?split={quote(split, safe='')}"
        while offset is not None:
            page: TaskPage = self._http.ask(
                "GET", f"{path}&offset={offset}", TaskPage, retry_s=RETRY_S
            )
            found += page.tasks
            if page.next is not None and page.next <= offset:
                raise Unreachable(
                    f"{self._http.address} is not an environment server: its pages of "
                    "tasks never end"
                )
            offset = page.next
        return found

    def task(self, id: str) -> Task:
        path = f"/v1/envs/{quote(self.name, safe='')}/task?id={quote(id, safe='')}"
        try:
            found: Task = self._http.ask("GET", path, Task, retry_s=RETRY_S)
        except WireError as error:
            if error.code != "not_found":
                raise
            raise ValueError(error.message) from None
        return found

    def vocabulary(self) -> list[str] | None:
        return self._about.vocabulary

    def reset(self, task: Task) -> str:
        if self._session:
            try:
                return self._reset(task)
            except WireError as error:
                if error.code == "bad_request":
                    raise
            self.close()
        body = {"env": self.name, "key": secrets.token_urlsafe(12)}
        opened: Opened = self._http.ask("POST", "/v1/sessions", Opened, body, retry_s=RETRY_S)
        self._session, self._key = opened.session, 0
        return self._reset(task)

    def _reset(self, task: Task) -> str:
        observed: Observed = self._call(
            "reset", Observed, {"task": {"split": task.split, "id": task.id}, "key": self._key + 1}
        )
        self._key += 1
        return observed.observation

    def step(self, action: str) -> Step:
        step: Step = self._call("step", Step, {"action": action, "key": self._key + 1})
        self._key += 1
        return step

    def actions(self) -> list[str] | None:
        found: ActionList = self._call("actions", ActionList)
        return found.actions

    def expert(self) -> str | None:
        found: ExpertAction = self._call("expert", ExpertAction)
        return found.action

    def close(self) -> None:
        if self._session:
            session, self._session = self._session, ""
            try:
                self._http.ask("DELETE", f"/v1/sessions/{session}", Any, timeout_s=CONNECT_S)
            except (Unreachable, WireError):
                return  # its lease ends it

    def _call(self, name: str, kind: Any, body: Any = None) -> Any:
        if not self._session:
            raise RuntimeError(f"{self.name}: call reset(task) before this")
        return self._http.ask(
            "POST", f"/v1/sessions/{self._session}/{name}", kind, body, retry_s=RETRY_S
        )
