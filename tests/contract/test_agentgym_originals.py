"""AgentGym's own clients play our environments on our routes: their recorded requests anywhere,
their classes where they are installed.
"""

import json

import pytest

from palestra.core.action_formats import Tags
from palestra.core.types import Step
from palestra.envs.adapters.agentgym_dialects import DIALECTS, GENERIC, SERVED, find_action
from tests.support import agentgym_clients as ours
from tests.support.agentgym_clients import OPTIONS, RECORDED, send, their_clients
from tests.support.search_world import TinySearch
from tests.support.served import running

CLIENTS = ["recorded", pytest.param("original", marks=pytest.mark.agentgym)]


@pytest.fixture
def clients(request):
    """The module that has their client classes."""
    return ours if request.param == "recorded" else their_clients()


@pytest.fixture(params=RECORDED, ids=lambda sequence: sequence["client"])
def sequence(request, monkeypatch, tmp_path):
    if request.param["env"] == "sciworld":
        pytest.importorskip("scienceworld")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return request.param


def served(env):
    return running(ours.SERVED.get(env, env), options=OPTIONS.get(env))


def test_recorded_requests_are_answered_with_what_their_client_reads(sequence):
    session, reads = None, sequence["reads"]
    with served(sequence["env"]) as server:
        base = f"{server.address}/agentgym/{sequence['env']}"
        for call in sequence["episode"]:
            for request in call["requests"]:
                status, answer = send(base, request, session)
                assert status == 200, answer
                wanted = reads[request["path"].partition("?")[0]]
                assert {*wanted} <= ({*answer} if isinstance(answer, dict) else set())
                if request["path"] == "/create":
                    session = answer[wanted[0]] if wanted else answer
                    assert type(session) is int
                if request["path"] == "/step":
                    ended = answer["terminated" if "terminated" in wanted else "done"]
                    assert (answer["score" if "score" in wanted else "reward"], ended) == (
                        call["reward"],
                        call["done"],
                    )


@pytest.mark.agentgym
def test_their_client_sends_what_is_recorded(sequence, monkeypatch):
    theirs = their_clients()
    import requests

    sent = []
    real = requests.sessions.Session.request

    def note(self, method, url, **options):
        sent.append((method.upper(), url, json.loads(json.dumps(options.get("json")))))
        return real(self, method, url, **options)

    monkeypatch.setattr(requests.sessions.Session, "request", note)
    with served(sequence["env"]) as server:
        base = f"{server.address}/agentgym/{sequence['env']}"
        client = None
        for call in sequence["episode"]:
            if call["call"] == "__init__":
                client = getattr(theirs, sequence["client"])(base, 1000)
            else:
                given = [call["argument"]] if "argument" in call else []
                output = getattr(client, call["call"])(*given)
                if call["call"] == "step":
                    assert (output.reward, output.done) == (call["reward"], call["done"])
            assert sent == [
                (
                    request["method"],
                    base + request["path"].replace("{session}", str(client.env_id)),
                    body_of(request, client),
                )
                for request in call["requests"]
            ]
            sent.clear()


def body_of(request, client):
    return None if request["body"] is None else ours.with_session(request["body"], client.env_id)


