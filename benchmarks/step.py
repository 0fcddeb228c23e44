"""Whole training steps, phase by phase: collect, prepare, update, hand the weights over.

    python benchmarks/step.py [MODEL] [--recipe palestra/recipes/textcraft-qwen1.5b.toml] [--engine
    native|vllm] [--steps 3] [--json FILE]
                              [--optim.lr 1e-7 ...]

A step is what `palestra train` does, without evaluations and files. MODEL is a Hugging Face
directory; without it the recipe's own model is used. Any setting of the recipe can follow as a
flag, as with `palestra train`. A first step warms up and is not counted. The JSON file is written
again after every step. Tokens sampled a second are over the time of collecting, tokens trained a
second over that of preparing and updating; episodes whose group has no signal are sampled and not
trained on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from palestra.cli.settings import split_settings
from palestra.config.config import Config, load
from palestra.core.errors import ConfigError
from palestra.core.types import Trajectory
from palestra.runs.state import State
from palestra.training.data_sources import OnPolicySource, StepData
from palestra.training.setup import Components, setup

Row = dict[str, Any]


class Stopwatch:
    """Seconds by name; the device's queue is emptied before each reading."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = now()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + now() - began


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory_gib() -> float:
    """Of the device, or of the process where there is none,
    since it began or since the last reset.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def facts() -> dict[str, Any]:
    """When and on what this was measured."""

    def version_of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    packages = ("torch", "transformers", "triton", "vllm", "trl", "liger-kernel", "accelerate")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {package: version_of(package) for package in packages},
    }


def write(path: Path | None, result: dict[str, Any]) -> None:
    """Whole or not at all: the program may be killed at any time."""
    if path is not None:
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text(json.dumps(result, indent=2) + "\n")
        draft.replace(path)


def measure(config: Config, steps: int, on_row: Callable[[Row], None]) -> None:
    """One step to warm up and then `steps` that count; each is reported when it is done."""
    if not config.algo.is_on_policy:
        raise ConfigError(
            f"algo.name = {config.algo.name!r}: expected an algorithm that plays in every step"
        )
    components = setup(config)
    try:
        if config.algo.keeps_reference:
            components.learner.remember_reference()
        components.loop.run(components.engine.sync_weights(version=0))
        source, state = OnPolicySource(components), State()
        for number in range(steps + 1):
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            row, state = one_step(components, source, state)
            on_row({"step": number, "is_warm_up": number == 0, **row})
    finally:
        components.close()


def one_step(components: Components, source: OnPolicySource, state: State) -> tuple[Row, State]:
    """What the body of `palestra.training.loop.train` does, with a look at the clock after each
    part.
    """
    config, learner, algo = components.config, components.learner, components.config.algo
    watch, step = Stopwatch(), state.step + 1
    began = now()
    with watch.timed("collect"):
        data = source.next_batch(state, lambda trajectory: None)
    with watch.timed("hand_over"):
        components.engine.sleep()
    with watch.timed("prepare"):
        batch = algo.add_advantages(learner.prepare(data.groups, algo)) if data.groups else None
    with watch.timed("update"):
        if batch is not None:
            learner.update(
                batch, algo, lr=config.optim.lr_at(*algo.lr_progress(step, config.steps)), step=step
            )
    with watch.timed("hand_over"):
        components.loop.run(components.engine.sync_weights(version=step))
    seconds = {**watch.seconds, "total": now() - began}
    trained = 0
    if batch is not None:
        learned = batch.with_signal(algo.unit) if algo.learns_only_from_advantages else batch
        trained = len(learned.ids_T)
    return row_of(seconds, data, algo.has_signal, trained * config.optim.epochs), replace(
        data.state, step=step
    )


def row_of(
    seconds: dict[str, float], data: StepData, has_signal: Callable[[Any], bool], trained: int
) -> Row:
    assert data.rollouts is not None
    groups = data.rollouts.played
    trajectories = list(itertools.chain(*(group.valid for group in groups)))
    sampled = sum(t.sampled_tokens for t in trajectories)
    learning = seconds["prepare"] + seconds["update"]
    return {
        "seconds": seconds,
        "episodes": len(trajectories),
        "turns": sum(len(t.turns) for t in trajectories),
        "success": sum(bool(t.success) for t in trajectories) / max(len(trajectories), 1),
        "groups": len(groups),
        "groups_with_signal": sum(has_signal(group) for group in groups),
        "sampled_tokens": sampled,
        "collected_tokens": sum(t.tokens for t in trajectories),
        "trained_tokens": trained,
        "longest_prompt": max((prompt_length(t) for t in trajectories), default=0),
        "longest_rest": max(
            (len(t.segments[0].ids) - prompt_length(t) for t in trajectories if t.segments),
            default=0,
        ),
        "sampled_tokens_per_second": sampled / seconds["collect"],
        "trained_tokens_per_second": trained / learning if trained else 0.0,
        "peak_memory_gib": peak_memory_gib(),
    }


def prompt_length(trajectory: Trajectory) -> int:
    """Tokens before the first reply."""
    return trajectory.turns[0].span[0] if trajectory.turns else 0


def mean_of(rows: list[Row]) -> Row:
    """Of all numbers over the steps that count; the peak and the longest are the largest."""
    counted = [row for row in rows if not row["is_warm_up"]]
    if not counted:
        return {}
    seconds: dict[str, float] = {}
    for name in counted[0]["seconds"]:
        seconds[name] = sum(r["seconds"][name] for r in counted) / len(counted)
    mean: Row = {"seconds": seconds}
    for name, value in counted[0].items():
        if isinstance(value, int | float) and name not in ("step", "is_warm_up"):
            values = [row[name] for row in counted]
            mean[name] = (
                max(values) if name.startswith(("peak", "longest")) else sum(values) / len(values)
            )
    return mean


def print_table(rows: list[Row]) -> None:
    phases = ("collect", "prepare", "update", "hand_over", "total")
    print(
        f"{'step':>8}"
        + "".join(
            f"{name:>11}"
            for name in (*phases, "sampled", "trained", "sampled/s", "trained/s", "signal", "GiB")
        )
    )
    for name, row in [
        *(("warm-up" if r["is_warm_up"] else str(r["step"]), r) for r in rows),
        ("mean", mean_of(rows)),
    ]:
        if row:
            seconds = "".join(f"{row['seconds'][phase]:>9.2f} s" for phase in phases)
            tokens = "".join(
                f"{row[column]:>11,.0f}" for column in ("sampled_tokens", "trained_tokens")
            )
            rates = "".join(
                f"{row[f'{kind}_tokens_per_second']:>11,.0f}" for kind in ("sampled", "trained")
            )
            signal = f"{row['groups_with_signal']:.3g}/{row['groups']:.3g}"
            print(
                f"{name:>8}{seconds}{tokens}{rates}{signal:>11}{row['peak_memory_gib']:>11.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument(
        "--recipe", type=Path, default=Path("palestra/recipes/textcraft-qwen1.5b.toml")
    )
    parser.add_argument("--engine", choices=["torch", "vllm"])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", type=Path)
    defaults = vars(parser.parse_known_args([""])[0])
    flags = {f"--{name.replace('_', '-')}": value is not False for name, value in defaults.items()}
    own, overrides = split_settings(sys.argv[1:], flags)
    known = parser.parse_args(own)
    if known.model is not None:
        overrides |= {"model.kind": "pretrained", "model.path": str(known.model)}
    if known.engine is not None:
        overrides["engine.name"] = known.engine
    config = load(known.recipe, overrides)
    rows: list[Row] = []
    result = {
        "what": "training steps",
        **facts(),
        "recipe": known.recipe.name,
        "config": config.model_dump(mode="json"),
    }

    def on_row(row: Row) -> None:
        rows.append(row)
        write(known.json, result | {"steps": rows, "mean": mean_of(rows)})
        print(f"step {row['step']}: {row['seconds']['total']:.2f} s", flush=True)

    measure(config, known.steps, on_row)
    print_table(rows)


if __name__ == "__main__":
    main()
