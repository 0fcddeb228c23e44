"""Environments behind a server: the same training, with episodes that are played elsewhere.

The server is started on this machine here. On another one, start `palestra env serve` there and
name its address in `train`. A run gives the same numbers wherever its environments are.

python examples/08_environments_behind_a_server.py [--steps 30]
"""

import argparse
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import palestra
from treasure import SETTINGS, Treasure


@contextmanager
def server(environment, folder):
    """`palestra env serve`, until the block ends. Yields the server's address."""
    command = [sys.executable, "-m", "palestra", "env", "serve", environment, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        # Its log has one JSON object per line. The first line says where it listens.
        yield json.loads(process.stderr.readline())["url"]
    finally:
        process.terminate()
        process.communicate()


def main(steps):
    settings = {**SETTINGS, "steps": steps, "display": "none"}
    # The server imports the class by the name "module:Class", from the folder it is started in.
    with server("treasure:Treasure", Path(__file__).parent) as address:
        there = palestra.train(f"{address}/treasure", **settings)
    print(f"behind {address}:  success {there.result.success}")
    here = palestra.train(Treasure, **settings)
    print(f"in this process:  success {here.result.success}")
    same = there.metrics("loss")[-1]["loss"] == here.metrics("loss")[-1]["loss"]
    print("the last loss is the same, bit for bit" if same else "the last losses differ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    main(parser.parse_args().steps)
