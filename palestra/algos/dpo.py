"""The algorithm `dpo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from palestra.algos.base import Algorithm, Need, PolicyOutput
from palestra.algos.batch import Batch, Unit
from palestra.algos.losses import Stats, dpo_loss
from palestra.algos.selection import pairs
from palestra.algos.sources import Offline
from palestra.core.lazy import torch
from palestra.core.types import Group, Trajectory

if TYPE_CHECKING:
    from torch import Tensor


class DPO(Algorithm):
    """DPO (arXiv:2305.18290) on whole episodes: preference pairs of two trajectories of a task."""

    name: Literal["dpo"] = "dpo"
    means_of_loss: ClassVar[frozenset[str]] = frozenset(
        {"dpo/accuracy", "dpo/margin", "dpo/chosen", "dpo/rejected"}
    )
    data: tuple[str, ...] = Field(min_length=1)
    """Run folders and trajectory files with several trajectories per task."""
    min_gap: PositiveFloat = 0.01
    """Minimum difference in reward between the chosen and the rejected trajectory."""
    min_reward: float = 0.7
    """Minimum reward of the chosen trajectory."""
    per_task: PositiveInt = 4
    """Maximum number of pairs per task; those with the largest differences are taken."""
    batch: PositiveInt = 16
    """Pairs per training step."""
    beta: PositiveFloat = 0.1
    """Strength of the KL constraint towards the reference model."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Assumed fraction of pairs with flipped preferences (conservative DPO)."""
    length_normalized: bool = False
    """Average log-ratios over the tokens of a trajectory instead of summing them."""
    imitation: NonNegativeFloat = 0.0
    """Weight of an additional SFT loss on the chosen trajectory (arXiv:2404.19733), which keeps its
    likelihood from falling.
    """

    def source(self) -> Offline:
        return Offline(
            self.batch,
            self._select,
            self.data,
            f"no two trajectories of a task with a reward of at least {self.min_reward:g} "
            f"and {self.min_gap:g} less",
        )

    def _select(self, trajectories: list[Trajectory]) -> list[Group]:
        return pairs(
            trajectories,
            min_gap=self.min_gap,
            min_reward=self.min_reward,
            per_task=self.per_task,
        )

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"reference"})

    @property
    def unit(self) -> Unit:
        return "group"

    def temperature(self, sampling: float) -> float:
        return 1.0

    def explain(self) -> list[str]:
        over = "mean_tokens" if self.length_normalized else "sum_tokens"
        smooth = self.label_smoothing
        gain = "log_sigmoid(margin_p)"
        if smooth:
            gain = f"{1 - smooth:.10g} * {gain} + {smooth:.10g} * log_sigmoid(-margin_p)"
        if self.imitation:
            gain += f" + {self.imitation:.10g} * chosen(mean_tokens(logp_c))"
        return [
            f"maximize  mean_p({gain})",
            f"margin_p = {self.beta:.10g} * (chosen(score_i) - rejected(score_i))",
            f"score_i = {over}(logp_c - logp_ref_c)  # against the model before the first step",
            f"# over {self.batch} pairs a step of: {', '.join(self.data)}; R_chosen >= "
            f"{self.min_reward:.10g}, "
            f"R_chosen - R_rejected >= {self.min_gap:.10g}, at most {self.per_task} pairs a task",
        ]

    def add_advantages(self, batch: Batch) -> Batch:
        return batch

    def weights(self, batch: Batch) -> Tensor:
        pairs = len(set(batch.group_N[batch.trajectory_S].tolist()))
        return torch.full(batch.trajectory_C.shape, 1 / pairs, device=batch.ids_T.device)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Stats]:
        assert batch.reference_logp_C is not None
        is_first_N = torch.ones_like(batch.group_N, dtype=torch.bool)
        is_first_N[1:] = batch.group_N[1:] != batch.group_N[:-1]
        # A pair is a group of two: [chosen, rejected].
        is_chosen_C = is_first_N[batch.trajectory_C]
        loss_C, stats = dpo_loss(
            policy.logp_C,
            batch.reference_logp_C,
            batch.group_N[batch.trajectory_C],
            is_chosen_C,
            beta=self.beta,
            label_smoothing=self.label_smoothing,
            length_normalized=self.length_normalized,
        )
        length_C = batch.trajectory_C.bincount()[batch.trajectory_C]
        imitation_C = torch.where(is_chosen_C, policy.logp_C / length_C, 0.0)
        return loss_C - self.imitation * imitation_C, stats
