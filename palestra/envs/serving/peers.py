"""Several server processes behind one address: a call goes to the process that has its session,
over a Unix socket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from palestra.envs.serving.connection import Connection
from palestra.envs.serving.handles import EnvFault
from palestra.envs.serving.request_auth import PEER_HEADER
from palestra.envs.serving.wire import AnyCall, Open, WireError

GONE_S = 10.0
"""The time limit for the restart of a process that died."""
ANSWER_S = 3600.0
"""Environments have their own deadlines. This limit only ends calls that got lost."""


def socket_path(folder: str, process: int) -> str:
    return str(Path(folder) / f"{process}.sock")


class ProcessPeers:
    """The other processes, by number."""

    def __init__(self, folder: str, process: int, count: int, secret: str) -> None:
        self._folder, self._secret = folder, secret
        self._others = [other for other in range(count) if other != process]
        self._connections: dict[tuple[int, str], Connection] = {}

    async def answer(self, process: int, call: AnyCall, caller: str) -> Any:
        if process not in self._others:
            raise WireError("not_found", "there is no such session")
        connection = self._connections.get((process, caller))
        if connection is None:
            path = socket_path(self._folder, process)
            connection = Connection(
                "http://peer", headers=self._headers(caller), unix_path=path, reconnect_s=GONE_S
            )
            self._connections[process, caller] = connection
        own_id = call.id
        try:
            return await connection.call(call, Any, timeout_s=ANSWER_S)
        except EnvFault as fault:
            raise WireError(
                "env_fault", f"the process of the session cannot be reached: {fault}"
            ) from fault
        finally:
            call.id = own_id

    async def open_elsewhere(self, call: Open, caller: str) -> Any:
        for other in self._others:
            try:
                return await self.answer(other, call, caller)
            except WireError as error:
                if error.code not in ("busy", "env_fault"):
                    raise
        raise WireError("busy", "all seats are taken")

    async def metrics(self) -> list[list[Metric]]:
        found = []
        for other in self._others:
            connector = aiohttp.UnixConnector(socket_path(self._folder, other))
            timeout = aiohttp.ClientTimeout(total=2.0)
            async with aiohttp.ClientSession(
                connector=connector, headers=self._headers(""), timeout=timeout
            ) as http:
                try:
                    async with http.get("http://peer/metrics") as response:
                        text = await response.text()
                        found.append(list(text_string_to_metric_families(text)))
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                    continue  # it is being replaced
        return found

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    def _headers(self, caller: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secret}", PEER_HEADER: caller}
