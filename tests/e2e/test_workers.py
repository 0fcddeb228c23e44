"""Several workers train what one would: the same episodes, the same curves; and their checkpoints
are anybody's.
"""

import shutil

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from palestra.config.config import build
from palestra.core.process_group import ProcessGroup
from palestra.learner.sharded import owners
from palestra.runs.run import Run
from palestra.runs.trajectories import read_trajectories
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.joined import train_together
from tests.support.training import ECHO, trained

pytestmark = pytest.mark.timeout(600)  # ten runs by two workers come before the first test

SHORT = ECHO | {
    "steps": 4,
    "eval": {"tasks": 9},
    "save": {"every": 2},
}
WARM = {"episodes": 20, "updates": 3, "check_every": 3, "check_tasks": 8, "target": 0.9}
TREES = {
    "whole": SHORT | {"warm_start": WARM, "launch": {"workers": 2}},
    "sharded": SHORT | {"launch": {"workers": 2, "sharding": "fsdp"}},
    "kl": SHORT
    | {"algo": {"name": "grpo", "kl": 0.1}, "launch": {"workers": 2, "sharding": "fsdp"}},
    "ppo": SHORT | {"algo": {"name": "ppo"}, "launch": {"workers": 2}},
    "ahead": SHORT | {"rollout": SHORT["rollout"] | {"prefetch": 1}, "launch": {"workers": 2}},
    "exact": SHORT | {"dtype": "float64", "warm_start": WARM, "launch": {"workers": 2}},
    "in parts": SHORT
    | {
        "dtype": "float64",
        "warm_start": WARM,
        "optim": SHORT["optim"] | {"accumulation_parts": 2},
        "launch": {"workers": 2},
    },
    "in shares": SHORT
    | {
        "dtype": "float64",
        "warm_start": WARM,
        "optim": SHORT["optim"]
        | {"accumulation_parts": 2, "clip_norm": 1e9},  # out of reach: the norm is summed by shares
        "launch": {"workers": 2, "sharding": "fsdp"},
    },
    "exact and sharded": SHORT | {"dtype": "float64", "launch": {"workers": 2, "sharding": "fsdp"}},
    "long": SHORT
    | {
        "launch": {"workers": 2, "sharding": "fsdp"},
        "optim": SHORT["optim"] | {"microbatch_tokens": 64},
    },
}
"""All that has a path of its own: whole and shared weights, a reference, a critic, another thread,
many pieces.
"""
STALE = SHORT | {
    "engine": SHORT["engine"] | {"deterministic": False},
    "rollout": SHORT["rollout"] | {"max_staleness": 2},
    "algo": {"name": "grpo", "recompute_logprobs": True, "correction": {"cap": 2.0}},
    "launch": {"workers": 2},
}
"""Not repeatable to the last bit: when weights change is a matter of timing."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each of them trained by two workers."""
    folder = tmp_path_factory.mktemp("runs")
    trees = TREES | {"stale": STALE}
    for name, tree in trees.items():
        Run.create(folder / name, build(tree))
    train_together(2, *(folder / name for name in trees))
    return folder


def whole_weights(checkpoint):
    return {
        name: weight
        for path in checkpoint.glob("model*.safetensors")
        for name, weight in load_file(path).items()
    }


def curve(run, since=0):
    rows = [row for row in run.metrics() if row["step"] > since]
    skipped = ("time/", "play/tokens_per_s", "policy/mismatch")
    return [
        {k: v for k, v in row.items() if isinstance(v, float) and not k.startswith(skipped)}
        for row in rows
    ]


def same_curve(one, other, since=0):
    ours, theirs = curve(one, since), curve(other, since)
    assert len(ours) == len(theirs) > 0
    assert sum("loss" in row for row in ours) == 4 - since
    for own, their in zip(ours, theirs, strict=True):
        assert own == pytest.approx(their, abs=1e-5)


def same_learned(one, other, step):
    lines = [
        (run.folder / "token_stats" / f"step-{step:06d}.jsonl").read_bytes().splitlines()
        for run in (one, other)
    ]
    for ours, theirs in zip(
        *([msgspec.json.decode(line) for line in own] for own in lines), strict=True
    ):
        assert ours["id"] == theirs["id"]
        for what in ("advantage", "logp", "entropy"):
            assert ours[what] == pytest.approx(theirs[what], abs=1e-3)


def tokens(run, name):
    return [[s.ids for s in t.segments] for t in read_trajectories(run.trajectory_file(name))]


