"""How quickly the viewer shows a run of many episodes, and in how much memory.

    python benchmarks/view.py [--episodes 100000] [--folder DIR] [--json FILE]

Writes a run folder with episodes of about 4 KB (kept and used again where --folder names one),
starts `palestra view` on it as a process of its own, and asks it what the page asks. Prints one
table and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from datetime import date
from pathlib import Path

import msgspec

STEP_EPISODES = 256
GROUP = 8
NEEDLE = "obsidian lantern"
"""Stands in one episode of a thousand."""
THINGS = [
    "ball",
    "box",
    "key",
    "door",
    "wall",
    "lamp",
    "pickaxe",
    "ingot",
    "plank",
    "stick",
    "torch",
    "table",
    "furnace",
    "bucket",
    "rail",
    "glass",
]
COLORS = ["red", "green", "blue", "purple", "yellow", "grey"]
VERBS = ["go to", "pick up", "look at", "open", "put down", "go through"]


def write_run(folder: Path, episodes: int) -> None:
    """A run as training would have written it, with texts drawn by chance."""
    chance = random.Random(0)
    for name in ("trajectories", "learned", "eval"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    steps = episodes // STEP_EPISODES
    (folder / "config.toml").write_text(
        f'seed = 0\nsteps = {steps}\n\n[algo]\nname = "grpo"\n\n[env]\nname = "babyai"\n'
    )
    (folder / "log.txt").write_text("started\n")
    with (folder / "metrics.jsonl").open("wb") as metrics:
        for step in range(1, steps + 1):
            figures = {f"policy/figure_{number}": chance.random() for number in range(20)}
            row = {
                "step": step,
                "horizon": 10,
                "stage": 0,
                "success": chance.random(),
                "reward": chance.random(),
            } | figures
            metrics.write(msgspec.json.encode(row) + b"\n")
    for step in range(1, steps + 2):
        count = STEP_EPISODES if step <= steps else episodes % STEP_EPISODES
        made = [episode(chance, step, number) for number in range(count)]
        name = f"step-{step:06d}.jsonl"
        (folder / "learned" / name).write_bytes(
            b"".join(msgspec.json.encode(learned(chance, one)) + b"\n" for one in made)
        )
        (folder / "trajectories" / name).write_bytes(
            b"".join(msgspec.json.encode(one) + b"\n" for one in made)
        )


def episode(chance: random.Random, step: int, number: int) -> dict:
    turns, ids, mask = [], [], []
    for turn in range(chance.randint(4, 12)):
        seen = ", ".join(
            f"{chance.choice(COLORS)} {chance.choice(THINGS)} {chance.randint(1, 9)}"
            for _ in range(chance.randint(1, 5))
        )
        reply = f"{chance.choice(VERBS)} {chance.choice(COLORS)} {chance.choice(THINGS)} 1"
        if chance.random() < 1e-3 / 8:
            reply = f"look at {NEEDLE.title()}"
        start = len(ids) + 12
        ids += [chance.randint(4, 900) for _ in range(18)]
        mask += [0] * 12 + [1] * 6
        about = {
            "observation": f"see {seen} ; wall {turn} ; carry nothing",
            "reply": reply,
            "action": reply,
            "reward": 0.0,
        }
        turns.append(
            about
            | {
                "span": [start, len(ids)],
                "segment": 0,
                "invalid": chance.random() < 0.1,
                "info": {"steps": turn},
            }
        )
    logprobs = [-chance.random() if chosen else 0.0 for chosen in mask]
    segment = {
        "ids": ids,
        "mask": mask,
        "logprobs": logprobs,
        "versions": [step - 1 if chosen else -1 for chosen in mask],
    }
    solved = chance.random() < 0.5
    kind = chance.choice(["GoToObj", "OpenDoor", "UnlockPickup"])
    return {
        "format": 1, "reward": float(solved), "id": f"{step:06d}-{number:04d}",
        "task": {"env": "babyai", "split": "train", "id": f"{kind}-{step * 1000 + number // GROUP}",
        "category": kind},
        "segments": [segment], "turns": turns, "stop": "done" if solved else "horizon",
        "success": solved, "horizon": 12,
        "seed": chance.getrandbits(63), "step": step, "stage": 0, "reward_scale": 1.0,
        "is_baseline": False, "attempt": 0,
        "final_observation": "success" if solved else "see nothing", "fault": "",
        "timings": {"total_s": 0.4, "env_s": 0.001},
    }  # fmt: skip


def learned(chance: random.Random, one: dict) -> dict:
    count = sum(one["segments"][0]["mask"])
    advantage = round(chance.gauss(0, 1), 4)
    logp = [round(-chance.random(), 4) for _ in range(count)]
    entropy = [round(-chance.random(), 4) for _ in range(count)]
    return {"id": one["id"], "advantage": [advantage] * count, "logp": logp, "entropy": entropy}


class Viewer:
    """The server as a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "palestra",
            "view",
            str(folder),
            "--port",
            "0",
            "--no-open",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            sys.exit(f"the viewer did not start: {line}")
        self.url = found.group()

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path) as response:
            return response.read()

    def memory_mb(self, what: str) -> float:
        """Resident now (`VmRSS`) or at the most (`VmHWM`); 0 where the system does not say."""
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(rf"{what}:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(found.group(1)) / 1024 if found else 0.0


def timed_ms(work, times: int = 1) -> float:
    """The median of some times."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds)


def measure(folder: Path) -> list[tuple[str, float, str]]:
    """What was measured, its figure and unit."""
    began = time.perf_counter()
    viewer = Viewer(folder)
    try:
        for path in ("", "api/runs.json", "api/runs/0/run.json"):
            viewer.get(path)
        first_page_s = time.perf_counter() - began
        first = json.loads(viewer.get("api/runs/0/episodes.json"))
        indexing = time.perf_counter()
        slowest_ms = 0.0
        while not json.loads(viewer.get(f"api/runs/0/episodes.json?from={10**8}"))["is_complete"]:
            slowest_ms = max(slowest_ms, timed_ms(lambda: viewer.get("api/runs.json")))
            time.sleep(0.05)
        index_s = time.perf_counter() - indexing
        body = viewer.get("api/runs/0/episodes.json")
        columns = json.loads(body)
        assert first["total"] <= columns["total"] == len(columns["rows"]["id"])
        rows = [
            ("episodes", columns["total"], ""),
            ("first page, from the start of the process", first_page_s, "s"),
        ]
        rows += [
            ("index complete, from the first question", index_s, "s"),
            ("slowest answer meanwhile", slowest_ms, "ms"),
        ]
        rows += [
            (
                "episodes.json, all rows",
                timed_ms(lambda: viewer.get("api/runs/0/episodes.json"), 5),
                "ms",
            )
        ]
        rows += [("episodes.json, size", len(body) / 1e6, "MB")]
        for name, text in (
            ("rare", NEEDLE),
            ("absent", "no such words"),
            ("in every row", "e"),
            ("in many rows", "purple door"),
        ):
            path = f"api/runs/0/search.json?q={urllib.parse.quote(text)}"
            hits = len(json.loads(viewer.get(path))["rows"])
            rows.append(
                (
                    f"search, {name} ({hits} hits)",
                    timed_ms(lambda path=path: viewer.get(path), 5),
                    "ms",
                )
            )
        one = f"api/runs/0/episodes/{columns['files'][-1]}/0.json"
        rows.append(("one episode", timed_ms(lambda: viewer.get(one), 5), "ms"))
        return [
            *rows,
            ("memory", viewer.memory_mb("VmRSS"), "MB"),
            ("memory at the most", viewer.memory_mb("VmHWM"), "MB"),
        ]
    finally:
        viewer.process.terminate()
        viewer.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palestra-view-") as temporary:
        folder = arguments.folder or Path(temporary, "run")
        if not (folder / "config.toml").exists():
            write_run(folder, arguments.episodes)
        size_mb = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        rows = [*measure(folder), ("run folder", size_mb, "MB")]
    for name, figure, unit in rows:
        print(f"{name:<48}{figure:>12,.{2 if unit == 's' else 0}f} {unit}")
    if arguments.json:
        figures = [{"what": name, "figure": figure, "unit": unit} for name, figure, unit in rows]
        arguments.json.write_text(
            json.dumps({"date": date.today().isoformat(), "rows": figures}, indent=2)
        )


if __name__ == "__main__":
    main()
