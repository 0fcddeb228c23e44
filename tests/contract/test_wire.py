"""Wire v1 as a client sees it: every call over HTTP, in a batch and over the stream; keys, leases,
order, capacity, refusals, sizes.
"""

import asyncio
import itertools
import re
import socket
import time

import aiohttp
import msgspec
import pytest

from palestra.core.types import Step
from palestra.envs.serving import wire
from palestra.envs.serving.openapi import ROUTES
from tests.support.served import running

TALLY, ECHO, SLOW, ODD = (
    f"tests.support.environments:{name}" for name in ("Tally", "Echo", "Slow", "Odd")
)
TASK = {"split": "train", "id": "train-0"}


@pytest.fixture(scope="module")
def tally():
    with running(TALLY, ECHO) as server:
        yield server


def overs_http(server):
    def call(name, session=None, **fields):
        if name == "open":
            return server.ask("POST", "/v1/sessions", fields)[1]
        if name == "close":
            return server.ask("DELETE", f"/v1/sessions/{session}")[1]
        return server.ask("POST", f"/v1/sessions/{session}/{name}", fields)[1]

    return call


def overs_batch(server):
    numbers = itertools.count(1)

    def call(name, session=None, **fields):
        number = next(numbers)
        whole = {"call": name, "id": number, **({"session": session} if session else {}), **fields}
        (answer,) = server.ask("POST", "/v1/batch", [whole])[1]
        assert answer["id"] == number
        return answer["result"] if "result" in answer else {"error": answer["error"]}

    return call


def overs_stream(server):
    def call(name, session=None, **fields):
        whole = {"call": name, "id": 7, **({"session": session} if session else {}), **fields}
        (answer,) = exchanged(server, [whole])
        assert answer["id"] == 7
        return answer["result"] if "result" in answer else {"error": answer["error"]}

    return call


def exchanged(server, calls):
    """The answers to a frame of calls, as they come."""

    async def talk():
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(server.address + "/v1/stream") as stream,
        ):
            await stream.send_bytes(msgspec.msgpack.encode(calls))
            answers = []
            while len(answers) < len(calls):
                answers += msgspec.msgpack.decode((await stream.receive(10)).data)
            return answers

    return asyncio.run(talk())


@pytest.mark.parametrize("overs", [overs_http, overs_batch, overs_stream])
def test_every_call(tally, overs):
    call = overs(tally)
    opened = call("open", env="tally")
    session = opened["session"]
    assert opened["lease_s"] == 60.0
    assert len(session.rpartition(".")[2]) == 22  # 128 bits
    assert call("reset", session, task=TASK, key=1) == {
        "observation": "0 train-0",
        "info": {},
        "score": 0.0,
    }
    expected = {
        "observation": "1 go",
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
        "success": None,
        "invalid": False,
        "info": {},
    }
    assert call("step", session, action="go", key=2) == expected
    assert call("observe", session) == {"observation": "1 go", "info": {}, "score": 0.0}
    assert call("actions", session) == {"actions": ["1"]}
    assert call("expert", session) == {"action": "1"}
    assert call("renew", session) == {"lease_s": 60.0}
    assert call("close", session) == {}
    assert call("observe", session)["error"]["code"] == "not_found"


def test_what_the_server_has(tally):
    assert tally.ask("GET", "/v1/envs")[1]["envs"] == ["tally", "echo"]
    about = tally.ask("GET", "/v1/envs/echo")[1]
    assert (about["splits"], about["max_turns"]) == ({"train": 60, "test": 30}, 2)
    assert set(about["vocabulary"]) == {"red", "blue", "green", "say", "right", "wrong"}
    pages, offset = [], 0
    while offset is not None:
        page = tally.ask("GET", f"/v1/envs/echo/tasks?split=train&offset={offset}&limit=25")[1]
        pages.append(page["tasks"])
        offset = page["next"]
    assert [len(page) for page in pages] == [25, 25, 10]
    assert len({task["id"] for page in pages for task in page}) == page["total"] == 60
    assert tally.ask("GET", "/v1/envs/echo/task?id=test-7") == (
        200,
        {"env": "echo", "split": "test", "id": "test-7", "category": "blue"},
    )
    for path in (
        "/v1/envs/no",
        "/v1/envs/no/tasks?split=train",
        "/v1/envs/echo/tasks?split=no",
        "/v1/envs/no/task?id=test-7",
    ):
        assert tally.ask("GET", path)[0] == 404
    status, answer = tally.ask("GET", "/v1/envs/echo/task?id=test-70")
    assert (status, answer["error"]["message"]) == (
        404,
        "echo has no task 'test-70'; ids look like 'train-0', 'test-0'",
    )
    assert tally.ask("GET", "/v1/envs/echo/task")[0] == 400
    for query in ("", "?split=train&offset=-1", "?split=train&limit=0", "?split=train&limit=x"):
        assert tally.ask("GET", f"/v1/envs/echo/tasks{query}")[0] == 400


