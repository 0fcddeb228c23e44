"""What a test starts beside run folders that somebody sent: in each of them every command that only
reads.

    python -P -m tests.hostile.reads FOLDER     the runs are FOLDER/0/run, FOLDER/1/run, ...

Prints a JSON list for each run: what each command is called and how it exited.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import traceback
from pathlib import Path

from palestra.cli.main import main
from palestra.view.answers import Answers
from palestra.view.server import make_app


def commands(run: Path, out: Path) -> list[list[str]]:
    config = str(run / "config.toml")
    return [
        ["explain", config],
        ["plan", config],
        ["train", config, "--dry-run"],
        ["train", "--resume", str(run), "--dry-run"],
        ["train", config, "--help"],
        ["report", str(run), "--out", str(out / "report")],
        ["view", str(run), "--bundle", str(out / "bundle")],
        ["model", "export", str(run), str(out / "model")],
    ]


def told(arguments: list[str]) -> dict[str, object]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(arguments)
    except SystemExit as left:
        return {"command": arguments[0], "code": left.code or 0, "said": said.getvalue()[-2000:]}
    except Exception:
        return {
            "command": arguments[0],
            "code": "traceback",
            "said": traceback.format_exc()[-2000:],
        }
    return {"command": arguments[0], "code": 0, "said": said.getvalue()[-2000:]}


async def pages(run: Path) -> dict[str, object]:
    """All that the viewer's page asks for when it is opened."""
    from aiohttp.test_utils import TestClient, TestServer

    answers = Answers([run])
    found = {}
    async with TestClient(TestServer(make_app(answers, tokens=(), hosts=("127.0.0.1",)))) as client:
        for path in (
            "runs",
            "runs/0/run",
            "runs/0/objective",
            "runs/0/episodes",
            "runs/0/texts",
            "runs/0/objective",
        ):
            async with client.get(f"/api/{path}.json", headers={"Host": "127.0.0.1"}) as response:
                found[path] = response.status
        episodes = sorted((run / "trajectories").glob("*.jsonl"))
        if episodes:
            for what in ("episodes", "scenes"):
                async with client.get(
                    f"/api/runs/0/{what}/{episodes[0].stem}/0.json", headers={"Host": "127.0.0.1"}
                ) as response:
                    found[what] = [response.status, (await response.text())[:300]]
    answers.close()
    return {"command": "view", "code": 0, "said": json.dumps(found)}


if __name__ == "__main__":
    for here in sorted(Path(sys.argv[1]).iterdir(), key=lambda path: int(path.name)):
        os.chdir(here / "run")
        os.environ["MARK"] = str(here / "mark")
        told_of = [told(arguments) for arguments in commands(Path("."), here / "out")]
        told_of.append(asyncio.run(pages(Path("."))))
        print(json.dumps(told_of), flush=True)
