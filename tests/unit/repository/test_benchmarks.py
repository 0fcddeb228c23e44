"""Benchmarks run, and what they compare does the same work."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import save_file

from palestra.agents.renderer import Renderer
from palestra.agents.scripted import ScriptedAgent
from palestra.config.config import build
from palestra.core.types import Sampling
from palestra.engines.base import NoEngine
from palestra.learner.checkpoint import newest
from palestra.rollout.episode import EpisodeSpec, RolloutContext, shared_prompt
from palestra.rollout.groups import rollout_episodes
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training
from palestra.training.setup import bind_envs
from tests.support.training import ECHO, trained

ROOT = Path(__file__).parents[3]


def run(program, *arguments, timeout=100):
    command = [sys.executable, str(ROOT / "benchmarks" / program), *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_steps_are_measured_phase_by_phase(tmp_path):
    recipe = [
        "--recipe",
        ROOT / "palestra" / "recipes" / "quickstart.toml",
        "--rollout.tasks",
        3,
        "--threads",
        1,
    ]
    printed = run("step.py", *recipe, "--steps", 2, "--json", tmp_path / "steps.json")
    result = json.loads((tmp_path / "steps.json").read_text())
    assert [row["is_warm_up"] for row in result["steps"]] == [True, False, False]
    for row in result["steps"]:
        seconds = dict(row["seconds"])
        assert 0 < sum(seconds.values()) - seconds["total"] <= seconds["total"]
        assert row["episodes"] == 3 * 8
        assert 0 < row["sampled_tokens"] < row["collected_tokens"]
        assert (row["trained_tokens"] > 0) == (row["groups_with_signal"] > 0)
    sampled = [row["sampled_tokens"] for row in result["steps"][1:]]
    assert result["mean"]["sampled_tokens"] == sum(sampled) / 2
    assert result["versions"]["torch"]
    assert printed.splitlines()[-1].split()[0] == "mean"


def test_calls_through_worker_processes_are_counted():
    *_, head, one, two = run(
        "workers.py", "--env", "guess", "--sessions", 8, "--workers", 1, 2, "--seconds", 0.2
    ).splitlines()
    assert head.split() == ["workers", "steps/s", "resets/s", "calls/s"]
    for number, line in (("1", one), ("2", two)):
        workers, steps, resets, calls = line.split()
        assert workers == number
        assert 0 < int(resets) < int(steps) < int(calls)


def test_no_step_is_lost_or_mixed_up_between_many_sessions(tmp_path):
    printed = run(
        "env_server.py", "--sessions", 60, "--steps", 5, "--json", tmp_path / "server.json"
    )
    rows = json.loads((tmp_path / "server.json").read_text())["rows"]
    assert [(row["transport"], row["steps"], row["lost"], row["mixed_up"]) for row in rows] == [
        ("stream", 300, 0, 0),
        ("http", 300, 0, 0),
    ]
    assert len(printed.splitlines()) == 3


def test_what_breaks_is_accounted_for(tmp_path):
    printed = run("env_faults.py", "--small", "--json", tmp_path / "faults.json")
    results = json.loads((tmp_path / "faults.json").read_text())
    for name, episodes in (("killed_workers", 40), ("killed_server", 60)):
        counts = results[name]
        assert (
            counts["ok"] + counts["retried"] + counts["faulted"] == counts["episodes"] == episodes
        )
        assert counts["retried"] + counts["faulted"] == counts["hit"] > 0
        assert (counts["scored_faults"], counts["unsolved"], counts["kinds"]) == (
            0,
            0,
            ["env_fault"],
        )
    assert results["killed_workers"]["kills"] >= 2
    assert set(results["hanging"]["late_s_max"]) == {"sleeps", "computes", "is deaf"}
    assert [(row["transport"], row["lost_or_repeated"]) for row in results["bad_line"]] == [
        ("stream", 0),
        ("http", 0),
    ]
    assert sum(row["resets"] + row["unavailable"] for row in results["bad_line"]) > 0
    bad = [(row["where"], row["every"], row["kind"], row["lost"]) for row in results["bad_tasks"]]
    trials = []
    for where, every in (("workers", 30), ("workers", 2), ("server", 30)):
        trials += [(where, every, kind, 0) for kind in ("raise", "exit", "hang")]
    assert bad == trials
    assert len(printed.splitlines()) == 16


def test_the_viewer_is_measured_on_a_run_of_many_episodes(tmp_path):
    printed = run("view.py", "--episodes", 600, "--json", tmp_path / "view.json")
    figures = {
        row["what"]: row["figure"]
        for row in json.loads((tmp_path / "view.json").read_text())["rows"]
    }
    assert figures["episodes"] == 600
    assert figures["search, absent (0 hits)"] > 0
    assert figures["search, in every row (600 hits)"] > 0
    assert "first page" in printed


def test_a_corpus_is_indexed_and_searched_by_many_episodes(tmp_path):
    printed = run(
        "search.py",
        "--passages",
        2000,
        "--seconds",
        0.3,
        "--workers",
        2,
        "--json",
        tmp_path / "search.json",
    )
    result = json.loads((tmp_path / "search.json").read_text())
    assert [
        (row["passages"], row["seconds"] > 0, row["peak_mb"] > 10) for row in result["index"]
    ] == [(2000, True, True)]
    assert [
        (row["workers"], row["queries_per_s"] > 0, row["p99_ms"] >= row["median_ms"])
        for row in result["queries"]
    ] == [(2, True, True)]
    assert len(printed.splitlines()) == 3


def test_search_takes_searching(tmp_path):
    run(
        "search_baselines.py",
        "--split",
        "dev",
        "--limit",
        500,
        "--json",
        tmp_path / "baselines.json",
    )
    rows = json.loads((tmp_path / "baselines.json").read_text())
    assert rows["all"]["questions"] == 500
    assert rows["all"]["guesser"] < 0.02 * 500
    assert all(row["expert"] >= 0.99 * row["questions"] for row in rows.values())
    after_one = [
        rows[f"{hops} hops"]["single"] / rows[f"{hops} hops"]["questions"] for hops in (1, 2, 3, 4)
    ]
    assert after_one == sorted(after_one, reverse=True)
    assert after_one[3] < 0.1


WORDS = {
    "solves": None,
    "unreadable": "I do not know",
    "cut": "Thought: " + "so " * 200,
    "refused": "Action: get 1 moon",
}
"""What is said in every turn of an episode; None is what the environment's expert would do."""


