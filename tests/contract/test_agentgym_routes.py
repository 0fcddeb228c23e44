"""Clients written against AgentGym's field tables play our environments on our routes."""

import json
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core.types import Step
from palestra.envs import envs
from palestra.envs.adapters.agentgym import AgentGym
from palestra.envs.serving.agentgym_routes import session_number, session_token
from palestra.envs.serving.wire import OBSERVATION_CHARACTERS
from tests.support.environments import Echo
from tests.support.served import command, running


def ask(url, path, body=None, *, method="POST", raw=None):
    """Status and decoded answer."""
    where = urlsplit(url)
    connection = HTTPConnection(
        where.hostname, where.port, timeout=60
    )  # a worker process takes its time to start on a busy machine
    said = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    connection.request(method, where.path + path, said, {"Content-Type": "application/json"})
    response = connection.getresponse()
    status, answer = response.status, response.read()
    connection.close()
    assert b"Traceback" not in answer
    return status, json.loads(answer)


class IdClient:
    """What their clients of textcraft, babyai and sciworld do: the fields they send, read and
    require.
    """

    def __init__(self, base, *, create=None):
        self.base = base
        status, answer = ask(base, "/create", create)
        assert status == 200
        self.id = answer["id"]
        assert type(self.id) is int
        self.created = answer

    def post(self, path, **fields):
        status, answer = ask(self.base, path, {**fields, "id": self.id})
        assert status == 200, answer
        return answer

    def observe(self):
        status, answer = ask(self.base, f"/observation?id={self.id}", method="GET")
        assert status == 200
        return answer

    def reset(self, number):
        return self.post("/reset", data_idx=number)

    def step(self, reply):
        """Theirs cut the action out of the reply and keep letters, digits, commas and blanks of it;
        that of sciworld sends all.
        """
        if self.base.endswith("sciworld"):
            return self.post("/step", action=reply)
        return self.post(
            "/step",
            action=" ".join(re.sub("[^A-Za-z0-9, ]", "", reply.rpartition("Action:")[2]).split()),
        )

    def close(self):
        return self.post("/close")


class EnvIdxClient:
    """What their clients of searchqa and the tools do: all that the model wrote is sent."""

    def __init__(self, base):
        self.base = base
        status, self.env_idx = ask(base, "/create", {"id": 0})
        assert status == 200
        assert type(self.env_idx) is int

    def post(self, path, **fields):
        status, answer = ask(self.base, path, {**fields, "env_idx": self.env_idx})
        assert status == 200, answer
        return answer

    def observe(self):
        status, answer = ask(self.base, f"/observation?env_idx={self.env_idx}", method="GET")
        assert status == 200
        return answer


HERE = __name__
"""Where the server finds the environments of this file."""


@contextmanager
def served(*names, **settings):
    """The address of the routes of these environments, on a real server."""
    with running(*names, **settings) as server:
        yield f"{server.address}/agentgym"


PLAYED = {"textcraft": {}, "babyai": {"levels": ["GoToObj", "UnlockPickup"]}, "sciworld": {}}


@pytest.fixture(params=PLAYED)
def name(request):
    if request.param == "sciworld":
        pytest.importorskip("scienceworld")
    return request.param


def test_their_client_plays(name):
    mirror = envs[name](**PLAYED[name])
    tasks = [task for split in mirror.splits for task in mirror.tasks(split)]
    full = 100 if name == "sciworld" else 1
    with served(name, options=PLAYED[name]) as url:
        client = IdClient(
            f"{url}/{name}",
            create={"minecraft_dir": "here/", "commands": None, "goal": None}
            if name == "textcraft"
            else None,
        )
        solved = 0
        for number in (0, 1, len(tasks) - 1):
            begun = client.reset(number)
            first = (
                f"{begun['task_description']}\n{begun['observation']}"
                if name == "sciworld"
                else begun["observation"]
            )
            assert first == mirror.reset(tasks[number]) == client.observe()
            assert not begun["done"]
            score, done = 0.0, False
            while not done and (action := mirror.expert()) is not None:
                answer, step = (
                    client.step(f"Thought:\nThis helps.\n\nAction:\n{action}"),
                    mirror.step(action),
                )
                score += step.reward * full
                done = step.terminated or step.truncated
                assert (answer["observation"], answer["done"]) == (step.observation, done)
                assert answer["reward"] == pytest.approx(step.reward * full)
                if name != "textcraft":
                    assert answer["score"] == pytest.approx(score)
            solved += done
            if done:
                again = client.step("Action: again")
                assert again["done"]
                assert again["reward"] == 0
                if name != "textcraft":
                    assert again["score"] == pytest.approx(score)  # counted once
        assert solved
        assert client.close() == {"closed": True}


