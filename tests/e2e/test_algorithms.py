"""Whole runs with every algorithm: each learns, and each leaves the run folder that the others can
read.
"""

import json

import pytest
import torch

from palestra.algos import algos
from palestra.algos.base import Algorithm
from palestra.cli.main import main
from palestra.config.config import build, dump
from palestra.core.errors import ConfigError
from palestra.learner import checkpoint
from palestra.models.loading import load_model
from palestra.runs.run import Run
from palestra.runs.trajectories import read_trajectories
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.training import ECHO, MIXTURE, OFFLINE, trained

PLAYING = [name for name in algos.names() if algos[name].source is Algorithm.source]


def results(run):
    return {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A model that succeeds in about half of the tasks, and a run of its episodes."""
    warm_start = {
        "episodes": 40,
        "updates": 40,
        "check_every": 4,
        "check_tasks": 60,
        "target": 0.4,
        "noise": 0.5,
        "lr": 1e-2,
    }
    return trained(
        tmp_path_factory.mktemp("warm") / "run",
        **{"steps": 3, "optim.lr": 1e-6, "warm_start": warm_start},
    )


def from_warm(warm, **overrides):
    return {
        "model": {"kind": "pretrained", "path": str(checkpoint.newest(warm.checkpoints))}
    } | overrides


@pytest.mark.parametrize("name", PLAYING)
def test_it_learns(tmp_path, warm, name):
    settings = {
        "algo.name": name,
        "steps": 25,
        "rollout.tasks": 8,
        "optim.lr": 2e-3,
        "save.every": 100,
    }
    found = results(trained(tmp_path / "run", **from_warm(warm, **settings)))
    assert found["final"] > found["raw"] + 0.2, found


def test_evol_learns_in_rounds_and_each_begins_with_the_base_model(tmp_path, warm):
    settings = {
        "algo.name": "evol",
        "algo.round": 8,
        "algo.best": 4,
        "steps": 16,
        "rollout.tasks": 24,
        "optim.lr": 2e-3,
        "save.every": 8,
    }
    run = trained(tmp_path / "run", **from_warm(warm, **settings))
    found = results(run)
    assert found["final"] > found["raw"] + 0.2, found
    assert sorted(path.name for path in (run.folder / "trajectories").glob("step-*")) == [
        "step-000001.jsonl",
        "step-000009.jsonl",
    ]
    rows = {row["step"]: row for row in run.metrics() if "loss" in row}
    assert [step for step, row in rows.items() if "success" in row] == [1, 9]
    # a new round starts from the base model: its first loss is back up, above the last one of the
    # round before
    assert rows[9]["loss"] > rows[8]["loss"]


def test_sft_from_a_run_folder_from_chats_and_from_the_expert(tmp_path, warm):
    chats = tmp_path / "chats.jsonl"
    words = ["red", "blue", "green"]
    chats.write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": f"say {word}"}, {"role": "assistant",
        "content": word}]}) + "\n"
        for word in words
    ))  # fmt: skip
    for name, source in {
        "run": {"algo.data": [str(warm.folder)]},
        "chats": {"algo.data": [str(chats)]},
        "expert": {"algo.episodes": 30},
    }.items():
        settings = {
            "algo.name": "sft",
            "algo.batch": 8,
            "steps": 80,
            "optim.lr": 1e-2,
            **source,
            **OFFLINE,
        }
        run = trained(tmp_path / name, **settings)
        assert results(run)["final"] > 0.9, name
        assert not list((run.folder / "trajectories").glob("step-*"))
        assert all(
            "loss" in row and "success" not in row for row in run.metrics() if "phase" not in row
        )


def test_dpo_from_pairs_of_a_run_folder(tmp_path, warm):
    settings = {
        "algo.name": "dpo",
        "algo.data": [str(warm.folder)],
        "algo.batch": 8,
        "steps": 60,
        "optim.lr": 3e-3,
        **OFFLINE,
    }
    run = trained(tmp_path / "run", **from_warm(warm, **settings))
    found = results(run)
    assert found["final"] > found["raw"] + 0.2, found
    rows = [row for row in run.metrics() if "loss" in row]
    assert rows[0]["loss"] == pytest.approx(
        0.693, abs=0.02
    )  # log 2: the model is its own reference at first
    assert rows[-1]["dpo/accuracy"] > rows[0]["dpo/accuracy"]
    assert rows[-1]["loss"] < 0.6


def test_dpo_resumes_bit_for_bit(tmp_path, warm):
    settings = from_warm(
        warm,
        **{
            "algo.name": "dpo",
            "algo.data": [str(warm.folder)],
            "algo.batch": 4,
            "save.every": 3,
            **OFFLINE,
        },
    )
    whole, first = (
        trained(tmp_path / name, **settings, steps=steps)
        for name, steps in (("whole", 6), ("first", 3))
    )
    run_training(Run.open(first.folder, {"steps": 6}), Display())
    one, other = (
        load_model(run.checkpoint(6), device=torch.device("cpu"), dtype=torch.float32)
        for run in (whole, first)
    )
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"algo.name": "dpo", "algo.data": ["no/such/run"]}, "no such file or folder"),
        (
            {"algo.name": "sft", "algo.data": ["{warm}"], "algo.min_reward": 7},
            "no trajectory has a reward of at least 7",
        ),
        ({"algo.name": "dpo", "algo.data": ["{warm}"], "algo.min_gap": 7}, "no two trajectories"),
    ],
)
def test_data_that_teaches_nothing_is_refused(tmp_path, warm, overrides, reason):
    overrides = {k: [str(warm.folder)] if v == ["{warm}"] else v for k, v in overrides.items()}
    with pytest.raises((ConfigError, ValueError), match=reason):
        trained(tmp_path / "run", **overrides, **OFFLINE)


def test_a_mixture_trains_with_its_own_horizons_and_is_measured_apart(tmp_path):
    run = trained(
        tmp_path / "run",
        **{"env": None, "mixture": MIXTURE, "algo.scale": False, "steps": 4, "rollout.tasks": 6},
    )
    rows = [row for row in run.metrics() if "loss" in row]
    for row in rows:
        assert row["env/echo/horizon"] == 2
        assert row["env/count/horizon"] in (2, 4)
        assert {
            "env/echo/success",
            "env/count/success",
            "env/echo/reward",
            "env/count/stop/length",
        } <= set(row)
    played = list(read_trajectories(run.trajectory_file("step-000001")))
    by_env = {env: [t for t in played if t.task.env == env] for env in ("echo", "count")}
    # weights 2 : 1 over 6 tasks, groups of 8 and of 4
    assert {env: len(own) for env, own in by_env.items()} == {"echo": 4 * 8, "count": 2 * 4}
    assert {t.reward_scale for t in by_env["count"]} == {0.5}
    final = json.loads((run.folder / "eval" / "step-000004-final.json").read_text())
    assert set(final["envs"]) == {"echo", "count"}
    row = run.metrics()[-1]
    assert {"eval/success", "eval/echo/success", "eval/count/success"} <= set(row)
    state = checkpoint.read_state(checkpoint.newest(run.checkpoints))
    assert state["tasks_drawn"] == {"echo": 16, "count": 8}
    assert {env: len(success) for env, success in state["success"].items()} == {
        "echo": 4,
        "count": 4,
    }


@pytest.mark.parametrize(
    ("begun", "changed", "reason"),
    [
        (
            {"algo.name": "evol", "algo.round": 2},
            {"algo.round": 3},
            "algo.round: cannot be changed",
        ),
        (
            {"algo.name": "evol", "algo.round": 2},
            {"algo.episodes": 3},
            "algo.episodes: cannot be changed",
        ),
        (
            {"algo.name": "ppo"},
            {"algo.critic.kind": "model"},
            "algo.critic.kind: cannot be changed",
        ),
        (
            {"algo.name": "grpo"},
            {"algo.name": "ppo"},
            "algo.name = 'ppo': a run's algorithm cannot be changed .* begun with 'grpo'",
        ),
    ],
)
def test_what_a_resumed_run_was_made_with_stays(tmp_path, begun, changed, reason):
    run = trained(tmp_path / "run", steps=1, **begun)
    with pytest.raises(ConfigError, match=reason):
        Run.open(run.folder, {"steps": 2, **changed})


def test_missing_data_is_found_before_anything_is_played(tmp_path, capsys):
    recipe = tmp_path / "sft.toml"
    recipe.write_text(
        dump(build(ECHO, {"algo.name": "sft", "algo.data": ["no/such/run"], **OFFLINE}))
    )
    with pytest.raises(SystemExit) as stop:
        main(["train", str(recipe), "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert "no/such/run: there is no such file or folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_environment_that_always_breaks_has_no_success_in_a_mixture(tmp_path):
    broken = {"name": "tests.support.environments:NeverStarts", "label": "broken"}
    run = trained(
        tmp_path / "run",
        **{
            "env": None,
            "mixture": [MIXTURE[0], broken],
            "steps": 2,
            "rollout.tasks": 3,
            "rollout.retries": 0,
        },
    )
    for row in run.metrics():
        assert "env/broken/success" not in row
        assert "loss" not in row or row["faults"] == 8


def test_a_mixture_on_the_command_line(tmp_path, capsys):
    run = trained(
        tmp_path / "run", **{"env": None, "mixture": MIXTURE, "algo.scale": False, "steps": 1}
    )
    main(["eval", str(run.folder), "--limit", "5"])
    out = capsys.readouterr().out
    assert "echo" in out
    assert "count" in out
    main(
        [
            "eval",
            str(run.folder),
            "--env",
            "tests.support.environments:Count",
            "--limit",
            "5",
            "--json",
        ]
    )
    assert list(json.loads(capsys.readouterr().out)["envs"]) == ["count"]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"mixture": MIXTURE}, "either one environment or a mixture"),
        ({"env": None, "mixture": [MIXTURE[0], MIXTURE[0]]}, "two environments are called 'echo'"),
        ({"env": None, "algo.scale": False, "mixture": [MIXTURE[0], {**MIXTURE[1], "group": 1}]},
        "needs at least 2"),
        ({"env": None, "mixture": [{**MIXTURE[0], "wieght": 2}]},
        "mixture.0.wieght = 2: there is no such setting; did you mean 'weight'"),
        ({"env": None, "mixture": [{**MIXTURE[0], "horizon": {"kind": "stges"}}]}, "stages"),
        ({"algo.name": "sft"},
        "rollout.tasks = 6: has no effect, sft plays no episodes while training"),
        ({"algo.name": "sft", "rollout": {}}, "horizon.kind = 'stages': has no effect"),
        ({"algo.name": "sft", **OFFLINE, "rollout.resample_rounds": 3},
        "rollout.resample_rounds = 3: has no effect"),
        ({"algo.name": "evol", "rollout.resample_rounds": 3},
        "rollout.resample_rounds = 3: has no effect"),
        ({"algo.name": "sft", "algo.data": ["x"], "algo.noise": 0.5, **OFFLINE}, "the expert's"),
        ({"algo.name": "sft", "algo.invalid_penalty": 0.1, **OFFLINE}, "no such setting"),
        ({"algo.name": "dpo", **OFFLINE}, "algo.data: is required"),
        ({"algo.name": "ppo", "algo.scale": True}, "no such setting"),
        ({"algo.name": "ppo", "algo.critic.knd": "head"}, "did you mean 'kind'"),
        ({"algo.name": "ppo", "algo.gamma": 1}, "never teaches to finish"),
        ({"algo.name": "ppo", "algo.critic.warmup": 6}, "or the policy never learns"),
        ({"algo.name": "sft", "algo.min_reward": 0.9, **OFFLINE}, "there is none"),
        ({"algo.name": "rft", "env": None, "mixture": MIXTURE},
        "reward_scale = 0.5: has no effect under rft"),
        ({"env": None, "mixture": [{**MIXTURE[0], "label": "a/b"}]}, "mixture.0.label"),
        ({"optim.final": 0.1}, "final does nothing while schedule = 'constant'"),
        ({"algo.name": "grpo", "algo.entropy_target": 0.3}, "does nothing while entropy = 0"),
        ({"algo.name": "grpo", "algo.overlong": "mask", "algo.overlong_penalty": 1.0},
        "does nothing while overlong = 'mask'"),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_an_error(overrides, reason):
    with pytest.raises(ConfigError, match=reason):
        build(ECHO, overrides)


def test_explain_names_every_environment_of_a_mixture(tmp_path, capsys):
    recipe = tmp_path / "mixture.toml"
    recipe.write_text(
        "[algo]\nscale = false\n"
        "[[mixture]]\nname = 'tests.support.environments:Echo'\nweight = 3\n[[mixture]]\nname = "
        "'tests.support.environments:Count'\nreward_scale = 0.5\n"
        "[mixture.horizon]\nkind = 'adaptive'\nturns = [2, 4]\n"
    )
    main(["explain", str(recipe), "--model.tokenizer", "bytes"])
    out = capsys.readouterr().out
    assert "echo: 8 trajectories a task, turns allowed: fixed (turns = 20), weight 3" in out
    assert "count: 8 trajectories a task, turns allowed: adaptive (turns = (2, 4)" in out
