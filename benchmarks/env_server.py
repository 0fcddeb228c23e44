"""Many sessions on one environment server, client and server on the same machine, over the stream
and over HTTP.

    python benchmarks/env_server.py [--sessions 1000] [--steps 20] [--env textcraft] [--processes
    1] [--json FILE]
    python benchmarks/env_server.py --against CHECKOUT [--rounds 10]

Each session plays one task along its own list of actions, and compares every observation with what
the environment itself answers to them in this process: one that differs was mixed up, one that is
missing was lost. Prints one table and writes JSON.

With `--against`, the server of another checkout is measured in turns with this one's, by the same
client: prints this one's steps/s divided by the other's, and the same of the processor time that a
server takes for a step: the best of all rounds, and the median ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import aiohttp
import msgspec
import psutil

from palestra.envs import envs
from palestra.envs.serving.client import RemoteHandle, Servers
from palestra.envs.serving.main import run_fast


def scripts(name: str, sessions: int, steps: int):
    """For each session a task, actions that do not end it, and the observations that are right."""
    env, chance = envs[name](), random.Random(0)
    tasks = list(env.tasks(env.splits[0]))
    return [script(env, tasks[number % len(tasks)], steps, chance) for number in range(sessions)]


def script(env, task, steps: int, chance: random.Random):
    actions: list[str] = []
    observations = [env.reset(task)]
    ends: set[str] = set()
    while len(actions) < steps:
        action = chance.choice(
            [action for action in env.actions() or [] if action not in ends]
            or [f"nothing {len(actions)}"]
        )
        step = env.step(action)
        if not step.terminated:
            actions.append(action)
            observations.append(step.observation)
            continue
        ends.add(action)  # back to the turn before, without it
        env.reset(task)
        for before in actions:
            env.step(before)
    return task, actions, observations


class Tally:
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.lost = self.mixed_up = 0

    def take(self, began: float, observation: str, expected: str) -> None:
        self.seconds.append(time.perf_counter() - began)
        self.mixed_up += observation != expected


class OverHttp:
    """The same as a handle, by one request for each call."""

    def __init__(self, http: aiohttp.ClientSession, url: str, env: str) -> None:
        self.http, self.url, self.env, self.session, self.key = http, url, env, "", 0

    async def reset(self, task) -> str:
        if not self.session:
            self.session = (await self._post("/v1/sessions", {"env": self.env}))["session"]
        self.key += 1
        body = {"task": {"split": task.split, "id": task.id}, "key": self.key}
        return (await self._post(f"/v1/sessions/{self.session}/reset", body))["observation"]

    async def step(self, action: str):
        self.key += 1
        return (
            await self._post(
                f"/v1/sessions/{self.session}/step", {"action": action, "key": self.key}
            )
        )["observation"]

    async def _post(self, path: str, body):
        async with self.http.post(self.url + path, data=msgspec.json.encode(body)) as response:
            content = msgspec.json.decode(await response.read())
            if response.status != 200:
                raise RuntimeError(content["error"]["message"])
            return content

    async def close(self) -> None:
        async with self.http.delete(f"{self.url}/v1/sessions/{self.session}") as response:
            await response.read()


async def play(handle, script, ready: asyncio.Barrier, tally: Tally) -> None:
    task, actions, observations = script
    first = await handle.reset(task)
    tally.mixed_up += first != observations[0]
    await ready.wait()
    for action, expected in zip(actions, observations[1:], strict=True):
        began = time.perf_counter()
        step = await handle.step(action)
        tally.take(began, step if isinstance(step, str) else step.observation, expected)
    await handle.close()


async def measure(transport: str, url: str, env: str, work, steps: int) -> dict:
    tally = Tally()
    ready = asyncio.Barrier(len(work) + 1)
    http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    servers = Servers([f"{url}/{env}"])
    handles = [
        OverHttp(http, url, env) if transport == "http" else RemoteHandle(servers, 60.0)
        for _ in work
    ]
    async with http, asyncio.TaskGroup() as playing:
        for handle, script in zip(handles, work, strict=True):
            playing.create_task(play(handle, script, ready, tally))
        await ready.wait()
        began = time.perf_counter()
    wall_s = time.perf_counter() - began
    tally.lost = len(work) * steps - len(tally.seconds)
    cuts = statistics.quantiles(tally.seconds, n=100)
    return {
        "transport": transport,
        "sessions": len(work),
        "steps": len(tally.seconds),
        "steps_per_s": len(tally.seconds) / wall_s,
        "p50_ms": 1000 * cuts[49],
        "p99_ms": 1000 * cuts[98],
        "lost": tally.lost,
        "mixed_up": tally.mixed_up,
    }


def started(
    arguments: argparse.Namespace, checkout: Path | None = None
) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "palestra", "env", "serve", arguments.env, "--port", "0"]
    command += ["--capacity", str(2 * arguments.sessions), "--processes", str(arguments.processes)]
    variables = {**os.environ, **({"PYTHONPATH": str(checkout)} if checkout else {})}
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=variables, cwd=checkout
    )
    for _ in range(arguments.processes):
        line = server.stderr.readline()
        if '"listening"' not in line:
            sys.exit(f"the server did not start: {line}")
    return server, re.search(r"http://[^\"]+", line).group()


def cpu_s(pid: int) -> float:
    """Processor time of a process; that of its worker processes is not the server's."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def compare(arguments: argparse.Namespace, work) -> None:
    here = Path(__file__).resolve().parents[1]
    servers = [started(arguments, checkout) for checkout in (here, arguments.against.resolve())]
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    try:
        for number in range(arguments.rounds):
            for transport in ("stream", "http"):
                for which in (0, 1) if number % 2 else (1, 0):
                    process, url = servers[which]
                    before = cpu_s(process.pid)
                    row = asyncio.run(measure(transport, url, arguments.env, work, arguments.steps))
                    if row["lost"] or row["mixed_up"]:
                        sys.exit(f"steps were lost or mixed up: {row}")
                    used = 1e6 * (cpu_s(process.pid) - before) / row["steps"]
                    found.setdefault((transport, "steps/s"), ([], []))[which].append(
                        row["steps_per_s"]
                    )
                    found.setdefault((transport, "us/step"), ([], []))[which].append(used)
    finally:
        for process, _ in servers:
            process.terminate()
            process.wait()
    for (transport, what), (ours, theirs) in found.items():
        low, middle, high = statistics.quantiles(
            [one / other for one, other in zip(ours, theirs, strict=True)], n=4
        )
        best = max if what == "steps/s" else min  # other programs only ever make it worse
        print(
            f"{transport:<8}{what:<9}best {best(ours):.1f} / {best(theirs):.1f} = "
            f"{best(ours) / best(theirs):.3f}, "
            f"median ratio {middle:.3f} ({low:.3f} to {high:.3f}, {len(ours)} rounds)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--env", default="textcraft")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    work = scripts(arguments.env, arguments.sessions, arguments.steps)
    if arguments.against is not None:
        return compare(arguments, work)
    server, url = started(arguments)
    rows = []
    try:
        for transport in ("stream", "http"):

            async def one(transport=transport) -> int:
                rows.append(await measure(transport, url, arguments.env, work, arguments.steps))
                return 0

            run_fast(one())
    finally:
        server.terminate()
        server.wait()
    print(
        f"{'':<8}{'sessions':>10}{'steps':>9}{'steps/s':>10}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'lost':>7}{'mixed up':>10}"
    )
    for row in rows:
        figures = f"{row['steps_per_s']:>10.0f}{row['p50_ms']:>9.1f}{row['p99_ms']:>9.1f}"
        figures += f"{row['lost']:>7}{row['mixed_up']:>10}"
        print(f"{row['transport']:<8}{row['sessions']:>10}{row['steps']:>9}{figures}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps(
                {"date": date.today().isoformat(), "processes": arguments.processes, "rows": rows},
                indent=2,
            )
        )


if __name__ == "__main__":
    main()