def test_health_metrics_and_the_document_of_the_routes(tally):
    assert tally.ask("GET", "/health")[1]["status"] == "ok"
    tally.open("tally", "train-1")
    text = tally.raw("GET", "/metrics")[2].decode()
    assert 'palestra_calls_total{call="reset",code="ok"}' in text
    assert "# TYPE palestra_call_seconds histogram" in text
    document = tally.ask("GET", "/openapi.json")[1]
    routes = {
        (r.method, r.resource.canonical)
        for r in tally.server.app().router.routes()
        if r.method != "HEAD"
    }
    registered = {
        (method, path) for method, path in routes if not path.startswith("/agentgym/")
    }  # those are documented elsewhere
    assert {
        (method.upper(), path) for path, ways in document["paths"].items() for method in ways
    } == registered
    body = document["paths"]["/v1/sessions/{session}/step"]["post"]["requestBody"]["content"][
        "application/json"
    ]["schema"]
    assert (set(body["properties"]), body["required"]) == ({"action", "key"}, ["action"])
    names = {ref.rsplit("/", 1)[1] for ref in _references(document)}
    assert names <= set(document["components"]["schemas"])


def test_workers_are_observed():
    with running("tests.support.environments:Echo", isolation="process") as server:
        server.open("echo", "train-0")
        text = server.raw("GET", "/metrics")[2].decode()
        found = dict(re.findall(r'^palestra_worker(\w+){env="echo"} (\S+)$', text, re.MULTILINE))
        assert found.keys() == {"s", "_bytes", "_open_files", "_restarts_total"}
        assert float(found["_bytes"]) > 1e7
        assert (float(found["s"]), float(found["_restarts_total"])) == (1, 0)
        assert float(found["_open_files"]) >= 3


def _references(node):
    if isinstance(node, dict):
        yield from [node["$ref"]] if "$ref" in node else []
        node = list(node.values())
    for inner in node if isinstance(node, list) else []:
        yield from _references(inner)


# keys


def test_a_repeated_key_gives_the_stored_answer_and_does_not_act_again(tally):
    path = tally.open("tally")
    resets = [tally.ask("POST", f"{path}/reset", {"task": TASK, "key": 1}) for _ in range(2)]
    first, again = (tally.ask("POST", f"{path}/step", {"action": "a", "key": 2}) for _ in range(2))
    assert resets[0] == resets[1]
    assert first == again
    assert tally.ask("POST", f"{path}/step", {"action": "b", "key": 3})[1]["observation"] == "2 b"


def test_a_session_that_is_opened_twice_with_one_key_is_one_session():
    with running(TALLY, ECHO, capacity=3, tokens=("anna", "ben")) as server:

        def opened(caller="anna", **body):
            return server.ask("POST", "/v1/sessions", body, Authorization=f"Bearer {caller}")[
                1
            ].get("session")

        mine = opened(env="tally", key="k")
        assert opened(env="tally", key="k") == mine
        others = [opened("ben", env="tally", key="k"), opened(env="echo", key="k")]
        assert len({mine, *others}) == 3
        assert opened(env="tally", key="l") is None  # full
        server.ask("DELETE", f"/v1/sessions/{mine}", Authorization="Bearer anna")
        again = opened(env="tally", key="l")
        assert again is not None
        assert again not in (mine, *others)
        assert (
            opened(env="tally", key="k") is None
        )  # its session is gone, and so is what was known of it
        assert len(server.server.sessions) == 3


