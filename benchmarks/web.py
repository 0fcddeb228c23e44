"""How many steps a second environments in a browser do, what a reset takes, and what a context
holds.

    python benchmarks/web.py [--seconds 20] [--episodes 16] [--workers 3] [--task NAME]
    [--browsergym PYTHON] [--json FILE]

miniwob     scripted solutions of one task of MiniWoB++, so many episodes at a time in so many
worker processes, each with one browser sites       scripted solutions of tasks on the self-hosted
sites, where they are up (`palestra web up`) browsergym  the same task of MiniWoB++ in BrowserGym
0.14, by a Python that has browsergym-miniwob: one process for each episode at a time

Everything is counted, from the agent's text to the observation; resets are part of the steps a
second. Memory is what the processes of a worker hold with shared pages counted once (PSS), over the
episodes at a time. Prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from palestra.core.types import Task
from palestra.envs import envs
from palestra.envs.serving.handles import EnvFault, opened
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.envs.web.browser import find_chromium


async def play(
    pool: Workers, tasks: Sequence[Task], until: float, counted: dict[str, float], number: int
) -> None:
    """Episodes of the expert, one after another."""
    at = number
    async with opened(pool) as env:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                await env.reset(tasks[at % len(tasks)])
                counted["resetting"] += time.monotonic() - began
                step = None
                while (action := await env.expert()) is not None:
                    step = await env.step(action)
                    counted["steps"] += 1
            except EnvFault as fault:
                print(f"fault: {fault}", file=sys.stderr)
                counted["faults"] += 1
                return
            counted["episodes"] += 1
            counted["solved"] += bool(step and step.success)
            at += 1009


async def measure(
    name: str, options: dict[str, Any], tasks: Sequence[Task], given: argparse.Namespace
) -> dict[str, float]:
    per_worker = -(-given.episodes // given.workers)
    pool = Workers(
        name, options, WorkerSettings(per_worker=per_worker, workers=given.workers, deadline_s=120)
    )
    counted = dict.fromkeys(("steps", "episodes", "solved", "faults", "resetting"), 0.0)
    slots = [await pool.open() for _ in range(given.episodes)]
    # Browsers and contexts start before anything is measured.
    await asyncio.gather(*(slot.reset(tasks[0]) for slot in slots))
    held = sum(_proportional_mb(worker.pid) for worker in pool.stats().workers)
    await asyncio.gather(*(slot.close() for slot in slots))
    began = time.monotonic()
    await asyncio.gather(
        *(play(pool, tasks, began + given.seconds, counted, n) for n in range(given.episodes))
    )
    seconds = time.monotonic() - began
    held = max(held, sum(_proportional_mb(worker.pid) for worker in pool.stats().workers))
    await pool.close()
    return {**counted, "seconds": seconds, "mb": held}


def _proportional_mb(pid: int) -> float:
    """Of a process and all that descend from it."""
    worker = psutil.Process(pid)
    total = 0.0
    for process in (worker, *worker.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss / 2**20
    return total


def miniwob(given: argparse.Namespace) -> dict[str, Any]:
    options = {"tasks": [given.task], "train_seeds": 1000}
    tasks = envs["miniwob"](**options).tasks("train")
    return _row("miniwob", given.episodes, asyncio.run(measure("miniwob", options, tasks, given)))


def sites(given: argparse.Namespace) -> dict[str, Any] | None:
    from palestra_web.client import Sites, SitesDown

    try:
        up = Sites.find().sites
    except SitesDown as error:
        print(f"sites: left out, {error}", file=sys.stderr)
        return None
    options = {"sites": list(up)}
    env = envs["web"](**options)
    tasks = []
    for split in env.splits:
        tasks += env.tasks(split)
    return _row("sites", given.episodes, asyncio.run(measure("web", options, tasks, given)))


def browsergym(given: argparse.Namespace) -> dict[str, Any]:
    """Its second browser takes no path, so that Chromium is put where
    Playwright looks for its own.
    """
    spec = find_spec("miniwob")
    assert spec is not None
    assert spec.origin is not None
    with tempfile.TemporaryDirectory() as folder:
        look = (
            "import playwright, pathlib; print((pathlib.Path(playwright.__file__).parent / "
            "'driver/package/browsers.json').read_text())"
        )
        found = json.loads(subprocess.check_output([given.browsergym, "-c", look]))["browsers"]
        revision = next(browser["revision"] for browser in found if browser["name"] == "chromium")
        chrome = Path(folder) / f"chromium-{revision}" / "chrome-linux" / "chrome"
        chrome.parent.mkdir(parents=True)
        chrome.symlink_to(find_chromium())
        pages = Path(spec.origin).parent / "html" / "miniwob"
        own = {
            **os.environ,
            "PLAYWRIGHT_BROWSERS_PATH": folder,
            "MINIWOB_URL": f"file://{pages}/",
            "PYTHONPATH": "",
        }
        side = str(Path(__file__).with_name("browsergym_side.py"))
        command = [given.browsergym, side, given.task]
        running = [
            subprocess.Popen(
                [*command, str(1000 * n), str(given.seconds)],
                env=own,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(given.browsergym_episodes)
        ]
        time.sleep(given.seconds / 2)
        held = sum(_proportional_mb(process.pid) for process in running)
        answers = [
            json.loads(process.communicate()[0].strip().splitlines()[-1]) for process in running
        ]
    total = {}
    for key in ("steps", "episodes", "solved", "resetting"):
        total[key] = sum(answer[key] for answer in answers)
    return _row(
        "browsergym",
        len(running),
        {**total, "faults": 0, "seconds": max(answer["seconds"] for answer in answers), "mb": held},
    )


def _row(name: str, at_once: int, counted: dict[str, float]) -> dict[str, Any]:
    episodes = max(counted["episodes"], 1)
    return {
        "name": name,
        "episodes_at_once": at_once,
        "steps_per_second": counted["steps"] / counted["seconds"],
        "steps": int(counted["steps"]),
        "episodes": int(counted["episodes"]),
        "solved": counted["solved"] / episodes,
        "reset_ms": 1000 * counted["resetting"] / episodes,
        "mb_per_context": counted["mb"] / at_once,
        "faults": int(counted["faults"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--episodes", type=int, default=16, help="at a time")
    parser.add_argument("--workers", type=int, default=3, help="processes, each with one browser")
    parser.add_argument("--task", default="click-checkboxes-large")
    parser.add_argument("--browsergym", default="", metavar="PYTHON")
    parser.add_argument(
        "--browsergym-episodes", type=int, default=16, help="at a time: each has two browsers"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [miniwob(given), sites(given), browsergym(given) if given.browsergym else None]
    found = [row for row in rows if row is not None]
    print(
        f"{'':12}{'at once':>9}{'steps/s':>9}{'reset ms':>10}"
        f"{'MB each':>9}{'solved':>8}{'faults':>8}"
    )
    for row in found:
        cells = (
            row["episodes_at_once"],
            row["steps_per_second"],
            row["reset_ms"],
            row["mb_per_context"],
            row["solved"],
            row["faults"],
        )
        print("{:12}{:>9}{:>9.1f}{:>10.0f}{:>9.0f}{:>8.0%}{:>8}".format(row["name"], *cells))
    if given.json:
        given.json.write_text(
            json.dumps(
                {
                    "seconds": given.seconds,
                    "workers": given.workers,
                    "task": given.task,
                    "rows": found,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
