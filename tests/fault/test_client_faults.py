"""What the client of an environment server makes of servers and lines that are away, slow, mute or
come back.
"""

import asyncio
import threading
import time
import urllib.request
from contextlib import contextmanager

import pytest

from palestra.core.types import Task
from palestra.envs import envs
from palestra.envs.serving import client, connection
from palestra.envs.serving.client import RemoteHandle, RemotePool, Servers
from palestra.envs.serving.handles import EnvFault, opened
from palestra.envs.serving.remote import Http, Unreachable, remote_kind
from tests.fault.environments import NAME as OBEDIENT
from tests.fault.proxy import Proxy
from tests.support import environments
from tests.support.ports import free_port
from tests.support.served import running

TALLY = "tests.support.environments:Tally"
TASK = environments.Tally().tasks("train")[0]
OBEDIENT_TASK = Task("obedient", "train", "0")


@pytest.fixture(scope="module")
def tally():
    with running(TALLY) as server:
        yield server


class LosesFirstSession(Proxy):
    """The session was opened, and nobody is told."""

    def __init__(self, port):
        super().__init__(port, 0.0)

    def strikes(self, data=b""):
        return b"lease_s" in data and not self.unavailable


@contextmanager
def through(proxy):
    """The proxy's address, while a thread runs it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(5)}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


# sessions that nobody has


@pytest.mark.parametrize("transport", ["stream", "http"])
def test_an_answer_that_is_lost_leaves_no_session_behind(transport):
    async def play(url):
        async with opened(RemotePool([url], 5.0)) as handle:
            await handle.reset(TASK)
            return (await handle.step("a")).observation

    with running(TALLY) as server, through(LosesFirstSession(server.port)) as address:
        if transport == "stream":
            assert asyncio.run(play(f"{address}/tally")) == "1 a"
        else:
            env = envs[f"{address}/tally"]()
            env.reset(TASK)
            assert env.step("a").observation == "1 a"
            env.close()
        assert len(server.server.sessions) == 0


def test_a_server_that_is_slow_to_open_a_session_is_not_taken_for_one_that_is_away(monkeypatch):
    monkeypatch.setattr(client, "OTHERS_S", 0.2)
    slow = {"isolation": "process", "options": {"start_s": 1.0}}
    with running(OBEDIENT, **slow) as one, running(OBEDIENT, **slow) as other:

        async def scenario():
            async with opened(
                RemotePool([one.url("obedient"), other.url("obedient")], 20.0)
            ) as handle:
                await handle.reset(OBEDIENT_TASK)
                return len(one.server.sessions) + len(other.server.sessions)

        assert asyncio.run(scenario()) == 1


def test_a_handle_that_is_closed_opens_nothing(tally):
    async def scenario():
        handle = RemoteHandle(Servers([tally.url("tally")]), 5.0)
        await handle.close()
        with pytest.raises(EnvFault, match="the handle was closed"):
            await handle.reset(TASK)

    asyncio.run(scenario())
    assert len(tally.server.sessions) == 0


def test_a_handle_that_is_closed_while_it_opens_a_session_keeps_none():
    with running(OBEDIENT, isolation="process", options={"start_s": 1.0}) as server:

        async def scenario():
            handle = RemoteHandle(Servers([server.url("obedient")]), 5.0)
            resetting = asyncio.create_task(handle.reset(OBEDIENT_TASK))
            await asyncio.sleep(0.3)
            await handle.close()
            with pytest.raises(EnvFault, match="the handle was closed"):
                await resetting
            return len(server.server.sessions), len(asyncio.all_tasks())

        assert asyncio.run(scenario()) == (0, 1)


# connections


def test_a_call_is_answered_while_the_last_of_the_others_closes_the_connection(tally):
    async def scenario():
        servers = Servers([tally.url("tally")])
        first = RemoteHandle(servers, 5.0)
        await first.reset(TASK)
        closing = asyncio.create_task(first.close())
        while servers._handles:
            await asyncio.sleep(0)
        second = RemoteHandle(servers, 5.0)
        observation = await asyncio.wait_for(second.reset(TASK), 5)
        await closing
        assert (await second.step("a")).observation == "1 a"
        await second.close()
        return observation

    assert asyncio.run(scenario()) == "0 train-0"


def test_whoever_waits_when_a_connection_is_closed_is_told():
    with running(
        "tests.support.environments:Slow", options={"seconds": 1.0}, isolation="process"
    ) as server:

        async def scenario():
            servers = Servers([server.url("echo")])
            handle = RemoteHandle(servers, 5.0)
            await handle.reset(environments.Echo().tasks("train")[0])
            stepping = asyncio.create_task(handle.step("red"))
            await asyncio.sleep(0.1)
            await servers.servers[0].connection.close()
            with pytest.raises(EnvFault, match="was closed"):
                await asyncio.wait_for(stepping, 5)
            await handle.close()

        asyncio.run(scenario())


class MuteAtFirst(Proxy):
    """Takes the first connection, and never says a word over it."""

    silence = None

    def __init__(self, port):
        super().__init__(port, 0.0)

    async def pass_on(self, reader, writer):
        if self.silence is None:
            self.silence = writer
        else:
            await super().pass_on(reader, writer)


def test_a_handshake_that_is_never_answered_is_begun_anew(tally, monkeypatch):
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.3)

    async def scenario():
        proxy = MuteAtFirst(tally.port)
        async with opened(
            RemotePool([f"http://127.0.0.1:{await proxy.start()}/tally"], 5.0)
        ) as handle:
            return await asyncio.wait_for(handle.reset(TASK), 5)

    assert asyncio.run(scenario()) == "0 train-0"


class Breakable(Proxy):
    is_broken = False

    def __init__(self, port):
        super().__init__(port, 0.0)
        self.writers = []

    async def pass_on(self, reader, writer):
        self.writers.append(writer)
        if self.is_broken:
            return writer.transport.abort()
        return await super().pass_on(reader, writer)

    async def be_broken(self, seconds):
        self.is_broken = True
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(seconds)
        self.is_broken = False


def test_patience_counts_from_when_a_connection_broke(monkeypatch):
    """Nothing was answered over it yet, but it was there."""
    monkeypatch.setattr(connection, "HEARTBEAT_S", 0.5)

    async def scenario(port):
        proxy = Breakable(port)
        servers = Servers([f"http://127.0.0.1:{await proxy.start()}/obedient"])
        servers.servers[0].connection.reconnect_s = 0.9
        handle = RemoteHandle(servers, 20.0)
        resetting = asyncio.create_task(handle.reset(OBEDIENT_TASK))
        await asyncio.sleep(1.2)
        await proxy.be_broken(0.3)
        observation = await resetting
        await handle.close()
        return observation

    with running(OBEDIENT, isolation="process", options={"start_s": 2.0}) as server:
        assert asyncio.run(scenario(server.port)) == "say red"


def test_a_pool_is_closed_in_the_time_of_one_handle_though_its_server_is_gone(monkeypatch):
    monkeypatch.setattr(client, "CLOSE_S", 0.5, raising=False)

    async def scenario():
        with running(TALLY) as server:
            pool = RemotePool([server.url("tally")], 5.0)
            for handle in [await pool.open() for _ in range(20)]:
                await handle.reset(TASK)
        began = time.monotonic()
        await pool.close()
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 5


# several servers


def test_a_server_that_was_away_is_asked_again(monkeypatch):
    monkeypatch.setattr(client, "OTHERS_S", 0.2)
    monkeypatch.setattr(client, "ASK_AGAIN_S", 0.3, raising=False)
    port = free_port()

    async def scenario(one):
        pool = RemotePool([one.url("tally"), f"http://127.0.0.1:{port}/tally"], 5.0)
        handles = [await pool.open() for _ in range(6)]
        for handle in handles[:3]:
            await handle.reset(TASK)
        assert len(one.server.sessions) == 3
        with running(TALLY, port=port) as back:
            await asyncio.sleep(0.4)
            for handle in handles[3:]:
                await handle.reset(TASK)
            shared = len(one.server.sessions), len(back.server.sessions)
            await pool.close()
        return shared

    with running(TALLY) as one:
        assert asyncio.run(scenario(one)) == (3, 3)


def test_seats_that_were_given_back_count():
    async def scenario(one, other):
        pool = RemotePool([one.url("tally"), other.url("tally")], 5.0)
        handles = [await pool.open() for _ in range(9)]  # five here, four there
        for handle in handles:
            await handle.reset(TASK)
        for handle in handles:
            if handle._seat.server.address == one.address:
                await handle.close()
        more = [await pool.open() for _ in range(5)]
        for handle in more:
            await handle.reset(TASK)
        shared = len(one.server.sessions), len(other.server.sessions)
        await pool.close()
        return shared

    with running(TALLY, capacity=20) as one, running(TALLY, capacity=20) as other:
        assert asyncio.run(scenario(one, other)) == (5, 4)


# plain requests


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 99\r\n\r\n{",
        b"hello\r\n\r\n",
    ],
    ids=["cut", "error cut", "no HTTP"],
)
def test_half_an_answer_is_none(said):
    class Breaks(Proxy):
        async def pass_on(self, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            writer.close()

    with (
        through(Breaks(0, 0.0)) as address,
        pytest.raises(Unreachable, match="no environment server answers"),
    ):
        Http(address, "").ask("GET", "/v1/envs", dict, timeout_s=5.0)


def test_proxies_are_not_for_environment_servers(tally, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)
    assert Http(tally.address, "").ask("GET", "/v1/envs", dict)["envs"] == ["tally"]


def test_a_step_before_any_reset_says_so(tally):
    env = envs[tally.url("tally")]()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("a")
    remote_kind.cache_clear()
