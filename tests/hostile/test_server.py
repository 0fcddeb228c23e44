"""The environment server under clients that mean harm: slow, many, greedy, deep, broken and
compressed ones, over real sockets.
"""

import asyncio
import gzip
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from palestra.cli.main import main
from palestra.envs import envs
from palestra.envs.serving import connection_limits
from palestra.envs.serving.client import RemoteHandle, Servers
from palestra.envs.serving.connection_limits import Limits
from palestra.envs.serving.main import ServerSettings
from palestra.envs.serving.openapi import openapi
from palestra.envs.serving.remote import remote_kind
from palestra.envs.serving.wire import STATUS
from tests.hostile.test_tokens import listening
from tests.support import environments
from tests.support.served import Running, running

pytestmark = pytest.mark.hostile
TALLY, ODD = "tests.support.environments:Tally", "tests.support.environments:Odd"
QUICK = Limits(headers_s=0.4, body_s=0.6, idle_s=0.8, stream_idle_s=1.0)
SOON_S = 5.0
"""Far beyond the limits of `QUICK`, and far below those of before."""
HEAD = b"GET /v1/envs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
UPGRADE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def quick():
    with running(TALLY, limits=QUICK) as server:
        yield server


@pytest.fixture(scope="module")
def tally():
    with running(TALLY) as server:
        yield server


def connected(server, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", server.port), 10, source_address=(source, 0))


def closed_within(client, seconds, drip=b"", every=0.05):
    """How long the server took to close the connection, dripping on; what it said.

    Fails where it does not.
    """
    began, said = time.monotonic(), b""
    client.settimeout(every)
    while time.monotonic() - began < seconds:
        try:
            if drip:
                client.sendall(drip)
            data = client.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - began, said
        if not data:
            return time.monotonic() - began, said
        said += data
    pytest.fail(f"the connection is open after {seconds} s, and said {said[:200]!r}")


def is_well(server):
    assert server.ask("GET", "/health")[1]["status"] == "ok"


# slow ones


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        pytest.param(b"", b"", id="nothing", marks=pytest.mark.short),
        pytest.param(b"G", b"", id="a letter"),
        pytest.param(HEAD, b"", id="half of the headers"),
        pytest.param(HEAD, b"X: y\r\n", id="headers without end", marks=pytest.mark.short),
        pytest.param(b"", b"\r\n", id="empty lines"),
        pytest.param(b"GET /", b"a", id="a path without end"),
        pytest.param(HEAD + b"\r\n" + HEAD, b"X: y\r\n", id="the second request"),
    ],
)
def test_slow_headers(quick, first, drip):
    with connected(quick) as client:
        client.sendall(first)
        seconds, _ = closed_within(client, SOON_S, drip)
    assert seconds >= 0.3
    is_well(quick)


POST = b"POST PATH HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"
CHUNKED = b"POST PATH HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"


@pytest.mark.parametrize(
    "path", [b"/v1/sessions", b"/v1/batch", b"/v1/sessions/0.0.x/step", b"/agentgym/tally/create"]
)
@pytest.mark.parametrize(
    ("first", "drip"),
    [(POST, b""), (POST, b" "), (CHUNKED, b"1\r\n \r\n")],
    ids=["halt", "drip", "chunks"],
)
def test_slow_bodies(quick, path, first, drip):
    with connected(quick) as client:
        client.sendall(first.replace(b"PATH", path))
        client.settimeout(SOON_S)
        began, said = time.monotonic(), b""
        while b"did not arrive" not in said and time.monotonic() - began < SOON_S:
            client.settimeout(0.05)
            try:
                if drip:
                    client.sendall(drip)
                data = client.recv(65536)
            except TimeoutError:
                continue
            said += data
            if not data:
                break
        assert said.startswith(b"HTTP/1.1 408"), said
        assert time.monotonic() - began >= 0.5
    is_well(quick)


def test_a_connection_without_further_requests_is_closed(quick):
    with connected(quick) as client:
        client.sendall(HEAD + b"\r\n")
        seconds, said = closed_within(client, SOON_S)
    assert said.startswith(b"HTTP/1.1 200")
    assert seconds >= 0.5


