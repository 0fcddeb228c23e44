"""The HTTP client of one vLLM server, and the meaning of its errors."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from palestra.engines.base import EngineFailed

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

CONNECT_S = 10.0
IDLE_S = 2.0
"""vLLM closes connections that idle for 5 s; a request on its way at that moment would be lost."""
WORKER_EXTENSION = "palestra.engines.vllm.worker.WorkerExtension"
HINTS = {
    401: "; is engine.api_key_env the variable with the server's --api-key?",
    403: "; start it with --tokens-only",
    404: "; is this a vLLM server, started with VLLM_SERVER_DEV_MODE=1 and --tokens-only?",
}


class ServerTrouble(Exception):
    """A server cannot be reached, does not answer or has failed; another one can be used."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether a retry on the same server can help."""


class Server:
    """One server, and its state as far as it is known."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.trouble = ""
        """Why it is not used until the next weight sync; empty if it is."""
        self.mark = ""
        """The mark of the last weight sync that it completed."""
        self.is_suspect = False
        """Whether a connection failed: it may have been restarted with other weights."""
        self.workers = 1
        """The number of its GPUs, known after `describe`."""

    def lose(self, trouble: str) -> None:
        """Stop using the server until the next weight sync."""
        if not self.trouble:
            log.warning("a vLLM server is given up until the next hand-over: %s", trouble)
        self.trouble, self.mark = trouble, ""

    async def post(
        self,
        http: aiohttp.ClientSession,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        timeout_s: float,
    ) -> Any:
        """The JSON of the response; None if it is empty."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=timeout_s)
        try:
            async with http.post(
                self.url + path, json=body or {}, timeout=limit, allow_redirects=False
            ) as response:
                status, content = response.status, await response.read()
        except TimeoutError as error:
            raise ServerTrouble(
                f"{self.url}{path}: no answer within {timeout_s:g} s", may_pass=False
            ) from error
        except aiohttp.ClientError as error:
            raise ServerTrouble(
                f"{self.url}{path}: {error or type(error).__name__}", may_pass=True
            ) from error
        if status >= 500:
            raise ServerTrouble(
                f"{self.url}{path}: HTTP {status}: {_message(content)}", may_pass=False
            )
        if status != 200:
            raise EngineFailed(
                f"{self.url}{path}: HTTP {status}: {_message(content)}{HINTS.get(status, '')}"
            )
        try:
            return json.loads(content) if content else None
        except (ValueError, RecursionError) as error:
            raise EngineFailed(
                f"{self.url}{path}: expected JSON, got {content[:60]!r}; is this a vLLM server?"
            ) from error

    async def call(
        self, http: aiohttp.ClientSession, method: str, *arguments: str, timeout_s: float
    ) -> list[Any]:
        """Call a method of the server's workers (`palestra.engines.vllm.worker`).

        Returns the result of each worker.
        """
        body = {"method": method, "args": list(arguments)}
        try:
            results: list[Any] = (
                await self.post(http, "/collective_rpc", body, timeout_s=timeout_s)
            )["results"]
        except ServerTrouble as trouble:
            if f"no attribute '{method}'" in str(trouble):
                raise EngineFailed(
                    f"{self.url}: start it with --worker-extension-cls {WORKER_EXTENSION}"
                ) from None
            raise
        return results

    async def describe(self, http: aiohttp.ClientSession, *, timeout_s: float) -> dict[str, Any]:
        """The server's options, and the mark of its weights."""
        facts: dict[str, Any]
        facts, *others = await self.call(http, "palestra_describe", timeout_s=timeout_s)
        self.workers = 1 + len(others)
        if self.workers != facts["tensor_parallel"] or facts["data_parallel"] != 1:
            raise EngineFailed(
                f"{self.url}: the GPUs of a server can only be tensor parallel; start "
                "several servers instead"
            )
        for other in others:
            if other != facts:
                raise EngineFailed(
                    f"{self.url}: its workers do not agree on what they are: {facts} and {other}"
                )
        return facts


class Connections:
    """A connection pool that is open only while in use: nothing has to be closed at the end, and it
    can be used in several event loops, one after another.
    """

    def __init__(self, api_key: str, per_server: int) -> None:
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._per_server = per_server
        self._users = 0
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[aiohttp.ClientSession]:
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, limit_per_host=self._per_server, keepalive_timeout=IDLE_S
            )
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        session = self._session
        self._users += 1
        try:
            yield session
        finally:
            self._users -= 1
            if not self._users:
                self._session = None
                await session.close()


def _message(content: bytes) -> str:
    """The message of an error response, in one line."""
    try:
        answer = json.loads(content)
        error = answer.get("error", answer.get("detail", answer))
        text = str(error["message"] if isinstance(error, dict) and "message" in error else error)
    except (ValueError, AttributeError, RecursionError):
        text = content.decode(errors="replace")
    return " ".join(text.split())[:300]
