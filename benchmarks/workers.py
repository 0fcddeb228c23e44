"""Environments in worker processes: calls a second through the pool, from one event loop.

    python benchmarks/workers.py [--env textcraft] [--sessions 256] [--workers 1 2] [--seconds 5]
    [--sandbox]

`--sandbox` measures each with and without bubblewrap, in turns, and what a worker takes to start
and to make an environment.

All sessions play the expert's actions, each as fast as it is answered. Prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time

import psutil

from palestra.core.types import Task
from palestra.envs import envs
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.envs.serving.worker_process import process_family


def solution(name: str, task: Task) -> list[str]:
    """What the expert does, found beforehand so that only steps are timed."""
    env = envs[name]()
    env.reset(task)
    actions: list[str] = []
    for _ in range(env.max_turns):
        actions.append(env.expert() or "")
        if env.step(actions[-1]).terminated:
            break
    return actions


async def play(
    pool: Workers, episodes: list[tuple[Task, list[str]]], start: asyncio.Barrier, seconds: float
) -> tuple[int, int]:
    """The steps and the episodes of one session."""
    env = await pool.open()
    await start.wait()
    until, steps, resets = time.monotonic() + seconds, 0, 0
    for task, actions in itertools.cycle(episodes):
        await env.reset(task)
        for action in actions:
            await env.step(action)
            steps += 1
        resets += 1
        if time.monotonic() > until:
            break
    await env.close()
    return steps, resets


async def measured(
    arguments: argparse.Namespace,
    workers: int,
    episodes: list[tuple[Task, list[str]]],
    sandbox: str = "none",
) -> tuple[float, float, float, float]:
    """Steps, resets and calls a second, and the microseconds of a processor that the workers take
    for a step.
    """
    per_worker = -(-arguments.sessions // workers)
    pool = Workers(
        arguments.env, {}, WorkerSettings(per_worker=per_worker, workers=workers, sandbox=sandbox)
    )
    start = asyncio.Barrier(arguments.sessions + 1)
    sessions = [
        asyncio.create_task(play(pool, episodes[n:] + episodes[:n], start, arguments.seconds))
        for n in range(arguments.sessions)
    ]
    await start.wait()
    pids = [worker.pid for worker in pool.stats().workers]
    began, before = time.monotonic(), processor_s(pids)
    played = await asyncio.gather(*sessions)
    seconds, taken = time.monotonic() - began, processor_s(pids) - before
    await pool.close()
    steps, resets = (sum(counts) / seconds for counts in zip(*played, strict=True))
    return steps, resets, steps + resets, 1e6 * taken / (steps * seconds)


def processor_s(workers: list[int]) -> float:
    """Of these and all that they have started, as the kernel counts it.

    A busy machine changes it far less than the time on the clock.
    """
    seconds = 0.0
    for worker in workers:
        for pid in process_family(worker):
            times = psutil.Process(pid).cpu_times()
            seconds += times.user + times.system
    return seconds


async def started(env: str, sandbox: str) -> float:
    """Seconds until a pool has its first environment."""
    pool = Workers(env, {}, WorkerSettings(workers=1, per_worker=1, sandbox=sandbox))
    began = time.monotonic()
    seat = await pool.open()
    seconds = time.monotonic() - began
    await seat.close()
    await pool.close()
    return seconds


def compare(arguments: argparse.Namespace, episodes: list[tuple[Task, list[str]]]) -> None:
    """With and without a sandbox: medians of rounds in turns, as a machine is never the same for
    long.
    """
    rounds, kinds = range(arguments.rounds), ("none", "bwrap")
    starts = []
    for _ in rounds:  # alternating, so that both kinds see the same load
        starts.append([asyncio.run(started(arguments.env, kind)) for kind in kinds])
    seconds = [statistics.median(of_kind) for of_kind in zip(*starts, strict=True)]
    print(f"seconds to start: {seconds[0]:.3f} without, {seconds[1]:.3f} with a sandbox")
    print(
        f"{'workers':>8}{'':>10}{'without':>10}{'with':>10}{'ratio':>10}   (us/step: the "
        "workers' time on a processor)"
    )
    for workers in arguments.workers:
        played: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
        for number in rounds:
            for kind in kinds[:: 1 if number % 2 else -1]:
                played[kind].append(asyncio.run(measured(arguments, workers, episodes, kind)))
        for place, what in ((0, "steps/s"), (3, "us/step")):
            without = statistics.median(values[place] for values in played["none"])
            within = statistics.median(values[place] for values in played["bwrap"])
            print(f"{workers:>8}{what:>10}{without:>10.1f}{within:>10.1f}{within / without:>10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="textcraft")
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--sandbox", action="store_true", help="compare with bubblewrap")
    parser.add_argument("--rounds", type=int, default=5, help="with --sandbox")
    arguments = parser.parse_args()
    tasks = envs[arguments.env]().tasks("train")[: arguments.sessions]
    episodes = [(task, solution(arguments.env, task)) for task in tasks]
    print(f"{arguments.env}, {arguments.sessions} sessions")
    if arguments.sandbox:
        return compare(arguments, episodes)
    print(f"{'workers':>8}{'steps/s':>10}{'resets/s':>10}{'calls/s':>10}")
    for workers in arguments.workers:
        print(
            f"{workers:>8}"
            + "".join(
                f"{value:>10.0f}"
                for value in asyncio.run(measured(arguments, workers, episodes))[:3]
            )
        )


if __name__ == "__main__":
    main()
