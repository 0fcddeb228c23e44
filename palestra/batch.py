"""Trajectories as tensors: segments laid end to end, without padding.

Shapes stand in names. T: all tokens. S: segments. N: trajectories. U: turns. C: chosen tokens, those the policy sampled; credit
and losses see only these, so no mask can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import accumulate

import torch
from torch import Tensor

from palestra.types import Segment, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything an update needs to know about some trajectories."""

    ids_T: Tensor
    chosen_T: Tensor
    """Whether the policy chose the token."""
    lengths_S: Tensor
    owner_S: Tensor
    """The trajectory (0..N-1) a segment belongs to."""
    owner_C: Tensor
    turn_C: Tensor
    """The turn (0..U-1) in which a token was chosen."""
    sampled_logp_C: Tensor
    """As the engine returned them."""
    reward_N: Tensor
    group_N: Tensor
    """Trajectories of one task share a number."""
    reward_U: Tensor
    """What each turn brought; trajectory by trajectory, in the order of play."""
    owner_U: Tensor
    anchor_U: Tensor
    """Turns of one group that began with the same observation share a number."""
    old_logp_C: Tensor
    """What the ratio is taken against: the engine's log-probs, or the learner's before its first update."""
    advantage_C: Tensor | None = None
    weight_C: Tensor | None = None
    """What a token's loss counts for in the whole update; set by `Algorithm.weights`."""
    reference_logp_C: Tensor | None = None

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self.reward_N)

    @property
    def positions_T(self) -> Tensor:
        """Counting anew in each segment."""
        return torch.cat([torch.arange(n, device=self.ids_T.device) for n in self.lengths_S.tolist()])

    def with_(self, **tensors: Tensor) -> Batch:
        return replace(self, **tensors)

    def to(self, device: torch.device) -> Batch:
        return replace(self, **{f.name: value.to(device) for f in fields(self) if (value := getattr(self, f.name)) is not None})

    def take(self, segments: Tensor) -> Batch:
        """The batch of these segments, in this order. Trajectories keep their numbers and rewards."""
        starts_S = self.lengths_S.cumsum(0) - self.lengths_S
        per_segment_C = chosen_per_segment(self)
        chosen_starts_S = per_segment_C.cumsum(0) - per_segment_C
        tokens = _ranges(starts_S[segments], self.lengths_S[segments])
        chosen = _ranges(chosen_starts_S[segments], per_segment_C[segments])
        index = {"T": tokens, "C": chosen, "S": segments}
        taken = {
            f.name: value[index[f.name[-1]]] for f in fields(self) if (value := getattr(self, f.name)) is not None and f.name[-1] in index
        }
        return replace(self, **taken)

    def with_signal(self) -> Batch:
        """Without the segments whose advantages are all 0."""
        assert self.advantage_C is not None
        segment_C = torch.arange(len(self.lengths_S), device=self.ids_T.device).repeat_interleave(chosen_per_segment(self))
        has_signal_S = torch.zeros_like(self.lengths_S).index_add_(0, segment_C, (self.advantage_C != 0).long()) > 0
        return self.take(has_signal_S.nonzero().flatten())

    def split(self, parts: int, order_N: Tensor) -> Iterator[Batch]:
        """Mini-batches of whole trajectories, in the given order."""
        for trajectories in order_N.tensor_split(min(parts, len(self))):
            yield self.take(torch.cat([(self.owner_S == n).nonzero().flatten() for n in trajectories]))

    def rows(self, max_tokens: int) -> Iterator[Batch]:
        """Pieces of at most `max_tokens` tokens (or one segment), each small enough for one forward pass."""
        row: list[int] = []
        used = 0
        for segment, length in enumerate(self.lengths_S.tolist()):
            if row and used + length > max_tokens:
                yield self.take(torch.tensor(row, device=self.ids_T.device))
                row, used = [], 0
            row.append(segment)
            used += length
        if row:
            yield self.take(torch.tensor(row, device=self.ids_T.device))


def chosen_per_segment(batch: Batch) -> Tensor:
    """How many tokens the policy chose in each segment."""
    segment_T = torch.arange(len(batch.lengths_S), device=batch.ids_T.device).repeat_interleave(batch.lengths_S)
    return torch.zeros_like(batch.lengths_S).index_add_(0, segment_T, batch.chosen_T.long())


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """[2, 7], [3, 2] -> [2, 3, 4, 7, 8]"""
    if len(starts) == 0:
        return starts
    first = (starts - (lengths.cumsum(0) - lengths)).repeat_interleave(lengths)
    return first + torch.arange(int(lengths.sum()), device=starts.device)


def pack(groups: list[list[Trajectory]], turn_reward: Callable[[Turn], float] = lambda turn: turn.reward) -> Batch:
    """One batch of all trajectories; those of one inner list form a group. `turn_reward` is what a turn is credited with."""
    trajectories = [trajectory for group in groups for trajectory in group]
    if not any(trajectory.sampled_tokens for trajectory in trajectories):
        raise ValueError("there is nothing to learn from: no trajectory has a sampled token")
    first_turn_N = list(accumulate([len(t.turns) for t in trajectories], initial=0))
    seen = [(number, turn.observation) for number, group in enumerate(groups) for t in group for turn in t.turns]
    anchors = {place: number for number, place in enumerate(dict.fromkeys(seen))}
    owned = [(owner, segment) for owner, trajectory in enumerate(trajectories) for segment in trajectory.segments]
    segments = [segment for _, segment in owned]
    sampled_logp_C = torch.tensor([p for s in segments for p, chosen in zip(s.logprobs, s.mask, strict=True) if chosen])
    return Batch(
        ids_T=torch.tensor([token for segment in segments for token in segment.ids]),
        chosen_T=torch.tensor([chosen for segment in segments for chosen in segment.mask], dtype=torch.bool),
        lengths_S=torch.tensor([len(segment.ids) for segment in segments]),
        owner_S=torch.tensor([owner for owner, _ in owned]),
        owner_C=torch.tensor([owner for owner, segment in owned for _ in range(sum(segment.mask))]),
        turn_C=torch.tensor([first + turn for first, t in zip(first_turn_N, trajectories, strict=False) for turn in _turn_of_chosen(t)]),
        reward_U=torch.tensor([turn_reward(turn) for t in trajectories for turn in t.turns]),
        owner_U=torch.tensor([owner for owner, t in enumerate(trajectories) for _ in t.turns]),
        anchor_U=torch.tensor([anchors[place] for place in seen]),
        sampled_logp_C=sampled_logp_C,
        old_logp_C=sampled_logp_C,
        reward_N=torch.tensor([float(sum(turn_reward(turn) for turn in t.turns)) for t in trajectories]),
        group_N=torch.tensor([number for number, group in enumerate(groups) for _ in group]),
    )


def _turn_of_chosen(trajectory: Trajectory) -> list[int]:
    """The turn of each chosen token, in the order of the segments' tokens."""
    turns: list[int] = []
    for number, segment in enumerate(trajectory.segments):
        turns += _turns_in(segment, [(i, turn.span) for i, turn in enumerate(trajectory.turns) if turn.segment == number])
    return turns


def _turns_in(segment: Segment, spans: list[tuple[int, tuple[int, int]]]) -> list[int]:
    turn_at: dict[int, int] = {}
    for turn, (start, end) in spans:
        turn_at.update(dict.fromkeys(range(start, end), turn))
    return [turn_at[position] for position, chosen in enumerate(segment.mask) if chosen]
