"""The learner on a GPU: tokens a second through forward, backward and optimizer over packed
segments, and the share of the peak.

    python benchmarks/learner.py MODEL [--tokens 131072] [--microbatch-tokens 16384] [--peak 990]
        [--json FILE]

The share is 6 x parameters x tokens / seconds over the peak in TFLOP/s. Prints one table and writes
JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from palestra.algos.batch import pack
from palestra.algos.grpo import GRPO
from palestra.config.optimizer import OptimizerConfig
from palestra.core.types import Segment, Stop, Task, Trajectory, Turn
from palestra.learner.learner import Learner
from palestra.models.loading import load_model


def made_up(tokens: int, length: int, chosen_share: float, words: int) -> list[list[Trajectory]]:
    """Trajectories of about `length` tokens, a share of which was chosen."""
    rng = torch.Generator().manual_seed(0)
    made: list[Trajectory] = []
    while sum(len(t.segments[0].ids) for t in made) < tokens:
        size = int(length * (0.5 + torch.rand(1, generator=rng).item()))
        ids = torch.randint(10, words - 300, (size,), generator=rng).tolist()
        said = int(size * chosen_share)
        mask = [0] * (size - said) + [1] * said
        segment = Segment(
            ids,
            mask,
            [-1.0 if chosen else 0.0 for chosen in mask],
            [0 if chosen else -1 for chosen in mask],
        )
        turn = Turn("", "", "", float(len(made) % 2), (size - said, size))
        made.append(
            Trajectory(
                str(len(made)), Task("e", "train", "t"), [segment], [turn], Stop.DONE, None, 1, 0
            )
        )
    return [made]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--length", type=int, default=1500)
    parser.add_argument("--chosen", type=float, default=0.3)
    parser.add_argument("--microbatch-tokens", type=int, default=16384)
    parser.add_argument("--peak", type=float, default=990.0, help="TFLOP/s of the device")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    known = parser.parse_args()
    model = load_model(known.model, device=torch.device("cuda"), dtype=torch.bfloat16)
    learner = Learner(
        model,
        OptimizerConfig(lr=1e-6, microbatch_tokens=known.microbatch_tokens),
        temperature=1.0,
        seed=0,
    )
    algo = GRPO()
    batch = pack(made_up(known.tokens, known.length, known.chosen, model.config.vocab_size)).to(
        model.device
    )
    batch = algo.add_advantages(batch)
    tokens = len(batch.ids_T)
    parameters = sum(p.numel() for p in model.parameters())
    seconds = []
    for step in range(known.repeats + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        learner.update(batch, algo, lr=1e-6, step=step + 1)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    best = min(seconds[1:])
    result = {
        "model": known.model.name, "parameters": parameters, "tokens": tokens,
        "microbatch_tokens": known.microbatch_tokens, "seconds": best,
        "tokens_per_second": tokens / best,
        "share_of_peak": 6 * parameters * tokens / best / known.peak / 1e12,
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip
    if known.json:
        known.json.write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"{result['tokens_per_second']:,.0f} tokens/s, {result['share_of_peak']:.1%} of "
        f"the peak, {result['peak_memory_gib']:.0f} GiB"
    )


if __name__ == "__main__":
    main()
