"""What it costs when tasks, environments, workers, servers and lines break: five trials with the
real pool, server and client.

    python benchmarks/env_faults.py [--small] [--json FILE]

- bad tasks: 1 task in 30, or 1 in 2, raises, exits or hangs beside sound ones in the same workers,
  here and on a server: how many of the others are lost
- killed workers: TextCraft episodes in a pool whose workers are killed again and again: how soon a
  reset is answered after each time
- hanging: environments that sleep, compute in C for ever, or ignore signals, beside TextCraft on
  the same server
- killed server: a rollout over a server that is killed and comes back 5 s later
- bad line: 5% of connections reset and 5% of answers replaced by 503, over the stream and over HTTP

Prints a line for each, and exits with 1 where an episode or a step is unaccounted for, or an
episode is lost to another's bad task. `--small` takes seconds and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path

# The environments that misbehave are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1]))

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.agents.scripted import ExpertAgent
from palestra.core.action_formats import Plain
from palestra.core.registry import UnknownName
from palestra.core.types import Sampling, Task
from palestra.engines.base import NoEngine
from palestra.envs import envs
from palestra.envs.serving.client import RemotePool
from palestra.envs.serving.handles import EnvFault, EnvTimeout, opened
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.models.tokenizers import byte_tokenizer
from palestra.rollout.episode import EnvBinding, EpisodeSpec, RolloutContext
from palestra.rollout.groups import rollout_episodes
from tests.fault.environments import NAME as OBEDIENT
from tests.fault.proxy import Proxy
from tests.hostile.environments import NAME as HOSTILE

ROOT = Path(__file__).parents[1]
HANGS = {"sleeps": "sleep 600", "computes": "backtrack", "is deaf": "ignore_signals"}
"""What an environment may do, and the action that makes `Obedient` do it."""
BUSY = "another program computes"
OBEDIENT_TASK = Task("obedient", "train", "0")
TASKS = envs["textcraft"]().tasks("train")
REPLY_S = 0.02
"""What a model would take to reply: environments are asked at this pace, and not as fast as they
can answer.
"""


@contextmanager
def served(*names: str, port: int = 0, deadline_s: float = 60.0):
    """`palestra env serve`, once it listens: its process and its port."""
    command = [
        sys.executable,
        "-m",
        "palestra",
        "env",
        "serve",
        *names,
        "--port",
        str(port),
        "--deadline",
        str(deadline_s),
    ]
    with tempfile.NamedTemporaryFile() as log:
        server = subprocess.Popen(command, stderr=log, cwd=ROOT)
        try:
            while not (
                found := re.search(
                    r'"listening".*http://[^"]+:(\d+)', said := Path(log.name).read_text()
                )
            ):
                if server.poll() is not None:
                    sys.exit(f"the server did not start: {said}")
                time.sleep(0.05)
            yield server, int(found.group(1))
        finally:
            server.kill()
            server.wait()


class PacedExpert(ExpertAgent):
    """At a model's pace."""

    async def reply(self, sampling: Sampling) -> str:
        await asyncio.sleep(REPLY_S)
        return await super().reply(sampling)


def context(pool, concurrency: int) -> RolloutContext:
    """TextCraft's expert, at a model's pace, with as many retries as training has."""
    renderer = Renderer(byte_tokenizer())
    prompt = PromptConfig(renderer, Plain(), context_tokens=1_000_000)
    return RolloutContext(
        {"textcraft": EnvBinding(prompt, pool)},
        NoEngine(),
        Sampling(max_tokens=1000),
        PacedExpert,
        concurrency,
    )


def episodes(count: int) -> list[EpisodeSpec]:
    return [
        EpisodeSpec(str(number), TASKS[number % len(TASKS)], horizon=30, seed=number)
        for number in range(count)
    ]


def counted(played, faulted) -> dict:
    """How the episodes ended. A fault that has a reward or a verdict would be learned from."""
    given_up = [t for t in played if t.stop.is_fault]
    hit = {t.id for t in (*faulted, *given_up)}
    sound = [t for t in played if not t.stop.is_fault]
    return {
        "episodes": len(played),
        "ok": sum(t.id not in hit for t in sound),
        "retried": sum(t.id in hit for t in sound),
        "faulted": len(given_up),
        "hit": len(hit),
        "unsolved": sum(not t.success for t in sound),
        "scored_faults": sum(t.success is not None or t.reward != 0 for t in (*faulted, *given_up)),
        "kinds": sorted({str(t.stop) for t in (*faulted, *given_up)}),
    }


