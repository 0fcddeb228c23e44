"""Connections that break, answers that get lost, servers that are killed, stopped or several: no
step is lost, none is taken twice.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import msgspec
import pytest

from palestra.cli.main import main
from palestra.core.types import Stop
from palestra.envs import envs
from palestra.envs.serving.client import RemoteHandle, Servers
from palestra.envs.serving.handles import EnvFault
from palestra.envs.serving.remote import remote_kind
from palestra.runs.trajectories import read_trajectories
from tests.fault.proxy import Proxy
from tests.support import environments
from tests.support.served import command, running
from tests.support.training import trained

TALLY = "tests.support.environments:Tally"


def assert_right(observations, actions):
    assert observations == [f"{number} {action}" for number, action in enumerate(actions, 1)]


def test_no_step_is_lost_or_repeated_over_a_bad_line():
    """5% of connections and of what is sent end in a reset, and 5% of the answers are replaced by
    503.
    """
    task = environments.Tally().tasks("train")[0]
    actions = [f"a{n}" for n in range(25)]

    async def episode(servers, number):
        handle = RemoteHandle(servers, 20.0)
        observations = []
        for _ in range(2):
            await handle.reset(task)
            observations.append(
                [(await handle.step(f"{number}-{action}")).observation for action in actions]
            )
        await handle.close()
        return observations

    async def scenario(port):
        proxy = Proxy(port, 0.05)
        servers = Servers([f"http://127.0.0.1:{await proxy.start()}/tally"])
        played = await asyncio.gather(*(episode(servers, number) for number in range(20)))
        return proxy, played

    with running(TALLY) as server:
        proxy, played = asyncio.run(scenario(server.port))
        assert proxy.resets + proxy.unavailable > 5
        for number, twice in enumerate(played):
            for observations in twice:
                assert_right(observations, [f"{number}-{action}" for action in actions])


def test_plain_requests_are_as_safe():
    with asyncio.Runner() as runner, running(TALLY) as server:
        loop = runner.get_loop()
        passing_on = threading.Thread(target=loop.run_forever, daemon=True)
        passing_on.start()
        proxy = Proxy(server.port, 0.05)
        port = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(5)
        for _ in range(20):
            try:
                env = envs[f"http://127.0.0.1:{port}/tally"]()
                break
            except KeyError:  # a first look is not repeated
                continue
        task = environments.Tally().tasks("train")[0]
        assert env.reset(task) == "0 train-0"
        actions = [str(n) for n in range(150)]
        assert_right([env.step(action).observation for action in actions], actions)
        assert proxy.resets + proxy.unavailable > 5
        env.close()
        loop.call_soon_threadsafe(loop.stop)
        passing_on.join()


def test_a_server_that_stays_away_is_a_fault():
    async def scenario():
        servers = Servers(["http://127.0.0.1:9/tally"])
        servers.servers[0].connection.reconnect_s = 0.5
        handle = RemoteHandle(servers, 5.0)
        try:
            await handle.reset(environments.Tally().tasks("train")[0])
        finally:
            await handle.close()

    with pytest.raises(EnvFault, match=r"http://127.0.0.1:9 has been gone for 0.5 s"):
        asyncio.run(scenario())


# whole servers, as the command line starts them


def steps_taken(at):
    found = re.search(
        r'palestra_calls_total{call="step",code="ok"} (\d+)', at.raw("GET", "/metrics")[2].decode()
    )
    return int(found.group(1)) if found else 0


def test_training_goes_on_when_the_server_is_killed_and_comes_back(tmp_path):
    """What was being played ends as a typed fault and is played again; what is learned from is
    sound.
    """
    with (
        command("tests.support.environments:SlowCount", "--port", "0") as server,
        ExitStack() as later,
    ):
        port = server.at.port

        def strike():
            before = taken = 0
            while (
                taken < 10 or taken == before
            ):  # in the middle of episodes, not while the learner is at work
                time.sleep(0.03)
                before, taken = taken, steps_taken(server.at)
            server.kill()
            time.sleep(3.0)
            later.enter_context(
                command("tests.support.environments:SlowCount", "--port", str(port))
            )

        striking = threading.Thread(target=strike, daemon=True)
        striking.start()
        changes = {"env.name": server.at.url("count"), "engine.deterministic": False, "steps": 8,
        "rollout.tasks": 2, "rollout.group": 4,
                   "horizon.kind": "fixed", "horizon.turns": 4, "eval.tasks": 4,
                   "agent.reply_tokens": 24, "agent.context_tokens": 256}  # fmt: skip
        run = trained(tmp_path / "run", **changes)
        striking.join(20)
    remote_kind.cache_clear()
    rows = [row for row in run.metrics() if "reward" in row]
    assert len(rows) == 8
    episodes = [
        t for path in (run.folder / "trajectories").iterdir() for t in read_trajectories(path)
    ]
    faults = [t for t in episodes if t.stop.is_fault]
    assert faults
    assert {t.stop for t in faults} == {Stop.ENV_FAULT}
    assert all("no such session" in t.fault or "gone" in t.fault for t in faults)
    assert all(t.success is None for t in faults)


def test_a_signal_lets_sessions_end():
    with command("tests.support.environments:Tally", "--port", "0", "--drain", "20") as server:
        path = server.at.open("tally", "train-0")
        server.send_signal(signal.SIGTERM)
        assert json.loads(server.stderr.readline())["event"] == "draining"
        assert server.at.raw("POST", "/v1/sessions", {"env": "tally"})[0] == 503
        assert server.at.ask("POST", f"{path}/step", {"action": "a"})[1]["observation"] == "1 a"
        assert server.poll() is None
        server.at.ask("DELETE", path)
        assert server.wait(10) == 0


def test_a_second_signal_does_not_wait():
    with command("tests.support.environments:Tally", "--port", "0", "--drain", "60") as server:
        server.at.open("tally")
        server.send_signal(signal.SIGTERM)
        server.stderr.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["env", "serve", *arguments])
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org"])
def test_a_public_address_needs_a_token(capsys, monkeypatch, host):
    monkeypatch.delenv("PALESTRA_ENV_TOKEN", raising=False)
    assert f"--host {host}: needs a token" in refused(capsys, "guess", "--host", host)


def test_bad_commands_are_refused_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    assert "did you mean 'guess'" in refused(capsys, "geuss")
    assert "has no such option" in refused(capsys, "guess", "--guess.sise", "3")
    assert "there is no such flag" in refused(capsys, "guess", "--capacty", "3")
    assert "EMPTY" in refused(capsys, "guess", "--token-env", "EMPTY")
    assert "--lease" in refused(capsys, "guess", "--lease", "0")


def test_a_port_that_is_taken_is_an_error():
    with running(TALLY) as taken:
        code = (
            "from palestra.cli.main import main; main(['env', 'serve', 'guess', '--port', "
            f"'{taken.port}'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert json.loads(done.stderr)["event"] == "cannot listen"


def test_a_public_server_with_tokens_and_options():
    with command(
        "guess",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--guess.size",
        "3",
        MY_TOKENS="anna,ben",
        PALESTRA_ENV_TOKEN="carl",
    ) as server:
        assert server.at.ask("GET", "/v1/envs", Authorization="Bearer anna")[0] == 401
        about = server.at.ask("GET", "/v1/envs/guess", Authorization="Bearer carl")[1]
        assert "from 1 to 3" in about["instructions"]


def test_several_processes_behind_one_address():
    """Each request comes over a connection of its own, to any process; the session is found all the
    same.
    """
    with command(
        "tests.support.environments:Tally", "--port", "0", "--capacity", "7", processes=3
    ) as server:
        paths = [server.at.open("tally", "train-0") for _ in range(7)]
        assert {owner(path) for path in paths} == {"0", "1", "2"}
        assert server.at.raw("POST", "/v1/sessions", {"env": "tally"})[0] == 429
        assert server.at.ask("GET", "/v1/envs")[1] == {"envs": ["tally"], "capacity": 7, "free": 0}
        for path in paths:
            actions = [f"{path[-5:]}{n}" for n in range(10)]
            assert_right(
                [
                    server.at.ask("POST", f"{path}/step", {"action": action})[1]["observation"]
                    for action in actions
                ],
                actions,
            )
        text = server.at.raw("GET", "/metrics")[2].decode()
        assert "palestra_sessions 7" in text
        assert server.at.ask("POST", "/v1/sessions/9.0.x/observe")[0] == 404
        played = asyncio.run(played_over_streams(server.at, paths))
        assert_right(played, [f"s{n}" for n in range(10)])
        server.send_signal(signal.SIGTERM)
        assert [json.loads(server.stderr.readline())["event"] for _ in range(3)] == ["draining"] * 3
        server.send_signal(signal.SIGTERM)
        assert server.wait(15) == 0


async def played_over_streams(at, paths):
    """One session, asked over connection after connection."""
    session = paths[0].rsplit("/", 1)[1]
    observations = []
    async with aiohttp.ClientSession() as http:
        for number in range(-1, 10):
            call = (
                {"call": "reset", "task": {"split": "train", "id": "train-0"}}
                if number < 0
                else {"call": "step", "action": f"s{number}"}
            )
            async with http.ws_connect(at.address + "/v1/stream") as socket:
                await socket.send_bytes(
                    msgspec.msgpack.encode([{**call, "session": session, "id": 5}])
                )
                (answer,) = msgspec.msgpack.decode((await socket.receive(10)).data)
            observations.append(answer["result"]["observation"])
    return observations[1:]


def owner(path):
    """The process that has the session."""
    return path.rsplit("/", 1)[1].partition(".")[0]


def test_a_process_that_dies_is_replaced():
    with command("tests.support.environments:Tally", "--port", "0", processes=2) as server:
        paths = [server.at.open("tally", "train-0") for _ in range(4)]
        while (
            len({owner(path) for path in paths}) < 2
        ):  # whichever process a connection reaches has the session
            paths.append(server.at.open("tally", "train-0"))
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        (victim, *_) = [
            int(pid)
            for pid in children
            if b"palestra.envs.serving.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(victim, signal.SIGKILL)
        assert json.loads(server.stderr.readline())["event"] == "process died"
        assert json.loads(server.stderr.readline())["event"] == "listening"
        statuses = {owner(path): server.at.ask("POST", f"{path}/observe")[0] for path in paths}
        assert sorted(statuses.values()) == [200, 404]
        server.at.open("tally", "train-0")
