"""`palestra eval --ids`: files of task ids, and what is said of those that are wrong."""

import json
import os
import re
from pathlib import Path

import pytest

from palestra.cli.main import main
from palestra.core.errors import ConfigError
from palestra.envs import make_env
from palestra.envs.guess.env import Guess
from palestra.envs.task_ids import read_ids, tasks_in
from palestra.runs.trajectories import read_trajectories
from palestra.view.answers import Answers
from tests.support.environments import needs_original_textcraft
from tests.support.served import running

IDS = ["babyai_7", "GoToObj-3", "babyai_123"]
FORMATS = {
    "lines": "babyai_7\r\n\n  GoToObj-3 \nbabyai_123",
    "lines with a mark": "\ufeffbabyai_7\nGoToObj-3\nbabyai_123\n",
    "a list of AgentGym's": json.dumps([{"item_id": id} for id in IDS], indent=2),
    "a list of trajectories": json.dumps(
        [{"item_id": id, "conversations": [{"from": "human", "value": "[1]"}]} for id in IDS]
    ),
    "a list of ids": json.dumps(IDS),
    "JSON lines": "\n".join(json.dumps({"item_id": id}) for id in IDS),
    "both kinds of lines": 'babyai_7\n{"item_id": "GoToObj-3"}\nbabyai_123',
}


def evaluated(capsys, *arguments):
    main(["eval", "--agent", "expert", *map(str, arguments)])
    return capsys.readouterr().out


def written(tmp_path, content):
    path = tmp_path / "ids"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS)
def test_every_format_names_the_same_tasks(tmp_path, content):
    path = written(tmp_path, content)
    assert [named.id for named in read_ids(path)] == IDS
    tasks = tasks_in(path, {"worlds": make_env("babyai", {})})
    # 7 is level 7 with seed 0; 123 is 3 * 40 + 3, of which level 3 is GoToObjS4
    assert [(task.env, task.id, task.split) for task in tasks] == [
        *(
            ("worlds", "GoToSeqS5R2-0", "train"),
            ("worlds", "GoToObj-3", "train"),
            ("worlds", "GoToObjS4-3", "train"),
        )
    ]


WRONG = {
    "": "names no task; expected one id a line, or JSON such as",
    " \n\n": "names no task",
    "[]": "names no task",
    "babyai_1\n\nGotoObj-3": (
        "line 3: babyai has no task 'GotoObj-3': expected <level>-<seed> or .*; did "
        "you mean 'GoToObj'"
    ),
    "babyai_1\ntextcraft_1": (
        "line 2: babyai has no task 'textcraft_1': .*such as GoToObj-3 or babyai_12"
    ),
    '["babyai_1", "x"]': "item 2: babyai has no task 'x'",
    '[{"item_id": "babyai_1"}, {"id": "babyai_2"}]': (
        'item 2: has no id \\(\\{"id": "babyai_2"\\}\\); expected one id a line, or JSON'
    ),
    "[12]": r"item 1: has no id \(12\)",
    "[null]": r"item 1: has no id \(null\)",
    '[\n"babyai_1",\n]': "line 3: is no JSON",
    '["babyai_1"]\n["babyai_2"]': "line 2: is no JSON",
    'babyai_1\n{"item_id": ': "line 2: is no JSON",
    '{"item_id": "babyai_1", "x": NaN}\n{"item_id": 3}': "line 2: has no id",
    "[" * 100_000: "line 1: is no JSON",
    "babyai_1\nbabyai_2\nbabyai_1": (
        "line 3: babyai_1 is the same task as babyai_1 in line 1; name it once"
    ),
    "babyai_7\nGoToSeqS5R2-0": "line 2: GoToSeqS5R2-0 is the same task as babyai_7 in line 1",
    b"babyai_1\n\xff": "is not text",
}


@pytest.mark.parametrize("content", WRONG, ids=lambda content: ascii(content[:30]))
def test_what_is_wrong_is_named(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(
        ConfigError, match=f"^--ids {re.escape(str(path))}(, |: ){WRONG[content]}"
    ) as error:
        tasks_in(path, {"babyai": make_env("babyai", {})})
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reasons = {
        tmp_path / "no": "No such file",
        tmp_path: "is a directory",
        tmp_path / "pipe": "is a FIFO",
        Path("/dev/zero"): "is a device",
    }
    for path, reason in reasons.items():
        with pytest.raises(ConfigError, match=f"cannot be read: {reason}"):
            read_ids(path)


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(0), "SystemExit: 0"), (KeyboardInterrupt(), "KeyboardInterrupt")],
)
def test_an_environment_that_breaks_when_it_is_asked_for_a_task_is_one_line(tmp_path, error, said):
    class Breaks(Guess):
        def task(self, id):
            raise error

    with pytest.raises(ConfigError, match=rf"line 1: guess: task\(\) raised {said}"):
        tasks_in(written(tmp_path, "7"), {"guess": Breaks()})


def test_of_several_environments_the_one_is_taken_that_has_the_task(tmp_path):
    envs = {
        "small": make_env("guess", {"size": 8}),
        "large": make_env("guess", {}),
        "worlds": make_env("babyai", {}),
    }
    (task,) = tasks_in(written(tmp_path, "GoToObj-3"), envs)
    assert task.env == "worlds"
    with pytest.raises(
        ConfigError, match="line 1: 7 is a task of small and large; choose one of them with --env"
    ):
        tasks_in(written(tmp_path, "7"), envs)
    with pytest.raises(
        ConfigError,
        match="guess has no task 'x'; ids look like '0', '1000'; .*; babyai has no task 'x'",
    ):
        tasks_in(written(tmp_path, "x"), envs)