@pytest.mark.parametrize("spare_tokens", [10_000, 500], ids=["ends by itself", "fills the context"])
def test_lockstep_plays_by_the_rules_of_a_rollout(monkeypatch, byte_level, spare_tokens):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from lockstep import Rollout

    renderer = Renderer(byte_level)

    def settings(context):
        agent = {"example": True, "context_tokens": context, "reply_tokens": 200}
        return build(
            {
                "env": {"name": "textcraft"},
                "agent": agent,
                "horizon": {"turns": 5},
                "rollout": {"tasks": 2, "group": 2},
            }
        )

    def generate(trainer, prompts):
        kinds = [kind for play, kind in zip(lockstep.plays, WORDS, strict=True) if not play.is_over]
        live = [play for play in lockstep.plays if not play.is_over]
        replies = [
            renderer.reply_ids(WORDS[kind] or f"Action: {play.env.expert()}")[:200]
            for play, kind in zip(live, kinds, strict=True)
        ]
        return [(reply, [-1.0] * len(reply)) for reply in replies]

    class Scripted(ScriptedAgent):
        async def reply(self, sampling):
            known = WORDS[self.context.session.id]
            return known or f"Action: {await self.context.hints.expert()}"

    longest = Rollout(settings(20_000), renderer, generate)
    lockstep = longest
    tasks = list(lockstep.tasks.values())[:4]
    lockstep([task.id for task in tasks], None)
    config = settings(max(len(play.prompt_ids) for play in longest.plays) + spare_tokens)
    lockstep = Rollout(config, renderer, generate)
    returned = lockstep([task.id for task in tasks], None)

    bindings = bind_envs(config, {"textcraft": lockstep.envs[0]}, byte_level)
    sampling = Sampling(max_tokens=200, stop_ids=shared_prompt(bindings).renderer.stop_ids)
    context = RolloutContext(bindings, NoEngine(), sampling, Scripted)
    episodes = [
        EpisodeSpec(kind, task, horizon=5, seed=0) for kind, task in zip(WORDS, tasks, strict=True)
    ]
    played, _ = asyncio.run(rollout_episodes(context, episodes))

    for number, (trajectory, play) in enumerate(zip(played, lockstep.plays, strict=True)):
        (stream,) = trajectory.segments
        end = (
            max(place for place, chosen in enumerate(stream.mask) if chosen) + 1
        )  # TRL has no use for a last observation
        assert (
            returned["prompt_ids"][number] + returned["completion_ids"][number] == stream.ids[:end]
        )
        assert [0] * len(play.prompt_ids) + returned["env_mask"][number] == stream.mask[:end]
        assert returned["logprobs"][number] == [
            -1.0 if chosen else 0.0 for chosen in returned["env_mask"][number]
        ]
        assert (play.reward, play.success, play.turns) == (
            trajectory.reward,
            bool(trajectory.success),
            len(trajectory.turns),
        )
    stops = {kind: str(t.stop) for kind, t in zip(WORDS, played, strict=True)}
    assert stops["cut"] == "length"
    assert stops["unreadable"] == ("horizon" if spare_tokens == 10_000 else "context")
    counts = lockstep.counts()
    assert counts["sampled_tokens"] == sum(t.sampled_tokens for t in played)
    assert counts["turns"] == sum(len(t.turns) for t in played)


