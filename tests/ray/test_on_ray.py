"""A Ray cluster of two nodes on this host, and the real command line beside it."""

import json
import signal

import psutil
import pytest

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from palestra.runs.run import Run  # noqa: E402
from tests.e2e.test_launch import finished, recipe, steps_done, train, until  # noqa: E402
from tests.support.training import trained  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with room for one worker and one environment server each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    yield made
    made.shutdown()


def settings_of(cluster):
    return {
        "launch.kind": "ray",
        "launch.address": cluster.address,
        "launch.workers": 2,
        "launch.env_servers": 2,
    }


def on_ray(cluster, folder, *arguments, **overrides):
    return train(
        recipe(folder, **settings_of(cluster) | overrides), "--out", folder / "run", *arguments
    )


def workers():
    """The processes of the training workers, whichever node they are on."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.name().startswith("ray::RayTrain")
    ]


def test_a_run_on_two_nodes_with_environment_servers(cluster, tmp_path):
    code, out, errors = finished(on_ray(cluster, tmp_path, "--json", steps=2), 200)
    assert code == 0, errors
    assert json.loads(out)["result"]["step"] == 2
    run = Run.open(tmp_path / "run")
    assert [row["step"] for row in run.metrics() if "reward" in row] == [1, 2]
    assert not any(
        "fault" in name for row in run.metrics() for name in row if name.startswith("stop/")
    )
    assert (
        run.config.env.name == "tests.support.environments:Echo"
    )  # the servers were for this time only
    assert not (run.folder / ".ray").exists()
    alone = trained(tmp_path / "alone", steps=2)
    for name in ("loss", "grad_norm", "reward", "policy/entropy"):
        ours, theirs = (
            [row[name] for row in each.metrics() if name in row] for each in (run, alone)
        )
        assert ours == pytest.approx(theirs, abs=1e-5), name


def test_a_killed_worker_is_made_good(cluster, tmp_path):
    process = on_ray(cluster, tmp_path, steps=20)
    until(lambda: steps_done(tmp_path / "run") >= 1, 200)
    workers()[-1].kill()
    code, out, errors = finished(process, 300)
    assert code == 0, errors
    assert "all workers continue from the newest checkpoint (restart 1 of 3)" in out
    assert "resumed after step" in out
    assert [row["step"] for row in Run.open(tmp_path / "run").metrics() if "reward" in row] == list(
        range(1, 21)
    )


def test_what_is_the_users_to_mend_is_said_once(cluster, tmp_path):
    trained(tmp_path / "run", steps=1, **settings_of(cluster))
    code, out, errors = finished(
        train("--resume", tmp_path / "run", "--steps", 2, "--algo.kl", 0.1), 200
    )
    assert code == 2
    assert errors.splitlines()[-1].startswith(
        "palestra: algo: the run was begun without a reference model"
    )
    assert "restart" not in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(cluster, tmp_path, number):
    process = on_ray(cluster, tmp_path, steps=500)
    until(lambda: steps_done(tmp_path / "run") >= 1, 200)
    process.send_signal(number)
    code, _, errors = finished(process, 60)
    assert code == 128 + number
    assert errors.splitlines()[-1].startswith(
        f"palestra: stopped by {number.name}; saved up to step"
    )
    assert "Traceback" not in errors
    until(lambda: not workers(), 60)


def test_no_cluster_there(tmp_path):
    code, _, errors = finished(
        train(
            recipe(tmp_path, **{"launch.kind": "ray", "launch.address": "127.0.0.1:1"}),
            "--out",
            tmp_path / "run",
        )
    )
    assert code == 2
    assert errors.splitlines()[-1].startswith(
        "palestra: launch.address = '127.0.0.1:1': there is no Ray cluster to be reached"
    )
