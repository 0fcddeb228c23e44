"""Clients written against AgentGym's field tables play our environments on our routes."""

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import pairwise
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from palestra.envs import envs
from palestra.envs.agentgym import AgentGym
from palestra.serve.agentgym import OBSERVATION_CHARACTERS, add_agentgym_routes
from palestra.serve.handle import InlineHandle, InlinePool
from palestra.types import Step
from tests.agentgym_stand_in import running
from tests.helpers import Echo


def ask(url, path, body=None, *, method="POST", raw=None):
    """Status and decoded answer."""
    where = urlsplit(url)
    connection = HTTPConnection(where.hostname, where.port, timeout=10)
    said = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    connection.request(method, where.path + path, said, {"Content-Type": "application/json"})
    response = connection.getresponse()
    status, answer = response.status, response.read()
    connection.close()
    assert b"Traceback" not in answer
    return status, json.loads(answer)


class IdClient:
    """What their clients of textcraft, babyai and sciworld do: the fields they send, read and require."""

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
        """Theirs cut the action out of the reply and keep letters, digits, commas and blanks of it; that of sciworld sends all."""
        if self.base.endswith("sciworld"):
            return self.post("/step", action=reply)
        return self.post("/step", action=" ".join(re.sub("[^A-Za-z0-9, ]", "", reply.rpartition("Action:")[2]).split()))

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


class Counting(InlineHandle):
    """Knows how many of them are open."""

    open = 0

    def __init__(self, make):
        pool = InlinePool(make, 60.0)
        super().__init__(pool, None)
        pool.taken.add(self)
        Counting.open += 1

    async def close(self):
        Counting.open -= 1
        await super().close()


@contextmanager
def served(makers, *, handle=Counting, **settings):
    """The address of the routes of environments (name -> what makes one)."""
    app = web.Application()
    tasks = {name: {split: list(make().tasks(split)) for split in make().splits} for name, make in makers.items()}

    async def open_handle(name):
        return handle(makers[name])

    add_agentgym_routes(app, open_handle, tasks, **settings)
    Counting.open = 0
    with running(app) as url:
        yield f"{url}/agentgym"
    assert Counting.open == 0  # the end of the server closes what is open


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
    with served({name: partial(envs[name], **PLAYED[name])}) as url:
        client = IdClient(
            f"{url}/{name}", create={"minecraft_dir": "here/", "commands": None, "goal": None} if name == "textcraft" else None
        )
        solved = 0
        for number in (0, 1, len(tasks) - 1):
            begun = client.reset(number)
            first = f"{begun['task_description']}\n{begun['observation']}" if name == "sciworld" else begun["observation"]
            assert first == mirror.reset(tasks[number]) == client.observe()
            assert not begun["done"]
            score, done = 0.0, False
            while not done and (action := mirror.expert()) is not None:
                answer, step = client.step(f"Thought:\nThis helps.\n\nAction:\n{action}"), mirror.step(action)
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
    "textcraft": ({"id", "observation", "done", "reward"}, {"id", "observation", "done", "reward"}, {"observation", "reward", "done"}),
    "babyai": ({"id"}, {"observation", "reward", "score", "deleted", "done"}, {"observation", "reward", "score", "done"}),
    "sciworld": (
        {"id"},
        {"task_name", "var_num", "task_description", "observation", "reward", "score", "deleted", "done"},
        {"observation", "reward", "score", "done"},
    ),
}


def test_the_fields_are_those_of_their_table(name):
    with served({name: partial(envs[name], **PLAYED[name])}) as url:
        client = IdClient(f"{url}/{name}")
        created, begun, stepped = FIELDS[name]
        assert created <= client.created.keys()
        assert begun <= client.reset(3).keys()
        assert stepped <= client.step("Action: nonsense").keys()
        assert ask(f"{url}/{name}", f"/action_hint?id={client.id}", method="GET")[1]["possible_actions"] is not None
        assert ask(f"{url}/{name}", "/", method="GET")[1].startswith(f"This is environment {name}. Tasks: train 0 to ")


def test_a_client_of_the_other_dialect_plays():
    mirror = envs["guess"]()
    with served({"guess": envs["guess"]}) as url:
        client = EnvIdxClient(f"{url}/guess")
        assert client.observe() == "Guess the number."  # /create begins its task
        for number, task in ((5, mirror.tasks("train")[5]), (1000, mirror.tasks("test")[0])):
            assert client.post("/reset", id=number) == mirror.reset(task) == client.observe()
            answer = {"done": False}
            while not answer["done"]:
                action = mirror.expert()
                answer, step = client.post("/step", action=f"Thought: half of it\n\nAction: {action}"), mirror.step(action)
                assert {"observation", "reward", "done", "info"} <= answer.keys()
                assert (answer["observation"], answer["reward"], answer["done"]) == (step.observation, step.reward, step.terminated)
                assert client.observe() == step.observation
            assert answer["reward"] == 1
        client.post("/reset")
        assert client.post("/step", action="16")["observation"] in ("Higher.", "Lower.", "Right.")  # the action alone will do
        twice = client.post("/step", action="Action: 1\nAction: 2")
        assert twice["observation"].startswith("Expected exactly one 'Action:'")
        assert (twice["reward"], twice["done"]) == (0, False)


