"""Trajectories as tensors: packed segments, without padding.

Suffixes name the shape. T: all tokens. S: segments. N: trajectories. U: turns. C: action tokens,
which the policy sampled; advantages and losses see only these, so no mask can be forgotten.
"""

from __future__ import annotations

import itertools
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
"""What a loss must see whole in one forward pass."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything an update needs to know about its trajectories."""

    ids_T: Tensor
    action_mask_T: Tensor
    """Whether the policy sampled the token."""
    lengths_S: Tensor
    trajectory_S: Tensor
    """The trajectory (0..N-1) a segment belongs to."""
    trajectory_C: Tensor
    turn_C: Tensor
    """The turn (0..U-1) in which a token was sampled."""
    index_C: Tensor
    """The token's index among the action tokens of the packed batch; micro-batches keep it."""
    sampled_logp_C: Tensor
    """The log-probs that the engine returned."""
    version_C: Tensor
    """The version of the weights that sampled the token."""
    reward_N: Tensor
    group_N: Tensor
    """The group (0..G-1) of a trajectory: all trajectories of one task."""
    reward_U: Tensor
    """The reward of each turn, in chronological order, trajectory by trajectory."""
    trajectory_U: Tensor
    anchor_U: Tensor
    """Turns of one group that started with the same observation share a number."""
    truncated_N: Tensor
    """Whether a time limit truncated the trajectory: the horizon, or the environment's own."""
    old_logp_C: Tensor
    """The denominator of the importance ratio: the engine's log-probs, or the learner's before its
    first update.
    """
    reference_logp_C: Tensor | None = None
    value_C: Tensor | None = None
    """The critic's estimate before each action token, from before the first update."""
    value_after_N: Tensor | None = None
    """The critic's estimate after the last token of each trajectory."""
    baseline_N: Tensor | None = None
    """The reward of the greedy episode of the same task."""
    advantage_C: Tensor | None = None
    return_C: Tensor | None = None
    """The regression target of the critic."""
    entropy_weight_C: Tensor | None = None
    """The weight of each token's entropy bonus."""
    weight_C: Tensor | None = None
    """The weight of each token's loss in the whole update; set by `Algorithm.weights`."""

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self.reward_N)

    @property
    def positions_T(self) -> Tensor:
        """The position of each token in its segment, from 0."""
        return torch.cat(
            [torch.arange(n, device=self.ids_T.device) for n in self.lengths_S.tolist()]
        )

    @property
    def ends_with_observation_N(self) -> Tensor:
        """Whether the last token of a trajectory is an observation token."""
        is_last_S = self.is_last_S
        ends_S = self.lengths_S.cumsum(0) - 1
        shown_N = torch.zeros(len(self), dtype=torch.bool, device=self.ids_T.device)
        shown_N[self.trajectory_S[is_last_S]] = ~self.action_mask_T[ends_S[is_last_S]]
        return shown_N

    @property
    def is_last_S(self) -> Tensor:
        """Whether a segment is the last one of its trajectory, whose segments are contiguous."""
        is_last_S = self.trajectory_S[1:] != self.trajectory_S[:-1]
        return torch.cat([is_last_S, torch.ones_like(self.trajectory_S[:1], dtype=torch.bool)])

    @property
    def in_common_S(self) -> list[int]:
        """How many tokens of each segment are a prefix that it shares with the segment before it.

        Never all of a segment, and 0 for prefixes too short to be worth sharing.
        """
        if len(self.lengths_S) == 0:
            return []
        ends = self.lengths_S.cumsum(0).tolist()
        ids_S = numpy.split(self.ids_T.cpu().numpy(), ends[:-1])
        return [0, *(_shared_prefix(before, own) for before, own in pairwise(ids_S))]

    def with_(self, **tensors: Tensor) -> Batch:
        return replace(self, **tensors)

    def to(self, device: torch.device) -> Batch:
        moved = {name: tensor.to(device) for name, tensor in self._tensors().items()}
        return replace(self, **moved)

    def _tensors(self) -> dict[str, Tensor]:
        """The fields that are set, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def take(self, segments: Tensor) -> Batch:
        """The batch of these segments, in this order.

        Trajectories, turns and groups keep their numbers and rewards.
        """
        starts_S = self.lengths_S.cumsum(0) - self.lengths_S
        actions_S = actions_per_segment(self)
        action_starts_S = actions_S.cumsum(0) - actions_S
        index_of = {
            "T": _ranges(starts_S[segments], self.lengths_S[segments]),
            "C": _ranges(action_starts_S[segments], actions_S[segments]),
            "S": segments,
        }
        taken = {}
        for name, tensor in self._tensors().items():
            # The last letter of a field's name is its shape; _N and _U stay as they are.
            if name[-1] in index_of:
                taken[name] = tensor[index_of[name[-1]]]
        return replace(self, **taken)

    def unit_S(self, unit: Unit) -> Tensor:
        """The number of each segment's unit: itself, its trajectory or its group."""
        if unit == "segment":
            return torch.arange(len(self.lengths_S), device=self.ids_T.device)
        return self.trajectory_S if unit == "trajectory" else self.group_N[self.trajectory_S]

    def with_signal(self, unit: Unit = "segment") -> Batch:
        """The units that have a nonzero advantage."""
        return self.take(self._signal_S(unit).nonzero().flatten())

    def sample_without_signal(self, unit: Unit = "segment", *, every: int) -> Batch:
        """One in `every` of the units whose advantages are all 0, starting with the first."""
        has_none_S = ~self._signal_S(unit)
        unit_S = self.unit_S(unit)
        sampled = torch.unique_consecutive(unit_S[has_none_S])[::every]
        return self.take((has_none_S & torch.isin(unit_S, sampled)).nonzero().flatten())

    def _signal_S(self, unit: Unit) -> Tensor:
        """Whether any token of a segment's unit has a nonzero advantage."""
        assert self.advantage_C is not None
        unit_S = self.unit_S(unit)
        unit_C = unit_S.repeat_interleave(actions_per_segment(self))
        units = int(unit_S.max()) + 1 if len(unit_S) else 0
        signals = torch.zeros(units, dtype=torch.long, device=self.ids_T.device)
        signals.index_add_(0, unit_C, (self.advantage_C != 0).long())
        return (signals > 0)[unit_S]

    def split(
        self, parts: int, generator: torch.Generator, unit: Unit = "trajectory"
    ) -> Iterator[Batch]:
        """Mini-batches in random order, of whole trajectories or whole groups."""
        unit_S = self.unit_S("group" if unit == "group" else "trajectory")
        units = int(unit_S.max()) + 1
        shuffled = torch.randperm(units, generator=generator).to(unit_S.device)
        for part in shuffled.tensor_split(min(parts, units)):
            # Sorted, so that trajectories of a group stay next to each other: they share prefixes.
            numbers = part.sort().values
            segments = [(unit_S == number).nonzero().flatten() for number in numbers]
            yield self.take(torch.cat(segments))

    def share(self, rank: int, size: int, unit: Unit = "segment") -> Batch:
        """Part `rank` of `size` parts of about equally many computed tokens.

        Units stay whole; a part may be empty.
        """
        shared_S = torch.tensor(self.in_common_S, dtype=torch.long, device=self.lengths_S.device)
        computed_S = self.lengths_S - shared_S
        unit_S = self.unit_S(unit)
        _, unit_index_S = torch.unique_consecutive(unit_S, return_inverse=True)
        tokens = torch.zeros_like(self.lengths_S).index_add_(0, unit_index_S, computed_S)
        # A unit belongs to the part in which its middle token falls.
        middle = tokens.cumsum(0) - tokens / 2
        part_S = (middle * size / max(int(computed_S.sum()), 1)).long()[unit_index_S]
        return self.take((part_S == rank).nonzero().flatten())

    def microbatches(self, max_tokens: int, unit: Unit = "segment") -> Iterator[Batch]:
        """Micro-batches of at most `max_tokens` computed tokens, each for one forward pass.

        Units stay whole, even one that alone has more tokens.
        """
        device = self.ids_T.device
        shared_S = self.in_common_S
        lengths_S = self.lengths_S.tolist()
        computed_S = [length - shared for length, shared in zip(lengths_S, shared_S, strict=True)]
        first = 0  # segment of the micro-batch
        start = 0  # segment of the unit
        used = 0
        for _, same in groupby(self.unit_S(unit).tolist()):
            segments = len(list(same))
            tokens = sum(computed_S[start : start + segments])
            if used and used + tokens > max_tokens:
                yield self.take(torch.arange(first, start, device=device))
                first = start
                # The first segment of a micro-batch has none before it to share its prefix with.
                used = shared_S[start]
            start += segments
            used += tokens
        if used:
            yield self.take(torch.arange(first, start, device=device))


