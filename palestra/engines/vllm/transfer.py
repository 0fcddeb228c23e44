"""The transport of weights to a vLLM server: through a folder, or from GPU to GPU by NCCL."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from palestra.engines.base import EngineFailed
from palestra.engines.vllm.client import Server
from palestra.engines.vllm.common import WEIGHTS_FILE

if TYPE_CHECKING:
    import aiohttp

Weights = dict[str, Tensor]
"""The learner's in the servers' type, by the names of checkpoints."""


class Transfer(Protocol):
    device: torch.device
    """The device on which `ready` expects the weights."""

    def ready(self, weights: Weights) -> AbstractContextManager[None]:
        """Prepare the weights once for all servers; within it, they can be sent."""

    async def send(self, server: Server, http: aiohttp.ClientSession) -> None:
        """Overwrite the weights of one server, which may have restarted since the last time."""


class FolderTransfer:
    """A file that the servers can read too: on this host, best in memory (/dev/shm), or on a shared
    disk.
    """

    def __init__(self, folder: str, timeout_s: float) -> None:
        self.device = torch.device("cpu")
        self.folder = folder
        self.timeout_s = timeout_s
        self._now = ""

    @contextmanager
    def ready(self, weights: Weights) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                self._now = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="palestra-weights-", dir=self.folder or None)
                )
                save_file(weights, Path(self._now) / WEIGHTS_FILE)
            except (OSError, SafetensorError) as error:
                raise EngineFailed(
                    f"engine.folder = {self.folder!r}: the weights could not be written "
                    f"there: {error}"
                ) from error
            yield

    async def send(self, server: Server, http: aiohttp.ClientSession) -> None:
        await server.call(http, "palestra_load", self._now, timeout_s=self.timeout_s)


class NCCLTransfer:
    """vLLM's own weight transfer (`--weight-transfer-config '{"backend": "nccl"}'`).

    Written against the sources of vLLM 0.24 and 0.32; not run yet, for it needs two GPUs. Each
    server has a group of its own with the learner, so that one can be lost and come back; each of
    its workers gets whole weights and keeps its share.
    """

    def __init__(self, address: str, device: torch.device, timeout_s: float) -> None:
        if device.type != "cuda":
            raise EngineFailed(
                "engine.weights = 'nccl' needs the model on a CUDA device, not on "
                f"{device}; use 'folder'"
            )
        if find_spec("vllm") is None:
            raise EngineFailed(
                "engine.weights = 'nccl': vLLM must be installed for the learner, too; "
                "pip install 'palestra[vllm]', or use 'folder'"
            )
        self.address = address
        self.device = device
        self.timeout_s = timeout_s
        self._groups: dict[Server, Any] = {}
        """vLLM's PyNcclCommunicator."""

    @contextmanager
    def ready(self, weights: Weights) -> Iterator[None]:
        self._weights = weights
        self._one_at_a_time = asyncio.Lock()  # all are sent from one stream
        yield

    async def send(self, server: Server, http: aiohttp.ClientSession) -> None:
        async with self._one_at_a_time:
            if server not in self._groups or server.trouble:
                self._groups[server] = await self._join(server, http)
            info = {
                "names": list(self._weights),
                "dtype_names": [
                    str(weight.dtype).removeprefix("torch.") for weight in self._weights.values()
                ],
                "shapes": [list(weight.shape) for weight in self._weights.values()],
            }
            await server.post(http, "/start_weight_update", timeout_s=self.timeout_s)
            receiving = asyncio.create_task(
                server.post(
                    http, "/update_weights", {"update_info": info}, timeout_s=self.timeout_s
                )
            )
            await asyncio.gather(
                receiving, asyncio.to_thread(self._broadcast, self._groups[server])
            )
            await server.post(http, "/finish_weight_update", timeout_s=self.timeout_s)

    async def _join(self, server: Server, http: aiohttp.ClientSession) -> Any:
        """A group of the learner, rank 0, and the server's workers, ranks 1 and on.

        All must come to it at the same time.
        """
        try:
            address = self.address or own_address(server.url)
            with socket.socket() as free:
                free.bind((address, 0))
                port = free.getsockname()[1]
        except OSError as error:
            raise EngineFailed(
                f"engine.address = {self.address!r}: this host cannot be reached there: {error}"
            ) from error
        size = 1 + server.workers
        info = {
            "master_address": address,
            "master_port": port,
            "rank_offset": 1,
            "world_size": size,
        }
        coming = asyncio.create_task(
            server.post(
                http, "/init_weight_transfer_engine", {"init_info": info}, timeout_s=self.timeout_s
            )
        )
        _, group = await asyncio.gather(
            coming, asyncio.to_thread(self._open_group, address, port, size)
        )
        return group

    def _open_group(self, address: str, port: int, size: int) -> Any:
        from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
        from vllm.distributed.utils import StatelessProcessGroup

        with torch.cuda.device(self.device):
            return PyNcclCommunicator(
                StatelessProcessGroup.create(address, port, rank=0, world_size=size),
                device=self.device,
            )

    @torch.no_grad()
    def _broadcast(self, group: Any) -> None:
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream()
            for weight in self._weights.values():
                group.broadcast(weight, src=0, stream=stream)


def own_address(url: str) -> str:
    """This host as a server sees it, where nothing stands between the two. Nothing is sent."""
    parts = urlsplit(url)
    family, kind, _, _, place = socket.getaddrinfo(
        parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])