def upgraded(server):
    client = connected(server)
    client.sendall(UPGRADE)
    said = b""
    while b"\r\n\r\n" not in said:
        said += client.recv(1)
    assert said.startswith(b"HTTP/1.1 101")
    return client


def frame(payload, opcode=2, first=0x80, length=None):
    """As a client sends it: masked, by zeros."""
    length = len(payload) if length is None else length
    size = (
        bytes([0x80 | length])
        if length < 126
        else bytes([0x80 | 126]) + struct.pack(">H", length)
        if length < 65536
        else None
    )
    return (
        bytes([first | opcode])
        + (size or bytes([0x80 | 127]) + struct.pack(">Q", length))
        + b"\0\0\0\0"
        + payload
    )


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (frame(b"", length=1000), b"x"),
        (b"\x82", b""),
        (frame(b"x", first=0), b"" + frame(b"x", opcode=0, first=0)),
    ],
    ids=["a frame", "a letter", "fragments"],
)
def test_a_slow_frame(first, drip):
    with (
        running(TALLY, limits=Limits(headers_s=0.4, body_s=0.6, stream_idle_s=60)) as server,
        upgraded(server) as client,
    ):
        client.sendall(first)
        closed_within(client, SOON_S, drip)
        is_well(server)


def test_a_stream_without_calls_is_closed_and_pings_do_not_keep_it(quick):
    for drip in (b"", frame(b"", opcode=9)):
        with upgraded(quick) as client:
            seconds, said = closed_within(client, SOON_S, drip)
        assert seconds >= 0.8
        assert b"\x88" in said  # a proper close


def test_pings_are_answered(tally):
    with upgraded(tally) as client:
        client.sendall(frame(b"hello", opcode=9))
        assert client.recv(100) == b"\x8a\x05hello"


@pytest.mark.short
def test_a_trainer_that_thinks_for_long_does_not_notice(quick):
    """Its stream is closed meanwhile, and opened again by its next call."""

    async def scenario():
        handle = RemoteHandle(Servers([quick.url("tally")]), 10.0)
        try:
            said = [await handle.reset(environments.Tally().tasks("train")[0])]
            for action in ("a", "b"):
                await asyncio.sleep(1.8)
                assert not quick.server.streams
                said.append((await handle.step(action)).observation)
            return said
        finally:
            await handle.close()

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == ["0 train-0", "1 a", "2 b"]


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(connection_limits, "STUCK_S", 0.5)
    with running(ODD, limits=Limits(headers_s=0.4)) as server:
        path = server.open("odd", "train-0").rsplit("/", 1)[1]
        calls = [
            {"call": "step", "session": path, "action": "observation", "id": n + 1}
            for n in range(16)
        ]
        with upgraded(server) as client:
            for call in calls:
                client.sendall(frame(msgspec.msgpack.encode([call])))
            until = time.monotonic() + 20
            while not server.server.gate.late_total and time.monotonic() < until:
                time.sleep(0.1)
            assert server.server.gate.late_total == 1
            while server.server.streams and time.monotonic() < until:
                time.sleep(0.1)
            assert not server.server.streams


def test_the_server_stops_though_streams_do_not_answer():
    with running(TALLY) as server:
        clients = [upgraded(server) for _ in range(6)]
        began = time.monotonic()
    assert time.monotonic() - began < 9  # each alone takes some seconds
    for client in clients:
        client.close()


# many


def answer_of(client, path="/v1/envs"):
    client.settimeout(10)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head and (data := client.recv(65536)):
        head += data
    return int(head.split(b" ")[1]) if head else None


