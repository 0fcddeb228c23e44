"""Tokens go where they were meant to go: to hosts that the user named, not after redirects, not
into logs, not into workers.
"""

import asyncio
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from palestra.cli.main import main
from palestra.config.config import build
from palestra.core.credentials import BadToken, hidden, is_secret, name_hosts, without_secrets
from palestra.core.errors import ConfigError
from palestra.core.types import Task
from palestra.envs import envs
from palestra.envs.serving.client import RemoteHandle, Servers
from palestra.envs.serving.handles import EnvFault, opened
from palestra.envs.serving.main import JsonLines
from palestra.envs.serving.remote import remote_kind
from palestra.envs.serving.wire import WireError
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra_web.sites.building import site_variables
from palestra_web.sites.catalogue import SITES
from tests.support.environments import Echo
from tests.support.served import running

pytestmark = pytest.mark.hostile
TOKEN = "s3cr3t-of-anna"
TELLING = "tests.hostile.telling:Telling"


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("PALESTRA_ENV_TOKEN", TOKEN)
    monkeypatch.setenv("PALESTRA_ENV_HOSTS", "")
    remote_kind.cache_clear()
    yield
    remote_kind.cache_clear()


@contextmanager
def listening(answer=b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"):
    """A server that notes the head of every request, and answers the same to all."""
    heads = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    head = b""
                    while b"\r\n\r\n" not in head and (data := connection.recv(65536)):
                        head += data
                    heads.append(head.decode())
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], heads
        finally:
            server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def ask_plainly(url):
    with pytest.raises(KeyError) as raised:
        envs[url]
    return str(raised.value)


def ask_over_stream(url):
    async def scenario():
        handle = RemoteHandle(Servers([url]), 5.0)
        try:
            await handle.reset(Task("guess", "train", "0"))
        finally:
            await handle.close()

    with pytest.raises((EnvFault, WireError)) as raised:
        asyncio.run(asyncio.wait_for(scenario(), 20))
    return str(raised.value)


ASKS = [pytest.param(ask_plainly, id="http"), pytest.param(ask_over_stream, id="stream")]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(
    ("hosts", "gets_it"),
    [
        pytest.param("", False, marks=pytest.mark.short),
        pytest.param("127.0.0.1", True, marks=pytest.mark.short),
        ("127.0.0.1:PORT", True),
        ("http://127.0.0.1:PORT", True),
        ("one.example, 127.0.0.1:PORT", True),
        ("127.0.0.1:1", False),
        ("https://127.0.0.1:PORT", False),
        ("http://127.0.0.1", False),
        ("localhost", False),
        ("127.0.0.1.example.org", False),
        ("example.org@127.0.0.1:1", False),
        ("127.0.0.1:x", False),
        ("*", False),
    ],
)
def test_only_hosts_that_were_named_get_the_token(monkeypatch, ask, hosts, gets_it):
    with listening() as (port, heads):
        monkeypatch.setenv("PALESTRA_ENV_HOSTS", hosts.replace("PORT", str(port)))
        ask(f"http://127.0.0.1:{port}/guess")
    assert heads
    assert [TOKEN in head for head in heads] == [gets_it] * len(heads)


@pytest.mark.short
def test_the_command_line_names_a_host_and_a_recipe_does_not(tmp_path, capsys):
    recipe = tmp_path / "theirs.toml"
    with listening() as (port, heads), listening() as (other, others):
        recipe.write_text(f'[env]\nname = "http://127.0.0.1:{port}/guess"\n')
        with pytest.raises(SystemExit) as left:
            main(["doctor", str(recipe)])
        assert left.value.code == 2
        assert not any(TOKEN in head for head in heads)
        with pytest.raises(SystemExit):
            main(["env", "check", f"http://127.0.0.1:{other}/guess"])
    assert others
    assert all(TOKEN in head for head in others)
    assert TOKEN not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ({"name": "http://one:8100/guess"}, {}),
        ({"env": "http://one:8100/guess"}, {}),
        ({}, {"env.name": "http://one:8100/guess"}),
        ({}, {"env.urls": ["http://one:8100/guess"]}),
        ({}, {"mixture": [{"name": "guess"}, {"name": "http://one:8100/guess"}]}),
        ({}, {"mixture": [{"urls": ["http://one:8100/guess"]}]}),
    ],
)
def test_flags_that_name_a_server(flags, settings):
    name_hosts(flags, settings)
    assert os.environ["PALESTRA_ENV_HOSTS"] == "http://one:8100"


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (
            {"model": "http://one/guess"},
            {"track.mlflow.uri": "http://one:1/guess", "engine.url": "http://one/"},
        ),
        ({}, {"env.options": {"retriever": "http://one/"}, "env.options.url": "http://one/"}),
        (
            {"name": "guess", "env": None},
            {"env.name": 3, "env.urls": "http://one", "mixture": "http://one"},
        ),
    ],
)
def test_flags_about_other_servers_name_none(flags, settings):
    name_hosts(flags, settings)
    assert os.environ["PALESTRA_ENV_HOSTS"] == ""


