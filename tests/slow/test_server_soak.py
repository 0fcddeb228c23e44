"""A server that many come to and leave, one way or the other: it stays as it was."""

import asyncio
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.support.served import command

CYCLES = 50_000
AT_ONCE = 100
DESCRIPTORS_PER_WORKER = 2
"""Its socket and its log."""


def memory_kb(pid):
    return int(
        next(
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        ).split()[1]
    )


def descriptors(pid):
    """Beside those of its worker processes, of which there are as many as the busiest moment
    needed.
    """
    workers = sum(
        len((thread / "children").read_text().split())
        for thread in Path(f"/proc/{pid}/task").iterdir()
    )
    return len(list(Path(f"/proc/{pid}/fd").iterdir())) - DESCRIPTORS_PER_WORKER * workers


async def come_and_go(address, cycles):
    """One in ten walks away without closing."""

    async def exchange(socket, calls):
        await socket.send_bytes(msgspec.msgpack.encode(calls))
        answers = []
        while len(answers) < len(calls):
            answers += msgspec.msgpack.decode((await socket.receive(30)).data)
        assert not any("error" in answer for answer in answers), answers
        return answers

    async with aiohttp.ClientSession() as http:
        for _ in range(cycles // AT_ONCE):
            async with http.ws_connect(address + "/v1/stream") as socket:
                opened = await exchange(
                    socket, [{"call": "open", "id": n + 1, "env": "guess"} for n in range(AT_ONCE)]
                )
                sessions = [answer["result"]["session"] for answer in opened]
                task = {"split": "train", "id": "1"}
                await exchange(
                    socket,
                    [
                        {"call": "reset", "id": n + 1, "session": s, "task": task}
                        for n, s in enumerate(sessions)
                    ],
                )
                leaving = [s for n, s in enumerate(sessions) if n % 10]
                await exchange(
                    socket,
                    [{"call": "close", "id": n + 1, "session": s} for n, s in enumerate(leaving)],
                )


@pytest.mark.slow
def test_50_000_sessions_leave_nothing_behind():
    with command("guess", "--port", "0", "--lease", "1", "--capacity", "20000") as server:
        asyncio.run(come_and_go(server.at.address, 5000))
        time.sleep(3)
        before = memory_kb(server.pid), descriptors(server.pid)
        asyncio.run(come_and_go(server.at.address, CYCLES))
        time.sleep(3)
        after = memory_kb(server.pid), descriptors(server.pid)
        assert server.at.ask("GET", "/health")[1]["sessions"] == 0
    assert after[0] < 1.05 * before[0]
    assert after[1] <= before[1]