@pytest.mark.short
def test_one_client_cannot_take_all_connections():
    with (
        running(TALLY, limits=Limits(connections=20, per_client=8)) as server,
        ExitStack() as open_ones,
    ):
        mine = [open_ones.enter_context(connected(server)) for _ in range(8)]
        assert [answer_of(client) for client in mine] == [200] * 8
        for _ in range(3):
            with connected(server) as client:
                assert answer_of(client) == 429
            with connected(server) as client:
                assert answer_of(client, "/health") == 200
        others = [open_ones.enter_context(connected(server, "127.0.0.2")) for _ in range(8)]
        assert [answer_of(client) for client in others] == [200] * 8
        rest = [open_ones.enter_context(connected(server, "127.0.0.3")) for _ in range(5)]
        assert [answer_of(client) for client in rest] == [200] * 4 + [429]
        with connected(server, "127.0.0.4") as client:
            assert answer_of(client, "/health") == 200
        open_ones.close()
        until = time.monotonic() + 10
        while len(server.server.gate) and time.monotonic() < until:
            time.sleep(0.05)
        assert len(server.server.gate) == 0
        text = server.raw("GET", "/metrics")[2].decode()
        assert "palestra_connections 1.0\n" in text
        assert "palestra_connections_refused_total 8.0\n" in text


def test_a_crowded_connection_is_closed_after_its_answer():
    with (
        running(TALLY, limits=Limits(connections=1, per_client=1)) as server,
        connected(server) as first,
    ):
        assert answer_of(first) == 200
        for path in ("/v1/envs", "/health", "/agentgym/tally", "/nothing"):
            with connected(server) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                _, said = closed_within(client, SOON_S)
                assert said.startswith(b"HTTP/1.1 200" if path == "/health" else b"HTTP/1.1 429"), (
                    said
                )
                assert b"Connection: close" in said


def test_health_is_answered_while_others_flood():
    with (
        running(TALLY, limits=Limits(connections=10, per_client=10)) as server,
        ExitStack() as open_ones,
    ):
        for n in range(300):
            client = open_ones.enter_context(connected(server, f"127.0.0.{n % 9 + 1}"))
            if n % 3:
                client.sendall(HEAD)
            if n % 50 == 49:
                is_well(server)
        assert len(server.server.gate) == 10
        is_well(server)


@contextmanager
def limited_command(*arguments, descriptors, **environment):
    """`palestra env serve ...` within limits on descriptors, memory and processes."""
    code = "from palestra.cli.main import main; main()"
    limits = " && ".join(
        f"ulimit -{limit}" for limit in (f"n {descriptors}", "v 8388608", "p 4000")
    )
    line = [
        "sh",
        "-c",
        f'{limits} && exec "$@"',
        "sh",
        sys.executable,
        "-c",
        code,
        "env",
        "serve",
        *arguments,
    ]
    child = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        event = json.loads(child.stderr.readline())
        assert event["event"] == "listening", event
        yield child, Running(None, int(event["url"].rsplit(":", 1)[1]), None), event
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


def test_descriptors_are_kept_for_health():
    with (
        limited_command(TALLY, "--port", "0", "--isolation", "inline", descriptors=256) as (
            _,
            server,
            event,
        ),
        ExitStack() as open_ones,
    ):
        assert 50 < event["connections"] < 190
        for n in range(400):
            open_ones.enter_context(connected(server, f"127.0.0.{n % 20 + 2}"))
        is_well(server)
        assert server.raw("GET", "/v1/envs")[0] == 429
        open_ones.close()
        time.sleep(0.5)
        path = server.open("tally", "train-0")
        assert server.ask("POST", f"{path}/step", {"action": "a"})[0] == 200


@pytest.mark.short
def test_addresses_of_one_network_are_one_client():
    assert (
        connection_limits._address(("192.0.2.7", 80))
        == connection_limits._address(("::ffff:192.0.2.7", 80, 0, 0))
        == "192.0.2.7"
    )
    assert (
        connection_limits._address(("2001:db8:1:2::3", 80, 0, 0))
        == connection_limits._address(("2001:db8:1:2:ffff::4", 80, 0, 0))
        == "2001:db8:1:2::"
    )
    assert connection_limits._address(("2001:db8:1:3::3", 80, 0, 0)) == "2001:db8:1:3::"
    assert connection_limits._address(("fe80::1%eth0", 80, 0, 1)) == "fe80::"
    assert connection_limits._address("") == connection_limits._address(None) == ""


# greedy ones

ANNA, BEN = {"Authorization": "Bearer anna"}, {"Authorization": "Bearer ben"}