def test_a_session_that_is_being_opened_is_not_opened_again():
    with running(
        "tests.fault.environments:Obedient", isolation="process", options={"start_s": 0.5}
    ) as server:
        calls = [{"call": "open", "id": number, "env": "obedient", "key": "k"} for number in (1, 2)]
        assert len({answer["result"]["session"] for answer in exchanged(server, calls)}) == 1
        assert len(server.server.sessions) == 1


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("step", {"action": "a", "key": 4}),
        ("step", {"action": "a", "key": 1}),
        ("step", {"action": "other", "key": 2}),
        ("reset", {"task": TASK, "key": 2}),
        ("reset", {"task": TASK, "key": 9}),
    ],
    ids=["ahead", "behind", "another action", "another call", "reset ahead"],
)
def test_keys_that_do_not_fit_are_refused_and_change_nothing(tally, call, body):
    path = tally.open("tally")
    tally.ask("POST", f"{path}/reset", {"task": TASK, "key": 1})
    tally.ask("POST", f"{path}/step", {"action": "a", "key": 2})
    status, answer = tally.ask("POST", f"{path}/{call}", body)
    assert (status, answer["error"]["code"]) == (409, "out_of_order")
    assert tally.ask("POST", f"{path}/step", {"action": "b", "key": 3})[1]["observation"] == "2 b"


def test_a_fault_is_stored_under_its_key_too():
    with running("tests.support.environments:Raises", capacity=1) as server:
        path = server.open("echo", "train-0")
        answers = [server.ask("POST", f"{path}/step", {"action": "a", "key": 2}) for _ in range(2)]
        assert [(status, body["error"]["code"]) for status, body in answers] == [
            (502, "env_fault")
        ] * 2
        assert "the simulator broke" in answers[0][1]["error"]["message"]
        assert server.ask("POST", f"{path}/actions")[0] == 502
        other = server.open("echo")  # its seat is free again
        assert server.ask("DELETE", path) == (200, {})
        assert server.ask("DELETE", other) == (200, {})


def test_a_reset_mends_what_broke():
    with running("tests.support.environments:Raises", capacity=1) as server:
        path = server.open("echo", "train-0")
        assert server.ask("POST", f"{path}/step", {"action": "a", "key": 2})[0] == 502
        assert (
            server.ask("POST", f"{path}/reset", {"task": TASK, "key": 2})[1]["error"]["code"]
            == "out_of_order"
        )  # was the step's
        for _ in range(2):
            assert server.ask("POST", f"{path}/reset", {"task": TASK, "key": 3}) == (
                200,
                {"observation": "say red", "info": {}, "score": 0.0},
            )
        assert server.ask("POST", f"{path}/step", {"action": "a", "key": 4})[0] == 502
        other = server.open("echo")
        assert server.ask("POST", f"{path}/reset", {"task": TASK, "key": 5})[0] == 429
        server.ask("DELETE", other)
        assert server.ask("POST", f"{path}/reset", {"task": TASK, "key": 5})[0] == 200
        assert server.server.sessions.free == 0
        server.ask("DELETE", path)
        assert server.server.sessions.free == 1


def test_the_score_counts_every_reward_once():
    with running("tests.support.environments:Count") as server:
        path = server.open("count", "train-0")
        for key, action in ((2, "one"), (2, "one"), (3, "nonsense"), (4, "two")):
            server.ask("POST", f"{path}/step", {"action": action, "key": key})
        assert server.ask("POST", f"{path}/observe")[1]["score"] == pytest.approx(2 / 3)
        server.ask("POST", f"{path}/reset", {"task": TASK})
        assert server.ask("POST", f"{path}/observe")[1]["score"] == 0


def test_an_environment_that_overruns_is_a_timeout():
    with running("tests.support.environments:Hangs", isolation="process", deadline_s=3.0) as server:
        path = server.open("echo", "train-0")
        began = time.monotonic()
        status, body = server.ask("POST", f"{path}/step", {"action": "a"})
        assert (status, body["error"]["code"]) == (504, "timeout")
        assert time.monotonic() - began < 4.0


# order, leases, capacity


def test_calls_of_one_session_run_in_order_and_of_others_beside_them():
    with running(TALLY) as server:
        sessions = [server.open("tally", "train-0").rsplit("/")[-1] for _ in range(3)]
        calls = [
            {
                "call": "step",
                "id": 10 * number + n,
                "session": session,
                "action": f"{number}",
                "key": n + 2,
            }
            for n in range(9)
            for number, session in enumerate(sessions)
        ]
        answers = {
            answer["id"]: answer["result"]["observation"] for answer in exchanged(server, calls)
        }
        assert answers == {call["id"]: f"{call['id'] % 10 + 1} {call['action']}" for call in calls}


