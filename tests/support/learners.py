"""Small learners, and groups to learn from."""

import copy
from dataclasses import replace

from palestra.config.optimizer import OptimizerConfig
from palestra.core.types import Group, Segment
from palestra.learner.learner import Learner
from tests.support.batches import trajectory


def some_groups():
    return [
        Group(
            None,
            [
                trajectory(
                    ("see", [3 + g, 4]),
                    ("say", [5 + n, 6]),
                    ("see", [7]),
                    ("say", [8 + n] * (n + 1)),
                    reward=float(n % 2),
                )
                for n in range(4)
            ],
        )
        for g in range(3)
    ]


def in_two_segments(group, *, pair):
    """The same trajectories, each with its second turn in a segment of its own, as of an agent that
    rewrites its context.
    """
    members = []
    for one in group.trajectories[: 2 if pair else None]:
        (whole,), (first, second) = one.segments, one.turns
        cut, start = first.span[1], second.span[0]
        parts = [
            Segment(
                *(column[a:b] for column in (whole.ids, whole.mask, whole.logprobs, whole.versions))
            )
            for a, b in ((0, cut), (cut, None))
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