@pytest.mark.short
def test_one_token_cannot_take_all_seats():
    with running(TALLY, tokens=("anna", "ben"), capacity=3, seats_per_caller=2) as server:
        paths = [server.open("tally", **ANNA) for _ in range(2)]
        status, answer = server.ask("POST", "/v1/sessions", {"env": "tally"}, **ANNA)
        assert (status, answer["error"]["message"]) == (429, "all 2 seats of this token are taken")
        status, answer = server.ask("POST", "/v1/sessions", {"env": "tally"}, **BEN)
        assert (status, answer["free"]) == (200, 0)
        assert (
            server.ask("POST", "/v1/sessions", {"env": "tally"}, **BEN)[0] == 429
        )  # all three are taken
        server.ask("DELETE", paths[0], **ANNA)
        status, answer = server.ask("POST", "/v1/sessions", {"env": "tally"}, **ANNA)
        assert (status, answer["free"]) == (200, 0)


def test_the_share_of_a_token():
    def share(capacity, tokens, **limits):
        return ServerSettings(
            [], capacity=capacity, tokens=tokens, limits=Limits(**limits)
        ).seats_per_token

    assert [
        share(5, ()),
        share(5, ("a",)),
        share(5, ("a", "b")),
        share(5, ("a", "b"), seats_per_token=4),
    ] == [5, 5, 3, 4]


def test_limits_on_the_command_line():
    flags = (
        "--seats-per-token",
        "1",
        "--max-lease",
        "90",
        "--connections",
        "7",
        "--headers-timeout",
        "0.5",
    )
    with limited_command(
        TALLY,
        "--port",
        "0",
        "--isolation",
        "inline",
        *flags,
        descriptors=512,
        PALESTRA_ENV_TOKEN="anna,ben",
    ) as (
        _,
        server,
        event,
    ):
        assert event["connections"] == 7
        answers = [
            server.ask("POST", "/v1/sessions", {"env": "tally", "lease_s": 1000}, **who)
            for who in (ANNA, ANNA, BEN)
        ]
        assert [status for status, _ in answers] == [200, 429, 200]
        assert answers[0][1]["lease_s"] == 90
        with connected(server) as client:
            closed_within(client, SOON_S)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--connections", "0"), "--connections 0: expected at least 1"),
        (("--seats-per-token", "-1"), "--seats-per-token -1: expected at least 0"),
        (("--headers-timeout", "0"), "--headers-timeout 0: expected some seconds"),
        (("--body-timeout", "nan"), "--body-timeout nan: expected some seconds"),
        (("--idle-timeout", "inf"), "--idle-timeout inf: expected some seconds"),
        (
            ("--lease", "100", "--max-lease", "50"),
            "--max-lease 50: expected at least --lease (100)",
        ),
        (("--max-lease", "1e9"), "--max-lease 1e+09: expected"),
    ],
)
def test_limits_that_are_none(capsys, flags, said):
    with pytest.raises(SystemExit) as left:
        main(["env", "serve", "guess", *flags])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert left.value.code == 2
    assert said in line


def test_a_lease_is_bounded_by_the_server():
    now = [1000.0]
    with running(
        TALLY, capacity=2, lease_s=3.0, longest_lease_s=5.0, clock=lambda: now[0]
    ) as server:
        status, answer = server.ask("POST", "/v1/sessions", {"env": "tally", "lease_s": 3600})
        assert (status, answer["lease_s"]) == (200, 5.0)
        assert server.ask("POST", "/agentgym/tally/create")[0] == 200
        assert server.ask("POST", "/v1/sessions", {"env": "tally"})[0] == 429
        now[0] += 6.0
        until = time.monotonic() + 10
        while len(server.server.sessions) and time.monotonic() < until:
            time.sleep(0.05)
        assert len(server.server.sessions) == 0


# deep ones