FIELDS = {  # as their tables have them: /create, /reset, /step
    "textcraft": (
        {"id", "observation", "done", "reward"},
        {"id", "observation", "done", "reward"},
        {"observation", "reward", "done"},
    ),
    "babyai": (
        {"id"},
        {"observation", "reward", "score", "deleted", "done"},
        {"observation", "reward", "score", "done"},
    ),
    "sciworld": (
        {"id"},
        {
            "task_name",
            "var_num",
            "task_description",
            "observation",
            "reward",
            "score",
            "deleted",
            "done",
        },
        {"observation", "reward", "score", "done"},
    ),
}


def test_the_fields_are_those_of_their_table(name):
    with served(name, options=PLAYED[name]) as url:
        client = IdClient(f"{url}/{name}")
        created, begun, stepped = FIELDS[name]
        assert created <= client.created.keys()
        assert begun <= client.reset(3).keys()
        assert stepped <= client.step("Action: nonsense").keys()
        assert (
            ask(f"{url}/{name}", f"/action_hint?id={client.id}", method="GET")[1][
                "possible_actions"
            ]
            is not None
        )
        assert ask(f"{url}/{name}", "/", method="GET")[1].startswith(
            f"This is environment {name}. Tasks: train 0 to "
        )


def test_a_client_of_the_other_dialect_plays():
    mirror = envs["guess"]()
    with served("guess") as url:
        client = EnvIdxClient(f"{url}/guess")
        assert client.observe() == "Guess the number."  # /create begins its task
        for number, task in ((5, mirror.tasks("train")[5]), (1000, mirror.tasks("test")[0])):
            assert client.post("/reset", id=number) == mirror.reset(task) == client.observe()
            answer = {"done": False}
            while not answer["done"]:
                action = mirror.expert()
                answer, step = (
                    client.post("/step", action=f"Thought: half of it\n\nAction: {action}"),
                    mirror.step(action),
                )
                assert {"observation", "reward", "done", "info"} <= answer.keys()
                assert (answer["observation"], answer["reward"], answer["done"]) == (
                    step.observation,
                    step.reward,
                    step.terminated,
                )
                assert client.observe() == step.observation
            assert answer["reward"] == 1
        client.post("/reset")
        assert client.post("/step", action="16")["observation"] in (
            "Higher.",
            "Lower.",
            "Right.",
        )  # the action alone will do
        twice = client.post("/step", action="Action: 1\nAction: 2")
        assert twice["observation"].startswith("Expected exactly one 'Action:'")
        assert (twice["reward"], twice["done"]) == (0, False)


class Webarena(Echo):
    name = "webarena"


class Webshop(Echo):
    name = "webshop"


class Sqlgym(Echo):
    name = "sqlgym"


class Weather(Echo):
    name = "weather"


@pytest.mark.parametrize("env", ["webarena", "webshop", "sqlgym", "weather"])
def test_an_environment_of_that_name_is_served_in_its_own_dialect(env):
    with served(f"{HERE}:{env.capitalize()}") as url:
        _, created = ask(f"{url}/{env}", "/create", {"id": 0})
        number = created["env_idx"] if env == "webarena" else created
        task = {
            "webarena": {"idx": 1, "seed": 0},
            "webshop": {"session_id": 1},
            "sqlgym": {"item_id": 1},
            "weather": {"id": 1},
        }[env]
        _, begun = ask(f"{url}/{env}", "/reset", {"env_idx": number, **task})
        assert {"webarena": lambda: begun["observation"], "weather": lambda: begun}.get(
            env, lambda: begun[0]
        )() == "say blue"
        _, step = ask(f"{url}/{env}", "/step", {"env_idx": number, "action": "blue"})
        assert step["state" if env in ("webshop", "sqlgym") else "observation"] == "right"
        assert step["terminated" if env == "webarena" else "done"] is True