def test_asynchronous_training_is_compared_over_the_same_tasks(tmp_path):
    run(
        "asynchronous.py",
        "--seconds",
        0,
        "--staleness",
        2,
        "--steps",
        2,
        "--json",
        tmp_path / "rows.json",
    )
    synchronous, streaming = json.loads((tmp_path / "rows.json").read_text())
    assert (synchronous["age_max"], synchronous["times"]) == (0, 1)
    assert 0 < streaming["age_max"] <= 2
    assert synchronous["share_off_by"] == streaming["share_off_by"] == 0
    assert streaming["times"] == streaming["groups_per_s"] / synchronous["groups_per_s"]


def test_a_visit_ends_in_time_and_what_it_brings_home_goes_on(tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(tomli_w.dumps(ECHO | {"steps": 100_000}))
    trained(tmp_path / "first", steps=1)
    given = [
        recipe,
        "--model",
        newest(tmp_path / "first" / "checkpoints"),
        "--minutes",
        0.15,
        "--reserve",
        0.05,
        "--no-doctor",
    ]
    run("visit.py", *given, "--greedy", "--out", tmp_path / "visit")
    (one,) = json.loads((tmp_path / "visit" / "small-0.json").read_text())["runs"]
    assert [own["phase"] for own in one["evals"]] == ["raw", "final"]
    assert one["steps"] < 100_000
    assert json.loads((tmp_path / "visit" / "greedy.json").read_text())["step"] == one["steps"]
    (tmp_path / "home").mkdir()
    for name in ("small-0-episodes.tar.gz", "run.tar"):
        subprocess.run(
            ["tar", "xf", tmp_path / "visit" / name, "-C", tmp_path / "home"], check=True
        )
    names = {f"eval-step-{one['steps']:06d}-final.jsonl", f"step-{one['steps']:06d}.jsonl"}
    assert {
        path.name for path in (tmp_path / "home" / "small-0" / "trajectories").iterdir()
    } == names
    home = Run.open(tmp_path / "home" / "small-0", {"limit.minutes": 60, "steps": one["steps"] + 2})
    run_training(home, Display())
    assert [row["step"] for row in home.metrics() if "loss" in row] == list(
        range(1, one["steps"] + 3)
    )


@pytest.mark.timeout(360)
def test_steps_are_recomputed_from_run_folders_alone(tmp_path):
    run("oracle.py", "--out", tmp_path, "--json", tmp_path / "found.json", timeout=300)
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["settings"]) >= 30
    assert found["worst"] < 1e-5
    for figures in found["settings"].values():
        assert {"loss", "grad_norm", "weights", "exp_avg", "exp_avg_sq"} <= set(figures)
    # and what is not so, shows: the same steps, read as if by another objective
    config = tmp_path / "04" / "config.toml"
    assert "kl = 0.1\n" in config.read_text()
    config.write_text(config.read_text().replace("kl = 0.1\n", "kl = 0.11\n"))
    assert float(run("oracle.py", "--run", tmp_path / "04").split()[-1]) > 1e-3