DEPTHS = [1_000, 20_000, 400_000]
POSTS = [
    *(
        "/v1/sessions",
        "/v1/batch",
        *(f"/v1/sessions/LIVE/{call}" for call in ("reset", "step", "observe", "renew")),
    ),
    *(f"/agentgym/tally/{call}" for call in ("create", "step", "reset", "close")),
]
NESTS = {
    "array": lambda n: b"[" * n,
    "closed array": lambda n: b"[" * n + b"]" * n,
    "object": lambda n: b'{"env":' * (n // 4),
    "in a field": lambda n: b'{"env": ' + b"[" * n + b"]" * n + b"}",
    "in an unknown field": lambda n: b'{"env": "tally", "more": ' + b"[" * n + b"]" * n + b"}",
    "in a task": lambda n: b'{"task": ' + b'{"split":' * (n // 8) + b"1" + b"}" * (n // 8) + b"}",
    "in a call": lambda n: b'[{"call": "open", "env": ' + b"[" * n + b"]" * n + b"}]",
}


@pytest.mark.parametrize("depth", [pytest.param(DEPTHS[0], marks=pytest.mark.short), *DEPTHS[1:]])
@pytest.mark.parametrize("nest", NESTS)
def test_deep_json_is_a_bad_request(tally, nest, depth):
    live = tally.open("tally", "train-0")
    for path in POSTS:
        status, answer = tally.ask(
            "POST", path.replace("/v1/sessions/LIVE", live), NESTS[nest](depth)
        )
        ignored = depth == DEPTHS[0] and path.startswith(
            "/agentgym"
        )  # not too deep to be read, and not needed
        assert status in (400, 422) or ignored, (path, answer)
    assert tally.ask("DELETE", live)[0] == 200
    is_well(tally)


def exchanged(server, *frames):
    """The answers to frames of a stream, one to each."""

    async def scenario():
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(server.address + "/v1/stream", max_msg_size=0) as stream,
        ):
            answers = []
            for data in frames:
                await stream.send_bytes(data)
                message = await stream.receive(10)
                answers.append(
                    msgspec.msgpack.decode(message.data)
                    if message.type is aiohttp.WSMsgType.BINARY
                    else message.type
                )
            return answers

    return asyncio.run(scenario())


OBSERVE = msgspec.msgpack.encode([{"call": "observe", "session": "0.0.x", "id": 9}])


@pytest.mark.parametrize("depth", [pytest.param(DEPTHS[0], marks=pytest.mark.short), *DEPTHS[1:]])
@pytest.mark.parametrize(
    "nest",
    [
        lambda n: b"\x91" * n + b"\xc0",
        lambda n: b"\x91" * n,
        lambda n: b"\x91" + b"\x81\xa4call" * (n // 6) + b"\xc0",
        lambda n: b"\x91\x82\xa4call\xa4open\xa3env" + b"\x91" * n + b"\xc0",
        lambda n: (
            b"\x91\x83\xa4call\xa4open\xa3env\xa5tally\xa4more" + b"\x81\xa1x" * (n // 3) + b"\xc0"
        ),
    ],
    ids=["arrays", "open arrays", "maps", "in a field", "in an unknown field"],
)
def test_deep_messagepack_is_a_bad_request_and_the_stream_lives(tally, nest, depth):
    refused, answered = exchanged(tally, nest(depth), OBSERVE)
    assert refused == [
        {"id": 0, "error": {"code": "bad_request", "message": refused[0]["error"]["message"]}}
    ]
    assert answered[0]["error"]["code"] == "not_found"


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_what_an_environment_nests_deep_is_its_fault(isolation):
    with running("tests.hostile.telling:Deep", isolation=isolation) as server:
        path = server.open("deep", "train-0")
        status, answer = server.ask("POST", f"{path}/step", {"action": "deep"})
        assert (status, answer["error"]["code"]) == (502, "env_fault")
        assert (
            server.ask("POST", f"{path}/reset", {"task": {"split": "train", "id": "train-0"}})[0]
            == 200
        )


# broken frames

BROKEN = {
    "reserved bit": frame(b"x", first=0xC0),
    "compressed": frame(zlib.compress(b"x" * 1000), first=0xC0),
    "bad compressed": frame(b"\xff" * 100, first=0xC0),
    "unknown opcode": frame(b"x", opcode=5),
    "unmasked": b"\x82\x01x",
    "too long": frame(b"x" * 100, length=1 << 21),
    "longest": frame(b"x" * 100, length=(1 << 63) - 1),
    "more than longest": b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0x",
    "a fragment without a beginning": frame(b"x", opcode=0),
    "a beginning in a fragment": frame(b"x", first=0) + frame(b"x"),
    "a long ping": frame(b"x" * 200, opcode=9),
    "a fragment of a ping": frame(b"x", opcode=9, first=0),
    "no UTF-8": frame(b"\xff\xfe", opcode=1),
    "a bad close": frame(b"\x00", opcode=8),
    "a close without a reason": frame(b"\x03\xe7", opcode=8),
    "deep": frame(b"\x91" * 500_000),
    "no MessagePack": frame(b"\xc1" * 10),
    "a claim of 4 G elements": frame(b"\xdd\xff\xff\xff\xff"),
    "a claim of 4 G bytes": frame(b"\x91\xc6\xff\xff\xff\xff"),
    "a claim of 4 G pairs": frame(b"\x91\xdf\xff\xff\xff\xff"),
    "an extension": frame(b"\x91\xd4\x01\x00"),
    "a moment": frame(b"\x91\xd6\xff\xff\xff\xff\xff"),
    "HTTP": HEAD + b"\r\n",
}


@pytest.mark.parametrize(
    "broken",
    [pytest.param("deep", marks=pytest.mark.short), *(name for name in BROKEN if name != "deep")],
)
def test_an_open_stream_never_hears_http(quick, broken):
    with upgraded(quick) as client:
        client.sendall(BROKEN[broken])
        _, said = closed_within(client, SOON_S)
    assert b"HTTP/1" not in said
    is_well(quick)


def test_a_failure_inside_a_stream_is_a_close(tally, monkeypatch):
    from palestra.envs.serving.stream import Stream

    async def fails(*_):
        raise ValueError("broken")

    monkeypatch.setattr(Stream, "_take", fails)
    with upgraded(tally) as client:
        client.sendall(frame(OBSERVE))
        said = client.recv(1000)
    assert said[:1] == b"\x88"
    assert struct.unpack(">H", said[2:4]) == (1011,)
    assert b"HTTP/1" not in said


# compressed ones

OPEN = json.dumps({"env": "tally"}).encode()
GZIPPED = gzip.compress(OPEN, mtime=0)
RAW = zlib.compressobj(wbits=-15)
RAW_DEFLATE = RAW.compress(OPEN) + RAW.flush()


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        pytest.param("gzip", GZIPPED, 200, marks=pytest.mark.short),
        ("deflate", zlib.compress(OPEN), 200),
        ("deflate", RAW_DEFLATE, 200),
        ("GZIP", GZIPPED, 200),
        ("identity", OPEN, 200),
        pytest.param("gzip", OPEN, 400, marks=pytest.mark.short),
        pytest.param("deflate", OPEN, 400, marks=pytest.mark.short),
        ("gzip", b"", 400),
        ("deflate", b"", 400),
        ("gzip", GZIPPED[:-9], 400),
        ("gzip", GZIPPED[:-1] + b"\x01", 400),
        ("gzip", GZIPPED + b"more", 400),
        ("gzip", b"\x1f\x8b\x08" + b"\xff" * 100, 400),
        ("deflate", zlib.compress(OPEN)[:-1], 400),
        ("deflate", b"\x78\x9c" + b"\xff" * 100, 400),
        ("deflate", b"\xff" * 100, 400),
        ("br", OPEN, 400),
        ("zstd", OPEN, 400),
        ("gzip, gzip", gzip.compress(GZIPPED, mtime=0), 400),
        ("x" * 1000, OPEN, 400),
    ],
)
def test_compressed_bodies(tally, encoding, body, status):
    assert tally.ask("POST", "/v1/sessions", body, Content_Encoding=encoding)[0] == status
    batch = tally.ask("POST", "/v1/batch", body, Content_Encoding=encoding)[0]
    assert batch == 400  # an object is no array, or it cannot be read
    assert tally.ask("POST", "/agentgym/tally/step", body, Content_Encoding=encoding)[0] in (
        400,
        422,
    )


def bomb(wbits, megabytes=300):
    packing = zlib.compressobj(1, wbits=wbits)
    return b"".join(
        [*(packing.compress(bytes(1 << 20)) for _ in range(megabytes)), packing.flush()]
    )[: 1 << 20]


def peak_mb(pid):
    return (
        int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024
    )


def test_a_decompression_bomb_costs_little():
    with limited_command(TALLY, "--port", "0", "--isolation", "inline", descriptors=512) as (
        child,
        server,
        _,
    ):
        path = server.open("tally", "train-0")
        before = peak_mb(child.pid)
        for wbits, encoding in ((31, "gzip"), (15, "deflate"), (-15, "deflate")):
            body = bomb(wbits)
            for route in ("/v1/sessions", "/v1/batch", f"{path}/step", "/agentgym/tally/step"):
                status, answer = server.ask("POST", route, body, Content_Encoding=encoding)
                assert status == 413, answer
        assert peak_mb(child.pid) - before < 40
        is_well(server)


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\n{}\r\n0\r\n\r\n",
        b"-1\r\n{}\r\n",
        b"zz\r\n{}\r\n",
        b"2\r\n{}xx0\r\n\r\n",
        b"ffffffffffffffffff\r\n{}",
    ],
)
def test_broken_chunks_are_a_bad_request(quick, body):
    head = b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(quick) as client:
        client.sendall(head + body)
        _, said = closed_within(client, SOON_S)
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.0 400")), said
    is_well(quick)


