"""Every algorithm on the quickstart's task, from the same warm start, within the quickstart's
number of episodes.

    python benchmarks/learn_all.py [--out DIR] [--jobs 2] [--seed 0] [NAME ...]

`dpo` learns from the 4,096 episodes of the first exploration of `evol`, so that one is run before
it. Prints one table and writes it to DIR/table.json. What is finished already is not run again,
what was interrupted is resumed.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tomli_w
from results import train_once

QUICKSTART = Path(__file__).parents[1] / "palestra" / "recipes" / "quickstart.toml"
PENALTY = {"invalid_penalty": 0.05}
CLIP = {"clip_low": 0.2, "clip_high": 0.28}
OFFLINE = {"rollout": {}, "horizon": {"kind": "fixed", "turns": 16}}
"""For what plays no episodes while it trains; `turns` is the horizon of evaluation."""

RUNS: dict[str, dict[str, Any]] = {
    "ppo": {"algo": {"name": "ppo", **PENALTY, **CLIP, "critic": {"lr": 1e-3, "warmup": 3}}},
    "grpo": {"algo": {"name": "grpo", **PENALTY, **CLIP, "scale": False}},
    "rloo": {"algo": {"name": "rloo", **PENALTY, **CLIP}},
    "reinforce_pp": {"algo": {"name": "reinforce_pp", **PENALTY, **CLIP}},
    "dr_grpo": {"algo": {"name": "dr_grpo", **PENALTY, **CLIP, "constant": 32}},
    "gspo": {
        "algo": {"name": "gspo", **PENALTY, "scale": False, "clip_low": 0.03, "clip_high": 0.04}
    },
    "cispo": {"algo": {"name": "cispo", **PENALTY, "scale": False}},
    "gigpo": {"algo": {"name": "gigpo", **PENALTY, **CLIP, "scale": False}},
    "mt_grpo": {"algo": {"name": "mt_grpo", **PENALTY, **CLIP, "constant": 32}},
    "remax": {"algo": {"name": "remax", **PENALTY, **CLIP}},
    "rft": {"algo": {"name": "rft", "best": 2}},
    "evol": {
        "steps": 300,
        "algo": {"name": "evol", "round": 100, "best": 2, "batch": 64},
        "rollout": {"tasks": 512, "group": 8},
        "horizon": {"kind": "fixed", "turns": 16},
    },
    # pairs of what the warm start itself played: the first exploration of evol
    "dpo": {
        "steps": 100,
        "algo": {
            "name": "dpo",
            "data": ["{out}/evol/trajectories/step-000001.jsonl"],
            "batch": 32,
            "imitation": 5.0,
            "min_gap": 0.5,
        },
        "optim": {"lr": 1e-4, "warmup": 5},
        **OFFLINE,
    },
}
AFTER = {"dpo": "evol"}
"""Who needs whose episodes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of: {', '.join(RUNS)} (default: all)"
    )
    parser.add_argument("--out", type=Path, help="default: runs/learn-all-SEED")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    parser.add_argument("--seed", type=int, default=0)
    known = parser.parse_args()
    names = known.names or list(RUNS)
    out = known.out or Path(f"runs/learn-all-{known.seed}")
    if unknown := set(names) - set(RUNS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(RUNS)}")
    out.mkdir(parents=True, exist_ok=True)
    model = warm_start(out, known.seed)
    first = sorted(
        {*names, *(AFTER[name] for name in names if name in AFTER)} - set(AFTER),
        key=lambda name: name not in AFTER.values(),
    )
    with ThreadPoolExecutor(known.jobs) as pool:
        done = {name: pool.submit(learn, name, out, model, known.seed) for name in first}
        for name in (name for name in names if name in AFTER):
            done[AFTER[name]].result()
            done[name] = pool.submit(learn, name, out, model, known.seed)
        rows = [{"name": name, **done[name].result()} for name in RUNS if name in done]
    (out / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    print_table(rows)


def warm_start(out: Path, seed: int) -> Path:
    """The quickstart's warm start, made once."""
    from palestra.config.config import load
    from palestra.learner.checkpoint import newest
    from palestra.runs.run import Run
    from palestra.training.display import Lines
    from palestra.training.loop import begin
    from palestra.training.setup import setup

    folder = out / "warm-start"
    if newest(folder / "checkpoints") is None:
        run = Run.create(folder, load(QUICKSTART, {"seed": seed}))
        components = setup(run.config)
        begin(run, components, Lines(run.config.steps))
        components.close()
    model = newest(folder / "checkpoints")
    assert model is not None
    return model


def learn(name: str, out: Path, model: Path, seed: int) -> dict[str, Any]:
    """Train one of them, and read its run folder."""
    folder, recipe = out / name, out / f"{name}.toml"
    tree = tomllib.loads(QUICKSTART.read_text())
    del tree["warm_start"]
    tree |= {
        "seed": seed,
        "threads": 1,
        "model": {"kind": "pretrained", "path": str(model)},
        **RUNS[name],
    }
    recipe.write_text(tomli_w.dumps(tree).replace("{out}", str(out)))
    train_once(folder, [str(recipe)])
    return read(folder)


def read(folder: Path) -> dict[str, Any]:
    before, after = (
        json.loads(next(folder.glob(f"eval/*-{phase}.json")).read_text())["all"]
        for phase in ("raw", "final")
    )
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    episodes = sum(
        len(path.read_bytes().splitlines()) for path in folder.glob("trajectories/step-*.jsonl")
    )
    return {
        "before": before["success"],
        "after": after["success"],
        "interval": after["success_interval"],
        "episodes": episodes,
        "seconds": sum(row.get("time/collect", 0) + row.get("time/learn", 0) for row in rows),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    print(
        "| `algo.name` | warm start | after | 95% interval | gain | episodes | minutes |\n"
        "|---|---|---|---|---|---|---|"
    )
    for row in rows:
        low, high = row["interval"]
        figures = [
            f"{row['before']:.1%}",
            f"{row['after']:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{100 * (row['after'] - row['before']):+.1f}",
        ]
        print(
            f"| `{row['name']}` | {' | '.join(figures)} | {row['episodes']:,} | "
            f"{row['seconds'] / 60:.1f} |"
        )


if __name__ == "__main__":
    main()
