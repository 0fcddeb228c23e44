"""A real run folder to look at, and the viewer's server in a thread."""

import asyncio
import json
import shutil
import threading
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from aiohttp import web

from palestra.core.types import Segment, Stop, Task, Trajectory, Turn
from palestra.runs.run import Run
from palestra.runs.trajectories import encode_trajectory
from palestra.view.answers import Answers
from palestra.view.server import make_app
from tests.support.served import Running

HOSTILE = "<script>alert('x')</script> \x00\u202e\u2028 \\ \"quoted\" </textarea> 火 🦊 ÿ İ"


@lru_cache(maxsize=1)
def _trained():
    from tests.support.training import trained

    folder = Path(mkdtemp(prefix="palestra-viewed-")) / "echo-0"
    trained(folder, **{"steps": 3, "save.every": 1})
    return folder


def trained_copy(folder):
    """A run of three steps, with three evaluations, that a test may damage."""
    shutil.copytree(_trained(), folder)
    return Run.open(folder)


def episode(id, *, task="7", says="16", **changes):
    """An episode of one turn with two chosen tokens."""
    fields = {
        "id": id,
        "task": Task("guess", "train", task, "small"),
        "segments": [Segment([5, 6, 9, 1], [0, 0, 1, 1], [0.0, 0.0, -0.3, -0.1], [-1, -1, 0, 0])],
        "turns": [Turn("Guess the number.", says, says, reward=1.0, span=(2, 4))],
        "stop": Stop.DONE,
        "success": True,
        "horizon": 10,
        "seed": 42,
    }
    return Trajectory(**fields | changes)


def write_lines(folder, name, *lines):
    """A file of trajectories, of episodes or of bytes as they are."""
    path = folder / "trajectories" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(
            line if isinstance(line, bytes) else encode_trajectory(line) + b"\n" for line in lines
        )
    )
    return path


def write_learned(folder, name, *episodes):
    path = folder / "token_stats" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in episodes))


@contextmanager
def viewing(*folders, **options):
    """The viewer's server on a free port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    answers = Answers(folders)

    async def start():
        runner = web.AppRunner(make_app(answers, **options), access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    try:
        yield Running(answers, runner.addresses[0][1], loop)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


WHOLE = encode_trajectory(episode("a"))


DAMAGED = {
    "no JSON": b"nonsense\n",
    "nothing": b"\n",
    "null": b"null\n",
    "a list": b"[]\n",
    "an empty object": b"{}\n",
    "binary": bytes(range(256)).replace(b"\n", b"") + b"\n",
    "not UTF-8": WHOLE.replace(b"Guess the", b"Guess \xff\xfe") + b"\n",
    "half a line": WHOLE[:200] + b"\n",
    "a lone surrogate": WHOLE.replace(b"Guess the", b"\\ud800") + b"\n",
    "too deep": b"[" * 100_000 + b"\n",
    "deep inside": WHOLE[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "of another format": WHOLE.replace(b'"format":1', b'"format":2') + b"\n",
    "turns that are a word": (
        b'{"format":1,"id":"a","reward":1,"task":{"env":"e","split":"s","id":"t"},"turns'
        b'":"x","stop":"done"}\n'
    ),
    "a huge span": WHOLE.replace(b'"span":[2,4]', b'"span":[2,4000000000000000000000]') + b"\n",
    "a huge step": WHOLE.replace(b'"step":0', b'"step":99999999999999999999999') + b"\n",
    "a reward that is none": WHOLE.replace(b'"reward":1.0', b'"reward":NaN', 1) + b"\n",
}