@pytest.mark.parametrize("clients", CLIENTS, indirect=True)
def test_searchqas_client_plays_ten_episodes(clients, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mirror = TinySearch()
    tasks = [task for split in mirror.splits for task in mirror.tasks(split)][:10]
    with served("search") as server:
        client = clients.SearchQAEnvClient(f"{server.address}/agentgym/search", len(tasks))
        for number, task in enumerate(tasks):
            client.reset(number)
            assert client.observe() == mirror.reset(task)
            reward, done = 0.0, False
            while not done:
                action = mirror.expert()
                state, reward, done = theirs_of(client.step(Tags().write("Let me see.", action)))
                assert state == mirror.step(action).observation
            assert reward == 1.0
        client.reset(0)
        assert theirs_of(client.step("<think>A guess.</think><answer>Nobody</answer>"))[1:] == (
            0.0,
            True,
        )
        client.close()


@pytest.mark.parametrize("clients", CLIENTS, indirect=True)
def test_webarenas_client_plays_ten_episodes(clients):
    """With the browser's own actions; in a browser in tests/web."""
    with served("web") as server:
        client = clients.WebarenaEnvClient(f"{server.address}/agentgym/web", 90)
        for number in range(10):
            assert client.reset(number)["observation"] == client.observe()
            word = client.observe().split()[2].strip(".")
            assert theirs_of(client.step(f"The field. ```type [1] [{word}] [0]```"))[1:] == (
                0,
                False,
            )
            assert theirs_of(client.step(f"Done. ```stop [{word if number else 'no'}]```"))[1:] == (
                float(number > 0),
                True,
            )
        client.close()


class OutOfTime(ours.SaysOnAPage):
    def step(self, action):
        return Step("Time is up.", truncated=True)


def test_webarenas_client_is_told_of_an_end_by_time():
    """It reads `terminated` alone, and would play on."""
    with running(f"{__name__}:OutOfTime") as server:
        client = ours.WebarenaEnvClient(f"{server.address}/agentgym/web", 90)
        client.reset(0)
        assert client.step("```scroll [down]```") == ("Time is up.", 0.0, True)


def theirs_of(output):
    """Their outputs are objects, not tuples."""
    return output.state, output.reward, output.done


@pytest.mark.parametrize(
    ("env", "reply", "action"),
    [
        # The first search or answer says what is done, wherever it stands; of several answers the
        # last one counts.
        ("search", "<think>Who?</think>\n<search> red [mug] </search>", "search[red [mug]]"),
        ("search", "<search>one</search><search>two</search><answer>three</answer>", "search[one]"),
        ("search", "<answer>one</answer> no, <answer>\ntwo\n</answer>", "answer[two]"),
        (
            "searchqa",
            "<think>Should I <search>look</search>?</think><answer>no</answer>",
            "search[look]",
        ),
        ("search", "<search>never closed", None),
        ("search", "<Search>words</Search>", None),
        ("search", "<search>words</answer>", None),
        ("search", "search[words]", None),
        # The first block is the action.
        ("web", "So ```click [1]``` and ```click [2]```", "click [1]"),
        ("miniwob", "In summary:\n```\ntype [3] [a ` b] [0]\n```", "type [3] [a ` b] [0]"),
        ("webarena", "```stop```", "stop []"),
        ("web", "```scroll up```", "scroll [up]"),
        ("web", "``````", ""),
        ("web", "```click [1]", None),
        ("web", "click [1]", None),
        ("textcraft", "```inventory```", None),
        ("textcraft", "<search>words</search>", None),
    ],
)
def test_an_action_is_found_where_their_server_finds_it(env, reply, action):
    assert find_action(SERVED[env], reply) == action


def test_others_read_their_replies_themselves():
    assert find_action(GENERIC, "<think>so</think><answer>16</answer>") is None
    assert find_action(GENERIC, "```16```") is None
    assert {name for name in SERVED if name not in DIALECTS} == {"search", "web", "miniwob"}


def test_what_is_not_written_as_they_do_is_read_as_before(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for env, replies in {
        "search": [
            "search[Dremmel]",
            "Thought: so\nAction: search[Dremmel]",
            "<think>so</think><search>Dremmel</search>",
        ],
        "web": [
            "type [1] [red] [0]",
            "Thought: so\nAction: type [1] [red] [0]",
            "Thought: so\nAction: ```type [1] [red] [0]```",
        ],
    }.items():
        with served(env) as server:
            client = {"search": ours.SearchQAEnvClient, "web": ours.WebarenaEnvClient}[env](
                f"{server.address}/agentgym/{env}", 10
            )
            client.reset(1)
            seen = {client._post("/step", {"action": reply})["observation"] for reply in replies}
            assert len(seen) == 1
            assert "Expected" not in seen.pop()