# what it says of itself


def test_the_document_and_the_metrics_say_so(tally):
    assert STATUS["too_slow"] == 408
    said = json.dumps(openapi())
    assert "too_slow" in said
    with connected(tally) as client:
        assert answer_of(client) == 200
        text = tally.raw("GET", "/metrics")[2].decode()
    assert (
        f"palestra_connections {len(tally.server.gate) + 1}.0\n" in text
        or "palestra_connections 2.0\n" in text
    )
    for name in (
        "palestra_connections",
        "palestra_connections_refused_total",
        "palestra_connections_late_total",
    ):
        assert f"# HELP {name} " in text


# hostile servers


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000, marks=pytest.mark.short),
        b'{"name": ' + b"[" * 100_000,
        b'{"error": ' + b'{"error":' * 50_000,
        b"\xff\xfe",
        b"null",
        b"[]",
    ],
)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_an_answer_that_is_none_is_one_line(body, status):
    said = (
        f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    with listening(said) as (port, _), pytest.raises(KeyError) as raised:
        envs[f"http://127.0.0.1:{port}/guess"]
    remote_kind.cache_clear()
    assert "no environment server" in str(raised.value) or "is not an environment server" in str(
        raised.value
    )
    assert len(str(raised.value)) < 500
    assert "\n" not in str(raised.value)


def test_a_long_answer_is_not_read_to_its_end(monkeypatch):
    from palestra.envs.serving import remote

    monkeypatch.setattr(remote, "ANSWER_BYTES", 1000)
    for length in (b"Content-Length: 5000\r\n", b""):
        said = b"HTTP/1.1 200 OK\r\n" + length + b"Connection: close\r\n\r\n" + b" " * 5000
        with listening(said) as (port, _), pytest.raises(KeyError, match="more than 1000 bytes"):
            envs[f"http://127.0.0.1:{port}/guess"]
    remote_kind.cache_clear()


def test_pages_of_tasks_that_never_end():
    about = msgspec.json.encode(
        {
            "name": "guess",
            "splits": {"train": 1},
            "max_turns": 3,
            "instructions": "",
            "example": [],
            "vocabulary": None,
        }
    )
    page = msgspec.json.encode({"tasks": [], "total": 1, "next": 0})
    answers = iter([about, *[page] * 50])
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for body in answers:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(
                        f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: "
                        "close\r\n\r\n".encode()
                        + body
                    )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        env = envs[f"http://127.0.0.1:{server.getsockname()[1]}/guess"]()
        with pytest.raises(Exception, match="never end"):
            env.tasks("train")
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    remote_kind.cache_clear()
