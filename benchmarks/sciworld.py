"""Steps per second of SciWorld against the package's own environment: the same tasks, the same
actions, one after the other.

The package lists the valid actions at every step, whoever reads them. Ours does where it is asked,
so it is measured both ways.

python benchmarks/sciworld.py [--tasks 6] [--warm-up 4] [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from scienceworld import ScienceWorldEnv

from palestra.core.types import Task
from palestra.envs.sciworld.env import SciWorld
from palestra.envs.sciworld.java import find_java

KINDS = (
    "power-component",
    "find-plant",
    "use-thermometer",
    "boil",
    "chemistry-mix",
    "lifespan-longest-lived",
    "grow-plant",
    "melt",
)
Scripts = dict[Task, list[str]]


def scripts(env: SciWorld, count: int) -> Scripts:
    """For each task, the actions that solve it."""
    chosen: Scripts = {}
    for kind in KINDS[:count]:
        task = Task("sciworld", "train", f"{kind}/1", kind)
        env.reset(task)
        chosen[task] = []
        while (action := env.expert()) is not None:
            env.step(action)
            chosen[task].append(action)
    return chosen


def ours(env: SciWorld, played: Scripts, *, with_actions: bool) -> tuple[float, list[int]]:
    """Seconds in `step`, with `actions` where a policy asks for them, and the final scores."""
    seconds, scores = 0.0, []
    for task, actions in played.items():
        env.reset(task)
        began = time.perf_counter()
        for action in actions:
            step = env.step(action)
            if with_actions:
                env.actions()
        seconds += time.perf_counter() - began
        scores.append(step.info["score"])
    return seconds, scores


def theirs(env: ScienceWorldEnv, played: Scripts) -> tuple[float, list[int]]:
    """Seconds in `step`, and the final scores."""
    seconds, scores = 0.0, []
    for task, actions in played.items():
        kind, variation = task.id.split("/")
        env.load(kind, int(variation))
        env.reset()
        began = time.perf_counter()
        for action in actions:
            _, _, _, info = env.step(action)
        seconds += time.perf_counter() - began
        scores.append(info["score"])
    return seconds, scores


def measured(
    ways: dict[str, Callable[[], tuple[float, list[int]]]], rounds: int, steps: int
) -> list[dict[str, float]]:
    """Steps per second of each way, round for round.

    They take turns, so that a busy machine slows all of them.
    """
    rows = []
    for _ in range(rounds):
        played = {name: play() for name, play in ways.items()}
        scores = [scores for _, scores in played.values()]
        if any(scores[0] != other for other in scores):
            raise SystemExit(f"the scores differ: {scores}")
        rows.append({name: steps / seconds for name, (seconds, _) in played.items()})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument(
        "--warm-up",
        type=int,
        default=4,
        help="rounds that are played before, so that both Java processes have compiled",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    known = parser.parse_args()
    # The package looks for Java in PATH only.
    folders = (str(Path(find_java()).parent), os.environ.get("PATH", ""))
    os.environ["PATH"] = os.pathsep.join(folders)
    sciworld, package = SciWorld(max_moves=1000), ScienceWorldEnv(envStepLimit=1000)
    played = scripts(sciworld, known.tasks)
    steps = sum(map(len, played.values()))
    ways: dict[str, Callable[[], tuple[float, list[int]]]] = {
        "step": lambda: ours(sciworld, played, with_actions=False),
        "step_and_actions": lambda: ours(sciworld, played, with_actions=True),
        "package": lambda: theirs(package, played),
    }
    measured({name: ways[name] for name in ("step_and_actions", "package")}, known.warm_up, steps)
    print(
        f"{len(played)} tasks, {steps} steps a round; {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    print(
        f"warm-up of the Java processes: {known.warm_up * steps} steps each, ours with "
        "actions() as the package has them"
    )
    rows = measured(ways, known.rounds, steps)
    sciworld.close()
    package.close()
    for number, row in enumerate(rows, 1):
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in row.items())
        print(f"round {number}, steps/s: {rates}; {row['step'] / row['package']:.1f} times as many")
    result = {
        "steps": steps,
        "warm_up_steps": known.warm_up * steps,
        "rounds": rows,
        "ratio": median(row["step"] / row["package"] for row in rows),
        "ratio_with_actions": median(row["step_and_actions"] / row["package"] for row in rows),
    }
    print(
        f"median: {result['ratio']:.1f} times the package's own steps/s, "
        f"{result['ratio_with_actions']:.1f} times with actions()"
    )
    if known.json is not None:
        known.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
