"""Trajectories as tensors: segments laid end to end, without padding.

Shapes stand in names. T: all tokens. S: segments. N: trajectories. U: turns. C: chosen tokens,
those the policy sampled; credit and losses see only these, so no mask can be forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal

from palestra.core.lazy import numpy, torch
from palestra.core.types import Trajectory

if TYPE_CHECKING:
    from torch import Tensor

Unit = Literal["segment", "trajectory", "group"]
"""What a loss must see as a whole."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything an update needs to know about some trajectories."""

    ids_T: Tensor
    action_mask_T: Tensor
    """Whether the policy chose the token."""
    lengths_S: Tensor
    trajectory_S: Tensor
    """The trajectory (0..N-1) a segment belongs to."""
    trajectory_C: Tensor
    turn_C: Tensor
    """The turn (0..U-1) in which a token was chosen."""
    index_C: Tensor
    """Which one it is of all chosen tokens that were packed: pieces of a batch still know it."""
    sampled_logp_C: Tensor
    """As the engine returned them."""
    version_C: Tensor
    """Of the weights that sampled the token."""
    reward_N: Tensor
    group_N: Tensor
    """Trajectories of one task share a number."""
    reward_U: Tensor
    """What each turn brought; trajectory by trajectory, in the order of play."""
    trajectory_U: Tensor
    anchor_U: Tensor
    """Turns of one group that began with the same observation share a number."""
    truncated_N: Tensor
    """Whether only a time limit ended the trajectory: the horizon, or the environment's own."""
    old_logp_C: Tensor
    """What the ratio is taken against: the engine's log-probs, or the learner's before its first
    update.
    """
    reference_logp_C: Tensor | None = None
    value_C: Tensor | None = None
    """What the critic expected before each chosen token, ahead of the first update."""
    value_after_N: Tensor | None = None
    """What the critic expects after the last token of each trajectory."""
    baseline_N: Tensor | None = None
    """The reward of the greedy episode of the same task."""
    advantage_C: Tensor | None = None
    return_C: Tensor | None = None
    """What the critic should have expected."""
    entropy_weight_C: Tensor | None = None
    """What a token's entropy counts for."""
    weight_C: Tensor | None = None
    """What a token's loss counts for in the whole update; set by `Algorithm.weights`."""

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self.reward_N)

    @property
    def positions_T(self) -> Tensor:
        """Counting anew in each segment."""
        return torch.cat(
            [torch.arange(n, device=self.ids_T.device) for n in self.lengths_S.tolist()]
        )

    @property
    def ends_with_observation_N(self) -> Tensor:
        """Whether the last token of a trajectory was shown to the policy rather
        than chosen by it.
        """
        is_last_S = self.is_last_S
        ends_S = self.lengths_S.cumsum(0) - 1
        shown_N = torch.zeros(len(self), dtype=torch.bool, device=self.ids_T.device)
        shown_N[self.trajectory_S[is_last_S]] = ~self.action_mask_T[ends_S[is_last_S]]
        return shown_N

    @property
    def is_last_S(self) -> Tensor:
        """Whether a segment is the last one of its trajectory.

        Those of a trajectory stand together.
        """
        return torch.cat(
            [
                self.trajectory_S[1:] != self.trajectory_S[:-1],
                torch.ones_like(self.trajectory_S[:1], dtype=torch.bool),
            ]
        )

    @property
    def in_common_S(self) -> list[int]:
        """The tokens that a segment begins with like the one before it.

        Never all of them, and none where they are few.
        """
        ids_S = numpy.split(self.ids_T.cpu().numpy(), self.lengths_S.cumsum(0).tolist()[:-1])
        return [0, *(_alike(one, other) for one, other in pairwise(ids_S))][: len(self.lengths_S)]

    def with_(self, **tensors: Tensor) -> Batch:
        return replace(self, **tensors)

    def to(self, device: torch.device) -> Batch:
        return replace(
            self,
            **{
                f.name: value.to(device)
                for f in fields(self)
                if (value := getattr(self, f.name)) is not None
            },
        )

    def take(self, segments: Tensor) -> Batch:
        """The batch of these segments, in this order.

        Trajectories keep their numbers and rewards.
        """
        starts_S = self.lengths_S.cumsum(0) - self.lengths_S
        per_segment_C = actions_per_segment(self)
        chosen_starts_S = per_segment_C.cumsum(0) - per_segment_C
        tokens = _ranges(starts_S[segments], self.lengths_S[segments])
        chosen = _ranges(chosen_starts_S[segments], per_segment_C[segments])
        index = {"T": tokens, "C": chosen, "S": segments}
        taken = {
            f.name: value[index[f.name[-1]]]
            for f in fields(self)
            if (value := getattr(self, f.name)) is not None and f.name[-1] in index
        }
        return replace(self, **taken)

    def unit_S(self, unit: Unit) -> Tensor:
        """The number of each segment's unit: itself, its trajectory or its group."""
        if unit == "segment":
            return torch.arange(len(self.lengths_S), device=self.ids_T.device)
        return self.trajectory_S if unit == "trajectory" else self.group_N[self.trajectory_S]

    def with_signal(self, unit: Unit = "segment") -> Batch:
        """Without the units whose advantages are all 0."""
        return self.take(self._signal_S(unit).nonzero().flatten())

    def sample_without_signal(self, unit: Unit = "segment", *, every: int) -> Batch:
        """Of the units whose advantages are all 0, the first, and one in `every` after it."""
        is_spared_S = ~self._signal_S(unit)
        unit_S = self.unit_S(unit)
        sampled = torch.unique_consecutive(unit_S[is_spared_S])[::every]
        return self.take((is_spared_S & torch.isin(unit_S, sampled)).nonzero().flatten())

    def _signal_S(self, unit: Unit) -> Tensor:
        """Whether any token of a segment's unit has an advantage."""
        assert self.advantage_C is not None
        unit_S = self.unit_S(unit)
        unit_C = unit_S.repeat_interleave(actions_per_segment(self))
        units = int(unit_S.max()) + 1 if len(unit_S) else 0
        signals = torch.zeros(units, dtype=torch.long, device=self.ids_T.device).index_add_(
            0, unit_C, (self.advantage_C != 0).long()
        )
        return (signals > 0)[unit_S]

    def split(
        self, parts: int, generator: torch.Generator, unit: Unit = "trajectory"
    ) -> Iterator[Batch]:
        """Mini-batches in random order, of whole trajectories or whole groups."""
        unit_S = self.unit_S("group" if unit == "group" else "trajectory")
        units = int(unit_S.max()) + 1
        for part in (
            torch.randperm(units, generator=generator)
            .to(unit_S.device)
            .tensor_split(min(parts, units))
        ):
            numbers = (
                part.sort().values
            )  # trajectories of a group stay side by side: they begin alike
            yield self.take(
                torch.cat([(unit_S == number).nonzero().flatten() for number in numbers])
            )

    def share(self, rank: int, size: int, unit: Unit = "segment") -> Batch:
        """One of `size` parts of about as many tokens to compute.

        Units stay whole; a part may be empty.
        """
        own_S = self.lengths_S - torch.tensor(
            self.in_common_S, dtype=torch.long, device=self.lengths_S.device
        )
        unit_S = self.unit_S(unit)
        _, place_S = torch.unique_consecutive(unit_S, return_inverse=True)
        tokens = torch.zeros_like(self.lengths_S).index_add_(0, place_S, own_S)
        middle = tokens.cumsum(0) - tokens / 2
        part_S = (middle * size / max(int(own_S.sum()), 1)).long()[place_S]
        return self.take((part_S == rank).nonzero().flatten())

    def microbatches(self, max_tokens: int, unit: Unit = "segment") -> Iterator[Batch]:
        """Pieces of at most `max_tokens` tokens to compute, each for one forward pass.

        Units stay whole, even one that alone is longer.
        """
        common_S = self.in_common_S
        own_S = [
            length - common
            for length, common in zip(self.lengths_S.tolist(), common_S, strict=True)
        ]
        start = begun = used = 0
        for _, same in groupby(self.unit_S(unit).tolist()):
            members = len(list(same))
            length = sum(own_S[start : start + members])
            if used and used + length > max_tokens:
                yield self.take(torch.arange(begun, start, device=self.ids_T.device))
                begun, used = start, common_S[start]
            start, used = start + members, used + length
        if used:
            yield self.take(torch.arange(begun, start, device=self.ids_T.device))