@pytest.mark.parametrize("env", ["webarena", "webshop", "sqlgym", "weather"])
def test_an_environment_of_that_name_is_served_in_its_own_dialect(env):
    with served({env: Echo}) as url:
        _, created = ask(f"{url}/{env}", "/create", {"id": 0})
        number = created["env_idx"] if env == "webarena" else created
        task = {"webarena": {"idx": 1, "seed": 0}, "webshop": {"session_id": 1}, "sqlgym": {"item_id": 1}, "weather": {"id": 1}}[env]
        _, begun = ask(f"{url}/{env}", "/reset", {"env_idx": number, **task})
        assert {"webarena": lambda: begun["observation"], "weather": lambda: begun}.get(env, lambda: begun[0])() == "say blue"
        _, step = ask(f"{url}/{env}", "/step", {"env_idx": number, "action": "blue"})
        assert step["state" if env in ("webshop", "sqlgym") else "observation"] == "right"
        assert step["terminated" if env == "webarena" else "done"] is True


def test_sciworld_is_told_in_points():
    with served({"sciworld": partial(Echo, rounds=4)}) as url:
        client = IdClient(f"{url}/sciworld")
        begun = client.reset(1)
        assert FIELDS["sciworld"][1] <= begun.keys()
        assert begun["task_description"] == "say blue"
        answers = [client.step("Thought: again\n\nAction:\nblue") for _ in range(4)]
        assert [(answer["reward"], answer["score"], answer["done"]) for answer in answers] == [
            *((25, score, False) for score in (25, 50, 75)),
            (25, 100, True),
        ]


@pytest.mark.parametrize(("env", "theirs"), [("textcraft", "textcraft"), ("babyai", "babyai"), ("guess", "searchqa")])
def test_our_client_plays_on_our_routes(env, theirs):
    make = partial(envs[env], **PLAYED.get(env, {}))
    mirror = make()
    with served({theirs: make}) as url:
        remote = AgentGym(f"{url}/{theirs}", theirs, train=3, test=0)
        for task, own in zip(remote.tasks("train"), mirror.tasks("train"), strict=False):
            assert remote.reset(task) == mirror.reset(own)
            step = Step("")
            while not (step.terminated or step.truncated):
                action = mirror.expert()
                step, expected = remote.step(action), mirror.step(action)
                assert (step.observation, step.terminated, step.success) == (expected.observation, expected.terminated, expected.success)
                assert step.reward == pytest.approx(expected.reward)
        remote.close()


REFUSED = [
    ("/reset", {"id": 1, "data_idx": 0}, 404, "there is no session 1: "),
    ("/step", {"id": 1, "action": "inventory"}, 404, "there is no session 1: "),
    ("/close", {"id": 1}, 404, "there is no session 1: "),
    ("/step", {"action": "inventory"}, 422, "id: expected a whole number, came null"),
    ("/step", {"id": "me", "action": "inventory"}, 422, "id: expected a whole number, came me"),
    ("/step", {"id": True, "action": "inventory"}, 422, "id: expected a whole number, came true"),
    ("/step", {"id": None}, 422, "action: expected a text, came null"),
    ("/step", {"id": None, "action": ["get"]}, 422, 'action: expected a text, came ["get"]'),
    ("/reset", {"id": None, "data_idx": 551}, 422, "data_idx: textcraft has the tasks 0 to 550, not 551"),
    ("/reset", {"id": None, "data_idx": -1}, 422, "data_idx: textcraft has the tasks 0 to 550, not -1"),
    ("/reset", {"id": None, "data_idx": 1.5}, 422, "data_idx: expected a whole number, came 1.5"),
    ("/reset", {"id": None, "data_idx": "train"}, 422, "data_idx: expected a whole number, came train"),
    ("/create", {"goal": "minecraft:cake"}, 422, "goal: games of one's own"),
    ("/reset", ["list"], 422, 'expected a JSON object, came ["list"]'),
]


def test_refusals():
    with served({"textcraft": envs["textcraft"]}) as url:
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
        for path, body in (("/reset", {"data_idx": 0}), ("/step", {"action": "inventory"}), ("/close", {})):
            assert ask(base, path, {**body, "id": client.id})[0] == 404


def test_a_session_belongs_to_its_environment_and_begins_with_a_reset():
    with served({"textcraft": envs["textcraft"], "babyai": envs["babyai"]}) as url:
        client = IdClient(f"{url}/babyai")
        assert ask(f"{url}/babyai", "/step", {"id": client.id, "action": "turn left"})[0] == 409
        assert ask(f"{url}/babyai", f"/observation?id={client.id}", method="GET")[0] == 409
        assert ask(f"{url}/textcraft", "/reset", {"id": client.id, "data_idx": 0})[0] == 404


