"""Asynchronous training where some tasks are slow: groups learned a second, next to the synchronous
mode's.

    python benchmarks/asynchronous.py [--seconds 0.1] [--staleness 1 2 4] [--steps 10] [--json FILE]

The environments sleep in worker processes, ten times as long for one task in eight; model, tasks,
concurrency and workers are the same in all rows. The first steps (the queue fills) and the last
ones (nothing new is begun) are not counted. Prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from uneven import ALL_TASKS, TURNS

from palestra.config.config import Config, build
from palestra.core.types import Trajectory
from palestra.envs.serving.handles import opened
from palestra.runs.run import Run
from palestra.runs.trajectories import read_trajectories
from palestra.training.display import Display
from palestra.training.loop import begin, make_data_source, train
from palestra.training.setup import Components, setup

TASKS, GROUP = 8, 2
EPOCH = ALL_TASKS // TASKS
"""Steps in which each task comes once."""
WARM_UP = 1
"""Steps that are not counted, in addition to those that fill the queue."""


def recipe(seconds: float, staleness: int, steps: int) -> Config:
    return build(
        {
            "steps": steps,
            "device": "cpu",
            "threads": 1,
            "model": {"width": 32, "layers": 2, "heads": 2},
            "env": {
                "name": "uneven:Uneven",
                "options": {"seconds": seconds},
                "isolation": "process",
            },
            # The untrained model samples random words until it samples the end of a reply.
            "agent": {"format": "plain", "context_tokens": 256, "reply_tokens": 48},
            "engine": {"slots": TASKS * GROUP, "deterministic": False},
            "rollout": {
                "tasks": TASKS,
                "group": GROUP,
                "concurrency": TASKS * GROUP,
                "max_staleness": staleness,
            },
            "algo": {"recompute_logprobs": True, "correction": {"cap": 2.0}},
            "optim": {"lr": 1e-3},
            "horizon": {"kind": "fixed", "turns": TURNS},
            "eval": {"tasks": 1},
            "save": {"every": 1000},
        }
    )


class Clock(Display):
    """When each step ended."""

    def __init__(self) -> None:
        self.ended: dict[int, float] = {}
        self.rows: dict[int, dict[str, Any]] = {}

    def end_step(self, row: dict[str, Any]) -> None:
        self.ended[row["step"]], self.rows[row["step"]] = time.monotonic(), row


async def start_processes(components: Components) -> None:
    """All that will be needed, so that none starts while it is measured."""
    (place,) = components.context.bindings.values()
    async with AsyncExitStack() as stack:
        handles = await asyncio.gather(
            *(stack.enter_async_context(opened(place.pool)) for _ in range(TASKS * GROUP))
        )
        await asyncio.gather(
            *(handle.reset(place.own(components.tasks("uneven", "train")[1])) for handle in handles)
        )


def measured(seconds: float, staleness: int, counted: int) -> dict[str, Any]:
    first = WARM_UP + staleness
    last = first + counted
    config = recipe(seconds, staleness, -(-(last + staleness) // EPOCH) * EPOCH)  # whole epochs
    clock = Clock()
    with TemporaryDirectory() as folder:
        run = Run.create(Path(folder, "run"), config)
        with closing(setup(config)) as components:
            components.loop.run(start_processes(components))
            state = begin(run, components, clock)
            with closing(make_data_source(run, components, state)) as source:
                train(run, components, source, state, clock)
        played: list[Trajectory] = []
        for step in range(1, config.steps + 1):
            played += read_trajectories(run.trajectory_file(f"step-{step:06d}"))
    rows = [clock.rows[step] for step in range(first + 1, last + 1)]
    elapsed = clock.ended[last] - clock.ended[first]
    times = Counter(t.task.id for t in played).values()
    return {
        "staleness": staleness,
        "seconds_per_step": elapsed / counted,
        "groups_per_s": counted * config.rollout.tasks / elapsed,
        "tokens_per_s": sum(row["tokens/all"] for row in rows) / elapsed,
        "waited": sum(row["time/collect"] for row in rows) / elapsed,
        "age_mean": sum(row.get("staleness/mean", 0.0) for row in rows) / counted,
        "age_max": max(row.get("staleness/max", 0.0) for row in rows),
        "share_off_by": max(abs(n * ALL_TASKS / len(played) - 1) for n in times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.1,
        help="of an answer; ten times that for one task in eight",
    )
    parser.add_argument("--staleness", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=10, help="that are counted")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    head = (
        "staleness",
        "s/step",
        "groups/s",
        "tokens/s",
        "times",
        "waited",
        "age",
        "oldest",
        "share off",
    )
    print("".join(f"{name:>11}" for name in head))
    results: list[dict[str, Any]] = []
    for staleness in (0, *arguments.staleness):
        result = measured(arguments.seconds, staleness, arguments.steps)
        results.append(
            result
            | {
                "times": result["groups_per_s"]
                / (results[0] if results else result)["groups_per_s"]
            }
        )
        r = results[-1]
        row = (
            *(
                f"{staleness}",
                f"{r['seconds_per_step']:.2f}",
                f"{r['groups_per_s']:.1f}",
                f"{r['tokens_per_s']:.0f}",
                f"{r['times']:.2f}",
            ),
            *(
                f"{r['waited']:.0%}",
                f"{r['age_mean']:.2f}",
                f"{r['age_max']:.0f}",
                f"{r['share_off_by']:.1%}",
            ),
        )
        print("".join(f"{value:>11}" for value in row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
