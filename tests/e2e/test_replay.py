"""Stored episodes played again: by their actions, and on from a turn by a model."""

import json
import shutil
import tomllib
from dataclasses import replace

import pytest
import tomli_w

from palestra.cli.main import main
from palestra.config.config import build
from palestra.core.types import Step, Stop
from palestra.runs.run import Run
from palestra.runs.trajectories import encode_trajectory, read_trajectories
from palestra.tools.replay import (
    Differs,
    PlayOn,
    ReplayError,
    check_stored,
    find_episode,
    play_stored,
)
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.environments import Count
from tests.support.training import ECHO, MIXTURE, trained

NUMBERS = f"{__name__}:Numbers"


class Numbers(Count):
    """Counting, with options that change how it answers."""

    name = "numbers"

    def __init__(
        self, praise: str = "right", ends_after: int = 0, breaks_after: int = 0, value: float = 1.0
    ) -> None:
        self.praise, self.ends_after, self.breaks_after, self.value = (
            praise,
            ends_after,
            breaks_after,
            value,
        )

    def reset(self, task):
        self.steps = 0
        return super().reset(task)

    def step(self, action):
        self.steps += 1
        if self.steps == self.breaks_after:
            raise RuntimeError("out of numbers")
        step = super().step(action)
        if step.invalid:
            return replace(step, terminated=self.steps == self.ends_after)
        return Step(
            self.praise,
            step.reward * self.value,
            step.terminated or self.steps == self.ends_after,
            success=step.success,
        )