def test_an_evaluation_plays_them_whatever_their_splits(capsys, tmp_path):
    path, out, keep = written(tmp_path, "1001\n7\n1099\n30"), tmp_path / "x.json", tmp_path / "kept"
    words = ["--env", "guess", "--ids", path, "--out", out, "--keep", keep, "--k", 2]
    said = json.loads(evaluated(capsys, *words, "--json"))
    assert (said["split"], said["ids"], said["splits"]) == (
        "ids",
        str(path),
        {"test": 2, "train": 2},
    )
    assert (said["all"]["tasks"], said["all"]["episodes"], said["all"]["success"]) == (4, 8, 1.0)
    assert json.loads(out.read_text())["splits"] == {"test": 2, "train": 2}
    kept = list(read_trajectories(keep / "trajectories" / "eval-step-000000-expert.jsonl"))
    played = [("test", "1001"), ("train", "7"), ("test", "1099"), ("train", "30")]
    assert [(trajectory.task.split, trajectory.task.id) for trajectory in kept] == [
        task for task in played for _ in range(2)
    ]
    viewer = Answers([keep], live=False)
    assert viewer.run(viewer.ids[0])["evals"][0]["split"] == "ids"
    viewer.close()
    assert f"{path}: 2 test, 2 train" in evaluated(
        capsys, "--env", "guess", "--ids", path, "--out", out
    )


def test_a_recipes_own_choice_of_tasks_does_not_count(capsys, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[env]\nname = "guess"\n[horizon]\nkind = "fixed"\nturns = 6\n[eval]\ntasks = 1\n'
        'split = "test"\n'
    )
    said = json.loads(
        evaluated(
            capsys,
            recipe,
            "--ids",
            written(tmp_path, "1\n2\n3"),
            "--out",
            tmp_path / "x.json",
            "--json",
        )
    )
    assert (said["all"]["tasks"], said["splits"]) == (3, {"train": 3})
    assert list(said["envs"]["guess"]) == ["6"]


def test_environments_of_a_mixture_that_have_no_task_are_not_told(capsys, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[[mixture]]\nname = "guess"\n[[mixture]]\nname = "tests.support.environments:Count"\n'
        '[horizon]\nkind = "fixed"\nturns = 9\n'
    )
    said = json.loads(
        evaluated(
            capsys,
            recipe,
            "--ids",
            written(tmp_path, "train-3"),
            "--out",
            tmp_path / "x.json",
            "--json",
        )
    )
    assert list(said["envs"]) == ["count"]
    assert said["all"]["success"] == 1.0


def test_tasks_of_a_server_that_stand_in_no_split(capsys, tmp_path):
    path = written(tmp_path, '[{"item_id": "babyai_11"}, {"item_id": "GoToObj-5000"}]')
    with running("babyai") as server:
        words = ["--env", server.url("babyai"), "--ids", path, "--out", tmp_path / "x.json"]
        said = json.loads(evaluated(capsys, *words, "--json"))
    assert said["splits"] == {"train": 1, "unlisted": 1}
    assert (said["all"]["success"], said["faults"]) == (1.0, 0)


@needs_original_textcraft
def test_agentevals_textcraft(capsys, tmp_path):
    numbers = [*range(31), *range(140, 181), *range(420, 445), *range(533, 536)]  # its test tasks
    path = written(tmp_path, json.dumps([{"item_id": f"textcraft_{number}"} for number in numbers]))
    words = [
        "--env",
        "textcraft",
        "--env.options.recipes",
        "original",
        "--ids",
        path,
        "--out",
        tmp_path / "x.json",
        "--json",
    ]
    said, in_time = (
        json.loads(evaluated(capsys, *words)),
        json.loads(evaluated(capsys, *words, "--horizon", 30)),
    )
    assert said["splits"] == {"test": 100}
    assert {
        name: score["tasks"]
        for name, score in said["envs"]["textcraft"]["60"]["categories"].items()
    } == {**{"depth 1": 31, "depth 2": 41, "depth 3": 25, "depth 4": 3}}
    assert said["all"]["success"] == 1.0
    assert (
        in_time["all"]["success"] == 0.99
    )  # 420 is an anvil, of 31 iron ingots: it takes 36 actions at least


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--split", "test"], "--split has no effect with --ids"),
        (["--limit", "3"], "--limit has no effect with --ids"),
        (["--eval.split", "train"], "--eval.split has no effect with --ids"),
        (["--eval.tasks=3"], "--eval.tasks has no effect with --ids"),
        ([], "line 2: guess has no task 'x'; ids look like '0', '1000'"),
    ],
)
def test_bad_input_exits_2_with_one_line_and_leaves_nothing(capsys, tmp_path, more, named):
    path, keep = written(tmp_path, "1\nx" if not more else "1"), tmp_path / "kept"
    with pytest.raises(SystemExit) as exit_:
        evaluated(
            capsys,
            "--env",
            "guess",
            "--ids",
            path,
            "--out",
            tmp_path / "x.json",
            "--keep",
            keep,
            *more,
        )
    assert exit_.value.code == 2
    error = capsys.readouterr().err.strip()
    assert named in error
    assert "\n" not in error
    assert not keep.exists()
    assert not (tmp_path / "x.json").exists()