class Quarters(Echo):
    name = "sciworld"

    def __init__(self):
        super().__init__(rounds=4)


def test_sciworld_is_told_in_points():
    with served(f"{HERE}:Quarters") as url:
        client = IdClient(f"{url}/sciworld")
        begun = client.reset(1)
        assert FIELDS["sciworld"][1] <= begun.keys()
        assert begun["task_description"] == "say blue"
        answers = [client.step("Thought: again\n\nAction:\nblue") for _ in range(4)]
        assert [(answer["reward"], answer["score"], answer["done"]) for answer in answers] == [
            *((25, score, False) for score in (25, 50, 75)),
            (25, 100, True),
        ]


@pytest.mark.parametrize(
    ("env", "theirs"), [("textcraft", "textcraft"), ("babyai", "babyai"), ("guess", "searchqa")]
)
def test_our_client_plays_on_our_routes(env, theirs):
    mirror = envs[env](**PLAYED.get(env, {}))
    with served(env, options=PLAYED.get(env)) as url:
        remote = AgentGym(f"{url}/{env}", theirs, train=3, test=0)
        for task, own in zip(remote.tasks("train"), mirror.tasks("train"), strict=False):
            assert remote.reset(task) == mirror.reset(own)
            step = Step("")
            while not (step.terminated or step.truncated):
                action = mirror.expert()
                step, expected = remote.step(action), mirror.step(action)
                assert (step.observation, step.terminated, step.success) == (
                    expected.observation,
                    expected.terminated,
                    expected.success,
                )
                assert step.reward == pytest.approx(expected.reward)
        remote.close()


REFUSED = [
    ("/reset", {"id": 1, "data_idx": 0}, 404, "there is no such session"),
    ("/step", {"id": 1, "action": "inventory"}, 404, "there is no such session"),
    ("/close", {"id": 1}, 404, "there is no such session"),
    ("/step", {"action": "inventory"}, 422, "id: expected a whole number, came null"),
    ("/step", {"id": "me", "action": "inventory"}, 422, "id: expected a whole number, came me"),
    ("/step", {"id": True, "action": "inventory"}, 422, "id: expected a whole number, came true"),
    ("/step", {"id": None}, 422, "action: expected a text, came null"),
    ("/step", {"id": None, "action": ["get"]}, 422, 'action: expected a text, came ["get"]'),
    (
        "/reset",
        {"id": None, "data_idx": 551},
        422,
        "data_idx: textcraft has the tasks 0 to 550, not 551",
    ),
    (
        "/reset",
        {"id": None, "data_idx": -1},
        422,
        "data_idx: textcraft has the tasks 0 to 550, not -1",
    ),
    ("/reset", {"id": None, "data_idx": 1.5}, 422, "data_idx: expected a whole number, came 1.5"),
    (
        "/reset",
        {"id": None, "data_idx": "train"},
        422,
        "data_idx: expected a whole number, came train",
    ),
    ("/create", {"goal": "minecraft:cake"}, 422, "goal: games of one's own"),
    ("/reset", ["list"], 422, 'expected a JSON object, came ["list"]'),
]


def test_refusals():
    with served("textcraft") as url:
        base = f"{url}/textcraft"
        client = IdClient(base)
        for path, body, status, said in REFUSED:
            if isinstance(body, dict) and "id" in body and body["id"] is None:
                body = {**body, "id": client.id}
            refused = ask(base, path, body)
            assert refused[0] == status, (path, body, refused)
            assert refused[1]["error"].startswith(said)
        for raw in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"id": 1e999}'):
            assert ask(base, "/step", raw=raw)[0] == 422
        assert ask(base, "/step", raw=b" " * (2 * 1024 * 1024))[0] == 413
        assert ask(base, "/observation?id=0", method="GET")[0] == 404
        assert client.observe() == client.created["observation"]  # none of it did any harm
        client.close()
        for path, body in (
            ("/reset", {"data_idx": 0}),
            ("/step", {"action": "inventory"}),
            ("/close", {}),
        ):
            assert ask(base, path, {**body, "id": client.id})[0] == 404