def test_a_session_whose_calls_pile_up_is_busy():
    with running(SLOW, options={"seconds": 0.02}, isolation="process") as server:
        session = server.open("echo", "train-0").rsplit("/")[-1]
        calls = [
            {"call": "step", "id": n, "session": session, "action": "red"} for n in range(1, 40)
        ]
        codes = [answer.get("error", {}).get("code") for answer in exchanged(server, calls)]
        assert codes.count("busy") == 39 - 16


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_lease_runs_out_unless_something_is_called():
    clock = Clock()
    with running(TALLY, clock=clock, lease_s=60.0, capacity=3) as server:
        paths = [server.open("tally", "train-0") for _ in range(3)]
        clock.now = 50.0
        server.ask("POST", f"{paths[0]}/renew")
        server.ask("POST", f"{paths[1]}/observe")
        clock.now = 61.0
        server.run(server.server.sessions.sweep())
        assert [server.ask("POST", f"{path}/observe")[0] for path in paths] == [200, 200, 410]
        clock.now = 200.0
        server.run(server.server.sessions.sweep())
        assert len(server.server.sessions) == 0
        assert server.server.sessions.free == 3


def test_a_client_that_cannot_renew_asks_for_a_longer_lease():
    now = [0.0]
    with running("tests.support.environments:Echo", lease_s=10.0, clock=lambda: now[0]) as server:
        status, opened = server.ask("POST", "/v1/sessions", {"env": "echo", "lease_s": 100})
        assert (status, opened["lease_s"]) == (200, 100)
        short, long = server.open("echo"), f"/v1/sessions/{opened['session']}"
        now[0] = 50.0
        server.run(server.server.sessions.sweep())
        assert server.ask("POST", f"{short}/renew")[0] == 410
        assert server.ask("POST", f"{long}/renew") == (200, {"lease_s": 100})
        now[0] = 160.0
        server.run(server.server.sessions.sweep())
        assert server.ask("POST", f"{long}/renew")[0] == 410
        for wrong in (0, -1, 3601, "long"):
            assert server.ask("POST", "/v1/sessions", {"env": "echo", "lease_s": wrong})[0] == 400


def test_over_capacity_is_429_and_never_a_shared_environment():
    with running(TALLY, capacity=2) as server:
        one, other = server.open("tally"), server.open("tally")
        assert one != other
        status, headers, body = server.raw("POST", "/v1/sessions", {"env": "tally"})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert b'"busy"' in body
        server.ask("DELETE", one)
        server.open("tally")


def test_many_open_and_walk_away():
    clock = Clock()
    with running(TALLY, clock=clock, capacity=10_000) as server:
        for number in range(300):
            path = server.open("tally")
            if number % 10:
                server.ask("DELETE", path)
        assert len(server.server.sessions) == 30
        clock.now = 61.0
        server.run(server.server.sessions.sweep())
        assert (len(server.server.sessions), server.server.sessions.free) == (0, 10_000)


# refusals


def test_16_of_16_refusals():
    clock = Clock()
    with running(TALLY, clock=clock, tokens=("anna", "ben")) as server:
        anna, ben = {"Authorization": "Bearer anna"}, {"Authorization": "Bearer ben"}
        expired = server.open("tally", "train-0", **anna)
        clock.now = 100.0
        server.run(server.server.sessions.sweep())
        mine, closed = (server.open("tally", "train-0", **anna) for _ in range(2))
        server.ask("DELETE", closed, **anna)
        cases = {
            "no": (mine, {}),
            "another's": (mine, ben),
            "expired": (expired, anna),
            "closed": (closed, anna),
        }
        calls = {"step": {"action": "a"}, "reset": {"task": TASK}, "observe": {}, "close": None}
        found = {}
        for (who, (path, headers)), (call, body) in itertools.product(cases.items(), calls.items()):
            way = ("DELETE", path) if call == "close" else ("POST", f"{path}/{call}")
            found[who, call] = server.ask(*way, body, **headers)[1]["error"]["code"]
        codes = {
            "no": "unauthorized",
            "another's": "not_found",
            "expired": "expired",
            "closed": "not_found",
        }
        assert found == {(who, call): codes[who] for who, call in itertools.product(cases, calls)}
        assert (
            server.ask("POST", f"{mine}/step", {"action": "a"}, **anna)[1]["observation"] == "1 a"
        )


