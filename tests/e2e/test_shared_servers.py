"""Workers that share vLLM servers train what one worker with one server does; what goes wrong at a
hand-over ends all of them alike.
"""

from contextlib import ExitStack

import pytest

pytest.importorskip("aiohttp", reason="needs the extra vllm-server")

from palestra.config.config import build, dump
from palestra.core.process_group import ProcessGroup
from palestra.engines.vllm.weight_sync import Share
from palestra.runs.run import Run
from palestra.runs.trajectories import read_trajectories
from palestra.training.preflight import prepare
from palestra.training.setup import make_model
from tests.e2e.test_launch import finished, train
from tests.e2e.test_workers import SHORT, STALE, same_curve, tokens
from tests.support.joined import train_together, try_together
from tests.support.training import trained
from tests.support.vllm_stand_in import StandIn, running

pytestmark = pytest.mark.timeout(250)  # three processes that import torch

PLAIN = SHORT | {"engine": {"name": "vllm-server", "dtype": "float32"}}
TREES = {
    "whole": PLAIN,
    "sharded": PLAIN | {"launch": {"sharding": "fsdp"}},
    "ahead": PLAIN | {"rollout": SHORT["rollout"] | {"prefetch": 1}},
    "ahead sharded": PLAIN
    | {"rollout": SHORT["rollout"] | {"prefetch": 1}, "launch": {"sharding": "fsdp"}},
}
BESIDE = STALE | {"engine": PLAIN["engine"]}


@pytest.fixture(scope="module")
def served():
    """Starts servers, and gives a tree their addresses and the workers for them."""
    policy, _ = make_model(build(SHORT), prepare(build(SHORT)))
    with ExitStack() as stack:

        def serve(tree, *, servers, workers):
            stand_ins = [StandIn(policy) for _ in range(servers)]
            for stand_in in stand_ins:
                stack.enter_context(running(stand_in))
            engine = tree["engine"] | {"urls": [stand_in.url for stand_in in stand_ins]}
            return stand_ins, tree | {
                "engine": engine,
                "launch": tree.get("launch", {}) | {"workers": workers},
            }

        yield serve


@pytest.fixture(scope="module")
def shared(served, tmp_path_factory):
    """Each of the runs trained by two workers with one server."""
    folder = tmp_path_factory.mktemp("runs")
    stand_ins = {}
    for name, tree in (TREES | {"stale": BESIDE}).items():
        (stand_ins[name],), tree = served(tree, servers=1, workers=2)
        Run.create(folder / name, build(tree))
    stand_ins["stale"].reply_s = 0.03  # so that some are in the making when weights are there
    train_together(2, *(folder / name for name in stand_ins))
    return folder, stand_ins


@pytest.fixture(scope="module")
def alone(served, tmp_path_factory):
    """The same by one worker with one server."""
    made = {}

    def train(name):
        overlap = TREES[name].get("rollout", {}).get("prefetch", 0)
        if overlap not in made:
            _, tree = served(TREES[name] | {"launch": {}}, servers=1, workers=1)
            made[overlap] = trained(tmp_path_factory.mktemp("alone") / "run", tree)
        return made[overlap]

    return train


@pytest.mark.parametrize("name", TREES)
def test_two_workers_with_one_server_train_as_one_does(shared, alone, name):
    folder, stand_ins = shared
    together, by_one = Run.open(folder / name), alone(name)
    for step in range(1, 5):
        assert tokens(together, f"step-{step:06d}") == tokens(by_one, f"step-{step:06d}")
    same_curve(together, by_one)
    assert stand_ins[name].mark.endswith("/4")
    assert (
        stand_ins[name].loads == len({0, 1, 2, 3, 4}) + 1
    )  # each version once, and the last again for the final evaluation