@pytest.mark.parametrize("name", TREES)
def test_two_workers_train_as_one_does(runs, tmp_path, name):
    tree = {key: value for key, value in TREES[name].items() if key != "launch"}
    alone, together = trained(tmp_path / "alone", tree), Run.open(runs / name)
    same_curve(alone, together)
    for step in range(1, 5):
        assert tokens(alone, f"step-{step:06d}") == tokens(together, f"step-{step:06d}")
        same_learned(alone, together, step)
    assert not list(together.folder.glob("**/*worker*")), "only the first rank writes"


@pytest.mark.parametrize("name", ["exact", "exact and sharded"])
def test_in_float64_even_the_last_bits_of_float32_are_the_same(runs, tmp_path, name):
    tree = {key: value for key, value in TREES[name].items() if key != "launch"}
    alone, together = trained(tmp_path / "alone", tree), Run.open(runs / name)
    for step in range(1, 5):
        ours, theirs = (
            [
                s.logprobs
                for t in read_trajectories(run.trajectory_file(f"step-{step:06d}"))
                for s in t.segments
            ]
            for run in (alone, together)
        )
        assert ours == theirs
    norms = [
        [row["grad_norm"] for row in run.metrics() if "loss" in row] for run in (alone, together)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-12)


@pytest.mark.parametrize("name", ["in parts", "in shares"])
def test_added_up_in_as_many_parts_the_weights_are_the_same_bit_for_bit(runs, tmp_path, name):
    tree = {key: value for key, value in TREES[name].items() if key != "launch"}
    alone, together = trained(tmp_path / "alone", tree), Run.open(runs / name)
    for step in (2, 4):
        ours, theirs = (whole_weights(run.checkpoint(step)) for run in (alone, together))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_two_workers_play_beside_their_learners(runs, tmp_path):
    together, plain = Run.open(runs / "stale"), trained(tmp_path / "plain", SHORT)
    for step in range(1, 5):
        ours, theirs = (
            list(read_trajectories(run.trajectory_file(f"step-{step:06d}")))
            for run in (together, plain)
        )
        assert [(t.id, t.task, t.seed) for t in ours] == [(t.id, t.task, t.seed) for t in theirs]
    assert all(row["staleness/max"] <= 2 for row in together.metrics() if "loss" in row)
    assert not list(together.queue.glob("*")), "all was learned from and is in the last checkpoint"


def test_a_checkpoint_of_shared_weights_is_a_hugging_face_directory(runs, tmp_path):
    folder = Run.open(runs / "sharded").checkpoint(4)
    assert {path.name for path in folder.glob("*.safetensors")} == {
        f"{stem}-0000{rank}-of-00002.safetensors"
        for stem in ("model", "optimizer")
        for rank in (1, 2)
    }
    there = AutoModelForCausalLM.from_pretrained(folder)
    tree = {key: value for key, value in TREES["sharded"].items() if key != "launch"}
    alone = trained(tmp_path / "alone", tree).checkpoint(4)
    for name in ("config.json", "generation_config.json"):
        assert (folder / name).read_text() == (alone / name).read_text()
    whole = AutoModelForCausalLM.from_pretrained(alone)
    for one, other in zip(there.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_other_numbers_of_workers_go_on_from_it(runs, tmp_path):
    original = Run.open(runs / "sharded")
    for name in ("one", "three"):
        shutil.copytree(runs / "sharded", tmp_path / name)
        shutil.rmtree(tmp_path / name / "checkpoints" / "step-000004")
    Run.open(tmp_path / "three", {"launch.workers": 3}).write_config()
    train_together(3, tmp_path / "three")
    same_curve(Run.open(tmp_path / "three"), original, since=2)
    alone = Run.open(tmp_path / "one", {"launch.workers": 1, "launch.sharding": "none"})
    run_training(alone, Display())
    same_curve(alone, original, since=2)


def test_shares_are_equal_and_in_order():
    items = list(range(7))
    shares = [ProcessGroup(rank, 3).share(items) for rank in range(3)]
    assert [len(share) for share in shares] == [2, 2, 3]
    assert [item for share in shares for item in share] == items


def test_every_tensor_has_one_owner():
    assert owners({"a": 6, "b": 2, "c": 2, "d": 2}, 2) == {"a": 0, "b": 1, "c": 1, "d": 1}
    assert owners({"a": 1}, 4) == {"a": 2}
    assert set(owners(dict.fromkeys("abcdefgh", 5), 4).values()) == {0, 1, 2, 3}