@pytest.mark.timeout(360)
def test_two_checkouts_compute_the_same_numbers_or_the_first_difference_is_shown(tmp_path):
    given = ["same_numbers.py", ROOT, ROOT, "--only", "sft", "--keep", tmp_path]
    assert run(*given, timeout=200).split()[-1] == "yes"
    kept = tmp_path / "sft.json"
    found = json.loads(kept.read_text())
    (step_2,) = [row for row in found["rows"] if row["step"] == 2]
    step_2["loss"] += 1e-15
    kept.write_text(json.dumps(found))
    command = [sys.executable, str(ROOT / "benchmarks" / "same_numbers.py"), *map(str, given[1:])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stderr
    assert "sft: row 3 (step 2): loss = " in done.stdout


def test_settings_and_metrics_of_a_checkout_before_a_renaming_are_translated(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from same_numbers import Numbers, Renamed, first_difference, in_new_names, in_old_names

    renamed = Renamed(
        {"rollout.ahead": "rollout.prefetch", "rollout.carry": "rollout.partial"},
        {"engine.name": {"native": "torch"}},
        {"groups/dead": "groups/zero_advantage"},
    )
    tree = {"steps": 6, "engine": {"name": "torch"}, "rollout": {"prefetch": 1, "partial": 0}}
    assert in_old_names(tree, renamed, known=renamed) == tree
    assert in_old_names(tree, renamed, known=Renamed({}, {}, {})) == {
        "steps": 6,
        "engine": {"name": "native"},
        "rollout": {"ahead": 1, "carry": 0},
    }
    half = Renamed({"rollout.carry": "rollout.partial"}, {}, {})
    assert in_old_names(tree, renamed, known=half)["rollout"] == {"ahead": 1, "partial": 0}

    old = Numbers({}, [{"step": 1, "groups/dead": 0.0, "env/guess/groups/dead": 0.5}])
    new = [{"step": 1, "groups/zero_advantage": 0.0, "env/guess/groups/zero_advantage": 0.5}]
    assert in_new_names(old, renamed).rows == new
    assert first_difference(in_new_names(old, renamed), Numbers({}, new)) == ""
    assert first_difference(old, Numbers({}, new)).startswith("row 1 (step 1): groups/dead = 0.0")


def test_a_bit_of_a_tensor_or_its_type_changes_its_digest_and_metadata_does_not(
    monkeypatch, tmp_path
):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from same_numbers import Numbers, first_difference, tensor_digests

    def digests(tensor, **metadata):
        save_file({"same": torch.ones(2), "w": tensor}, tmp_path / "model.safetensors", metadata)
        return tensor_digests(tmp_path / "model.safetensors")

    before = digests(torch.zeros(2, 3))
    assert digests(torch.zeros(2, 3), written_by="another version") == before
    for changed in (-torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.int32)):
        found = first_difference(Numbers(before, []), Numbers(digests(changed), []))
        assert found == "1 tensors differ, first model.safetensors: w"
