"""Multi-turn collection on a GPU: episodes through the engine, against the engine's own raw rate on
exactly the same token work.

    python benchmarks/rollout.py MODEL [--engine native|vllm] [--episodes 256] [--json FILE]

The raw rate has the same tokens without turns: each episode's context at once, and its replies as
one long reply. The episodes go each at its own pace, as in training. With --generate,
`model.generate` does the same work turn by turn. Prints one table and writes JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import time
from pathlib import Path

import torch
from step import facts

from palestra.config.config import build
from palestra.core.types import Sampling
from palestra.engines.base import Session
from palestra.models.loading import load_model

NEVER = ()


def shown(arguments: argparse.Namespace, words: int) -> list[list[list[int]]]:
    """What each episode is shown before each reply.

    All begin with the same instructions, and those of a group with the same task.
    """
    chance = random.Random(0)

    def text(size: int) -> list[int]:
        return [chance.randrange(10, words - 300) for _ in range(size)]

    instructions = text(arguments.prompt * 3 // 4)
    tasks = [
        instructions + text(arguments.prompt - len(instructions))
        for _ in range(-(-arguments.episodes // arguments.group))
    ]
    episodes = []
    for number in range(arguments.episodes):
        observations = [text(arguments.observation) for _ in range(arguments.turns - 1)]
        episodes.append([tasks[number // arguments.group], *observations])
    return episodes


def lengths(arguments: argparse.Namespace) -> list[list[int]]:
    """Replies of different lengths, as agents write them, the same for every engine."""
    chance = random.Random(1)
    spread = arguments.reply // 2
    lengths = []
    for _ in range(arguments.episodes):
        own = [arguments.reply + chance.randint(-spread, spread) for _ in range(arguments.turns)]
        lengths.append(own)
    return lengths


async def episode(engine, number, observations, replies, gate):
    async with gate:
        session, ids = Session(str(number)), []  # type: ignore[arg-type]
        for turn, (observation, reply) in enumerate(zip(observations, replies, strict=True)):
            ids = [*ids, *observation]
            sampling = Sampling(max_tokens=reply, stop_ids=NEVER, seed=1000 * number + turn)
            ids += (await engine.generate(ids, sampling, session)).ids
        engine.release(session)


def collect(engine, observations, replies, concurrency):
    async def play():
        gate = asyncio.Semaphore(concurrency)
        await asyncio.gather(
            *(
                episode(engine, n, o, r, gate)
                for n, (o, r) in enumerate(zip(observations, replies, strict=True))
            )
        )

    began = time.perf_counter()
    asyncio.run(play())
    torch.cuda.synchronize()
    return time.perf_counter() - began


def raw(engine, observations, replies):
    """The same tokens without turns: every episode's context at once, and all of its replies as
    one.
    """

    async def play():
        jobs, sessions = [], []
        for number, (one, own) in enumerate(zip(observations, replies, strict=True)):
            context = list(itertools.chain(*one))
            sampling = Sampling(max_tokens=sum(own), stop_ids=NEVER, seed=number)
            session = Session(f"raw {number}")  # type: ignore[arg-type]
            sessions.append(session)
            jobs.append(engine.generate(context, sampling, session))
        await asyncio.gather(*jobs)
        for session in sessions:
            engine.release(session)

    began = time.perf_counter()
    asyncio.run(play())
    torch.cuda.synchronize()
    return time.perf_counter() - began


def with_generate(model, observations, replies):
    """Turn by turn in one padded batch, each turn as long as its longest reply."""
    histories: list[list[int]] = [[] for _ in observations]
    began = time.perf_counter()
    for turn in range(len(observations[0])):
        for history, one in zip(histories, observations, strict=True):
            history += one[turn]
        longest = max(map(len, histories))
        ids = torch.tensor(
            [[0] * (longest - len(history)) + history for history in histories], device=model.device
        )
        mask = torch.tensor(
            [[0] * (longest - len(h)) + [1] * len(h) for h in histories], device=model.device
        )
        new = max(own[turn] for own in replies)
        settings = {
            "do_sample": True,
            "max_new_tokens": new,
            "min_new_tokens": new,
            "pad_token_id": 0,
            "eos_token_id": None,
        }
        out = model.generate(ids, attention_mask=mask, **settings)
        for history, row, own in zip(histories, out[:, longest:].tolist(), replies, strict=True):
            history += row[: own[turn]]
    torch.cuda.synchronize()
    return time.perf_counter() - began


def hand_over_seconds(engine, version):
    """New weights to the engine, compared with the learner's, and what the old ones computed
    forgotten.
    """
    torch.cuda.synchronize()
    began = time.perf_counter()
    asyncio.run(engine.sync_weights(version))
    torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--prompt", type=int, default=600)
    parser.add_argument("--observation", type=int, default=30)
    parser.add_argument("--reply", type=int, default=40)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument(
        "--set",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a setting of the engine",
    )
    parser.add_argument("--generate", action="store_true", help="measure model.generate too")
    parser.add_argument("--json", type=Path)
    known = parser.parse_args()
    engine_settings = {
        "name": known.engine,
        ("slots" if known.engine == "torch" else "max_sequences"): known.concurrency,
    }
    engine_settings |= (
        {"admit_fraction": 0.15, "deterministic": False} if known.engine == "torch" else {}
    )
    engine_settings |= {name: json.loads(value) for name, value in known.set}
    config = build(
        {"engine": engine_settings, "model": {"kind": "pretrained", "path": str(known.model)}}
    )
    model = load_model(known.model, device=torch.device("cuda"), dtype=torch.bfloat16)
    engine = config.engine.build(model, known.context)
    observations, replies = shown(known, model.config.vocab_size), lengths(known)
    sampled = sum(map(sum, replies))
    rows = []
    for what, run in [
        ("raw", lambda: raw(engine, observations, replies)),
        ("multi-turn", lambda: collect(engine, observations, replies, known.concurrency)),
    ]:
        run()  # captures graphs, compiles kernels
        hand_over = hand_over_seconds(engine, 1)
        seconds = run()
        rows.append({"what": what, "seconds": seconds, "tokens_per_second": sampled / seconds})
    if known.generate:
        model.set_attn_implementation("sdpa")
        with torch.no_grad():
            seconds = with_generate(model, observations, replies)
        rows.append(
            {"what": "model.generate", "seconds": seconds, "tokens_per_second": sampled / seconds}
        )
    result = {
        "model": known.model.name,
        "engine": engine_settings,
        "sampled": sampled,
        "episodes": known.episodes,
        "rows": rows,
    }
    result |= {"hand_over_seconds": hand_over, **facts()}
    if known.json:
        known.json.write_text(json.dumps(result, indent=2) + "\n")
    for row in rows:
        print(
            f"{row['what']:16} {row['seconds']:8.2f} s {row['tokens_per_second']:12,.0f} "
            "sampled tokens/s"
        )
    print(f"hand-over: {hand_over:.3f} s")
    print(f"multi-turn / raw: {rows[1]['tokens_per_second'] / rows[0]['tokens_per_second']:.2f}")


if __name__ == "__main__":
    main()
