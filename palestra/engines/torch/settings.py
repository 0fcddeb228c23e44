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
    """`engine.name = "torch"`."""

    name: Literal["torch"] = "torch"
    slots: PositiveInt = 128
    """Episodes that can be in the cache at once; more than these wait for a slot."""
    prefill_tokens: PositiveInt = 8192
    """New tokens computed in one forward pass at the most, unless one request alone has more."""
    admit_fraction: float = Field(default=0.25, ge=0, le=1)
    """The share of live requests that must wait before they are let in together: fewer and fuller
    forward passes.
    """
    deterministic: bool = True
    """Run the model between the episodes' steps instead of beside them: batches then form by rule,
    not by arrival.

    Environments apart from this process are waited for each time: the run can be repeated bit for
    bit, and takes longer.
    """

    graphs: bool | None = None
    """Run the model as captured CUDA graphs with kernels of ours.

    Where not set: on CUDA, if Triton is installed.
    """
    decode_chunk: PositiveInt = 2
    """Tokens that graphs draw between two looks at which replies have ended."""

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic

    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        beside_learner: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> TorchEngine:
        from palestra.engines.torch.engine import TorchEngine

        kind = TorchEngine
        has_graphs = model.device.type == "cuda" and find_spec("triton") is not None
        if has_graphs if self.graphs is None else self.graphs:
            from palestra.engines.torch.cuda_graphs import CudaGraphEngine

            kind = CudaGraphEngine
        return kind(model, self, context_tokens, beside_learner=beside_learner, barriers=barriers)