def test_numbers_cannot_be_guessed():
    with served({"guess": envs["guess"]}) as url:
        numbers = [EnvIdxClient(f"{url}/guess").env_idx for _ in range(20)]
    assert len({*numbers}) == 20
    assert all(0 < number < 2**53 for number in numbers)
    assert max(numbers) > 2**48  # fails once in 2**100 runs
    assert all(abs(one - other) > 1000 for one, other in pairwise(numbers))


def test_capacity_and_leases():
    with served({"echo": Echo}, capacity=2, lease_s=2.0) as url:
        kept, left = EnvIdxClient(f"{url}/echo"), EnvIdxClient(f"{url}/echo")
        assert ask(f"{url}/echo", "/create", {"id": 0}) == (503, {"error": "all 2 sessions are taken"})
        deadline = time.monotonic() + 30
        while Counting.open == 2 and time.monotonic() < deadline:
            kept.observe()  # every call renews
            time.sleep(0.02)
        assert Counting.open == 1
        assert ask(f"{url}/echo", "/reset", {"env_idx": left.env_idx, "id": 0})[0] == 404
        kept.observe()
        EnvIdxClient(f"{url}/echo")


class BreaksOnce(Echo):
    def step(self, action):
        if action == "break":
            raise RuntimeError("the simulator\n  broke")
        return super().step(action)


def test_a_fault_is_told_and_the_next_reset_mends_it():
    with served({"echo": BreaksOnce}) as url:
        client = EnvIdxClient(f"{url}/echo")
        status, answer = ask(f"{url}/echo", "/step", {"env_idx": client.env_idx, "action": "break"})
        assert (status, answer) == (502, {"error": "the environment broke: RuntimeError: the simulator broke"})
        assert Counting.open == 0
        assert ask(f"{url}/echo", "/step", {"env_idx": client.env_idx, "action": "red"})[0] == 409
        assert client.post("/reset", id=0) == "say red"
        assert client.post("/step", action="red")["reward"] == 1


class NeverBegins(Echo):
    def reset(self, task):
        raise RuntimeError("no simulator")


def test_a_session_that_cannot_begin_takes_no_place():
    with served({"echo": NeverBegins}, capacity=1) as url:
        for _ in range(3):
            assert ask(f"{url}/echo", "/create", {"id": 0})[0] == 502
        assert Counting.open == 0


class Hangs(Counting):
    async def step(self, action):
        await asyncio.sleep({"hang": 60, "slow": 1.0}.get(action, 0.02))
        return await super().step(action)


def test_a_call_has_a_deadline():
    with served({"echo": Echo}, handle=Hangs, deadline_s=1.5) as url:
        client, other = EnvIdxClient(f"{url}/echo"), EnvIdxClient(f"{url}/echo")
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(ask, f"{url}/echo", "/step", {"env_idx": client.env_idx, "action": "hang"})
            assert other.post("/step", action="red")["reward"] == 1  # not held up by it
            assert hanging.result() == (504, {"error": "the environment broke: no answer within 1.5 s"})
        assert client.post("/reset", id=0) == "say red"


class OneAtATime(Hangs):
    busy = False

    async def step(self, action):
        assert not self.busy
        self.busy = True
        try:
            return await super().step(action)
        finally:
            self.busy = False


def test_calls_of_one_session_wait_for_each_other():
    with served({"echo": partial(Echo, rounds=8)}, handle=OneAtATime) as url, ThreadPoolExecutor(8) as pool:
        body = {"env_idx": EnvIdxClient(f"{url}/echo").env_idx, "action": "red"}
        answers = [call.result() for call in [pool.submit(ask, f"{url}/echo", "/step", body) for _ in range(8)]]
        assert [status for status, _ in answers] == [200] * 8
        assert sum(answer["done"] for _, answer in answers) == 1


def test_a_call_that_waited_while_its_session_was_closed_opens_nothing():
    with served({"echo": Echo}, handle=Hangs) as url, ThreadPoolExecutor(3) as pool:
        body = {"env_idx": EnvIdxClient(f"{url}/echo").env_idx, "action": "slow", "id": 0}
        calls = []
        for path in ("/step", "/close", "/reset"):
            calls.append(pool.submit(ask, f"{url}/echo", path, body))
            time.sleep(0.2)
        assert [call.result()[0] for call in calls] == [200, 200, 404]
        assert Counting.open == 0


class Talks(Echo):
    def step(self, action):
        return Step("x" * (OBSERVATION_CHARACTERS + 1))


def test_an_observation_too_long_is_cut_and_marked():
    with served({"echo": Talks}) as url:
        said = EnvIdxClient(f"{url}/echo").post("/step", action="red")["observation"]
        assert said == "x" * OBSERVATION_CHARACTERS + " [cut: 1000001 characters]"


def test_what_nobody_foresaw_stays_in_the_log(caplog):
    class Odd(Counting):
        async def step(self, action):
            raise ZeroDivisionError("secret")

    with served({"echo": Echo}, handle=Odd) as url:
        client = EnvIdxClient(f"{url}/echo")
        status, answer = ask(f"{url}/echo", "/step", {"env_idx": client.env_idx, "action": "red"})
        assert (status, answer) == (500, {"error": "the server broke; its log says why"})
        assert "ZeroDivisionError: secret" in caplog.text
