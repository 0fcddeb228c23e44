"""Small learners, and groups to learn from."""

import copy
from dataclasses import replace

from palestra.config.optimizer import OptimizerConfig
from palestra.core.types import Group, Segment
from palestra.learner.learner import Learner
from tests.support.batches import trajectory


def some_groups():
    groups = []
    for g in range(3):
        members = []
        for n in range(4):
            first = ("see", [3 + g, 4]), ("say", [5 + n, 6])
            second = ("see", [7]), ("say", [8 + n] * (n + 1))
            members.append(trajectory(*first, *second, reward=float(n % 2)))
        groups.append(Group(None, members))
    return groups


def in_two_segments(group, *, pair):
    """The same trajectories, each with its second turn in a segment of its own, as of an agent that
    rewrites its context.
    """
    members = []
    for one in group.trajectories[: 2 if pair else None]:
        (whole,), (first, second) = one.segments, one.turns
        cut, start = first.span[1], second.span[0]
        columns = (whole.ids, whole.mask, whole.logprobs, whole.versions)
        parts = [
            Segment(*(column[:cut] for column in columns)),
            Segment(*(column[cut:] for column in columns)),
        ]
        members.append(
            replace(
                one,
                segments=parts,
                turns=[first, replace(second, span=(start - cut, second.span[1] - cut), segment=1)],
            )
        )
    return Group(group.task, members)


def learner_with(model, critic=None, **optim):
    return Learner(
        copy.deepcopy(model),
        OptimizerConfig(**({"lr": 1e-3} | optim)),
        temperature=1.0,
        seed=0,
        critic=critic,
    )


def updated(learner, algo, groups=None):
    batch = algo.add_advantages(learner.prepare(groups or some_groups(), algo))
    return learner.update(batch, algo, lr=1e-3, step=1)
