"""The same training steps through Palestra and through TRL with colocated vLLM, one after the other
on the same GPU.

    python benchmarks/peer_trl.py MODEL [--tasks 32] [--group 8] [--horizon 8] [--reply 160]
    [--steps 3] [--json FILE] [settings ...]

Both sides get the same model, environment (TextCraft with its worked example), tasks in the same
order, batch, token budgets, clip, optimizer and precision (float32 weights, bfloat16 compute). They
sample different tokens, so the learning rate is small enough (1e-7) to keep both policies what they
were, and times are given per token besides. TRL is set up as favorably as we know: the fastest
micro-batch that fits, found by trying (with or without gradient checkpointing and Liger's kernels),
its chunked log-probs, no importance correction (one forward pass less; --correct turns it on), one
optimizer step a batch, prefix caching, no detokenizing, turns in lockstep. Each side runs in a
process of its own. Next to FILE lie the result and the output of each side, rewritten after
every step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from palestra.cli.settings import split_settings

HERE = Path(__file__).parent
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELIZM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # TRL hands tensors over inside the process
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "PYTHONUNBUFFERED": "1",
}
"""What the sides find in their environment: no network, no server processes, no chatter."""


def run_side(program: str, arguments: list[str], output: Path, timeout_s: float) -> dict[str, Any]:
    """Run one side to its end or to the time limit.

    What it had written by then is the result; its output is shown if it failed.
    """
    result, log = output.with_suffix(".json"), output.with_suffix(".log")
    result.unlink(missing_ok=True)
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, str(HERE / program), *arguments, "--json", str(result)]
    print(f"$ {' '.join(command)}", flush=True)
    began = time.monotonic()
    with log.open("wb") as file:
        child = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            code: int | str = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = f"stopped after {timeout_s:.0f} s"
        finally:
            end(child)
    lines = log.read_text(errors="replace").splitlines()
    print(
        "\n".join(lines[-60:] if code else [line for line in lines if line.startswith("step ")]),
        flush=True,
    )
    print(
        f"{program}: {'done' if code == 0 else f'failed ({code})'} after "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    found = json.loads(result.read_text()) if result.exists() else {}
    return found | {
        "exit": code,
        "wall_s": time.monotonic() - began,
        "was_out_of_memory": any("OutOfMemoryError" in line for line in lines),
    }


def end(child: subprocess.Popen[bytes]) -> None:
    """The child and all that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()


def settings_for(known: argparse.Namespace, engine: str) -> dict[str, Any]:
    """What both sides are told about the run. TRL's side makes nothing of the engine's settings."""
    batch = known.tasks * known.group
    return {
        "rollout.tasks": known.tasks,
        "rollout.group": known.group,
        "rollout.concurrency": batch,
        "engine.slots" if engine == "torch" else "engine.max_sequences": batch,
        "horizon.kind": "fixed",
        "horizon.turns": known.horizon,
        "agent.reply_tokens": known.reply,
        "optim.lr": known.lr,
        "optim.warmup": 0,
        "optim.minibatches": known.minibatches,
    }


