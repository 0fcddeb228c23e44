"""The command line as a person uses it."""

import io
import json
from contextlib import closing
from pathlib import Path

import pytest
import torch
from rich.console import Console

from palestra.cli.main import main
from palestra.config.config import load
from palestra.learner.checkpoint import export
from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import byte_tokenizer
from palestra.runs.trajectories import read_trajectories
from palestra.training.display import ProgressDisplay
from palestra.view.answers import Answers

QUICKSTART = str(Path(__file__).parents[3] / "palestra" / "recipes" / "quickstart.toml")


def run(capsys, *arguments):
    main(list(arguments))
    return capsys.readouterr().out


def test_env_list_as_json(capsys):
    rows = {row["name"]: row for row in json.loads(run(capsys, "env", "list", "--json"))}
    assert {"babyai", "guess", "textcraft"} <= set(rows)
    assert rows["textcraft"]["tasks"]["test"] == 100
    assert rows["babyai"]["summary"] == "minigrid's BabyAI levels."
    in_a_browser = {
        "web",
        "webarena",
        "miniwob",
    }  # say what is missing where there is no Chromium, or no address
    errors = {name: row["error"] for name, row in rows.items() if row["error"] is not None}
    assert errors.keys() <= in_a_browser, errors


def test_every_shipped_recipe_has_a_summary_of_one_line(capsys):
    rows = json.loads(run(capsys, "recipes", "--all", "--json"))
    assert {"quickstart", "results/textcraft"} <= {row["name"] for row in rows}
    assert [row for row in rows if not 20 <= len(row["summary"]) <= 110] == []
    assert [row for row in rows if not row["summary"].endswith(".")] == []


@pytest.mark.parametrize("name", ["textcraft", "babyai"])
def test_env_check(capsys, name):
    assert "FAILED" not in run(capsys, "env", "check", name, "--tasks", "4")


def test_env_check_fails_loudly(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["env", "check", "tests.contract.test_envs:ExpertLies", "--json"])
    assert exit_.value.code == 1
    assert any(not check["ok"] for check in json.loads(capsys.readouterr().out))


def test_env_play(capsys, monkeypatch):
    lines = iter(
        [
            ":actions",
            "nonsense",
            ":expert",
            ":expert",
            ":expert",
            ":expert",
            ":expert",
            ":expert",
            ":quit",
        ]
    )
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    out = run(capsys, "env", "play", "textcraft", "--split", "test")
    assert "Goal: craft" in out
    assert "Expected `craft" in out
    assert "reward" in out.splitlines()[-1]


