"""The comparisons of docs/results.md: run them, keep their numbers, write the page.

    python benchmarks/results.py run horizon-cpu algorithm-cpu [--seeds 0 1 2] [--jobs 2] [--out
    runs/results]
    python benchmarks/results.py run horizon-gpu --model DIR [--only-numbers]      # those that
    begin with a raw model
    python benchmarks/results.py keep NAME RUN...            # runs from elsewhere: their numbers
    go into docs/results/NAME.json
    python benchmarks/results.py write                       # docs/results.md and its figures,
    from docs/results/*.json

Every run goes through the command line as a user's would. What is finished is not run again, what
was interrupted is resumed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from results_page import write_page

from palestra.core.evaluation import EvalResult, Score
from palestra.runs.reader import is_over
from palestra.tools.report.read import Record, read_run

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "palestra" / "recipes" / "results"
KEPT = ROOT / "docs" / "results"
CURVE = (
    "success",
    "reward",
    "turns",
    "horizon",
    "policy/entropy",
    "invalid_actions",
    "groups/zero_advantage",
)
"""What is kept of every training step."""
WARM = Path("checkpoints") / "step-000000"
"""What the first step of a run begins with."""
POINTS = 120
"""Steps that are kept of a curve at the most."""


@dataclass(frozen=True)
class Comparison:
    """Recipes that differ in one thing."""

    arms: tuple[str, ...]
    """Of recipes/results."""
    warm: str = ""
    """The recipe whose first checkpoint they begin with."""


COMPARISONS = {
    "horizon-cpu": Comparison(("cpu-long", "cpu-short", "cpu-stages", "cpu-adaptive"), "cpu-warm"),
    "algorithm-cpu": Comparison(
        ("cpu-stages", "cpu-ppo", "cpu-rloo", "cpu-reinforce-pp", "cpu-gigpo"), "cpu-warm"
    ),
    "mixture-cpu": Comparison(("mix-babyai", "mix-miniwob", "mix"), "mix-warm"),
    "sciworld-cpu": Comparison(("sci-divided", "sci-weighed"), "sci-warm"),
    "horizon-gpu": Comparison(("gpu-long", "gpu-short", "gpu-stages")),
    "algorithm-gpu": Comparison(("gpu-stages", "gpu-ppo", "gpu-rloo", "gpu-reinforce-pp")),
}


def run(
    names: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    jobs: int,
    model: Path | None = None,
    *,
    only_numbers: bool = False,
) -> None:
    """All runs of the comparisons; an arm that two of them have is run once.

    Weights are not kept where only numbers are wanted.
    """
    warm = sorted({COMPARISONS[name].warm for name in names} - {""})
    arms: dict[tuple[str, str], None] = {}
    for name in names:
        for arm in COMPARISONS[name].arms:
            arms[arm, COMPARISONS[name].warm] = None
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        warm_jobs = [(recipe, seed, None) for seed, recipe in itertools.product(seeds, warm)]
        list(pool.map(lambda job: train(out, *job), warm_jobs))
        jobs_of_arms = []
        for seed, (arm, base) in itertools.product(seeds, arms):
            start = folder_of(out, base, seed) / WARM if base else model
            jobs_of_arms.append((arm, seed, start))
        list(pool.map(lambda job: train(out, *job, only_numbers=only_numbers), jobs_of_arms))
    print(f"all runs: {(time.monotonic() - began) / 60:.1f} minutes")
    for name in names:
        pairs = itertools.product(COMPARISONS[name].arms, seeds)
        keep(name, [folder_of(out, arm, seed) for arm, seed in pairs])


def folder_of(out: Path, recipe: str, seed: int) -> Path:
    return out / f"{recipe}-{seed}"


def train(
    out: Path, recipe: str, seed: int, model: Path | None, *, only_numbers: bool = False
) -> None:
    folder, began = folder_of(out, recipe, seed), time.monotonic()
    flags = [
        *(["--model", str(model)] if model else []),
        *(["--save.every", "0"] if only_numbers else []),
    ]
    train_once(folder, [str(RECIPES / f"{recipe}.toml"), "--seed", str(seed), *flags])
    if only_numbers:
        shutil.rmtree(folder / "trajectories", ignore_errors=True)
    final = read_run(folder).evals[-1].all.success
    print(
        f"{folder.name}: {final:.1%} on held-out tasks, "
        f"{(time.monotonic() - began) / 60:.1f} minutes",
        flush=True,
    )


def train_once(folder: Path, words: list[str]) -> None:
    """Through the command line, as a user would; what is finished is left alone, what was
    interrupted is resumed.
    """
    if folder.exists() and is_over(read_run(folder).rows):
        return
    what = ["--resume", str(folder)] if folder.exists() else [*words, "--out", str(folder)]
    command = [sys.executable, "-m", "palestra", "train", *what, "--json"]
    # waiting threads sleep instead of spinning: runs share the cores
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{folder.name} failed:\n{done.stderr[-2000:]}")


def keep(name: str, runs: Sequence[Path], kept: Path = KEPT) -> Path:
    """The numbers of these runs go into docs/results/NAME.json, in place of older ones of the same
    recipe and seed.

    A run is its folder, or a file that this has written elsewhere.
    """
    kept.mkdir(exist_ok=True)
    path = kept / f"{name}.json"
    before = json.loads(path.read_text())["runs"] if path.exists() else []
    new = []
    for run in runs:
        if run.is_file():
            new += json.loads(run.read_text())["runs"]
        else:
            new.append(summary(read_run(run)))
    by_name = {(one["recipe"], one["seed"]): one for one in (*before, *new)}
    arms = COMPARISONS[name].arms if name in COMPARISONS else ()
    ordered = sorted(
        by_name.values(),
        key=lambda one: (
            arms.index(one["recipe"]) if one["recipe"] in arms else len(arms),
            one["seed"],
        ),
    )
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in ordered)
    path.write_text(f'{{"name":"{name}","runs":[\n{lines}\n]}}\n')
    return path


def summary(record: Record) -> dict[str, Any]:
    """What the page needs to know of a run."""
    spent, rows = 0.0, []
    for row in record.steps:
        spent += row.get("tokens/all", 0)
        rows.append(
            {
                "step": row["step"],
                "tokens": round(spent),
                **{name: _short(row[name]) for name in CURVE if name in row},
            }
        )
    tokens = {0: 0} | {row["step"]: row["tokens"] for row in rows}
    return {
        "recipe": record.folder.name.rpartition("-")[0],
        "seed": record.seed,
        "date": time.strftime(
            "%Y-%m-%d", time.gmtime((record.folder / "metrics.jsonl").stat().st_mtime)
        ),
        "machine": machine(),
        "versions": versions(),
        "settings": settings_of(record.config),
        "steps": len(rows),
        "tokens": round(spent),
        "sampled_tokens": record.sampled_tokens,
        "seconds": {phase: round(seconds, 1) for phase, seconds in record.seconds.items()},
        "evals": [measured(result, tokens) for result in record.evals],
        "curve": rows
        if len(rows) <= POINTS
        else [rows[place * len(rows) // POINTS] for place in range(POINTS)],
    }


def measured(result: EvalResult, tokens: dict[int, int]) -> dict[str, Any]:
    """An evaluation at the longest horizon, in all and by category."""
    found: dict[str, Any] = {
        "phase": result.phase,
        "step": result.step,
        "tokens": tokens.get(result.step, 0),
        "envs": {},
    }
    for env, horizons in result.envs.items():
        horizon = max(horizons, key=int)
        scores = {"all": horizons[horizon].all, **horizons[horizon].categories}
        found["envs"][env] = {
            "horizon": int(horizon),
            **{category: _score(score) for category, score in scores.items()},
        }
    return found


def _score(score: Score) -> dict[str, Any]:
    names = ("tasks", "success", "success_interval", "reward", "reward_interval", "turns")
    # Runs of before 2026-11 have no interval of the reward.
    known = {name: getattr(score, name) for name in names if getattr(score, name) is not None}
    return {
        name: [*map(_short, value)] if isinstance(value, list | tuple) else _short(value)
        for name, value in known.items()
    }


def _short(number: float) -> float:
    return float(f"{number:.5g}")


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """All settings, as recipes change: but not where the model lay on some machine."""
    return config | {
        "model": {name: value for name, value in config["model"].items() if name != "path"}
    }


def machine() -> str:
    import torch

    accelerator = f"one {torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return f"{accelerator}{os.cpu_count()} CPU cores ({platform.machine()})"


def versions() -> dict[str, str]:
    described = subprocess.run(
        ["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    packages = {name: version(name) for name in ("torch", "transformers")}
    return {
        "palestra": described.stdout.strip() or version("palestra"),
        "python": platform.python_version(),
        **packages,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run comparisons and keep their numbers")
    running.add_argument("names", nargs="+", choices=COMPARISONS)
    running.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--jobs", type=int, default=2, help="runs at a time")
    running.add_argument("--out", type=Path, default=Path("runs/results"))
    running.add_argument(
        "--model", type=Path, help="what comparisons without a warm start begin with"
    )
    running.add_argument(
        "--only-numbers",
        action="store_true",
        help="keep no weights and no episodes; what was interrupted is begun again",
    )
    keeping = commands.add_parser("keep", help="keep the numbers of runs that are there")
    keeping.add_argument("name")
    keeping.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="a run folder, or a visit's JSON file"
    )
    commands.add_parser("write", help="write the page")
    given = parser.parse_args()
    if given.command == "run":
        if given.model is None and any(not COMPARISONS[name].warm for name in given.names):
            parser.error("--model is needed: these comparisons begin with a raw model")
        run(
            given.names,
            given.seeds,
            given.out,
            given.jobs,
            given.model,
            only_numbers=given.only_numbers,
        )
    if given.command == "keep":
        print(keep(given.name, given.runs))
    if given.command in ("run", "write"):
        write_page(ROOT / "docs" / "results.md", KEPT)


if __name__ == "__main__":
    main()
