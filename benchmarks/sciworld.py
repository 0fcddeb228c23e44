"""Steps per second of SciWorld against the package's own environment: the same tasks, the same actions, one after the other.

python benchmarks/sciworld.py [--tasks 6] [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

from scienceworld import ScienceWorldEnv

from palestra.envs.sciworld import SciWorld
from palestra.envs.sciworld_java import find_java
from palestra.types import Task

KINDS = ("power-component", "find-plant", "use-thermometer", "boil", "chemistry-mix", "lifespan-longest-lived", "grow-plant", "melt")


def scripts(env: SciWorld, count: int) -> dict[Task, list[str]]:
    """For each task, the actions that solve it."""
    chosen: dict[Task, list[str]] = {}
    for kind in KINDS[:count]:
        task = Task("sciworld", "train", f"{kind}/1", kind)
        env.reset(task)
        chosen[task] = []
        while (action := env.expert()) is not None:
            env.step(action)
            chosen[task].append(action)
    return chosen


def ours(env: SciWorld, played: dict[Task, list[str]]) -> tuple[float, list[int]]:
    """Seconds in `step`, and the final scores."""
    seconds, scores = 0.0, []
    for task, actions in played.items():
        env.reset(task)
        began = time.perf_counter()
        steps = [env.step(action) for action in actions]
        seconds += time.perf_counter() - began
        scores.append(steps[-1].info["score"])
    return seconds, scores


def theirs(env: ScienceWorldEnv, played: dict[Task, list[str]]) -> tuple[float, list[int]]:
    seconds, scores = 0.0, []
    for task, actions in played.items():
        kind, variation = task.id.split("/")
        env.load(kind, int(variation))
        env.reset()
        began = time.perf_counter()
        steps = [env.step(action) for action in actions]
        seconds += time.perf_counter() - began
        scores.append(steps[-1][3]["score"])
    return seconds, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3, help="measured, after one that is not")
    parser.add_argument("--json", type=Path)
    known = parser.parse_args()
    os.environ["PATH"] = os.pathsep.join((str(Path(find_java()).parent), os.environ.get("PATH", "")))  # the package looks nowhere else
    sciworld, package = SciWorld(max_moves=1000), ScienceWorldEnv(envStepLimit=1000)
    played = scripts(sciworld, known.tasks)
    steps = sum(map(len, played.values()))
    rows = []
    for number in range(known.rounds + 1):  # in turn, so that a busy machine slows both
        fast, scores = ours(sciworld, played)
        slow, their_scores = theirs(package, played)
        if scores != their_scores:
            raise SystemExit(f"the scores differ: {scores} and {their_scores}")
        if number:
            rows.append({"ours_steps_per_s": steps / fast, "package_steps_per_s": steps / slow, "ratio": slow / fast})
            print(f"round {number}: {steps / fast:7.1f} steps/s, the package's own {steps / slow:6.1f}: {slow / fast:.1f} times as many")
    sciworld.close()
    package.close()
    result = {"steps": steps, "rounds": rows, "ratio": median(row["ratio"] for row in rows)}
    print(f"median: {result['ratio']:.1f} times as many")
    if known.json is not None:
        known.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