def test_env_play_ends_with_the_input(capsys, monkeypatch):
    def no_more(prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", no_more)
    assert "0 turns" in run(capsys, "env", "play", "guess", "--task", "7")


def test_dry_run_prints_the_resolved_run(capsys):
    out = run(capsys, "train", QUICKSTART, "--dry-run", "--steps", "3", "--optim.lr=0.5")
    assert "steps = 3" in out
    assert "lr = 0.5" in out


def test_a_model_in_short_is_a_flag_wherever_a_recipe_is_taken(capsys, tmp_path):
    model = tiny_model(
        vocabulary=99,
        width=16,
        layers=1,
        heads=2,
        context=8192,
        stop_id=1,
        seed=0,
        device=torch.device("cpu"),
    )
    export(tmp_path, model, byte_tokenizer())
    out = run(capsys, "train", QUICKSTART, "--model", str(tmp_path), "--dry-run")
    assert f'[model]\nkind = "pretrained"\npath = "{tmp_path}"' in out
    assert "babyai" in run(capsys, "explain", QUICKSTART, "--model", "some/model")
    for command in (["train", QUICKSTART], ["doctor", QUICKSTART], ["eval", "--env", "guess"]):
        with pytest.raises(SystemExit) as exit_:
            main([*command, "--model", str(tmp_path / "no" / "such" / "model")])
        assert exit_.value.code == 2
        assert "expected a Hugging Face directory" in capsys.readouterr().err


def test_explain_prints_the_objective_with_its_numbers(capsys):
    out = run(
        capsys,
        "explain",
        QUICKSTART,
        "--algo.kl",
        "0.02",
        "--algo.overlong",
        "mask",
        "--algo.clip_high",
        "0.3",
    )
    assert "objective_c = min(ratio_c * A_c, clip(ratio_c, 0.8, 1.3) * A_c) - 0.02 * KL_c" in out
    assert "A_i = R_i - mean_group(R_i)" in out
    assert "a fault or a token budget ended" in out
    assert "each of 120 steps: 16 tasks" in out
    assert (
        "babyai: 8 trajectories a task, turns allowed: stages (turns = (10, 13, 16), every = 40)"
        in out
    )
    for name, formula in [
        ("gspo", "stop(mean_tokens(logp_c - logp_old_c))"),
        ("cispo", "stop(clip(ratio_c, 0, 1.28)) * A_c * logp_c"),
        ("rloo", "mean_others(R_i)"),
        ("gigpo", "mean_same_observation(return_u)"),
        ("reinforce_pp", "A_c = whiten_step(A_i)"),
        ("dr_grpo", "1 / (trajectories * 256)"),
    ]:
        assert formula in run(capsys, "explain", QUICKSTART, "--algo.name", name)


def test_explain_says_what_overlaps(capsys):
    out = run(capsys, "explain", QUICKSTART, "--rollout.prefetch", "1", "--rollout.partial", "5")
    assert "the next step is played during this step's update" in out
    assert "up to 5 unfinished groups carry over" in out
    stale = [
        "--rollout.max_staleness",
        "2",
        "--algo.recompute_logprobs",
        "true",
        "--algo.correction.cap",
        "2",
        "--engine.deterministic",
        "false",
    ]
    assert "with weights that are up to 2 steps older" in run(capsys, "explain", QUICKSTART, *stale)
    assert "play" not in run(capsys, "explain", QUICKSTART)


def test_eval_of_the_expert_and_of_chance(capsys, tmp_path):
    out = tmp_path / "expert.json"
    run(
        capsys,
        "eval",
        "--agent",
        "expert",
        "--env",
        "textcraft",
        "--limit",
        "10",
        "--out",
        str(out),
    )
    expert = json.loads(out.read_text())
    assert expert["envs"]["textcraft"]["30"]["all"]["success"] == 1.0
    chance = json.loads(
        run(
            capsys,
            "eval",
            "--agent",
            "random",
            "--env",
            "textcraft",
            "--limit",
            "10",
            "--k",
            "2",
            "--json",
            "--out",
            str(out),
        )
    )
    assert chance["envs"]["textcraft"]["30"]["all"]["success"] < 0.5
    assert chance["envs"]["textcraft"]["30"]["all"]["episodes"] == 20


def test_episodes_of_an_evaluation_can_be_kept_and_looked_at(capsys, tmp_path):
    words = [
        "eval",
        "--agent",
        "expert",
        "--env",
        "textcraft",
        "--limit",
        "3",
        "--out",
        str(tmp_path / "x.json"),
        "--keep",
    ]
    said = json.loads(run(capsys, *words, str(tmp_path / "kept"), "--json"))
    assert said["episodes"] == str(tmp_path / "kept")
    assert (
        json.loads((tmp_path / "kept" / "eval" / "step-000000-expert.json").read_text())["all"]
        == said["all"]
    )
    kept = list(
        read_trajectories(tmp_path / "kept" / "trajectories" / "eval-step-000000-expert.jsonl")
    )
    assert [trajectory.success for trajectory in kept] == [True] * 3
    with closing(Answers([tmp_path / "kept"], live=False)) as viewer:
        (id,) = viewer.ids
        assert viewer.run(id)["evals"][0]["all"]["success"] == 1.0
        assert viewer.runs()["runs"][0]["is_over"]
    with pytest.raises(SystemExit):
        main([*words, str(tmp_path / "kept")])
    assert "there is a run in this folder already" in capsys.readouterr().err


def test_an_evaluation_is_counted_in_a_terminal():
    terminal, pipe = (
        Console(file=io.StringIO(), force_terminal=shown, width=80, no_color=True)
        for shown in (True, False)
    )
    for console in (terminal, pipe):
        with closing(ProgressDisplay(console)) as display:
            display.begin_eval("expert", 2)
            display.episode_done(None)
            display._progress.refresh()
    assert "expert plays" in terminal.file.getvalue()
    assert "1/2" in terminal.file.getvalue()
    assert not pipe.file.getvalue()


def test_eval_of_a_baseline_where_a_recipe_plays(capsys, tmp_path):
    out = tmp_path / "expert.json"
    run(capsys, "eval", QUICKSTART, "--agent", "expert", "--limit", "5", "--out", str(out))
    (env,) = json.loads(out.read_text())["envs"].values()
    assert list(env) == [
        str(load(Path(QUICKSTART), {}).env_specs[0].horizon.full)
    ]  # the recipe's horizon, not the environment's
    assert env[next(iter(env))]["all"] | {"tasks": 5, "success": 1.0} == env[next(iter(env))]["all"]