def test_a_token_that_is_nearly_right_is_not_right(tally):
    path = tally.open("tally", "train-0")
    head, _, secret = path.rpartition(".")
    for wrong in (
        f"{head}.",
        f"{head}.{secret[:-1]}",
        f"{head}.{secret}x",
        f"{head}.{secret.swapcase()}",
        path.replace("/0.", "/1.x"),
        "/v1/sessions/x",
    ):
        assert tally.ask("POST", f"{wrong}/observe")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "["}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:99"}, 200),
        ({"Host": "192.168.1.7:99"}, 200),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
    ],
)
def test_host_and_origin_are_checked(tally, headers, status):
    assert tally.ask("GET", "/v1/envs", **headers)[0] == status


def test_a_token_is_asked_for_everywhere_but_at_health():
    with running(TALLY, tokens=("anna",)) as server:
        ways = [(route.method, route.path.format(session="0.0.x", env="tally")) for route in ROUTES]
        assert {way: server.ask(*way)[0] for way in ways} == {
            way: 200 if way[1] == "/health" else 401 for way in ways
        }
        assert server.raw("GET", "/v1/envs")[1]["WWW-Authenticate"] == "Bearer"


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b'"x"',
    b"\xff\xfe",
    b'{"env": 3}',
    b'{"env": "tally", "more": 1}',
    b'{"env": "no"}',
    b'{"env": "tally", "id": 1}',
]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_bad_bodies(tally, body):
    status, answer = tally.ask("POST", "/v1/sessions", body)
    assert status in (400, 404)
    assert set(answer["error"]) == {"code", "message"}


@pytest.mark.parametrize("call", ["step", "observe", "actions", "expert"])
def test_a_session_must_be_reset_first(tally, call):
    body = {"action": "a"} if call == "step" else {}
    assert (
        tally.ask("POST", f"{tally.open('tally')}/{call}", body)[1]["error"]["code"]
        == "bad_request"
    )


def test_an_unknown_task_costs_nothing(tally):
    path = tally.open("tally", "train-0")
    assert tally.ask("POST", f"{path}/reset", {"task": {"split": "train", "id": "no"}})[0] == 400
    assert tally.ask("POST", f"{path}/step", {"action": "a", "key": 2})[1]["observation"] == "1 a"


def test_errors_have_a_form_everywhere(tally):
    found = {
        way: tally.ask(*way)
        for way in [
            ("GET", "/no"),
            ("PUT", "/health"),
            ("GET", "/v1/stream"),
            ("POST", "/v1/batch"),
        ]
    }
    assert [(status, body["error"]["code"]) for status, body in found.values()] == [
        (404, "not_found"), (405, "not_allowed"), (400, "bad_request"), (400, "bad_request")
    ]  # fmt: skip


# sizes


@pytest.fixture(scope="module")
def odd():
    with running(ODD) as server:
        yield server


def test_a_long_body_is_refused(odd):
    path = odd.open("odd", "train-0")
    assert (
        odd.ask("POST", f"{path}/step", {"action": "x" * 1_100_000})[1]["error"]["code"]
        == "too_large"
    )
    assert odd.ask("POST", "/v1/batch", [{"call": "open", "env": "odd"}] * 1001)[0] == 413


def test_a_long_observation_is_cut_and_marked(odd):
    path = odd.open("odd", "train-0")
    step = odd.ask("POST", f"{path}/step", {"action": "observation"})[1]
    assert (len(step["observation"]), step["info"]) == (1_000_000, {"observation_cut": True})
    assert odd.ask("POST", f"{path}/observe")[1]["info"] == {"observation_cut": True}


def test_long_information_is_cut_and_marked(odd):
    path = odd.open("odd", "train-0")
    info = odd.ask("POST", f"{path}/step", {"action": "info"})[1]["info"]
    assert len(info["info"]) == 1_000_000
    assert info["info"].endswith(" characters more]")


@pytest.mark.parametrize("overs", [overs_http, overs_batch, overs_stream])
@pytest.mark.parametrize("action", ["surrogate", "number"])
def test_what_cannot_be_sent_is_a_fault(odd, overs, action):
    call = overs(odd)
    session = call("open", env="odd")["session"]
    call("reset", session, task=TASK)
    assert call("step", session, action=action)["error"]["code"] == "env_fault"