FIELD_NAMES = st.sampled_from(["id", "env_idx", "data_idx", "action", "goal", "commands", "more"])
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.integers(), max_size=3)
)
BODIES = st.binary(max_size=100) | st.dictionaries(FIELD_NAMES, VALUES, max_size=4).map(
    lambda fields: json.dumps(fields).encode()
)


@pytest.fixture(scope="module")
def two_dialects():
    with served("guess", "textcraft", capacity=5) as url:
        yield url


@given(
    st.sampled_from(["textcraft", "guess"]),
    st.sampled_from(["/create", "/reset", "/step", "/close"]),
    BODIES,
)
@settings(max_examples=300, deadline=None)
def test_whatever_is_sent_is_answered(two_dialects, env, path, body):
    status, answer = ask(f"{two_dialects}/{env}", path, raw=body)
    if status == 200:
        assert path == "/create"  # nobody can guess a session
    else:
        assert status in (404, 422, 503)
        assert set(answer) == {"error"}


def test_a_session_belongs_to_its_environment_and_begins_with_a_reset():
    with served("textcraft", "babyai") as url:
        client = IdClient(f"{url}/babyai")
        status, refused = ask(f"{url}/babyai", "/step", {"id": client.id, "action": "turn left"})
        assert (status, refused) == (422, {"error": "reset the session first"})
        assert ask(f"{url}/babyai", f"/observation?id={client.id}", method="GET")[0] == 422
        assert ask(f"{url}/textcraft", "/reset", {"id": client.id, "data_idx": 0})[0] == 404


def test_a_number_has_all_of_a_sessions_secret():
    tokens = [
        f"{process}.{number}.{secrets.token_urlsafe(16)}"
        for process in (0, 1, 4999)
        for number in (0, 7, 2**53)
    ]
    for token in tokens:
        assert session_token(3, session_number(3, token)) == token
        assert session_token(2, session_number(3, token)) is None
    assert [session_token(0, number) for number in (-1, 0, 1, 2**53, 2**224, 2**10_000)] == [
        None
    ] * 6
    with served("guess") as url:
        numbers = [EnvIdxClient(f"{url}/guess").env_idx for _ in range(20)]
        assert len({number % 2**128 for number in numbers}) == 20
        guessed = ask(f"{url}/guess", "/step", {"env_idx": numbers[0] + 1, "action": "3"})
        assert guessed == (404, {"error": "there is no such session"})


def test_tokens_and_hosts_are_asked_for_here_too():
    with running("guess", tokens=("anna", "bert")) as server:
        path, anna, bert = (
            "/agentgym/guess",
            {"Authorization": "Bearer anna"},
            {"Authorization": "Bearer bert"},
        )
        assert server.ask("POST", f"{path}/create", {"id": 0})[0] == 401
        assert server.ask("GET", f"{path}/")[0] == 401
        assert (
            server.ask("POST", f"{path}/create", {"id": 0}, Host="evil.example", **anna)[0] == 403
        )
        assert (
            server.ask("POST", f"{path}/create", {"id": 0}, Origin="http://evil.example", **anna)[0]
            == 403
        )
        status, number = server.ask("POST", f"{path}/create", {"id": 0}, **anna)
        assert status == 200
        step = {"env_idx": number, "action": "3"}
        assert server.ask("POST", f"{path}/step", step, **bert) == (
            404,
            {"error": "there is no such session"},
        )
        assert server.ask("POST", f"{path}/step", step, **anna)[0] == 200


def test_capacity_and_leases():
    hours = [0.0]
    with running(
        "tests.support.environments:Echo", capacity=2, clock=lambda: 3600 * hours[0]
    ) as server:
        url = f"{server.address}/agentgym/echo"
        kept, left = EnvIdxClient(url), EnvIdxClient(url)
        assert ask(url, "/create", {"id": 0}) == (503, {"error": "all 2 seats are taken"})
        hours[0] = 0.9
        kept.observe()  # every call renews
        hours[0] = 1.1
        server.run(server.server.sessions.sweep())
        assert ask(url, "/reset", {"env_idx": left.env_idx, "id": 0})[0] == 410
        kept.observe()
        EnvIdxClient(url)


