"""Whole runs on a task that is learned in seconds: it really learns, it resumes bit for bit, a
plugin's environment trains.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from palestra.algos.batch import pack
from palestra.cli.main import main
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.learner import checkpoint
from palestra.models.attention import PackedLayout, hidden_states
from palestra.models.loading import load_model
from palestra.models.tokenizers import load_tokenizer
from palestra.runs.run import Run
from palestra.runs.state import state_from_dict
from palestra.runs.trajectories import read_trajectories
from palestra.training.display import Display
from palestra.training.evaluation import evaluate_config
from palestra.training.loop import run_training
from tests.support.training import (
    ECHO,
    MIXTURE,
    OFFLINE,
    records,
    stopped_after,
    trained,
    weights,
)


def test_it_learns(tmp_path):
    run = trained(tmp_path / "run", **{"steps": 60, "rollout.tasks": 12, "optim.lr": 2e-3})
    results = {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}
    assert results["raw"] < 0.2
    assert results["final"] > 0.8


SURE_OF_SOME = {
    "warm_start": {
        "episodes": 100,
        "noise": 0.3,
        "updates": 40,
        "check_every": 2,
        "check_tasks": 60,
        "target": 0.5,
    },
    **{"rollout.tasks": 24, "rollout.group": 2},
}


@pytest.mark.parametrize(
    "overrides",
    [
        {"threads": 2},
        {"warm_start": {"episodes": 20, "updates": 4, "check_every": 2, "check_tasks": 8,
        "target": 0.9}, "algo.kl": 0.1},
        {"algo.name": "ppo", "algo.critic.kind": "model", "algo.critic.warmup": 2,
        "algo.critic.lr": 1e-2},
        {"algo.name": "ppo", "algo.level": "token", "algo.entropy": 0.01,
        "algo.entropy_target": 0.5, "algo.kl": 0.1,
         "env.options.rounds": 2},
        {"algo.name": "remax", "rollout.group": 2},
        {"algo.name": "evol", "algo.round": 2, "algo.best": 8, "algo.min_reward": 0.01,
        "algo.batch": 4},
        {"algo.name": "evol", "algo.round": 2, "algo.episodes": 6, "algo.noise": 0.3},
        {"algo.name": "rft", "warm_start": {"episodes": 20, "updates": 2}},
        {"algo.name": "sft", "algo.episodes": 20, "algo.batch": 6, **OFFLINE},
        {"horizon.kind": "adaptive", "horizon.turns": [1, 2, 3], "horizon.window": 1,
        "horizon.gate": 0.1, "horizon.fall": 0.05},
        {"env": None, "mixture": MIXTURE, "algo.scale": False},
        {"rollout.skip_solved": 0.9, **SURE_OF_SOME},
        {"rollout.resample_rounds": 2, "optim.schedule": "cosine", "optim.warmup": 2,
        "optim.epochs": 2, "algo.recompute_logprobs": True,
         "horizon.kind": "linear", "horizon.first": 1, "horizon.last": 3, "horizon.steps": 5},
    ],
    ids=[
        "plain", "warm start and KL", "ppo with a critic of its own", "ppo by tokens", "remax",
        "evol", "evol with a base set", "rft",
        "sft",
        "adaptive horizon", "mixture", "skip dead", "resample_rounds and linear horizon",
    ],
)  # fmt: skip
def test_six_steps_equal_three_and_three_more_bit_for_bit(tmp_path, overrides):
    whole = trained(tmp_path / "whole", **overrides)
    stopped = stopped_after(3, tmp_path / "halves", overrides)
    assert checkpoint.newest(stopped.checkpoints).name == "step-000003"
    resumed = Run.open(stopped.folder)
    run_training(resumed, Display())
    assert records(resumed) == records(whole)
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items())


def test_tasks_without_a_signal_are_passed_over(tmp_path):
    run = trained(tmp_path / "run", **{"rollout.skip_solved": 0.9, **SURE_OF_SOME})
    state = state_from_dict(checkpoint.read_state(checkpoint.newest(run.checkpoints)))
    assert state.tasks_drawn["echo"] - state.tasks_skipped["echo"] == 6 * 24
    assert state.tasks_skipped["echo"] > 0
    assert [row["tasks/skippable"] for row in run.metrics() if "reward" in row][-1] == len(
        state.tasks_skippable["echo"]
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"optim.epochs": 2, "rollout.resample_rounds": 1},
        {"rollout.partial": 3, "steps": 6},
        {"rollout.prefetch": 1},
        {"algo.name": "ppo"},
        {"algo.name": "gigpo", "env.options.rounds": 2},
        {"algo.name": "rft"},
        {"env": None, "mixture": MIXTURE, "algo.scale": False},
        {"env.name": "tests.support.environments:BreaksForRed"},
    ],
    ids=["epochs", "partial", "prefetch", "ppo", "gigpo", "rft", "mixture", "faults"],
)  # fmt: skip
def test_what_was_learned_goes_with_the_episodes(tmp_path, overrides):
    some_skill = {"episodes": 20, "updates": 4, "check_every": 4, "check_tasks": 8}
    run = trained(tmp_path / "run", **{"steps": 3, "warm_start": some_skill, **overrides})
    lines, carried = 0, 0
    for step in range(1, run.config.steps + 1):
        played = {t.id: t for t in read_trajectories(run.trajectory_file(f"step-{step:06d}"))}
        for line in (
            (run.folder / "token_stats" / f"step-{step:06d}.jsonl").read_text().splitlines()
        ):
            learned, lines = json.loads(line), lines + 1
            episode = played[learned.pop("id")]
            carried += episode.step < step
            assert not episode.stop.is_fault
            assert {name: len(values) for name, values in learned.items()} == dict.fromkeys(
                ("advantage", "logp", "entropy"), episode.sampled_tokens
            )
            assert all(logp <= 0 for logp in learned["logp"])
            assert all(entropy >= 0 for entropy in learned["entropy"])
    assert lines > 2
    assert bool(carried) == bool(run.config.rollout.partial)


def test_what_was_learned_first_has_a_ratio_of_one_and_the_credit_of_the_algorithm(tmp_path):
    run = trained(
        tmp_path / "run",
        **{"steps": 3, "optim.minibatches": 1, "optim.epochs": 2, "env.options.rounds": 2},
    )
    for step in (1, 2, 3):
        episodes = list(read_trajectories(run.trajectory_file(f"step-{step:06d}")))
        lines = [
            json.loads(line)
            for line in (run.folder / "token_stats" / f"step-{step:06d}.jsonl")
            .read_text()
            .splitlines()
        ]
        batch = run.config.algo.add_advantages(
            pack([episodes[i : i + 8] for i in range(0, len(episodes), 8)])
        )
        add_advantages = {
            t.id: batch.advantage_C[batch.trajectory_C == n].tolist()
            for n, t in enumerate(episodes)
        }
        by_id = {t.id: t for t in episodes}
        assert [line["id"] for line in lines] == [
            id for id, advantages in add_advantages.items() if any(advantages)
        ]
        for line in lines:
            (segment,) = by_id[line["id"]].segments
            sampled = [
                p for p, chosen in zip(segment.logprobs, segment.mask, strict=True) if chosen
            ]
            assert line["logp"] == pytest.approx(sampled, rel=6e-4, abs=1e-4)
            assert line["advantage"] == pytest.approx(add_advantages[line["id"]], rel=6e-4)


def test_recording_what_was_learned_changes_nothing(tmp_path):
    overrides = {"algo.name": "ppo", "algo.entropy": 0.01, "optim.epochs": 2}
    run, without = (
        trained(tmp_path / "with", **overrides),
        trained(tmp_path / "without", **overrides, **{"save.token_stats": False}),
    )
    assert len(list((run.folder / "token_stats").iterdir())) == 6
    assert not (without.folder / "token_stats").exists()
    assert records(run)[:2] == records(without)[:2]
    assert all(torch.equal(value, weights(without)[name]) for name, value in weights(run).items())


def test_rewinding_forgets_what_was_learned_afterwards(tmp_path):
    run = trained(tmp_path / "run", **{"steps": 3, "algo.name": "ppo"})
    (run.folder / "token_stats" / "notes.txt").write_text("somebody else's")
    run.rewind(1)
    assert sorted(path.name for path in (run.folder / "token_stats").iterdir()) == [
        "notes.txt",
        "step-000001.jsonl",
    ]
    assert [path.name for path in (run.folder / "trajectories").glob("step-*")] == [
        "step-000001.jsonl"
    ]
    run.rewind(-1)
    assert [path.name for path in (run.folder / "token_stats").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "overrides",
    [{"algo.name": "sft", "algo.episodes": 20, **OFFLINE}, {"algo.name": "evol", "algo.round": 2}],
)
def test_nothing_is_recorded_of_what_the_step_did_not_play(tmp_path, overrides):
    assert not (
        trained(tmp_path / "run", **{"steps": 2, **overrides}).folder / "token_stats"
    ).exists()


def test_the_run_folder(tmp_path):
    run = trained(
        tmp_path / "run",
        **{"steps": 3, "save.every": 1, "save.keep": 2, "rollout.resample_rounds": 1},
    )
    assert Run.open(run.folder).config == run.config
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-000002", "step-000003"]
    rows = [row for row in run.metrics() if "reward" in row]
    assert [(row["step"], row["horizon"], row["stage"]) for row in rows] == [
        (1, 1, 1),
        (2, 1, 1),
        (3, 2, 2),
    ]
    episodes = list(read_trajectories(run.trajectory_file("step-000003")))
    assert {e.horizon for e in episodes} == {2}
    assert {e.step for e in episodes} == {3}
    for episode in episodes:
        segment = episode.segments[0]
        assert {
            version
            for version, chosen in zip(segment.versions, segment.mask, strict=True)
            if chosen
        } == {2}  # after two updates
        assert all(
            (logprob != 0) <= bool(chosen)
            for logprob, chosen in zip(segment.logprobs, segment.mask, strict=True)
        )
    result = json.loads((run.folder / "eval" / "step-000003-final.json").read_text())
    assert result["envs"]["echo"]["2"]["all"]["tasks"] == 30


class Notes(Display):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    whole = trained(tmp_path / "whole")
    run = trained(tmp_path / "run")
    damage(checkpoint.newest(run.checkpoints) / "model.safetensors")
    display = Notes()
    resumed = Run.open(run.folder)
    run_training(resumed, display)
    assert display.notes == [
        f"{run.checkpoint(6)}/model.safetensors is damaged: it is not what was written; "
        "this checkpoint is passed over",
        "resumed after step 3",
    ]
    assert records(resumed) == records(whole)
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items())


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_where_all_checkpoints_are_damaged_none_is_used(tmp_path):
    run = trained(tmp_path / "run", steps=3)
    for step in (0, 3):
        damage(run.checkpoint(step) / "optimizer.safetensors")
    with pytest.raises(
        checkpoint.BadCheckpoint,
        match="can be used .2.*step-000000/optimizer.safetensors is damaged",
    ):
        run_training(Run.open(run.folder), Display())
    assert [path.name for path in checkpoint.all_in(run.checkpoints)] == [
        "step-000000",
        "step-000003",
    ]


def test_a_damaged_checkpoint_does_not_push_out_a_sound_one(tmp_path):
    run = trained(tmp_path / "run", **{"steps": 4, "save.every": 1, "save.keep": 2})
    damage(run.checkpoint(4) / "model.safetensors")

    class Killed(Exception):
        pass

    class Killer(Display):
        def phase(self, text):
            shutil.copytree(run.checkpoint(4), run.checkpoint(9))

        def begin_step(self, step):
            if step == 5:
                raise Killed

    with pytest.raises(Killed):
        run_training(Run.open(run.folder, {"steps": 6, "save.keep": 1}), Killer())
    assert checkpoint.latest_valid(run.checkpoints)[0] == run.checkpoint(4)


def test_a_half_written_checkpoint_is_not_seen(tmp_path):
    run = trained(tmp_path / "run", steps=3)
    (run.checkpoints / ".step-000009.draft").mkdir()
    (run.checkpoints / "step-000008").mkdir()  # no state in it
    assert checkpoint.newest(run.checkpoints).name == "step-000003"


def test_resume_eval_and_export_on_the_command_line(tmp_path, capsys):
    run = trained(tmp_path / "run", steps=2)
    main(["train", "--resume", str(run.folder), "--steps", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["result"]["step"] == 3
    assert (run.folder / "curve.png").stat().st_size > 1000
    main(["eval", str(run.folder), "--limit", "9", "--k", "2", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (result["step"], result["envs"]["echo"]["2"]["all"]["episodes"]) == (3, 18)
    assert Path(result["file"]).parent == run.folder / "eval"
    main(
        [
            "eval",
            str(run.folder),
            "--agent",
            "random",
            "--limit",
            "9",
            "--json",
            "--out",
            str(tmp_path / "r.json"),
        ]
    )
    chance = json.loads(capsys.readouterr().out)
    assert (chance["phase"], list(chance["envs"]["echo"])) == ("random", ["2"])
    main(["model", "export", str(run.folder), str(tmp_path / "model")])
    capsys.readouterr()
    main(["eval", "--model", str(tmp_path / "model"), "--env", "tests.support.environments:Echo",
    "--agent.format", "plain", "--limit", "9", "--json",
          "--agent.context_tokens", "64", "--agent.reply_tokens", "4", "--horizon", "2", "--out",
          str(tmp_path / "e.json")])  # fmt: skip
    assert json.loads(capsys.readouterr().out)["envs"]["echo"]["2"]["all"]["tasks"] == 9
    main(["eval", str(run.folder), "--model", str(tmp_path / "model"), "--limit", "9", "--k", "2",
    "--json",
          "--out", str(tmp_path / "m.json")])  # fmt: skip
    again = json.loads(capsys.readouterr().out)
    assert again["envs"] == result["envs"]  # the model of its newest checkpoint
    with pytest.raises(SystemExit):
        main(["train", str(run.folder / "config.toml"), "--out", str(run.folder)])
    assert "there is a run in this folder already" in capsys.readouterr().err


def test_the_exported_model_is_anybodys(tmp_path):
    """Loaded by transformers alone, it computes what ours computes."""
    run = trained(tmp_path / "run", steps=1)
    folder = checkpoint.newest(run.checkpoints)
    code = (
        "import sys, json; from transformers import AutoModelForCausalLM, AutoTokenizer; "
        "import torch;"
        "m = AutoModelForCausalLM.from_pretrained(sys.argv[1]); t = "
        "AutoTokenizer.from_pretrained(sys.argv[1]);"
        "print(json.dumps(m(torch.tensor([t.encode('say red right')])).logits[0].tolist()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    model = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    ids = torch.tensor([load_tokenizer(folder).encode("say red right")])
    ours = model.get_output_embeddings()(
        hidden_states(model, ids, torch.arange(3)[None], layout=PackedLayout([3]))
    )[0]
    assert torch.allclose(torch.tensor(json.loads(done.stdout)), ours, atol=1e-5)


def test_a_run_that_may_learn_from_nothing_goes_on(tmp_path):
    """No observation and reply fit into this context: every episode is overlong before its first
    token. No update, no error.
    """
    run = trained(
        tmp_path / "run",
        **{"steps": 2, "algo.overlong": "mask", "agent.context_tokens": 3, "agent.reply_tokens": 1},
    )
    rows = [row for row in run.metrics() if "reward" in row]
    assert [row["stop/context"] for row in rows] == [1.0, 1.0]
    assert not any("loss" in row for row in rows)


@pytest.mark.parametrize("env", ["RewardsNoNumberForRed", "RewardsInfinityForRed"])
def test_a_reward_that_is_no_number_is_the_environments_fault_and_teaches_nothing(tmp_path, env):
    """The run is to the last bit the one whose environment breaks there."""
    broken = trained(
        tmp_path / "broken", **{"steps": 4, "env.name": "tests.support.environments:BreaksForRed"}
    )
    run = trained(tmp_path / "run", **{"steps": 4, "env.name": f"tests.support.environments:{env}"})
    assert all(row["faults"] > 0 for row in run.metrics() if "faults" in row)
    faulty = [t for t in read_trajectories(run.trajectory_file("step-000003")) if t.stop.is_fault]
    assert {(t.task.category, t.success, t.reward) for t in faulty} == {("red", None, 0.0)}
    assert all("finite reward" in t.fault for t in faulty)
    assert all(torch.equal(value, weights(broken)[name]) for name, value in weights(run).items())


def test_records_of_a_crash_do_not_stop_the_next_start(tmp_path):
    run = trained(tmp_path / "run", steps=2)
    with (run.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 3, "rew')
    resumed = Run.open(run.folder, {"steps": 3})
    run_training(resumed, Display())
    assert [row["phase"] for row in resumed.metrics() if "phase" in row] == ["raw", "final"]
    assert [row["step"] for row in resumed.metrics() if "reward" in row] == [1, 2, 3]
    assert Run.open(run.folder).config.steps == 3


def test_what_a_resumed_run_cannot_change(tmp_path):
    run = trained(tmp_path / "run", steps=1)
    before = (run.folder / "config.toml").read_text()
    with pytest.raises(ConfigError, match="model cannot be changed"):
        Run.open(run.folder, {"model.width": 64})
    with pytest.raises(ConfigError, match="begun without a reference"):
        run_training(Run.open(run.folder, {"algo.kl": 0.1}), Display())
    assert (run.folder / "config.toml").read_text() == before


def test_evaluation_never_claims_a_longer_horizon_than_was_played(tmp_path):
    config = build(ECHO, {"eval.horizon": 1, "eval.tasks": 3})
    result = evaluate_config(config, agent=None, own_horizon=True)
    assert list(result.envs["echo"]) == ["1"]
    expert = evaluate_config(build(ECHO), agent="expert", own_horizon=False)
    assert list(expert.envs["echo"]) == ["2"]  # the environment's own


def test_a_run_whose_environment_always_breaks_stops_and_says_why(tmp_path):
    with pytest.raises(
        RuntimeError,
        match="every episode of the evaluation .raw. ended in a fault.*the simulator is missing",
    ):
        trained(tmp_path / "run", **{"env.name": "tests.support.environments:NeverStarts"})


def test_a_run_with_faults_learns_from_the_rest(tmp_path):
    run = trained(
        tmp_path / "run", **{"env.name": "tests.support.environments:BreaksForRed", "steps": 2}
    )
    rows = [row for row in run.metrics() if "reward" in row]
    assert all(row["faults"] > 0 and "loss" in row for row in rows)


PLUGIN = """
from palestra.envs import Environment
from palestra.core.types import Step, Task

