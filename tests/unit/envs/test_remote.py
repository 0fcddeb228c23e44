"""A served environment from the client's side: it looks like any other, and what is wrong is said
in one line.
"""

import asyncio
import time
from dataclasses import replace

import pytest

from palestra.cli.main import main
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.envs import envs
from palestra.envs.babyai.env import BabyAI
from palestra.envs.check import check_environment
from palestra.envs.guess.env import Guess
from palestra.envs.serving.client import RemoteHandle, Servers
from palestra.envs.serving.handles import EnvFault, EnvTimeout
from palestra.envs.serving.remote import remote_kind
from palestra.envs.serving.wire import WireError
from palestra.training.preflight import preflight
from tests.support import environments
from tests.support.ports import free_port
from tests.support.served import running

TALLY = "tests.support.environments:Tally"


@pytest.fixture(scope="module")
def guess():
    with running("guess", "tests.support.environments:Echo", TALLY) as server:
        yield server


def test_it_keeps_every_promise_of_an_environment(guess):
    assert [
        check for check in check_environment(guess.url("guess"), {}, tasks=6) if not check.ok
    ] == []


def test_it_is_what_the_server_has(guess):
    kind = envs[guess.url("guess")]
    assert (kind.name, kind.splits) == ("guess", ("train", "test"))
    remote, here = kind(), Guess()
    assert (remote.instructions, remote.max_turns, remote.vocabulary()) == (
        here.instructions,
        here.max_turns,
        here.vocabulary(),
    )
    assert all(list(remote.tasks(split)) == list(here.tasks(split)) for split in here.splits)


def test_a_task_is_found_by_any_of_its_names_and_played_although_it_stands_in_no_split():
    here = BabyAI(["GoToObj", "GoToSeqS5R2"])
    with running("babyai") as server:
        remote = envs[server.url("babyai")]()
        for id in ("babyai_7", "GoToSeqS5R2-0", "babyai_40", "GoToObj-5000"):
            found = remote.task(id)
            assert (found, found.category) == (BabyAI().task(id), BabyAI().task(id).category)
            assert remote.reset(found) == here.reset(found)
        assert (found.split, remote.task("babyai_7").id) == ("unlisted", "GoToSeqS5R2-0")
        for id in ("babyai_x", "no/such task?id=1&split=train", ""):
            with pytest.raises(ValueError, match="babyai has no task .*expected <level>-<seed>"):
                remote.task(id)
        for strange in (replace(found, split="train"), replace(found, id="GoToObj-x")):
            with pytest.raises(WireError, match="babyai has no task"):
                remote.reset(strange)


def test_it_can_be_played_by_hand(guess, capsys, monkeypatch):
    lines = iter([":expert"] * 6)
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    main(["env", "play", guess.url("guess")])
    assert "Right." in capsys.readouterr().out


def test_what_is_wrong_is_said_in_one_line(guess, monkeypatch):
    nobody = f"http://127.0.0.1:{free_port()}"
    cases = {
        f"{nobody}/guess": f"env.name = .*no environment server answers at {nobody}: .*refused",
        guess.url("geuss"): "env.name = .* has no environment 'geuss'; did you mean 'guess'",
        guess.address: "expected the URL of a served environment",
        "http://:x/guess": "expected the URL of a served environment",
    }
    for name, message in cases.items():
        with pytest.raises(ConfigError, match=message) as raised:
            preflight(build({"env": {"name": name}}))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"size": 3}}, "env.options.size = 3: .* has no such option; it has none"),
        ({"isolation": "process"}, "env.isolation = 'process': has no effect"),
        ({"urls": ["guess"]}, "env.urls = .*expected URLs of guess"),
        ({"name": "guess", "urls": ["http://x/guess"]}, "env.urls = .*name must be a URL too"),
    ],
)
def test_settings_that_do_not_fit(guess, changes, message):
    with pytest.raises(ConfigError, match=message):
        preflight(
            build(
                {"env": {"name": guess.url("guess")} | changes, "engine": {"deterministic": False}}
            )
        )


def test_several_servers_must_have_the_same_environment(guess):
    with pytest.raises(ConfigError, match="expected URLs of guess"):
        build(
            {
                "env": {"name": guess.url("guess"), "urls": [guess.url("echo")]},
                "engine": {"deterministic": False},
            }
        )


def test_which_group_is_complete_first_is_a_race(guess):
    with pytest.raises(
        ConfigError,
        match=r"rollout.partial = 1: env.name = .* is apart from training.* set "
        r"engine.deterministic = false",
    ):
        build({"env": {"name": guess.url("guess")}, "rollout": {"partial": 1}})
    build(
        {
            "env": {"name": guess.url("guess")},
            "rollout": {"partial": 1},
            "engine": {"deterministic": False},
        }
    )
    build({"env": {"name": guess.url("guess")}})


