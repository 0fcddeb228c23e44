"""The settings of the in-process engine, which is imported when it is built."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt

from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.engines.base import Barrier, EngineSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from palestra.engines.torch.engine import TorchEngine


class TorchEngineSettings(EngineSettings):
    """The in-process engine, on the learner's weights: `engine.name = "torch"`."""

    name: Literal["torch"] = "torch"
    slots: PositiveInt = 128
    """Number of episodes in the KV cache; further ones wait for a slot."""
    prefill_tokens: PositiveInt = 8192
    """Maximum number of new tokens in one forward pass, unless a single request has more."""
    admit_fraction: float = Field(default=0.25, ge=0, le=1)
    """Minimum fraction of active requests that must be queued before a prefill batch is admitted:
    fewer and fuller forward passes.
    """
    deterministic: bool = True
    """Form batches deterministically instead of by arrival: the model runs between the episodes'
    steps, and waits for environments in other processes.

    Runs are then reproducible bit for bit, and slower.
    """

    graphs: bool | None = None
    """Run the model as captured CUDA graphs with Palestra's kernels.

    Default: on CUDA, if Triton is installed.
    """
    decode_chunk: PositiveInt = 2
    """Tokens that graphs decode between two checks for completed replies."""

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic

    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> TorchEngine:
        from palestra.engines.torch.engine import TorchEngine

        kind = TorchEngine
        has_graphs = model.device.type == "cuda" and find_spec("triton") is not None
        if has_graphs if self.graphs is None else self.graphs:
            from palestra.engines.torch.cuda_graphs import CudaGraphEngine

            kind = CudaGraphEngine
        return kind(
            model, self, context_tokens, overlaps_updates=overlaps_updates, barriers=barriers
        )