def test_two_workers_play_beside_their_learners_with_one_server(shared, alone):
    folder, stand_ins = shared
    together, plain = Run.open(folder / "stale"), alone("whole")
    for step in range(1, 5):
        ours, theirs = (
            list(read_trajectories(run.trajectory_file(f"step-{step:06d}")))
            for run in (together, plain)
        )
        assert [(t.id, t.task, t.seed) for t in ours] == [(t.id, t.task, t.seed) for t in theirs]
    rows = [row for row in together.metrics() if "loss" in row]
    assert all(row["staleness/max"] <= 2 for row in rows)
    assert any(row["staleness/max"] > 0 for row in rows)
    assert stand_ins["stale"].cut_short == 0


def test_three_workers_with_two_servers(served, alone, tmp_path):
    stand_ins, tree = served(PLAIN, servers=2, workers=3)
    Run.create(tmp_path / "run", build(tree))
    train_together(3, tmp_path / "run")
    same_curve(Run.open(tmp_path / "run"), alone("whole"))
    for stand_in in stand_ins:
        assert (stand_in.loads, stand_in.cut_short, stand_in.mark[-2:]) == (6, 0, "/4")
        assert stand_in.replies > 0


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("sharding", "fault", "message"),
    [
        (
            "none",
            {"breaks_at": 3},
            "the weights could not be handed over: {url}/collective_rpc: HTTP 500: ",
        ),
        pytest.param(
            "fsdp",
            {"drop_weight": "model.norm.weight", "good_loads": 2},
            "{url}: vLLM's weights are not the learner's after the hand-over: ",
            marks=pytest.mark.short,
        ),
    ],
    ids=["no answer", "other weights"],
)
def test_a_hand_over_that_fails_ends_all_workers_with_the_same_line(
    served, tmp_path, sharding, fault, message
):
    """Of three workers, two share the server that fails."""
    (stand_in, _), tree = served(PLAIN | {"launch": {"sharding": sharding}}, servers=2, workers=3)
    for name, value in fault.items():
        setattr(stand_in, name, value)
    Run.create(tmp_path / "run", build(tree))
    outcomes = try_together(3, tmp_path / "run")
    assert all(code != 0 for code, _ in outcomes)
    (line,) = {
        said.strip().splitlines()[-1].partition("]: ")[2] for _, said in outcomes
    }  # after torch's "[rank0]: "
    assert line.startswith(
        f"palestra.engines.base.EngineFailed: {message.format(url=stand_in.url)}"
    )


@pytest.mark.chaos
def test_a_shared_server_that_one_worker_loses_ends_the_command_with_one_line(served, tmp_path):
    (stand_in,), tree = served(PLAIN, servers=1, workers=2)
    stand_in.fault, stand_in.faults = "500", 1
    (tmp_path / "recipe.toml").write_text(dump(build(tree)))
    code, _, errors = finished(train(tmp_path / "recipe.toml", "--out", tmp_path / "run"))
    assert code == 2
    assert (
        f"no vLLM server is left: {stand_in.url}/inference/v1/generate: HTTP 500: "
        "EngineCore encountered an issue" in errors
    )
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("servers", "workers", "expected"),
    [
        (1, 2, [("a", [0, 1]), ("a", [0, 1])]),
        (2, 3, [("a", [0, 1]), ("a", [0, 1]), ("b", [2])]),
        (2, 4, [("a", [0, 1]), ("a", [0, 1]), ("b", [2, 3]), ("b", [2, 3])]),
        (3, 2, [("a", [0]), ("bc", [1])]),
        (2, 1, [("ab", [0])]),
    ],
)
def test_who_plays_with_which_servers(servers, workers, expected):
    shares = [Share.of("abc"[:servers], ProcessGroup(rank, workers)) for rank in range(workers)]
    assert [(share.urls, share.ranks) for share in shares] == expected


def test_no_server_has_many_more_workers_than_another():
    shares = [
        Share.of([str(server) for server in range(10)], ProcessGroup(rank, 24))
        for rank in range(24)
    ]
    assert {len(share.ranks) for share in shares} == {2, 3}
    assert sorted({url for share in shares for url in share.urls}, key=int) == [
        str(server) for server in range(10)
    ]