def run_trl(
    known: argparse.Namespace, common: list[str], palestra: dict[str, Any], output: Path
) -> dict[str, Any]:
    """TRL's side; once more with half the micro-batch where the memory did not suffice."""
    arguments = [*common]
    if palestra.get("mean"):  # the longest row that TRL will have to pad to, or close to it
        arguments += [
            "--prompt",
            str(palestra["mean"]["longest_prompt"]),
            "--rest",
            str(palestra["mean"]["longest_rest"]),
        ]
    arguments += [
        flag
        for flag, is_set in (("--correct", known.correct), ("--no-vllm", known.no_vllm))
        if is_set
    ]
    found = run_side(
        "trl_side.py",
        [*arguments, *(["--micro", str(known.micro)] if known.micro else [])],
        output,
        known.timeout,
    )
    micro = found.get("way", {}).get("micro", 1)
    if not found.get("mean") and found["was_out_of_memory"] and micro > 1:
        print(
            f"TRL ran out of memory with a micro-batch of {micro}; again with {micro // 2}",
            flush=True,
        )
        found = run_side(
            "trl_side.py", [*arguments, "--micro", str(micro // 2)], output, known.timeout
        )
    return found


def phases(found: dict[str, Any]) -> dict[str, float]:
    """Of one step on average, by the same three names on both sides."""
    seconds = found["mean"]["seconds"]
    if "generation" in seconds:
        return {name: seconds[name] for name in ("generation", "training", "rest", "total")}
    training = seconds["prepare"] + seconds["update"]
    rest = seconds["total"] - seconds["collect"] - training
    return {
        "generation": seconds["collect"],
        "training": training,
        "rest": rest,
        "total": seconds["total"],
    }


def compared(found: dict[str, Any]) -> dict[str, float]:
    """All lines of the table for one side."""
    mean, seconds = found["mean"], phases(found)
    return {
        "seconds a step": seconds["total"],
        "  generation": seconds["generation"],
        "  training": seconds["training"],
        "  rest (hand-over, batching, rewards)": seconds["rest"],
        "episodes": mean["episodes"],
        "turns": mean["turns"],
        "success": mean["success"],
        "groups with a signal": mean["groups_with_signal"],
        "tokens sampled": mean["sampled_tokens"],
        "tokens of all episodes": mean["collected_tokens"],
        "tokens trained on": mean["trained_tokens"],
        "tokens computed for that, with padding": mean.get("padded_tokens", mean["trained_tokens"]),
        "tokens sampled/s of generation": mean["sampled_tokens"] / seconds["generation"],
        "tokens trained/s of training": mean["trained_tokens"] / seconds["training"],
        "ms of generation per 1,000 sampled": 1e6 * seconds["generation"] / mean["sampled_tokens"],
        "ms of training per 1,000 trained": 1e6 * seconds["training"] / mean["trained_tokens"]
        if mean["trained_tokens"]
        else 0.0,
        "ms of training per 1,000 of all": 1e6 * seconds["training"] / mean["collected_tokens"],
        "ms of a step per 1,000 sampled": 1e6 * seconds["total"] / mean["sampled_tokens"],
        "peak memory, GiB": mean["peak_memory_gib"],
    }


def print_table(sides: dict[str, dict[str, Any]]) -> None:
    columns = {name: compared(found) for name, found in sides.items() if found.get("mean")}
    if not columns:
        print("no side finished a step that counts")
        return
    print(
        f"{'mean of the steps after the first':<40}"
        + "".join(f"{name:>14}" for name in columns)
        + f"{'TRL/Palestra':>14}"
    )
    for line in next(iter(columns.values())):
        values = [column[line] for column in columns.values()]
        ratio = f"{values[1] / values[0]:>14.2f}" if len(values) == 2 and values[0] else ""
        print(
            f"{line:<40}"
            + "".join(f"{value:>14,.{0 if value >= 1000 else 2}f}" for value in values)
            + ratio
        )
    for name, found in sides.items():
        if found.get("mean"):
            versions = ", ".join(
                f"{package} {number}" for package, number in found["versions"].items() if number
            )
            print(f"{name}: {found['device']}, {versions}")
    if "way" in sides["TRL"]:
        print(f"TRL used {sides['TRL']['used']} and {sides['TRL']['way']}")
    print(
        "Palestra trains only on groups with a signal, TRL on all; TRL's tokens are "
        "counted without padding."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--recipe",
        type=Path,
        default=HERE.parent / "palestra" / "recipes" / "textcraft-qwen1.5b.toml",
    )
    for name, default in [
        ("tasks", 32),
        ("group", 8),
        ("horizon", 8),
        ("reply", 160),
        ("steps", 3),
        ("minibatches", 1),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--lr", type=float, default=1e-7, help="small enough that both policies stay what they are"
    )
    parser.add_argument(
        "--micro", type=int, help="TRL's micro-batch, instead of looking for the fastest"
    )
    parser.add_argument(
        "--correct", action="store_true", help="TRL's importance correction, its default"
    )
    parser.add_argument(
        "--no-vllm",
        action="store_true",
        help="TRL samples through the model itself, for machines without vLLM",
    )
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for each side")
    parser.add_argument("--json", type=Path, default=Path("peer.json"))
    defaults = vars(parser.parse_known_args([""])[0])
    flags = {f"--{name.replace('_', '-')}": value is not False for name, value in defaults.items()}
    own, others = split_settings(sys.argv[1:], flags)
    known = parser.parse_args(own)
    settings: list[str] = []
    for name, value in (settings_for(known, others.get("engine.name", "torch")) | others).items():
        settings += [f"--{name}", toml(value)]
    common = [
        str(known.model),
        "--recipe",
        str(known.recipe),
        "--steps",
        str(known.steps),
        *settings,
    ]
    outputs = {
        side: known.json.with_name(f"{known.json.stem}-{side}") for side in ("palestra", "trl")
    }
    sides = {"Palestra": run_side("step.py", common, outputs["palestra"], known.timeout)}
    known.json.write_text(json.dumps(sides, indent=2) + "\n")
    sides["TRL"] = run_trl(known, common, sides["Palestra"], outputs["trl"])
    result = sides | {
        "compared": {name: compared(found) for name, found in sides.items() if found.get("mean")}
    }
    known.json.write_text(json.dumps(result, indent=2) + "\n")
    print_table(sides)
    sys.exit(any(found["exit"] for found in sides.values()))


def toml(value: Any) -> str:
    """A setting's value as it is written on a command line."""
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    main()
