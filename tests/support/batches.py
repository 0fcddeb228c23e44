"""Trajectories and batches written by hand."""

from dataclasses import replace

import torch

from palestra.algos.batch import pack
from palestra.core.types import Group, Segment, Stop, Task, Trajectory, Turn
from palestra.runs.group_queue import Finished


def trajectory(
    *pieces: tuple[str, list[int]],
    reward: float = 0.0,
    stop: Stop = Stop.DONE,
    task: str = "t",
    success=None,
) -> Trajectory:
    """From ("see", ids) and ("say", ids) pieces; the reward comes with the last turn."""
    segment = Segment([], [], [], [])
    turns: list[Turn] = []
    for kind, ids in pieces:
        start = len(segment.ids)
        said = kind == "say"
        segment.ids.extend(ids)
        segment.mask.extend([int(said)] * len(ids))
        segment.logprobs.extend([-0.1 * (i + 1) if said else 0.0 for i in range(len(ids))])
        segment.versions.extend([0 if said else -1] * len(ids))
        if said:
            turns.append(Turn("", "", "", 0.0, (start, len(segment.ids))))
    if turns:
        last = turns[-1]
        turns[-1] = Turn(last.observation, last.reply, last.action, reward, last.span)
    return Trajectory(
        "id", Task("env", "train", task), [segment], turns, stop, success, horizon=9, seed=0
    )


def ready(groups, algo):
    """A batch with all that any algorithm may need; what a model says of a token depends on the
    token alone.
    """
    batch = pack(groups, algo.turn_rewards, keep_tail="value" in algo.needs)
    ids_C = batch.ids_T[batch.action_mask_T].float()
    baselines = {number: 0.4 + 0.1 * number for number in batch.group_N.tolist()}
    return batch.with_(
        value_C=0.06 * ids_C,
        value_after_N=torch.full_like(batch.reward_N, 0.3),
        reference_logp_C=-0.1 * ids_C,
        baseline_N=torch.tensor([baselines[number] for number in batch.group_N.tolist()]),
    )


def finished(*versions):
    """A group with an episode of each of these versions,
    one of which stands in for the greedy one.
    """
    played = trajectory(("see", [1, 2]), ("say", [3, 4]))
    members = [
        replace(
            played,
            id=str(v),
            segments=[Segment([1, 2, 3, 4], [0, 0, 1, 1], [0.0] * 4, [-1, -1, v, v])],
        )
        for v in versions
    ]
    return Finished(
        Group(played.task, members[:-1], members[-1]), faulted=[replace(played, id="broken")]
    )