def test_no_traceback_in_a_body(odd, monkeypatch):
    path = odd.open("odd", "train-0")
    assert b"Traceback" not in odd.raw("POST", f"{path}/step", {"action": "traceback"})[2]

    async def broken(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(odd.server.sessions, "answer", broken)
    status, _, body = odd.raw("POST", f"{path}/observe")
    assert (status, b"internal" in body, b"secret" in body, b"Traceback" in body) == (
        500,
        True,
        False,
        False,
    )


# the stream


def test_bad_frames_are_answered_and_the_connection_lives(tally):
    async def talk():
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(tally.address + "/v1/stream") as stream,
        ):
            codes = []
            for frame in (
                b"",
                b"\xc1",
                msgspec.msgpack.encode({}),
                msgspec.msgpack.encode([{"call": "no", "id": 1}]),
            ):
                await stream.send_bytes(frame)
                codes += [
                    answer["error"]["code"]
                    for answer in msgspec.msgpack.decode((await stream.receive(5)).data)
                ]
            await stream.send_str("[]")
            codes += [
                answer["error"]["code"]
                for answer in msgspec.msgpack.decode((await stream.receive(5)).data)
            ]
            await stream.send_bytes(
                msgspec.msgpack.encode([{"call": "open", "id": 1, "env": "tally"}])
            )
            (answer,) = msgspec.msgpack.decode((await stream.receive(5)).data)
            return codes, answer

    codes, answer = asyncio.run(talk())
    assert codes == ["bad_request"] * 5
    assert answer["result"]["session"]


def test_a_call_goes_on_when_its_connection_breaks():
    with running(SLOW, options={"seconds": 0.3}) as server:
        session = server.open("echo", "train-0").rsplit("/")[-1]

        async def leave():
            async with (
                aiohttp.ClientSession() as http,
                http.ws_connect(server.address + "/v1/stream") as stream,
            ):
                await stream.send_bytes(
                    msgspec.msgpack.encode(
                        [{"call": "step", "session": session, "action": "red", "key": 2}]
                    )
                )
                await asyncio.sleep(0.1)

        asyncio.run(leave())
        answer = server.ask("POST", f"/v1/sessions/{session}/step", {"action": "red", "key": 2})[1]
        assert (answer["observation"], answer["reward"]) == ("right", 1.0)


def test_draining_takes_no_new_sessions_and_waits_for_the_others():
    with running(TALLY) as server:
        path = server.open("tally", "train-0")
        draining = asyncio.run_coroutine_threadsafe(server.server.drain(10.0), server.loop)
        while server.server.sessions.accepts_new:
            time.sleep(0.01)
        status, headers, _ = server.raw("POST", "/v1/sessions", {"env": "tally"})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert server.ask("GET", "/health") == (503, {"status": "stopping", "sessions": 1})
        assert server.ask("POST", f"{path}/step", {"action": "a"})[0] == 200
        assert not draining.done()
        server.ask("DELETE", path)
        draining.result(2)


def test_draining_has_a_limit():
    with running(TALLY) as server:
        server.open("tally")
        began = time.monotonic()
        server.run(server.server.drain(0.3))
        assert 0.2 < time.monotonic() - began < 2.0


def test_wire_types_say_the_same_as_ours():
    """A step travels as the type that environments answer with."""
    step = Step("x", 0.5, True, info={"a": [1]})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(step), type=Step) == step
    assert msgspec.json.decode(
        b'{"call":"step","session":"s","action":"a","key":3}', type=wire.AnyCall
    ) == wire.Act(session="s", action="a", key=3)


def test_a_client_that_does_not_read_its_answers_has_to_wait(odd):
    """Its calls stay in the socket instead of filling the server's memory."""
    path = odd.open("odd", "train-0")
    odd.ask("POST", f"{path}/step", {"action": "observation"})
    session = path.rsplit("/", 1)[1]
    before = odd.answered("observe")
    handshake = (
        "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: "
        "Upgrade\r\n"
    )
    handshake += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    with socket.create_connection(("127.0.0.1", odd.port)) as line:
        line.sendall(handshake.encode())
        assert line.recv(4096).startswith(b"HTTP/1.1 101")
        for number in range(1, 400):
            call = msgspec.msgpack.encode([{"call": "observe", "id": number, "session": session}])
            line.sendall(
                bytes([0x82, 0x80 | len(call), 0, 0, 0, 0]) + call
            )  # a masked frame, of less than 126 bytes
        time.sleep(1.0)
        taken = odd.answered("observe") - before
    assert 64 < taken < 200
    assert odd.ask("GET", "/health")[0] == 200
