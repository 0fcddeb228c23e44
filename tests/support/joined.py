"""One rank of several: `python -m tests.support.joined RUN...` trains run after run with the
others, as the environment says who they are.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

from palestra.core import process_group as world
from palestra.runs.run import ReadOnlyRun, Run
from palestra.training.display import Display
from palestra.training.loop import run_training

ROOT = Path(__file__).parents[2]


def train_together(ranks, *folders):
    """Train the runs in these folders, one after another, by so many processes."""
    ended = try_together(ranks, *folders)
    assert not any(code for code, _ in ended), "\n".join(
        f"rank {rank} ended with {code}:\n{said}" for rank, (code, said) in enumerate(ended)
    )


def try_together(ranks, *folders):
    """Each process's exit code and what it had to say."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = os.environ | {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "tests.support.joined", *map(str, folders)]
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=250)[1] for process in processes]
    return [(process.returncode, words) for process, words in zip(processes, said, strict=True)]


def main():
    with world.join() as place:
        for folder in map(Path, sys.argv[1:]):
            run_training((Run if place.is_first else ReadOnlyRun).open(folder), Display())


if __name__ == "__main__":
    main()