WARM = {
    "episodes": 40,
    "updates": 60,
    "check_every": 5,
    "check_tasks": 30,
    "target": 0.5,
    "noise": 0.1,
    "lr": 1e-2,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run with every checkpoint, of a model that counts now and then."""
    overrides = {"env.name": NUMBERS, "horizon.kind": "fixed", "horizon.turns": 4, "steps": 3,
    "warm_start": WARM,
                 "save.every": 1, "save.keep": 9, "rollout.temperature": 1.2,
                 "optim.lr": 3e-3}  # fmt: skip
    return trained(tmp_path_factory.mktemp("played") / "run", **overrides)


@pytest.fixture
def run(played, tmp_path):
    """One of its own for each test."""
    shutil.copytree(played.folder, tmp_path / "run")
    return Run.open(tmp_path / "run")


def with_options(run, **options):
    """The same run, after its environment was changed."""
    path = run.folder / "config.toml"
    tree = tomllib.loads(path.read_text())
    tree["env"]["options"] = options
    path.write_text(tomli_w.dumps(tree))
    return Run.open(run.folder)


def episode(run, wanted, file="step-000003"):
    return next(e for e in read_trajectories(run.trajectory_file(file)) if wanted(e))


def solved(e):
    return bool(e.success)


def palestra(capsys, *arguments):
    """The exit code and what was printed."""
    try:
        main(["replay", *map(str, arguments)])
        code = 0
    except SystemExit as exit_:
        code = exit_.code
    out, err = capsys.readouterr()
    return code, out + err


def differences(result):
    return {(t.turn, d.field): (d.recorded, d.now) for t in result.turns for d in t.differences}


def test_the_same_environment_answers_as_it_did(run):
    stops = set()
    for file in ("step-000003", "eval-step-000000-raw", "eval-step-000003-final"):
        for recorded in read_trajectories(run.trajectory_file(file)):
            result = check_stored(run, find_episode(run, recorded.id))
            assert result.same, (recorded, result.turns)
            assert len(result.turns) == len(recorded.turns)
            stops.add(recorded.stop)
    assert {Stop.DONE, Stop.HORIZON, Stop.LENGTH} <= stops  # or the loop has shown little


def test_on_the_command_line(run, capsys):
    recorded = episode(run, solved)
    code, out = palestra(capsys, run.folder, "--episode", recorded.id)
    assert code == 0
    assert f"turn {len(recorded.turns)}\n" in out
    assert "> one\n  (reward 0.333333)" in out
    assert (
        out.splitlines()[-1] == f"the environment answers as it did ({len(recorded.turns)} turns)"
    )
    code, out = palestra(capsys, run.folder, "--episode", recorded.id, "--json")
    result = json.loads(out)
    assert (code, result["same"], result["episode"], result["task"]["env"]) == (
        0,
        True,
        recorded.id,
        "numbers",
    )
    assert [turn["action"] for turn in result["turns"]] == [turn.action for turn in recorded.turns]


def test_another_text(run, capsys):
    recorded = episode(run, lambda e: solved(e) and len(e.turns) == 3)  # one, two, three
    with_options(run, praise="fine")
    code, out = palestra(capsys, run.folder, "--episode", recorded.id)
    assert code == 1
    assert "! observation: expected 'right', got 'fine'" in out
    assert "! final_observation: expected 'right', got 'fine'" in out
    assert out.splitlines()[-1] == "it differs at turns 2, 3"
    code, out = palestra(capsys, run.folder, "--episode", recorded.id, "--json")
    result = json.loads(out)
    assert (code, result["same"], [turn["same"] for turn in result["turns"]]) == (
        1,
        False,
        [True, False, False],
    )
    assert result["turns"][1]["differences"] == [
        {"field": "observation", "recorded": "right", "now": "fine"}
    ]


def test_long_texts_are_compared_line_by_line(run, capsys):
    recorded = episode(run, lambda e: solved(e) and len(e.turns) == 3)
    with_options(run, praise="right\nand a door")
    _, out = palestra(capsys, run.folder, "--episode", recorded.id)
    assert "!    right\n!   +and a door" in out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"value": 0.5}, {(turn, "reward"): (1 / 3, 1 / 6) for turn in (1, 2, 3)}),
        ({"ends_after": 2}, {(2, "ended"): (False, True)}),
        ({"breaks_after": 2}, {(2, "fault"): ("", "RuntimeError: out of numbers")}),
    ],
)
def test_rewards_ends_and_faults_are_compared(run, options, expected):
    recorded = episode(run, lambda e: solved(e) and len(e.turns) == 3)
    assert differences(check_stored(with_options(run, **options), recorded)) == expected


def test_an_end_that_does_not_come(run):
    recorded = episode(run, lambda e: solved(e) and len(e.turns) == 3)
    tampered = replace(recorded, turns=recorded.turns[:2], success=False)
    assert differences(check_stored(run, tampered)) == {(2, "ended"): (True, False)}
    assert differences(check_stored(run, replace(recorded, success=False))) == {
        (3, "success"): (False, True)
    }


def test_in_worker_processes(tmp_path):
    overrides = {"env.name": "guess", "env.isolation": "process", "engine.deterministic": False,
    "steps": 1, "save.every": 1,
                 "rollout.tasks": 1, "rollout.group": 2, "rollout.concurrency": 2, "eval.tasks": 1,
                 "agent.reply_tokens": 8,
                 "horizon.kind": "fixed", "horizon.turns": 2}  # fmt: skip
    run = trained(tmp_path / "run", **overrides)
    recorded = episode(run, lambda e: True, "step-000001")
    assert check_stored(run, recorded).same
    changed = replace(
        recorded, turns=[replace(recorded.turns[0], observation="Guess!"), *recorded.turns[1:]]
    )
    assert differences(check_stored(run, changed)) == {
        (1, "observation"): ("Guess!", "Guess the number.")
    }
    (again,), _ = play_stored(run, recorded, PlayOn(1, checkpoint=0))
    assert again.segments[0].ids == recorded.segments[0].ids


def test_a_fault_is_replayed_up_to_where_it_was(run):
    broken = episode(run, lambda e: len(e.turns) == 4)
    fault = replace(
        broken,
        id="broken",
        turns=broken.turns[:2],
        stop=Stop.ENV_FAULT,
        success=None,
        final_observation="",
        fault="x",
    )
    result = check_stored(run, fault)
    assert (result.same, len(result.turns)) == (True, 2)
    assert check_stored(run, replace(fault, turns=[], segments=[])).same


def test_of_several_attempts_the_one_without_a_fault(run):
    good = episode(run, solved)
    fault = replace(good, turns=[], stop=Stop.ENV_FAULT, attempt=0, fault="x")
    run.keep("step-000003", [fault, replace(good, attempt=1), replace(fault, attempt=2)])
    assert find_episode(run, good.id).attempt == 1


@pytest.mark.parametrize("file", ["step-000003", "eval-step-000002-interim"])
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_the_weights_that_played_it_play_it_again(run, turn, file):
    if file.startswith("eval-"):  # after step 2, at the temperature of evaluations
        config = build(
            tomllib.loads((run.folder / "config.toml").read_text()),
            {"eval.every": 2, "eval.temperature": 0.7, "eval.tasks": 9},
        )
        run = Run.create(run.folder.with_name("evaluated"), config)
        run_training(run, Display())
    recorded = episode(run, lambda e: len(e.turns) == 4, file)
    (again,), path = play_stored(run, recorded, PlayOn(turn, checkpoint=2))
    assert again.segments[0].ids == recorded.segments[0].ids
    assert again.segments[0].logprobs == pytest.approx(recorded.segments[0].logprobs, abs=1e-4)
    same = {"turns", "stop", "success", "final_observation", "seed", "horizon", "task"}
    assert {name: getattr(again, name) for name in same} == {
        name: getattr(recorded, name) for name in same
    }
    assert again.id == f"{recorded.id}-from-{turn}-0"
    assert list(read_trajectories(path)) == [again]
    assert path.parent == run.folder / "replays"


def test_a_greedy_baseline_is_greedy_again(tmp_path):
    overrides = {"env.name": NUMBERS, "algo.name": "remax", "rollout.group": 2, "steps": 1,
    "save.every": 1, "horizon.kind": "fixed",
                 "horizon.turns": 4, "warm_start": WARM}  # fmt: skip
    run = trained(tmp_path / "run", **overrides)
    recorded = episode(run, lambda e: e.is_baseline, "step-000001")
    (again,), _ = play_stored(run, recorded, PlayOn(1, checkpoint=0))
    assert again.segments[0].ids == recorded.segments[0].ids


def test_another_checkpoint_plays_on(run, capsys):
    recorded = episode(run, lambda e: len(e.turns) == 4)
    start = recorded.turns[1].span[0]
    code, out = palestra(
        capsys,
        run.folder,
        "--episode",
        recorded.id,
        "--from",
        2,
        "--samples",
        5,
        "--checkpoint",
        1,
        "--seed",
        7,
        "--json",
    )
    result = json.loads(out)
    assert (code, result["from"], len(result["continuations"])) == (0, 2, 5)
    (path,) = (run.folder / "replays").iterdir()
    assert result["file"] == str(path)
    stored = list(read_trajectories(path))
    assert [t.id for t in stored] == [f"{recorded.id}-from-2-{n}" for n in range(5)]
    assert len({t.seed for t in stored}) == 5
    assert len({tuple(t.segments[0].ids) for t in stored}) > 1  # or all have the same noise
    assert sum(bool(t.success) for t in stored) == result["succeeded"]
    for t in stored:
        segment = t.segments[0]
        assert segment.ids[:start] == recorded.segments[0].ids[:start]
        assert segment.ids[start:]
        assert {
            v
            for v, chosen in zip(segment.versions[start:], segment.mask[start:], strict=True)
            if chosen
        } == {1}
        assert t.turns[:1] == recorded.turns[:1]
        assert check_stored(run, t).same  # what was played on is an episode like any other


def test_the_newest_checkpoint_and_a_folder_are_models_too(run, capsys):
    recorded = episode(run, lambda e: len(e.turns) == 4)
    code, out = palestra(
        capsys, run.folder, "--episode", recorded.id, "--from", 1, "--temperature", 0
    )
    assert (code, "by the weights of step 3" in out) == (0, True)
    newest, other = (
        play_stored(run, recorded, PlayOn(1, temperature=0.0, **model))[0][0]
        for model in ({}, {"model": run.checkpoint(3)})
    )
    assert newest.segments[0].ids == other.segments[0].ids
    assert newest.reward > 0.5  # greedy, it counts at least to two


def test_more_turns_than_there_were(run):
    recorded = episode(run, lambda e: e.stop is Stop.HORIZON)
    with pytest.raises(ReplayError, match="nothing is left to play; give a larger --horizon"):
        play_stored(run, recorded, PlayOn(5))
    (longer,), _ = play_stored(run, recorded, PlayOn(5, horizon=6))
    whole = recorded.segments[0].ids
    assert longer.segments[0].ids[: len(whole)] == whole
    assert longer.turns[:4] == recorded.turns
    assert longer.turns[4].observation == recorded.final_observation
    assert longer.turns[4].span[0] == len(whole)  # shown once, as it was recorded


def test_nothing_is_played_on_where_the_environment_differs(run, capsys):
    recorded = episode(run, lambda e: solved(e) and len(e.turns) == 3)
    changed = with_options(run, praise="fine")
    with pytest.raises(Differs):
        play_stored(changed, recorded, PlayOn(2))
    code, out = palestra(capsys, run.folder, "--episode", recorded.id, "--from", 2)
    assert (code, out.splitlines()[-1]) == (1, "it differs at turn 2")
    assert not (run.folder / "replays").exists()
    assert play_stored(changed, recorded, PlayOn(1))[0][
        0
    ].turns  # at the first turn nothing is different yet


def test_a_model_that_reads_the_tokens_as_another_text_is_refused(run, tmp_path, capsys):
    recorded = episode(run, solved)
    other = trained(tmp_path / "other", steps=1)  # the words of another environment
    code, out = palestra(
        capsys, run.folder, "--episode", recorded.id, "--from", 1, "--model", other.checkpoint(1)
    )
    assert (code, len(out.splitlines())) == (2, 1)
    assert "reads the recorded tokens as another text" in out


def test_an_episode_of_a_mixture(tmp_path, capsys):
    mixture = [
        {**MIXTURE[0], "label": "parrot"},
        {**MIXTURE[1], "label": "numbers", "horizon": {"kind": "fixed", "turns": 4}},
    ]
    run = trained(
        tmp_path / "run",
        tree=ECHO,
        **{
            "env": None,
            "mixture": mixture,
            "algo.scale": False,
            "steps": 1,
            "warm_start": WARM,
            "save.every": 1,
        },
    )
    for label in ("parrot", "numbers"):
        recorded = episode(run, lambda e, label=label: e.task.env == label, "step-000001")
        assert check_stored(run, recorded).same
        (again,), _ = play_stored(run, recorded, PlayOn(1, checkpoint=0))
        assert again.segments[0].ids == recorded.segments[0].ids
        assert (again.task, again.reward_scale) == (recorded.task, recorded.reward_scale)
    elsewhere = replace(recorded, id="elsewhere", task=replace(recorded.task, env="nubmers"))
    run.keep("step-000002", [elsewhere])
    code, out = palestra(capsys, run.folder, "--episode", "elsewhere")
    assert (code, "did you mean 'numbers'" in out) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--episode", "000003-00000"], "the nearest are 000003-000"),
        (["--episode", "000003-00000"], "step-000001, step-000002, step-000003"),
        (["--episode", "nonsense"], "ids look like eval-000000"),
        (["--episode", "{id}", "--file", "step-000001"], "no such episode"),
        (["--episode", "{id}", "--file", "step-9"], "--file step-9: there is no such file"),
        (["--episode", "{id}", "--from", "0"], "greater than or equal to 1"),
        (["--episode", "{id}", "--from", "9"], "can be played on from turn 1 to 3"),
        (
            ["--episode", "{id}", "--from", "2", "--checkpoint", "8"],
            "there are those of 0, 1, 2, 3",
        ),
        (
            ["--episode", "{id}", "--from", "2", "--checkpoint", "1", "--model", "x"],
            "give one of them",
        ),
        (
            ["--episode", "{id}", "--from", "2", "--model", "no/such"],
            "expected a Hugging Face directory",
        ),
        (["--episode", "{id}", "--from", "3", "--horizon", "2"], "nothing is left to play"),
        (["--episode", "{id}", "--from", "2", "--temperature", "-1"], "expected 0 or more"),
        (["--episode", "{id}", "--samples", "2"], "only together with --from"),
        (["--episode", "{id}", "--smaples", "2"], "Possible options: --samples"),
    ],
)
def test_bad_input_exits_2_with_one_line(run, capsys, arguments, named):
    id = episode(run, lambda e: solved(e) and len(e.turns) == 3).id
    code, out = palestra(
        capsys, run.folder, *(argument.replace("{id}", id) for argument in arguments)
    )
    assert (code, len(out.splitlines())) == (2, 1)
    assert named in out


def test_an_id_in_several_files_needs_the_file(run, capsys):
    recorded = episode(run, solved)
    run.trajectory_file("again").write_bytes(encode_trajectory(replace(recorded, seed=5)) + b"\n")
    code, out = palestra(capsys, run.folder, "--episode", recorded.id)
    assert (code, "choose one by --file: again, step-000003" in out) == (2, True)
    assert palestra(capsys, run.folder, "--episode", recorded.id, "--file", "again.jsonl")[0] == 0
    assert find_episode(run, recorded.id, file="again").seed == 5


def test_several_segments_are_refused(run):
    recorded = episode(run, lambda e: len(e.turns) == 4)
    first, *rest = recorded.turns
    split = replace(
        recorded,
        segments=recorded.segments * 2,
        turns=[first, *(replace(turn, segment=1) for turn in rest)],
    )
    with pytest.raises(ReplayError, match="several segments"):
        play_stored(run, split, PlayOn(2))
