"""One visit to a rented machine: examine the recipe, train it until the time is up, evaluate, and
leave what is worth carrying home.

    python benchmarks/visit.py RECIPE --model DIR --minutes 25 --out FOLDER [--reserve 2]
    [--most-mb 64] [--greedy] [--set FLAG VALUE]...

FOLDER then holds the run's numbers (NAME.json, for `results.py keep` and docs/results.md), its
metrics, curve and evaluations, what was printed, the episodes of the final evaluation and of the
last step (NAME-episodes.tar.gz), and its newest checkpoint as run.tar where that is small enough:
unpacked, it is a run folder for `palestra train --resume`. With --greedy, greedy.json has what the
likeliest tokens come to, where evaluations sample.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from results import keep

from palestra.learner.checkpoint import newest

ALWAYS = ("config.toml", "metrics.jsonl", "log.txt", "curve.png")


def palestra(*words: str, log: Path) -> int:
    """The command, with what it prints here and in a file."""
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "palestra", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
    return process.returncode


def minutes_left(began: float, given: argparse.Namespace) -> float:
    return float(given.minutes - given.reserve - (time.monotonic() - began) / 60)


def visit(given: argparse.Namespace) -> int:
    began = time.monotonic()
    run = given.out / f"{given.recipe.stem}-{given.seed}"
    flags = ["--model", str(given.model), "--seed", str(given.seed)]
    for flag, value in given.set:
        flags += [f"--{flag}", value]
    if not run.exists():
        given.out.mkdir(parents=True, exist_ok=True)
        if (
            not given.no_doctor
            and palestra("doctor", str(given.recipe), *flags, log=given.out / "doctor.txt") != 0
        ):
            return 1
        what = [str(given.recipe), *flags, "--out", str(run)]
    else:
        what = ["--resume", str(run)]
    left = minutes_left(began, given)
    if left <= 0:
        print(
            f"no time is left to train: {given.minutes} minutes, {given.reserve} of them "
            "for the final evaluation"
        )
        return 1
    failed = palestra("train", *what, "--limit.minutes", f"{left:.2f}", log=given.out / "train.txt")
    if (run / "metrics.jsonl").exists():
        pack(run, given.out, given.most_mb)
    if given.greedy and not failed:
        failed = palestra(
            "eval",
            str(run),
            "--temperature",
            "0",
            "--out",
            str(given.out / "greedy.json"),
            log=given.out / "greedy.txt",
        )
    return failed


def pack(run: Path, out: Path, most_mb: float) -> None:
    """What is left of a run for the way home."""
    keep(run.name, [run], out)
    for name in ALWAYS:
        if (run / name).exists():
            shutil.copy(run / name, out / f"{run.name}-{name}")
    with tarfile.open(out / f"{run.name}-episodes.tar.gz", "w:gz") as archive:
        for path in (
            *run.glob("trajectories/eval-*-final.jsonl"),
            *sorted(run.glob("trajectories/step-*.jsonl"))[-1:],
        ):
            archive.add(path, arcname=f"{run.name}/trajectories/{path.name}")
    checkpoint = newest(run / "checkpoints")
    if checkpoint is None:
        return
    size = sum(path.stat().st_size for path in checkpoint.iterdir()) / 2**20
    if size > most_mb:
        print(f"the checkpoint stays here: {size:.0f} MiB are more than {most_mb:.0f}")
        return
    with tarfile.open(out / "run.tar", "w") as archive:
        for name in ("config.toml", "metrics.jsonl", "eval", f"checkpoints/{checkpoint.name}"):
            archive.add(run / name, arcname=f"{run.name}/{name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=25.0, help="of the whole visit")
    parser.add_argument(
        "--reserve",
        type=float,
        default=2.0,
        help="minutes for the last step, its checkpoint and the final evaluation",
    )
    parser.add_argument(
        "--most-mb", type=float, default=64.0, help="the largest checkpoint that is carried home"
    )
    parser.add_argument("--no-doctor", action="store_true")
    parser.add_argument(
        "--greedy",
        action="store_true",
        help="evaluate the likeliest tokens too: a minute more than --minutes",
    )
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("FLAG", "VALUE"))
    sys.exit(visit(parser.parse_args()))


if __name__ == "__main__":
    main()
