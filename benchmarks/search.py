"""How fast a corpus is indexed, and how many queries are answered while many episodes play.

    python benchmarks/search.py [--passages 300000] [--million] [--seconds 10] [--json FILE]

index       passages of 100 words, drawn from 200,000 words as often as words are in English,
streamed from a JSONL file by
            `palestra search index` in a process of its own; its peak memory is the kernel's
            figure, mapped files included
queries     16 episodes of the environment in 1, 2 and 4 worker processes over that index: each step
is a search of 2 to 8 words, some of
            them from a passage's text; everything is counted, from the agent's text to the
            observation

Prints one table. `--million` indexes 1,000,000 passages as well.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from palestra.core.types import Task
from palestra.envs.serving.handles import opened
from palestra.envs.serving.worker_pool import Workers, WorkerSettings

WORDS = 200_000
PASSAGE_WORDS = 100
EPISODES = 16


def vocabulary() -> tuple[list[str], list[float]]:
    """Made-up words, and how often each is used (Zipf)."""
    chance = random.Random(0)
    endings = ("a", "e", "i", "o", "u", "an", "er", "is")
    syllables = list(map("".join, itertools.product("bcdfghjklmnprstvwz", endings)))
    words = [
        "".join(chance.choices(syllables, k=chance.randint(1, 4))) + str(n % 10) * (n > 50_000)
        for n in range(WORDS)
    ]
    return words, list(itertools.accumulate(1 / (rank + 3) for rank in range(WORDS)))


def passages(count: int) -> Iterator[dict[str, str]]:
    words, weights = vocabulary()
    chance = random.Random(1)
    for number in range(count):
        drawn = chance.choices(words, cum_weights=weights, k=PASSAGE_WORDS + 3)
        yield {
            "id": str(number),
            "contents": f'"{" ".join(drawn[:3]).title()}"\n{" ".join(drawn[3:])}.',
        }


def write_corpus(file: Path, count: int) -> None:
    with file.open("w") as out:
        for passage in passages(count):
            out.write(json.dumps(passage) + "\n")


def measure_index(folder: Path, count: int) -> dict[str, float]:
    """Index `count` passages by the command line."""
    corpus = folder / f"{count}.jsonl"
    write_corpus(corpus, count)
    command = [
        sys.executable,
        "-c",
        "from palestra.cli.main import main; main()",
        "search",
        "index",
        str(corpus),
        "--out",
    ]
    began = time.monotonic()
    subprocess.run(
        [*command, str(folder / f"index-{count}"), "--json"], check=True, capture_output=True
    )
    seconds = time.monotonic() - began
    # The peak of the largest child so far.
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    size_mb = sum(file.stat().st_size for file in (folder / f"index-{count}").rglob("*")) / 2**20
    corpus_mb = corpus.stat().st_size / 2**20
    return {
        "passages": count,
        "corpus_mb": corpus_mb,
        "seconds": seconds,
        "peak_mb": peak_mb,
        "index_mb": size_mb,
    }


async def measure_queries(
    options: dict[str, str], workers: int, seconds: float
) -> dict[str, float]:
    """Let all episodes search for so long."""
    pool = Workers(
        "search", options, WorkerSettings(workers=workers, per_worker=EPISODES // workers)
    )
    words, weights = vocabulary()
    task = Task("search", "test", "bench/0")
    searches = 0
    waits: list[float] = []

    async def play(number: int, until: float) -> None:
        nonlocal searches
        chance = random.Random(number)
        async with opened(pool) as env:
            await env.reset(task)
            while time.monotonic() < until:
                query = " ".join(chance.choices(words, cum_weights=weights, k=chance.randint(2, 8)))
                asked = time.monotonic()
                step = await env.step(f"search[{query}]")
                assert step.observation.startswith("<information>"), step.observation
                waits.append(time.monotonic() - asked)
                searches += 1

    # Warm-up: the workers start, and the index is read into the page cache.
    await asyncio.gather(*(play(number, time.monotonic() + 2) for number in range(EPISODES)))
    searches = 0
    waits.clear()
    began = time.monotonic()
    await asyncio.gather(*(play(number + EPISODES, began + seconds) for number in range(EPISODES)))
    spent = time.monotonic() - began
    await pool.close()
    waits.sort()
    return {
        "workers": workers,
        "queries_per_s": searches / spent,
        "median_ms": 1000 * waits[len(waits) // 2],
        "p99_ms": 1000 * waits[-len(waits) // 100],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passages", type=int, default=300_000)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", type=Path)
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        load_before = os.getloadavg()[0]
        indexed = [measure_index(folder, known.passages)]
        if known.million:
            indexed.append(measure_index(folder, 1_000_000))
        questions = folder / "bench.jsonl"
        questions.write_text(
            json.dumps({"id": "0", "question": "What is there?", "golden_answers": ["nothing"]})
            + "\n"
        )
        options = {"corpus": str(folder / f"index-{known.passages}"), "test": str(questions)}
        asked = [
            asyncio.run(measure_queries(options, workers, known.seconds))
            for workers in known.workers
        ]
    result = {
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "index": indexed,
        "queries": asked,
    }
    for row in indexed:
        rate = row["passages"] / row["seconds"]
        print(
            f"index    {row['passages']:>9,} passages ({row['corpus_mb']:.0f} MB) "
            f"{row['seconds']:7.1f} s {rate:9,.0f}/s",
            end=" ",
        )
        print(f"peak {row['peak_mb']:.0f} MB, index {row['index_mb']:.0f} MB")
    for row in asked:
        print(
            f"queries  {row['workers']} workers {row['queries_per_s']:8.0f}/s, median "
            f"{row['median_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms"
        )
    print(
        f"load {result['load_before']:.1f} to {result['load_after']:.1f} on {result['cores']} cores"
    )
    if known.json:
        known.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
