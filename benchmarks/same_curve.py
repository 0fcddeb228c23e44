"""How far several workers train the same as one: the same recipe, seed and steps, by one process
and by several.

    python benchmarks/same_curve.py RECIPE [--steps 10] [--ray] [--out FOLDER] [--json FILE] [--set
    FLAG VALUE]...

Every way is a run of its own through the command line. Printed are the largest differences in loss,
gradient norm and reward over all steps, and in how many steps the episodes are the same token by
token: sums are taken in another order, so that after some steps one of many thousand tokens is
drawn otherwise, and from there on it is another run. With `--set dtype float64` the differences
stay too small for that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from palestra.runs.run import Run
from palestra.runs.trajectories import read_trajectories

WAYS = {
    "one process": [],
    "2 workers": ["--launch.workers", "2"],
    "2 workers, fsdp": ["--launch.workers", "2", "--launch.sharding", "fsdp"],
    "2 workers, ray": ["--launch.kind", "ray", "--launch.workers", "2"],
}
CURVES = ("loss", "grad_norm", "reward")


def train(recipe: Path, folder: Path, flags: list[str]) -> tuple[Run, float]:
    began = time.monotonic()
    command = [sys.executable, "-m", "palestra", "train", str(recipe), "--out", str(folder), *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Run.open(folder), time.monotonic() - began


def rows(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.metrics() if "loss" in row]


def tokens(run: Run, step: int) -> list[list[list[int]]]:
    found: list[list[list[int]]] = []
    for trajectory in read_trajectories(run.trajectory_file(f"step-{step:06d}")):
        found.append([segment.ids for segment in trajectory.segments])
    return found


def compared(one: Run, other: Run, steps: int) -> dict[str, float]:
    pairs = list(zip(rows(one), rows(other), strict=True))
    same = [tokens(one, step) == tokens(other, step) for step in range(1, steps + 1)]
    alike = same.index(False) if False in same else steps
    found: dict[str, float] = {}
    for name in CURVES:
        differences = [abs(a[name] - b[name]) for a, b in pairs[:alike]]
        found[name] = max(differences, default=float("nan"))
    return {"same episodes for": alike, **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ray", action="store_true", help="needs the extra ray")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("FLAG", "VALUE"))
    given = parser.parse_args()
    common = ["--steps", str(given.steps)]
    for flag, value in given.set:
        common += [f"--{flag}", value]
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        base: Run | None = None
        for number, (way, flags) in enumerate(WAYS.items()):
            if "ray" in way and not given.ray:
                continue
            run, seconds = train(
                given.recipe, (given.out or Path(scratch)) / str(number), [*common, *flags]
            )
            base = base or run
            found[way] = {"seconds": seconds, **compared(base, run, given.steps)}
            cells = "  ".join(f"{name} {value:.3g}" for name, value in found[way].items())
            print(f"{way:18}{cells}", flush=True)
    if given.json:
        given.json.write_text(
            json.dumps({"recipe": given.recipe.name, "steps": given.steps, "ways": found}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