@pytest.mark.parametrize("ask", ASKS)
def test_an_error_says_which_variable_to_set(ask, monkeypatch):
    with running("guess", tokens=(TOKEN,)) as server:
        said = ask(server.url("guess"))
        assert "needs a token" in said
        assert f"set PALESTRA_ENV_HOSTS=127.0.0.1:{server.port}" in said
        monkeypatch.setenv("PALESTRA_ENV_HOSTS", f"127.0.0.1:{server.port}")
        monkeypatch.setenv("PALESTRA_ENV_TOKEN", "another")
        remote_kind.cache_clear()
        assert "is not a token of this server" in (said := ask(server.url("guess")))
    assert "another" not in said


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("status", [301, pytest.param(302, marks=pytest.mark.short), 303, 307, 308])
def test_a_redirect_is_not_followed(monkeypatch, ask, status):
    with listening() as (elsewhere, heads):
        for host in ("127.0.0.1", "localhost"):
            there = f"http://{host}:{elsewhere}/v1/stream"
            moved = (
                f"HTTP/1.1 {status} Moved\r\nLocation: {there}\r\nContent-Length: 0\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            with listening(moved) as (port, asked):
                monkeypatch.setenv("PALESTRA_ENV_HOSTS", "127.0.0.1 localhost")
                assert f"redirects (HTTP {status})" in ask(f"http://127.0.0.1:{port}/guess")
            assert asked
    assert heads == []


def test_a_judge_that_redirects_gets_no_key_to_elsewhere(monkeypatch):
    from palestra.envs.web.webarena_judge import ModelJudge

    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    with listening() as (elsewhere, heads):
        there = f"http://localhost:{elsewhere}/v1/chat/completions"
        moved = (
            f"HTTP/1.1 302 Moved\r\nLocation: {there}\r\nContent-Length: 0\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        with listening(moved) as (port, asked):
            judge = ModelJudge(f"http://127.0.0.1:{port}/v1", "model")
            with pytest.raises(RuntimeError, match="answered 302"):
                judge.ask(messages=[], model="theirs", context_length=0)
        assert TOKEN in asked[0]
    assert heads == []


# never printed

MALFORMED = [
    b"Authorization : Bearer TOKEN",
    b"Authorization Bearer TOKEN",
    b"Authorization\x01: Bearer TOKEN",
    b"Authorization: Bearer TOKEN\x00",
    b"Authorization: Bearer \rTOKEN",
    b": Bearer TOKEN",
    b" Bearer TOKEN",
    b"Authorization: Bearer " + 3000 * b"TOKEN",
    b"\xff: Bearer TOKEN",
    b"Content-Length: TOKEN",
    b"Transfer-Encoding: TOKEN",
]


@pytest.mark.parametrize(
    "header", [pytest.param(MALFORMED[0], marks=pytest.mark.short), *MALFORMED[1:]]
)
def test_a_malformed_header_does_not_put_the_token_into_the_log(caplog, header):
    caplog.set_level(logging.DEBUG)
    with (
        running("guess", tokens=(TOKEN,)) as server,
        socket.create_connection(("127.0.0.1", server.port), 10) as client,
    ):
        head = (
            b"GET /v1/envs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            + header.replace(b"TOKEN", TOKEN.encode())
            + b"\r\n\r\n"
        )
        client.sendall(head)
        said = b""
        while data := client.recv(65536):
            said += data
    assert re.match(rb"HTTP/1.[01] 40[01] ", said), said
    assert TOKEN not in said.decode()
    assert TOKEN not in "\n".join(JsonLines().format(record) for record in caplog.records)
    assert TOKEN not in caplog.text


def test_a_failure_does_not_put_a_sessions_secret_into_the_log(caplog, monkeypatch):
    with running("guess") as server:
        path = server.open("guess")

        async def broken(*_, **__):
            raise RuntimeError("broken")

        monkeypatch.setattr(server.server, "answer", broken)
        assert server.raw("POST", f"{path}/observe")[0] == 500
    assert "broken" in caplog.text
    assert path.rsplit(".", 1)[1] not in "\n".join(
        JsonLines().format(record) for record in caplog.records
    )


PASSWORDS = [
    "hunter2",
    "hun%ter2",
    "hun@ter2",
    "hun/ter2",
    "hun ter2",
    "hun:ter2",
    "hun#ter2",
    "hun?ter2",
    "hun'ter2",
    'hun"ter2',
]


@pytest.mark.parametrize(
    "password", [pytest.param(PASSWORDS[0], marks=pytest.mark.short), *PASSWORDS[1:]]
)
def test_a_password_in_a_url_is_refused_and_not_printed(tmp_path, capsys, password):
    url = f"http://anna:{password}@127.0.0.1:9/guess"
    recipe = tmp_path / "recipe.toml"
    quoted = url.replace("\\", "\\\\").replace('"', '\\"')
    recipe.write_text(f'[env]\nname = "{quoted}"\n')
    second = tmp_path / "second.toml"
    second.write_text(f'[env]\nname = "http://127.0.0.1:9/guess"\nurls = ["{quoted}"]\n')
    for line in (
        ["env", "check", url],
        ["doctor", str(recipe)],
        ["train", str(recipe), "--dry-run"],
        ["train", str(second), "--dry-run"],
    ):
        with pytest.raises(SystemExit) as left:
            main(line)
        said = capsys.readouterr().err
        assert left.value.code == 2
        assert len(said.strip().splitlines()) == 1, said
        assert "ter2" not in said
    with pytest.raises(ConfigError) as raised:
        build({"env": {"name": url}})
    assert "ter2" not in str(raised.value)


def test_hidden_leaves_other_text_alone():
    plain = "http://one:8100/textcraft gives 3 of 4; ask anna@example.org"
    assert hidden("no server at http://one:8100/x") == "no server at http://one:8100/x"
    assert hidden(plain.replace(" ask anna@example.org", "")) == plain.replace(
        " ask anna@example.org", ""
    )
    assert hidden("postgres://u:p@h/x and http://a@b") == "postgres://***@h/x and http://***@b"


@pytest.mark.parametrize(
    "token",
    ["s3cr3t\nX-Other: 1", "s3cr3t with blanks", "s3cr3t\u20ac", "s3cr3t\x7f", "s3cr3t\x01"],
)
def test_a_token_that_no_header_can_carry_is_not_shown(monkeypatch, capsys, token):
    monkeypatch.setenv("PALESTRA_ENV_TOKEN", token)
    with pytest.raises(SystemExit) as left:
        main(["env", "check", "http://127.0.0.1:9/guess"])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert left.value.code == 2
    assert "PALESTRA_ENV_TOKEN" in line
    assert "s3cr3t" not in line
    monkeypatch.setenv("PALESTRA_ENV_HOSTS", "127.0.0.1")
    with pytest.raises(BadToken) as raised:
        Servers(["http://127.0.0.1:9/guess"])
    assert "s3cr3t" not in str(raised.value)


# who is let in

SCHEMES = [("anna", 401), ("Basic anna", 401), ("Token anna", 401), ("Bearer", 401), ("Beareranna",
401), ("Bearer  ", 401), ("", 401),
           ("anna Bearer anna", 401), ("Bearer anna", 200), ("bearer anna", 200), ("BEARER  anna",
           200)]  # fmt: skip


@pytest.fixture(scope="module")
def guarded():
    with running("guess", tokens=("anna", "Bearer")) as server:
        yield server


@pytest.mark.short
@pytest.mark.parametrize(("header", "status"), SCHEMES)
def test_authorization_needs_bearer(guarded, header, status):
    assert guarded.raw("GET", "/v1/envs", Authorization=header)[0] == status
    assert guarded.raw("GET", "/agentgym/guess", Authorization=header)[0] == status


# what workers are told

SECRETS = {
    "HF_TOKEN": "leak-1", "WANDB_API_KEY": "leak-2", "MLFLOW_TRACKING_TOKEN": "leak-3",
    "MLFLOW_TRACKING_PASSWORD": "leak-4",
    "AWS_SECRET_ACCESS_KEY": "leak-5", "AWS_PROFILE": "leak-6", "OPENAI_API_KEY": "leak-7",
    "SOME_SECRET": "leak-8",
    "DB_PASSWORD_FILE": "leak-9", "GOOGLE_APPLICATION_CREDENTIALS": "leak-10",
    "SSH_AUTH_SOCK": "leak-11",
    "HTTPS_PROXY": "http://anna:leak-12@proxy:3128",
    "PIP_INDEX_URL": "https://leak-13@pypi.example/simple", "hf_token": "leak-14",
    "PALESTRA_ENV_TOKEN": "leak-15", "GITHUB_PAT": "leak-16", "APIKEY": "leak-17",
}  # fmt: skip
HARMLESS = {
    "PATH": "/bin", "HOME": "/root", "TOKENIZERS_PARALLELIZM": "false", "OMP_NUM_THREADS": "2",
    "HTTP_PROXY": "http://proxy:3128",
    "KEYBOARD": "us", "MONKEY": "x", "AUTHOR": "anna", "HF_HOME": "/cache",
    "PALESTRA_ENV_HOSTS": "one:8100", "XAUTHORITY": "x",
}  # fmt: skip


@pytest.mark.short
def test_what_is_a_secret():
    assert [name for name, value in SECRETS.items() if not is_secret(name, value)] == []
    assert [name for name, value in HARMLESS.items() if is_secret(name, value)] == []


def told_by_worker(settings):
    async def scenario():
        pool = Workers(TELLING, {}, settings)
        try:
            async with opened(pool) as env:
                return await env.reset(Echo().tasks("train")[0])
        finally:
            await pool.close()

    return asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.mark.parametrize("kept", [(), ("HF_TOKEN", "WANDB_API_KEY")], ids=["none", "two"])
def test_a_worker_knows_no_secret_unless_it_is_named(monkeypatch, kept):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARMLESS", "harmless-1")
    told = told_by_worker(WorkerSettings(workers=1, pass_env=kept))
    assert "harmless-1" in told
    assert {int(number) for number in re.findall(r"leak-(\d+)", told)} == (
        {1, 2} if kept else set()
    )


def test_the_recipe_names_what_workers_may_know(monkeypatch):
    from palestra.training.setup import make_pool

    monkeypatch.setenv("HF_TOKEN", "leak-1")
    config = build({"env": {"name": TELLING, "isolation": "process", "pass_env": ["HF_TOKEN"]}})
    assert config.env is not None
    assert make_pool(config.env).settings.pass_env == ("HF_TOKEN",)
    with pytest.raises(
        ConfigError, match=r"env.pass_env = \['HF_TOKEN'\]: has no effect with isolation = 'inline'"
    ):
        build({"env": {"name": "guess", "pass_env": ["HF_TOKEN"]}})


@pytest.mark.parametrize("processes", [1, 2])
def test_the_workers_of_a_server_know_neither_its_token_nor_other_secrets(processes):
    from tests.support.served import command

    flags = ("--port", "0", "--pass-env", "SOME_SECRET")
    with command(TELLING, *flags, processes=processes, **SECRETS) as server:
        bearer = {"Authorization": "Bearer leak-15"}
        path = server.at.open("telling", **bearer)
        task = {"task": {"split": "train", "id": "train-0"}}
        status, answer = server.at.ask("POST", f"{path}/reset", task, **bearer)
        assert status == 200, answer
    assert set(re.findall(r"leak-\d+", answer["observation"])) == {"leak-8"}


def test_a_served_environment_is_played_from_a_worker_with_the_token(monkeypatch):
    """`palestra play URL` puts our own client into a worker process."""
    with running("guess", tokens=(TOKEN,)) as server:
        monkeypatch.setenv("PALESTRA_ENV_HOSTS", "127.0.0.1")

        async def scenario():
            pool = Workers(server.url("guess"), {}, WorkerSettings(workers=1, per_worker=1))
            try:
                async with opened(pool) as env:
                    return await env.reset(envs["guess"]().tasks("train")[0])
            finally:
                await pool.close()

        assert asyncio.run(asyncio.wait_for(scenario(), 120)) == "Guess the number."


def test_the_processes_of_sites_know_no_secret(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    for site in SITES.values():
        assert "leak-" not in str(site_variables(site))
    assert "leak-" not in str(without_secrets())
    assert without_secrets(["HF_TOKEN"])["HF_TOKEN"] == "leak-1"


def test_the_command_line_has_no_token_for_others_to_see():
    """Tokens come by variables: any user of the machine can read command lines."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from palestra.cli.main import main; main(['env', 'serve', '--help'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--token-env" in done.stdout
    assert "--token " not in done.stdout