class BreaksWhenTold(Echo):
    def step(self, action):
        if action == "break":
            raise RuntimeError("the simulator\n  broke")
        return super().step(action)


def test_a_fault_is_told_and_the_next_reset_mends_it():
    with running(f"{HERE}:BreaksWhenTold", capacity=1) as server:
        url = f"{server.address}/agentgym/echo"
        client = EnvIdxClient(url)
        broke = (502, {"error": "RuntimeError: the simulator broke"})
        assert ask(url, "/step", {"env_idx": client.env_idx, "action": "break"}) == broke
        assert server.server.sessions.free == 1
        assert ask(url, "/step", {"env_idx": client.env_idx, "action": "red"}) == broke
        assert client.post("/reset", id=0) == "say red"
        assert server.server.sessions.free == 0
        assert client.post("/step", action="red")["reward"] == 1
        assert ask(url, "/step", {"env_idx": client.env_idx, "action": "break"}) == broke
        other = EnvIdxClient(url)  # takes the seat
        assert ask(url, "/reset", {"env_idx": client.env_idx, "id": 0}) == (
            503,
            {"error": "all 1 seats are taken"},
        )
        other.post("/close")
        assert client.post("/reset", id=0) == "say red"


class NeverBegins(Echo):
    def reset(self, task):
        raise RuntimeError("no simulator")


def test_a_session_that_cannot_begin_takes_no_place():
    with running(f"{HERE}:NeverBegins", capacity=1) as server:
        for _ in range(3):
            assert ask(f"{server.address}/agentgym/echo", "/create", {"id": 0})[0] == 502
        assert server.server.sessions.free == 1
        assert len(server.server.sessions) == 0


def test_a_call_has_a_deadline():
    with served("tests.support.environments:Hangs", deadline_s=2.0, isolation="process") as url:
        client = EnvIdxClient(f"{url}/echo")
        status, answer = ask(f"{url}/echo", "/step", {"env_idx": client.env_idx, "action": "red"})
        assert status == 504
        assert "no answer within 2 s" in answer["error"]
        assert client.post("/reset", id=0) == "say red"


class Rounds(Echo):
    def __init__(self):
        super().__init__(rounds=8)

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


def test_calls_of_one_session_wait_for_each_other():
    with served(f"{HERE}:Rounds", isolation="process") as url, ThreadPoolExecutor(8) as pool:
        body = {"env_idx": EnvIdxClient(f"{url}/echo").env_idx, "action": "red"}
        answers = [
            call.result()
            for call in [pool.submit(ask, f"{url}/echo", "/step", body) for _ in range(8)]
        ]
        assert [status for status, _ in answers] == [200] * 8
        assert sum(answer["done"] for _, answer in answers) == 1


class Talks(Echo):
    def step(self, action):
        return Step("x" * (OBSERVATION_CHARACTERS + 1))


def test_an_observation_too_long_is_cut_and_marked():
    with served(f"{HERE}:Talks") as url:
        said = EnvIdxClient(f"{url}/echo").post("/step", action="red")
        mark = "[... cut, 30 characters more]"
        assert said["observation"] == "x" * (OBSERVATION_CHARACTERS - len(mark)) + mark
        assert said["info"] == {"observation_cut": True}


def test_sessions_are_found_behind_several_processes():
    """Every request comes over a connection of its own, to any process."""
    with command("guess", "textcraft", "--port", "0", "--capacity", "7", processes=3) as server:
        url = f"{server.at.address}/agentgym"
        clients = [EnvIdxClient(f"{url}/guess") for _ in range(6)]
        assert {session_token(0, client.env_idx).partition(".")[0] for client in clients} >= {
            "0",
            "1",
        }
        crafter = IdClient(f"{url}/textcraft")
        for n, client in enumerate(clients):
            client.post("/reset", id=n)
            assert client.post("/step", action="16")["observation"] in (
                "Higher.",
                "Lower.",
                "Right.",
            )
            assert crafter.reset(3)["observation"] == crafter.observe()
            assert client.post("/close") == {"closed": True}