SHARED_AT_LEAST = 16
"""Shorter shared prefixes are computed again: sharing them costs more than it saves."""


def _shared_prefix(one: numpy.ndarray, other: numpy.ndarray) -> int:
    """How many tokens both begin with; at least one token of `other` stays its own."""
    most = min(len(one), len(other) - 1)
    differs = (one[:most] != other[:most]).nonzero()[0]
    shared = int(differs[0]) if len(differs) else most
    return shared if shared >= SHARED_AT_LEAST else 0


def actions_per_segment(batch: Batch) -> Tensor:
    """The number of action tokens in each segment."""
    segments = torch.arange(len(batch.lengths_S), device=batch.ids_T.device)
    segment_T = segments.repeat_interleave(batch.lengths_S)
    return torch.zeros_like(batch.lengths_S).index_add_(0, segment_T, batch.action_mask_T.long())


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """[2, 7], [3, 2] -> [2, 3, 4, 7, 8]"""
    if len(starts) == 0:
        return starts
    first = (starts - (lengths.cumsum(0) - lengths)).repeat_interleave(lengths)
    return first + torch.arange(int(lengths.sum()), device=starts.device)


def own_rewards(trajectory: Trajectory) -> list[float]:
    """The environment's reward for each turn."""
    return [turn.reward for turn in trajectory.turns]


TurnRewards = Callable[[Trajectory], list[float]]
"""The reward of each turn of a trajectory, as an algorithm counts it."""


def pack(
    groups: list[list[Trajectory]],
    turn_rewards: TurnRewards = own_rewards,
    *,
    keep_tail: bool = False,
) -> Batch:
    """Pack all trajectories into one batch; each inner list is a group.

    Tokens after the last action token have no gradient. They are left out unless `keep_tail`: a
    critic may estimate the value of the last observation.
    """
    trajectories = list(itertools.chain.from_iterable(groups))
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
            # A segment without an action token is kept whole: none of its tokens is in the loss.
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
    """A batch without tokens: the rewards of turns and trajectories alone."""
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
            # fsum rounds exactly: the same rewards in another order have the same sum.
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