# workers that are killed


async def killed_workers(count: int, hits: int) -> dict:
    pool = Workers("textcraft", {}, WorkerSettings(workers=2))
    done, delays, kills = [], [], 0
    playing = asyncio.create_task(
        rollout_episodes(context(pool, 8), episodes(count), on_done=done.append)
    )
    every = 4 * count // hits  # a blow hits up to 8 episodes
    for blow in itertools.count(1):
        while len(done) < blow * every and not playing.done():
            await asyncio.sleep(0.005)
        if playing.done() or sum(t.attempt > 0 or t.stop.is_fault for t in done) >= hits:
            break
        for worker in pool.stats().workers:
            os.kill(worker.pid, signal.SIGKILL)
            kills += 1
        delays.append(await until_answered(pool))
    played, faulted = await playing
    await pool.close()
    return {
        **counted(played, faulted),
        "kills": kills,
        "back_s_median": statistics.median(delays),
        "back_s_max": max(delays),
    }


async def until_answered(pool: Workers) -> float:
    """Seconds until a reset is answered, now that all workers are dead."""
    began = time.monotonic()
    while True:
        try:
            async with opened(pool) as env:
                await env.reset(TASKS[0])
                return time.monotonic() - began
        except EnvFault:  # the pool has not noticed yet that the worker is dead
            await asyncio.sleep(0.001)


# bad tasks beside sound ones

BAD = {"raise": "raises", "exit": "os._exit", "hang": "hangs"}


