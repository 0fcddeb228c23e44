"""Multi-turn generation: the native engine against a `model.generate` loop, on the same episodes,
in one run.

Prints one table. Both sides play the same made-up episodes (a prompt, then observations of a fixed
length) with the same model and reply lengths. The loop does what most multi-turn code does: all
episodes of a turn in one padded batch, from nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time

import torch

from palestra.core.types import Sampling
from palestra.engines.base import Session
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.models.tiny import tiny_model

NEVER = (-1,)
"""No stop token: both sides then sample exactly `reply` tokens a turn."""


def observations(arguments: argparse.Namespace) -> list[list[list[int]]]:
    chance = random.Random(0)
    sizes = [arguments.prompt, *[arguments.observation] * (arguments.turns - 1)]
    episodes: list[list[list[int]]] = []
    for _ in range(arguments.episodes):
        texts: list[list[int]] = []
        for size in sizes:
            texts.append([chance.randrange(2, 500) for _ in range(size)])
        episodes.append(texts)
    return episodes


async def native_episode(engine, number, shown, reply):
    session = Session(str(number))  # type: ignore[arg-type]
    ids: list[int] = []
    for turn, observation in enumerate(shown):
        ids += observation
        generation = await engine.generate(
            ids, Sampling(max_tokens=reply, stop_ids=NEVER, seed=1000 * number + turn), session
        )
        ids += generation.ids
    engine.release(session)
    return ids


def with_native(engine, shown, reply):
    async def play():
        return await asyncio.gather(
            *(native_episode(engine, number, one, reply) for number, one in enumerate(shown))
        )

    return asyncio.run(play())


def with_generate(model, shown, reply):
    """Turn by turn, all episodes in lockstep, left-padded."""
    histories: list[list[int]] = [[] for _ in shown]
    for turn in range(len(shown[0])):
        for history, one in zip(histories, shown, strict=True):
            history += one[turn]
        longest = max(map(len, histories))
        ids = torch.tensor([[0] * (longest - len(history)) + history for history in histories])
        mask = torch.tensor(
            [[0] * (longest - len(history)) + [1] * len(history) for history in histories]
        )
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            max_new_tokens=reply,
            min_new_tokens=reply,
            pad_token_id=0,
            eos_token_id=None,
        )
        for history, row in zip(histories, out[:, longest:].tolist(), strict=True):
            history += row
    return histories


def timed(play, repeats):
    play()  # warm up
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        play()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=16, help="concurrent ones")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the first observation")
    parser.add_argument("--observation", type=int, default=60, help="tokens of later ones")
    parser.add_argument("--reply", type=int, default=16, help="tokens of a reply")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    context = arguments.prompt + arguments.turns * (arguments.observation + arguments.reply)

    def model():
        shape = {"width": arguments.width, "layers": arguments.layers, "heads": arguments.heads}
        return tiny_model(
            **shape, vocabulary=512, context=context, stop_id=1, seed=0, device=torch.device("cpu")
        )

    ours, theirs = model(), model()
    theirs.set_attn_implementation("sdpa")
    engine = TorchEngineSettings(slots=arguments.episodes).build(ours, context)
    shown = observations(arguments)
    sampled = arguments.episodes * arguments.turns * arguments.reply
    native_s = timed(lambda: with_native(engine, shown, arguments.reply), arguments.repeats)
    generate_s = timed(lambda: with_generate(theirs, shown, arguments.reply), arguments.repeats)
    print(
        f"{arguments.episodes} episodes x {arguments.turns} turns, "
        f"{sum(p.numel() for p in ours.parameters()):,} parameters"
    )
    print(f"{'':<24}{'seconds':>10}{'sampled tok/s':>16}")
    print(f"{'model.generate loop':<24}{generate_s:>10.2f}{sampled / generate_s:>16,.0f}")
    print(f"{'native engine':<24}{native_s:>10.2f}{sampled / native_s:>16,.0f}")
    print(f"ratio {generate_s / native_s:.2f}")


if __name__ == "__main__":
    main()