SHARED_AT_LEAST = 16
"""Tokens in common that are worth the trouble."""


def _alike(one: numpy.ndarray, other: numpy.ndarray) -> int:
    most = min(len(one), len(other) - 1)
    differs = (one[:most] != other[:most]).nonzero()[0]
    common = int(differs[0]) if len(differs) else most
    return common if common >= SHARED_AT_LEAST else 0


def actions_per_segment(batch: Batch) -> Tensor:
    """How many tokens the policy chose in each segment."""
    segment_T = torch.arange(len(batch.lengths_S), device=batch.ids_T.device).repeat_interleave(
        batch.lengths_S
    )
    return torch.zeros_like(batch.lengths_S).index_add_(0, segment_T, batch.action_mask_T.long())


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """[2, 7], [3, 2] -> [2, 3, 4, 7, 8]"""
    if len(starts) == 0:
        return starts
    first = (starts - (lengths.cumsum(0) - lengths)).repeat_interleave(lengths)
    return first + torch.arange(int(lengths.sum()), device=starts.device)


def own_rewards(trajectory: Trajectory) -> list[float]:
    """What the environment gave for each turn."""
    return [turn.reward for turn in trajectory.turns]


TurnRewards = Callable[[Trajectory], list[float]]
"""What the turns of a trajectory are credited with."""