def test_a_token_is_needed_and_taken_from_the_environment(monkeypatch):
    with running("guess", tokens=("anna",)) as server:
        with pytest.raises(ConfigError, match="needs a token; set PALESTRA_ENV_TOKEN"):
            preflight(build({"env": {"name": server.url("guess")}}))
        monkeypatch.setenv("PALESTRA_ENV_TOKEN", "anna")
        monkeypatch.setenv("PALESTRA_ENV_HOSTS", "127.0.0.1")
        task = envs[server.url("guess")]().tasks("train")[0]
        assert played(server.url("guess"), task, ["1"])[0] == "Guess the number."
    remote_kind.cache_clear()


def played(url, task, actions, deadline_s=5.0):
    async def scenario():
        handle = RemoteHandle(Servers([url]), deadline_s)
        try:
            return [
                await handle.reset(task),
                *[(await handle.step(action)).observation for action in actions],
            ]
        finally:
            await handle.close()

    return asyncio.run(scenario())


def test_a_handle_plays_and_leaves_nothing_behind(guess):
    task = environments.Tally().tasks("train")[3]
    before = len(guess.server.sessions)
    assert played(guess.url("tally"), task, ["a", "b"]) == ["0 train-3", "1 a", "2 b"]
    assert len(guess.server.sessions) == before


def test_a_handle_can_ask(guess):
    async def scenario():
        handle = RemoteHandle(Servers([guess.url("tally")]), 5.0)
        await handle.reset(environments.Tally().tasks("train")[0])
        await handle.step("x")
        try:
            return await handle.actions(), await handle.expert(), handle.seconds > 0
        finally:
            await handle.close()
            await handle.close()

    assert asyncio.run(scenario()) == (["1"], "1", True)


@pytest.mark.parametrize(
    ("kind", "deadline_s", "error", "reason"),
    [
        ("Raises", 30.0, EnvFault, "the simulator broke"),
        ("Hangs", 3.0, EnvTimeout, "no answer within"),
    ],
)
def test_faults_keep_their_type(kind, deadline_s, error, reason):
    with running(
        f"tests.support.environments:{kind}", isolation="process", deadline_s=deadline_s
    ) as server:
        with pytest.raises(EnvFault, match=reason) as raised:
            played(server.url("echo"), environments.Echo().tasks("train")[0], ["red"])
        assert type(raised.value) is error


def test_an_episode_goes_to_the_server_with_the_most_free_seats():
    with running(TALLY, capacity=2) as small, running(TALLY, capacity=6) as large:

        async def scenario():
            servers = Servers([small.url("tally"), large.url("tally")])
            handles = [RemoteHandle(servers, 5.0) for _ in range(8)]
            for handle in handles:
                await handle.reset(environments.Tally().tasks("train")[0])
            counts = len(small.server.sessions), len(large.server.sessions)
            for handle in handles:
                await handle.close()
            return counts

        assert asyncio.run(scenario()) == (2, 6)
        assert len(small.server.sessions) == len(large.server.sessions) == 0


def test_who_finds_all_seats_taken_waits_for_one():
    with running(TALLY, capacity=1) as server:
        task = environments.Tally().tasks("train")[0]

        async def episode(servers):
            handle = RemoteHandle(servers, 5.0)
            await handle.reset(task)
            await asyncio.sleep(0.05)
            last = (await handle.step("a")).observation
            await handle.close()
            return last

        async def scenario():
            servers = Servers([server.url("tally")])
            return await asyncio.gather(*(episode(servers) for _ in range(4)))

        assert asyncio.run(scenario()) == ["1 a"] * 4


def test_leases_are_renewed_while_the_event_loop_stands_still():
    """As it does while the learner is at work."""
    with running(TALLY, lease_s=0.6) as server:

        async def scenario():
            handle = RemoteHandle(Servers([server.url("tally")]), 5.0)
            await handle.reset(environments.Tally().tasks("train")[0])
            time.sleep(2.0)
            observation = (await handle.step("a")).observation
            await handle.close()
            return observation

        assert asyncio.run(scenario()) == "1 a"
        assert server.server.sessions.expired_total == 0


def test_a_reset_after_the_lease_ran_out_opens_a_new_session():
    with running(TALLY) as server:
        task = environments.Tally().tasks("train")[0]

        async def scenario():
            handle = RemoteHandle(Servers([server.url("tally")]), 5.0)
            await handle.reset(task)
            await handle.step("a")
            await asyncio.to_thread(server.run, server.server.sessions.close())
            with pytest.raises(EnvFault, match="no such session"):
                await handle.step("b")
            observation = await handle.reset(task)
            await handle.close()
            return observation

        assert asyncio.run(scenario()) == "0 train-0"


def test_an_action_that_is_too_long_is_a_fault_and_not_a_broken_connection(guess):
    with pytest.raises(EnvFault, match="bytes"):
        played(guess.url("tally"), environments.Tally().tasks("train")[0], ["x" * 2_000_000])
