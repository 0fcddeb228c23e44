"""Whatever is sent to the routes of the OpenAPI document: only refusals, and the server lives."""

import http.client
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palestra.envs.serving.openapi import openapi
from tests.support.served import running

OPERATIONS = [
    (method.upper(), path, operation)
    for path, ways in openapi()["paths"].items()
    for method, operation in ways.items()
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["session", "env", "task", "action", "key", "call", "id", "split", "more"])
PLAUSIBLE = st.dictionaries(
    NAMES,
    JSON
    | st.sampled_from(
        [
            "guess",
            "train",
            "0",
            "step",
            "open",
            "reset",
            1,
            2,
            {"split": "train", "id": "0"},
            {"split": "train", "id": 0},
        ]
    ),
    max_size=5,
)
BODIES = st.one_of(
    st.binary(max_size=200),
    PLAUSIBLE.map(lambda value: json.dumps(value).encode()),
    st.lists(PLAUSIBLE, max_size=4).map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
)
PARTS = st.text(max_size=30) | st.sampled_from(
    ["guess", "0.0.", "0.0.x", "99999999999999999999.1.y", "0.-1.z", "LIVE"]
)
QUERIES = st.dictionaries(
    st.sampled_from(["split", "offset", "limit", "x"]),
    st.text(max_size=10) | st.integers().map(str),
    max_size=3,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["Content-Type", "Origin", "Authorization", "X-Palestra-Caller", "Upgrade", "Accept"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    max_size=2,
)


@pytest.fixture(scope="module")
def server():
    with running("guess", capacity=20, lease_s=2.0) as server:
        yield server


def refuses(server, operation, part, query, body, headers):
    method, path, _ = operation
    live = server.ask("POST", "/v1/sessions", {"env": "guess"})[1].get("session", "none")
    for name in ("{session}", "{env}"):
        path = path.replace(name, quote(live if part == "LIVE" else part, safe=""))
    text = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(
            method, f"{path}?{text}" if text else path, body if method == "POST" else None, headers
        )
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    assert response.status < 500, content
    assert b"Traceback" not in content
    if response.status != 200 and content:
        assert set(json.loads(content)["error"]) == {"code", "message"}
    server.ask("DELETE", f"/v1/sessions/{live}")
    assert server.ask("GET", "/health")[1]["status"] == "ok"


def fuzz(examples):
    def decorate(test):
        given_ = given(st.sampled_from(OPERATIONS), PARTS, QUERIES, BODIES, HEADERS)(test)
        quiet = [
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.differing_executors,
        ]
        return settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=quiet,
            derandomize=examples < 1000,
        )(given_)

    return decorate


@fuzz(300)
def test_anything(server, operation, part, query, body, headers):
    refuses(server, operation, part, query, body, headers)


@pytest.mark.slow
@fuzz(10_000)
def test_anything_at_length(server, operation, part, query, body, headers):
    refuses(server, operation, part, query, body, headers)
