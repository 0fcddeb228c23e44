"""What launchers work out before and after workers run."""

import socket

import pytest

from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.launch.env_servers import served, urls_by_label
from palestra.launch.worker import (
    Failure,
    WorkerSpec,
    forget_failure,
    leave_failure,
    read_failure,
    work,
)

PLAIN = {
    "launch.kind": "ray",
    "launch.env_servers": 2,
    "env.name": "tests.support.environments:Echo",
    "env.options.rounds": 2,
}


def test_a_worker_that_does_not_see_the_run_folder_says_so(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {
        "RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }.items():
        monkeypatch.setenv(name, str(value))
    left = []
    with pytest.raises(ConfigError, match="does not see this folder; it must be on shared storage"):
        work(WorkerSpec(str(tmp_path / "elsewhere")), left.append)
    assert [failure.is_users for failure in left] == [True]


def test_the_first_failure_counts_unless_a_later_one_is_the_users(tmp_path):
    lost = Failure(0, "RuntimeError", "connection closed by peer", is_users=False)
    bad = Failure(1, "ConfigError", "algo: no", is_users=True)
    leave_failure(tmp_path, lost)
    leave_failure(tmp_path, Failure(1, "RuntimeError", "the same", is_users=False))
    assert read_failure(tmp_path) == lost
    assert lost.line == "worker 0 failed with RuntimeError: connection closed by peer"
    leave_failure(tmp_path, bad)
    leave_failure(tmp_path, lost)
    assert read_failure(tmp_path) == bad
    assert bad.line == "algo: no"
    forget_failure(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_servers_of_a_run_serve():
    config = build({}, PLAIN)
    (one,) = served(config)
    assert (one.name, one.options, one.isolation) == (
        "tests.support.environments:Echo",
        {"rounds": 2},
        "process",
    )
    assert urls_by_label(config, ["http://10.0.0.1:7", "http://10.0.0.2:8"]) == {
        "echo": ["http://10.0.0.1:7/echo", "http://10.0.0.2:8/echo"]
    }
    assert urls_by_label(config, []) == {}


def test_two_environments_of_one_name_cannot_be_told_apart_on_a_server():
    twice = [
        {"name": "tests.support.environments:Echo", "label": "a"},
        {"name": "tests.support.environments:Echo", "label": "b", "options": {"rounds": 2}},
    ]
    config = build({}, {"launch.kind": "ray", "launch.env_servers": 1, "mixture": twice})
    with pytest.raises(
        ConfigError,
        match="launch.env_servers = 1: one server cannot have two environments called 'echo'",
    ):
        served(config)