async def bad_tasks(kind: str, every: int, others: int, deadline_s: float, where: str) -> dict:
    """Each bad task is another one.

    Whether it is retried does not concern the others, so it is not.
    """
    count = others + -(-others // (every - 1))
    ids = [
        f"{BAD[kind]}/{number}" if number % every == every - 1 else str(number)
        for number in range(count)
    ]
    began = time.monotonic()
    if where == "workers":
        pool = Workers(HOSTILE, {}, WorkerSettings(workers=2, deadline_s=deadline_s))
        played, faulted = await beside(pool, ids)
    else:
        with served(HOSTILE, deadline_s=deadline_s) as (_, port):
            # The server knows its own tasks, so that all bad ones are the same.
            pool = RemotePool([f"http://127.0.0.1:{port}/hostile"], 60.0)
            known = [id.partition("/")[0] for id in ids]
            ids = [id if not id.isdecimal() else str(int(id) % 400) for id in known]
            played, faulted = await beside(pool, ids)
    sound = [t for t in played if t.task.id.isdecimal()]
    return {
        "kind": kind, "every": every, "where": where, "others": len(sound),
        "lost": sum(t.stop.is_fault for t in sound),
        "bad": len(played) - len(sound), "begun_anew": len(faulted),
        "seconds": time.monotonic() - began,
    }  # fmt: skip


async def beside(pool: Workers | RemotePool, ids: list[str]) -> tuple[list, list]:
    """Episodes of these tasks, 64 at a time; those that were restarted come second."""
    renderer = Renderer(byte_tokenizer())
    prompt = PromptConfig(renderer, Plain(), context_tokens=1_000_000)
    place = RolloutContext(
        {"hostile": EnvBinding(prompt, pool)},
        NoEngine(),
        Sampling(max_tokens=1000),
        ExpertAgent,
        concurrency=64,
        retries=0,
    )
    tasks = [Task("hostile", "train", id) for id in ids]
    found = await rollout_episodes(
        place, [EpisodeSpec(str(n), task, horizon=3, seed=n) for n, task in enumerate(tasks)]
    )
    await pool.close()
    return found


# environments that hang


async def hanging(rounds: int, seconds: float, deadline_s: float) -> dict:
    """TextCraft alone and beside something that hangs, in turns.

    What a busy core alone does to it is measured in the same way.
    """
    with served("textcraft", OBEDIENT, deadline_s=deadline_s) as (_, port):
        others = RemotePool([f"http://127.0.0.1:{port}/textcraft"], 60.0)
        pool = RemotePool([f"http://127.0.0.1:{port}/obedient"], 60.0)
        late = {name: [] for name in HANGS}
        alone, beside, ratios = (
            [],
            {name: [] for name in (*HANGS, BUSY)},
            {name: [] for name in (*HANGS, BUSY)},
        )
        await latencies(others, 1.0)  # workers start
        for _, name in itertools.product(range(rounds), beside):
            calm = await latencies(others, seconds)
            trouble = asyncio.create_task(
                hung(pool, HANGS[name], deadline_s) if name in HANGS else busy(deadline_s)
            )
            loud = await latencies(others, seconds)
            overdue_s = await trouble
            if name in late:
                late[name].append(overdue_s)
            alone += calm
            beside[name] += loud
            ratios[name].append(p99(loud) / p99(calm))
        await pool.close()
        await others.close()
    return {
        "timeouts": sum(map(len, late.values())),
        "late_s_max": {name: max(found) for name, found in late.items()},
        "p99_ms_alone": 1000 * p99(alone),
        "p99_ms_beside": {name: 1000 * p99(found) for name, found in beside.items()},
        "p99_ratio": {name: statistics.median(found) for name, found in ratios.items()},
        "p99_ratio_of_hanging": statistics.median(
            itertools.chain.from_iterable(ratios[name] for name in HANGS)
        ),
    }


async def busy(seconds: float) -> float:
    """A program that has nothing to do with us takes a core."""
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    await asyncio.sleep(seconds)
    program.kill()
    program.wait()
    return 0.0


async def hung(pool: RemotePool, action: str, deadline_s: float) -> float:
    """By how many seconds the timeout came after the deadline."""
    env = await pool.open()
    await env.reset(OBEDIENT_TASK)
    began = time.monotonic()
    try:
        await env.step(action)
        sys.exit(f"{action} was answered")
    except EnvTimeout:
        return time.monotonic() - began - deadline_s
    finally:
        await env.close()


async def latencies(pool: RemotePool, seconds: float, sessions: int = 8) -> list[float]:
    """Of steps of TextCraft, each session at a model's pace."""
    found: list[float] = []

    async def play(task: Task) -> None:
        env = await pool.open()
        await env.reset(task)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(REPLY_S)
            began = time.monotonic()
            await env.step("inventory")
            found.append(time.monotonic() - began)
        await env.close()

    await asyncio.gather(*(play(task) for task in TASKS[:sessions]))
    return found


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


# a server that is killed


async def killed_server(count: int, gone_s: float) -> dict:
    done: list = []
    with ExitStack() as running:
        server, port = running.enter_context(served("textcraft"))
        pool = RemotePool([f"http://127.0.0.1:{port}/textcraft"], 60.0)
        playing = asyncio.create_task(
            rollout_episodes(context(pool, 16), episodes(count), on_done=done.append)
        )
        while len(done) < count // 3:
            await asyncio.sleep(0.01)
        server.kill()
        await asyncio.sleep(gone_s)
        await asyncio.to_thread(running.enter_context, served("textcraft", port=port))
        played, faulted = await playing
        await pool.close()
    return counted(played, faulted)


# a bad line


async def bad_line(transport: str, sessions: int, steps: int, share: float = 0.05) -> dict:
    """An environment that counts its steps is asked for its count with every step."""
    with served(OBEDIENT) as (_, port):
        proxy = Proxy(port, share)
        url = f"http://127.0.0.1:{await proxy.start()}/obedient"
        began = time.monotonic()
        if transport == "http":
            right = await asyncio.gather(
                *(asyncio.to_thread(count_over_http, url, steps) for _ in range(sessions))
            )
        else:
            pool = RemotePool([url], 60.0)
            right = await asyncio.gather(*(count_over_stream(pool, steps) for _ in range(sessions)))
        seconds = time.monotonic() - began
        proxy.listener.close()
    wrong = sessions * steps - sum(right)
    return {
        "transport": transport, "steps": sessions * steps, "lost_or_repeated": wrong,
        "resets": proxy.resets,
        "unavailable": proxy.unavailable, "seconds": seconds,
    }  # fmt: skip


async def count_over_stream(pool: RemotePool, steps: int) -> int:
    """Steps that the environment counted as this side did."""
    async with opened(pool) as env:
        await env.reset(OBEDIENT_TASK)
        return sum(
            [(await env.step("count")).observation == str(number) for number in range(1, steps + 1)]
        )


def count_over_http(url: str, steps: int) -> int:
    for _ in range(20):
        with suppress(UnknownName):  # a first look is not repeated
            env = envs[url]()
            break
    env.reset(OBEDIENT_TASK)
    right = sum(env.step("count").observation == str(number) for number in range(1, steps + 1))
    env.close()
    return right


# all of them


async def trials(is_small: bool) -> dict:
    others, deadline_s = (30, 0.5) if is_small else (372, 1.0)
    bad = []
    for where, every in (("workers", 30), ("workers", 2), ("server", 30)):
        for kind in BAD:
            # Of a server, the deadline is also that of the environment's import.
            at_most_s = deadline_s if where == "workers" else 5.0
            bad.append(await bad_tasks(kind, every, others, at_most_s, where))
    return {
        "bad_tasks": bad,
        "killed_workers": await (killed_workers(40, 8) if is_small else killed_workers(1000, 100)),
        "hanging": await (hanging(1, 2.0, 1.5) if is_small else hanging(10, 3.0, 1.5)),
        "killed_server": await (killed_server(60, 0.5) if is_small else killed_server(600, 5.0)),
        "bad_line": [
            await bad_line(transport, sessions=8, steps=10 if is_small else 250)
            for transport in ("stream", "http")
        ],
    }


def lines(results: dict) -> list[tuple[str, str]]:
    workers, hangs, server = results["killed_workers"], results["hanging"], results["killed_server"]
    late = ", ".join(f"{name} {seconds:.2f}" for name, seconds in hangs["late_s_max"].items())
    changes = ", ".join(
        f"{name} {100 * (ratio - 1):+.0f}%" for name, ratio in hangs["p99_ratio"].items()
    )
    change = 100 * (hangs["p99_ratio_of_hanging"] - 1)
    found = []
    for row in results["bad_tasks"]:
        figures = (
            f"{row['lost']} of {row['others']} other episodes lost, {row['begun_anew']} begun "
            f"anew, {row['seconds']:.0f} s"
        )
        place = ", server" if row["where"] == "server" else ""
        found.append((f"{row['kind']}, 1 in {row['every']}{place}", figures))
    found += [
        ("killed workers", f"{ends(workers)}; {workers['kills']} kills"),
        (
            "",
            f"a reset answered after {workers['back_s_median']:.2f} s (median), "
            f"{workers['back_s_max']:.2f} s (longest)",
        ),
        ("hanging", f"{hangs['timeouts']} timeouts, seconds after the deadline at most: {late}"),
        (
            "",
            f"p99 of others {hangs['p99_ms_alone']:.1f} ms, {change:+.0f}% beside one "
            f"that hangs ({changes})",
        ),
        ("killed server", ends(server)),
    ]
    for row in results["bad_line"]:
        faults = f"{row['resets']} resets, {row['unavailable']} answers 503"
        found.append(
            (
                f"bad line, {row['transport']}",
                f"{row['steps']} steps, {row['lost_or_repeated']} lost or repeated; {faults}",
            )
        )
    return found


def ends(counts: dict) -> str:
    hit = f"{counts['hit']} hit, {counts['scored_faults']} faults with a score"
    return (
        f"{counts['episodes']} episodes: {counts['ok']} ok, {counts['retried']} retried, "
        f"{counts['faulted']} faulted; {hit}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # one for each fault
    results = asyncio.run(trials(arguments.small))
    for name, figures in lines(results):
        print(f"{name:<24}{figures}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps(
                {"date": date.today().isoformat(), "cores": os.cpu_count(), **results}, indent=2
            )
        )
    rollouts = [results["killed_workers"], results["killed_server"]]
    is_sound = all(
        r["ok"] + r["retried"] + r["faulted"] == r["episodes"] and not r["scored_faults"]
        for r in rollouts
    )
    is_sound = is_sound and not any(row["lost"] for row in results["bad_tasks"])
    sys.exit(
        0 if is_sound and not any(row["lost_or_repeated"] for row in results["bad_line"]) else 1
    )


if __name__ == "__main__":
    main()
