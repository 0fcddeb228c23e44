"""What a vLLM server needs of ours: `--worker-extension-cls
palestra.engines.vllm.worker.WorkerExtension`.

Only vLLM's worker process imports this, before it makes the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from vllm.distributed import get_tp_group
from vllm.platforms import current_platform

from palestra.engines.fingerprint import fingerprint
from palestra.engines.vllm.common import WEIGHTS_FILE, leave_weights_unpacked, weights_by_our_names

if current_platform.is_cpu():
    # here, because vLLM calls nothing of an extension before the model is made
    leave_weights_unpacked()


class WorkerExtension:
    """Mixed into vLLM's worker, which is `self`; called through `/collective_rpc`, which carries
    strings and answers in JSON.
    """

    palestra_mark = ""
    """Which hand-over the weights are from: gone when the server starts again, another one when
    another run has used it.
    """
    model_runner: Any
    vllm_config: Any

    def palestra_describe(self) -> dict[str, Any]:
        config, parallel = self.vllm_config.model_config, self.vllm_config.parallel_config
        return {
            "tensor_parallel": parallel.tensor_parallel_size,
            "data_parallel": parallel.data_parallel_size,
            "dtypes": sorted(
                {
                    str(weight.dtype).removeprefix("torch.")
                    for weight in self.model_runner.get_model().parameters()
                }
            ),
            "logprobs_mode": str(config.logprobs_mode),
            "context_tokens": config.max_model_len,
            "mark": self.palestra_mark,
        }

    def palestra_load(self, folder: str) -> None:
        """Overwrite the weights with those in a folder that both sides can read; vLLM's loaders
        take this worker's share of each.
        """
        self.reload_weights(weights_iterator=_read(Path(folder) / WEIGHTS_FILE))  # type: ignore[attr-defined]  # the worker's

    @torch.no_grad()
    def palestra_fingerprint(self, shapes: str) -> dict[str, int]:
        """A number for each of the learner's weights; `shapes` are the learner's, as JSON.

        One at a time is whole in every worker.
        """
        theirs = {name: torch.Size(shape) for name, shape in json.loads(shapes).items()}
        worker = get_tp_group().rank_in_group
        return fingerprint(
            weights_by_our_names(
                self.model_runner.get_model(), theirs, _of_all_workers, worker=worker
            )
        )

    def palestra_set_mark(self, mark: str) -> None:
        self.palestra_mark = mark


def _of_all_workers(weight: Tensor) -> Sequence[Tensor]:
    """What each worker of the server has of a weight.

    All of them must ask, for the same ones in the same order.
    """
    group = get_tp_group()
    gathered: Tensor = group.all_gather(weight.contiguous(), dim=0)
    return gathered.chunk(group.world_size)


def _read(path: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(path, framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118  not a dict
            yield name, weights.get_tensor(name)