class Parrot(Environment):
    '''Say hello.'''
    name = "parrot"
    max_turns = 2
    def tasks(self, split): return [Task("parrot", split, f"{split}-{i}") for i in range(12)]
    def reset(self, task):
        self.done = False
        return "say hello"
    def step(self, action):
        won, self.done = action == "hello" and not self.done, True
        return Step("bye", float(won), terminated=True, success=won)
    def expert(self): return "hello"
    def vocabulary(self): return ["say", "hello", "bye"]
"""


def test_a_third_party_environment_is_listed_checked_and_trained_on(tmp_path):
    """Another package, installed beside ours and found by its entry point alone."""
    site = tmp_path / "site"
    info = site / "parrot_env-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "parrot_env.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot-env\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[palestra.envs]\nparrot = parrot_env:Parrot\n")
    recipe = tmp_path / "parrot.toml"
    recipe.write_text(
        'steps = 2\n[model]\nwidth = 16\nlayers = 1\nheads = 2\n[env]\nname = "parrot"\n'
        '[agent]\nformat = "plain"\n'
        "context_tokens = 32\nreply_tokens = 3\n[rollout]\ntasks = 4\ngroup = 4\n"
        "[horizon]\nturns = 2\n[eval]\ntasks = 8\n"
    )

    def palestra(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(
            [sys.executable, "-m", "palestra", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "parrot" in [row["name"] for row in json.loads(palestra("env", "list", "--json"))]
    assert all(check["ok"] for check in json.loads(palestra("env", "check", "parrot", "--json")))
    out = palestra("train", str(recipe), "--out", str(tmp_path / "run"))
    assert "held-out success, final" in out