def pack(
    groups: list[list[Trajectory]],
    turn_rewards: TurnRewards = own_rewards,
    *,
    keep_tail: bool = False,
) -> Batch:
    """One batch of all trajectories; those of one inner list form a group.

    Tokens after the last action token teach nothing. They are left out unless `keep_tail`: a critic
    may look at where the trajectory stands.
    """
    trajectories = [trajectory for group in groups for trajectory in group]
    if not any(trajectory.sampled_tokens for trajectory in trajectories):
        raise ValueError("there is nothing to learn from: no trajectory has a sampled token")
    ids_T: list[int] = []
    action_mask_T: list[int] = []
    lengths_S: list[int] = []
    trajectory_S: list[int] = []
    trajectory_C: list[int] = []
    turn_C: list[int] = []
    sampled_logp_C: list[float] = []
    version_C: list[int] = []
    first_turn = 0
    for number, trajectory in enumerate(trajectories):
        for segment_number, segment in enumerate(trajectory.segments):
            actions = [token for token, chosen in enumerate(segment.mask) if chosen]
            # A segment without an action is kept whole: no token of it is in the loss anyway.
            end = len(segment.ids) if keep_tail or not actions else actions[-1] + 1
            ids_T += segment.ids[:end]
            action_mask_T += segment.mask[:end]
            lengths_S.append(end)
            trajectory_S.append(number)
            turn_at = _turn_of_each_token(trajectory, segment_number)
            trajectory_C += [number] * len(actions)
            turn_C += [first_turn + turn_at[token] for token in actions]
            sampled_logp_C += [segment.logprobs[token] for token in actions]
            version_C += [segment.versions[token] for token in actions]
        first_turn += len(trajectory.turns)
    logp_C = torch.tensor(sampled_logp_C)
    return rewards_only(groups, turn_rewards).with_(
        ids_T=torch.tensor(ids_T),
        action_mask_T=torch.tensor(action_mask_T, dtype=torch.bool),
        lengths_S=torch.tensor(lengths_S),
        trajectory_S=torch.tensor(trajectory_S),
        trajectory_C=torch.tensor(trajectory_C),
        turn_C=torch.tensor(turn_C),
        index_C=torch.arange(len(sampled_logp_C)),
        sampled_logp_C=logp_C,
        version_C=torch.tensor(version_C),
        old_logp_C=logp_C,
    )


def rewards_only(groups: list[list[Trajectory]], turn_rewards: TurnRewards = own_rewards) -> Batch:
    """A batch without tokens: what was earned, by which turns of which trajectories."""
    reward_U: list[float] = []
    trajectory_U: list[int] = []
    anchor_U: list[int] = []
    reward_N: list[float] = []
    group_N: list[int] = []
    truncated_N: list[bool] = []
    anchors: dict[tuple[int, str], int] = {}
    for group_number, group in enumerate(groups):
        for trajectory in group:
            rewards = turn_rewards(trajectory)
            reward_U += rewards
            trajectory_U += [len(reward_N)] * len(trajectory.turns)
            for turn in trajectory.turns:
                seen = (group_number, turn.observation)
                anchor_U.append(anchors.setdefault(seen, len(anchors)))
            # Exactly rounded: the same rewards in another order have the same sum.
            reward_N.append(math.fsum(rewards))
            group_N.append(group_number)
            truncated_N.append(trajectory.stop.is_time_limit)
    no_floats = torch.empty(0)
    no_numbers = torch.empty(0, dtype=torch.long)
    return Batch(
        ids_T=no_numbers,
        action_mask_T=no_numbers.bool(),
        lengths_S=no_numbers,
        trajectory_S=no_numbers,
        trajectory_C=no_numbers,
        turn_C=no_numbers,
        index_C=no_numbers,
        sampled_logp_C=no_floats,
        version_C=no_numbers,
        old_logp_C=no_floats,
        reward_U=torch.tensor(reward_U),
        trajectory_U=torch.tensor(trajectory_U, dtype=torch.long),
        anchor_U=torch.tensor(anchor_U, dtype=torch.long),
        reward_N=torch.tensor(reward_N),
        group_N=torch.tensor(group_N, dtype=torch.long),
        truncated_N=torch.tensor(truncated_N, dtype=torch.bool),
    )


def _turn_of_each_token(trajectory: Trajectory, segment_number: int) -> dict[int, int]:
    """The turn that each sampled token of a segment belongs to."""
    turn_at: dict[int, int] = {}
    for number, turn in enumerate(trajectory.turns):
        if turn.segment == segment_number:
            turn_at.update(dict.fromkeys(range(*turn.span), number))
    return turn_at
