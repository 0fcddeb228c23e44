"""Every file of a run folder, damaged in every way: `train --resume` and `eval` say so in one line,
or go on from what is sound.
"""

import hashlib
import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from palestra.core.files import CannotRead, read_json
from palestra.learner import checkpoint
from palestra.runs.group_queue import GroupQueue
from palestra.runs.run import Run
from tests.hostile.commands import Commands
from tests.support.batches import finished
from tests.support.training import ECHO, records, trained

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(300)]

TREE = ECHO | {
    "steps": 6,
    "model": {"width": 16, "layers": 1, "heads": 2},
    "rollout": {"tasks": 2, "group": 4},
    "eval": {"tasks": 3},
    "save": {"every": 2, "keep": 4},
}
AHEAD = TREE | {
    "rollout": TREE["rollout"] | {"prefetch": 1},
    "algo": {"name": "ppo", "kl": 0.1, "critic": {"kind": "model"}},
}
"""With a critic, a reference and episodes that were played ahead."""
EVOL = TREE | {"algo": {"name": "evol", "round": 2, "best": 4, "min_reward": 0.01, "batch": 4}}
"""Learns from the episodes in its folder."""

DEEP = b'{"step":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
HUGE = b'{"step": ' + b"9" * 100_000 + b', "loss": 1e99999}\n'


def truncate(path, other):
    content = path.read_bytes()
    end = len(content) // 2
    if path.suffix == ".toml":
        end = content.index(b"=", end) + 1  # between two lines it may be sound, with less in it
    path.write_bytes(content[:end])


def garble(path, other):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def empty(path, other):
    path.write_bytes(b"")


def miss(path, other):
    path.unlink()


def make_directory(path, other):
    path.unlink()
    (path / "inner").mkdir(parents=True)


def link_to_nothing(path, other):
    path.unlink()
    path.symlink_to("no-such-file")


def link_to_device(path, other):
    path.unlink()
    path.symlink_to("/dev/zero")


def make_pipe(path, other):
    path.unlink()
    os.mkfifo(path)


def nest(path, other):
    path.write_bytes(DEEP)


def wrong_types(path, other):
    path.write_bytes(b'{"step": "six", "files": [1], "loss": {"a": null}}\n[]\n')


def huge_number(path, other):
    path.write_bytes(HUGE)


def another_runs(path, other):
    shutil.copyfile(other, path)


DAMAGES = [
    *(
        truncate,
        garble,
        empty,
        miss,
        make_directory,
        link_to_nothing,
        link_to_device,
        make_pipe,
        nest,
        wrong_types,
        huge_number,
    ),
    another_runs,
]
HERE = "checkpoints/step-000004"
OF_CHECKPOINT = [f"{HERE}/{name}" for name in ("state.json", "model.safetensors", "config.json")]
OF_LEARNER = [
    f"{HERE}/{name}" for name in ("optimizer.safetensors", "critic.safetensors", "prefetch.json")
]
OF_REFERENCE = ["reference/model.safetensors", "reference/state.json"]
OF_ROUNDS = "trajectories/step-000001.jsonl"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs to the end, the same as if they had been killed before their last checkpoint, and others
    that have another seed.
    """
    home = tmp_path_factory.mktemp("runs")
    for name, tree in {"ahead": AHEAD, "evol": EVOL}.items():
        trained(home / name, tree)
        trained(home / f"other-{name}", tree, seed=1)
        shutil.copytree(home / name, home / f"killed-{name}")
        for path in (home / f"killed-{name}" / "checkpoints").iterdir():
            if path.name not in ("step-000002", "step-000004"):
                shutil.rmtree(path)
    return home


@pytest.fixture(scope="module")
def commands():
    running = Commands()
    yield running
    running.close()


def weights(folder):
    found = folder / "checkpoints" / "step-000006"
    return {
        f"{path.name}/{name}": value
        for path in found.glob("*.safetensors")
        for name, value in load_file(path).items()
    }


def assert_as_if_nothing_had_happened(folder, whole):
    ours, theirs = weights(folder), weights(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    return records(Run(folder, None)), records(Run(whole, None))


def cases(files, every=7):
    """All files with all damages; a few of each are short.

    Both runs describe their models alike.
    """
    found = [
        (file, damage)
        for file in files
        for damage in DAMAGES
        if (file, damage) != (f"{HERE}/config.json", another_runs)
    ]
    return [
        pytest.param(
            *case,
            marks=pytest.mark.short if number % every == 0 else (),
            id=f"{case[0].split('/')[-1]}-{case[1].__name__}",
        )
        for number, case in enumerate(found)
    ]


def damaged_copy(folders, tmp_path, name, file, damage):
    folder = tmp_path / "run"
    shutil.copytree(folders / f"killed-{name}", folder)
    damage(folder / file, folders / f"other-{name}" / file)
    return folder


def one_line(errors):
    """What is said, beside which settings of the model made way for a checkpoint's."""
    (line,) = [
        line
        for line in errors.splitlines()
        if not line.startswith("model.kind = 'pretrained' begins with its own")
    ]
    assert line.startswith("palestra: ")
    assert len(line) < 600
    return line


@pytest.mark.parametrize(("file", "damage"), cases(OF_CHECKPOINT + OF_LEARNER, every=12))
def test_a_run_goes_on_from_an_older_checkpoint(folders, commands, tmp_path, file, damage):
    folder = damaged_copy(folders, tmp_path, "ahead", file, damage)
    code, out, errors = commands("train", "--resume", folder)
    assert code == 0, errors
    named = folder / file
    if file.endswith("state.json") and damage is another_runs:
        named = folder / HERE  # sound by itself: the other files are not those that it describes
    said = [line for line in out.splitlines() if str(named) in line]
    assert len(said) == 1
    assert said[0].endswith("; this checkpoint is passed over")
    assert "resumed after step 2" in out
    ours, theirs = assert_as_if_nothing_had_happened(folder, folders / "ahead")
    assert ours == theirs


@pytest.mark.parametrize(("file", "damage"), cases(OF_CHECKPOINT, every=12))
def test_eval_takes_the_checkpoint_that_a_resume_would_take(
    folders, commands, tmp_path, file, damage
):
    folder = damaged_copy(folders, tmp_path, "ahead", file, damage)
    code, out, errors = commands("eval", folder, "--json", "--limit", 2)
    assert code == 0, errors
    assert json.loads(out)["step"] == 2
    is_sound = file.endswith("state.json") and damage is another_runs
    assert one_line(errors).startswith(
        f"palestra: {folder / HERE}/" if is_sound else f"palestra: {folder / file} "
    )


@pytest.mark.parametrize("command", ["train", "eval"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_configuration(folders, commands, tmp_path, command, damage):
    folder = damaged_copy(folders, tmp_path, "ahead", "config.toml", damage)
    before = {path: path.stat().st_mtime_ns for path in (folder / "checkpoints").rglob("*")}
    code, _, errors = (
        commands("train", "--resume", folder)
        if command == "train"
        else commands("eval", folder, "--json", "--limit", 2)
    )
    if damage is another_runs and command == "eval":  # a sound one, of another seed
        assert code == 0
        return
    assert code == 2
    line = one_line(errors)
    if damage is another_runs:
        assert (
            line == "palestra: seed = 1: a run's seed cannot be changed when it is resumed; it "
            "was begun with 0"
        )
    else:
        assert str(folder) in line or "there is no such setting" in line or "expected" in line
    assert {path: path.stat().st_mtime_ns for path in (folder / "checkpoints").rglob("*")} == before


@pytest.mark.parametrize(("file", "damage"), cases(["metrics.jsonl"], every=6))
def test_damaged_metrics_are_said_and_kept(folders, commands, tmp_path, file, damage):
    folder = damaged_copy(folders, tmp_path, "ahead", file, damage)
    code, out, errors = commands("train", "--resume", folder)
    assert code == 0, errors
    (said,) = [line for line in out.splitlines() if "metrics.jsonl " in line]
    assert said.startswith(f"{folder / file} ")
    assert (
        "5 rows were recorded up to this checkpoint" in said
    )  # the first evaluation and four steps
    (_, episodes, learned), (_, whole, whole_learned) = assert_as_if_nothing_had_happened(
        folder, folders / "ahead"
    )
    assert (episodes, learned) == (whole, whole_learned)
    rows = Run(folder, None).metrics()
    assert [row["step"] for row in rows[-3:]] == [5, 6, 6]
    assert os.path.lexists(folder / "metrics.jsonl.damaged-1") == (damage is not miss)
    assert all(row["step"] <= 6 for row in rows)


def test_metrics_that_lack_rows_are_noticed_and_those_that_have_more_are_not_damaged(
    folders, commands, tmp_path
):
    def without_one(path, other):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:2] + lines[3:]))

    folder = damaged_copy(folders, tmp_path, "ahead", "metrics.jsonl", without_one)
    assert "metrics.jsonl is damaged" in commands("train", "--resume", folder)[1]
    shutil.rmtree(folder)
    folder = damaged_copy(
        folders, tmp_path, "ahead", "metrics.jsonl", lambda path, other: None
    )  # rows of steps 5 and 6, and the end
    assert "damaged" not in commands("train", "--resume", folder)[1]


@pytest.mark.parametrize(("file", "damage"), cases(OF_REFERENCE, every=12))
def test_without_its_reference_a_run_does_not_go_on(folders, commands, tmp_path, file, damage):
    folder = damaged_copy(folders, tmp_path, "ahead", file, damage)
    code, _, errors = commands("train", "--resume", folder)
    assert code == 2
    assert str(folder / file) in one_line(errors)
    assert commands("eval", folder, "--json", "--limit", 2)[0] == 0


def test_the_whole_reference_of_another_run_is_not_taken(folders, commands, tmp_path):
    def swap(path, other):
        shutil.rmtree(path)
        shutil.copytree(other, path)

    folder = damaged_copy(folders, tmp_path, "ahead", "reference", swap)
    code, _, errors = commands("train", "--resume", folder)
    assert (code, str(folder / "reference" / "state.json") in one_line(errors)) == (2, True)


@pytest.mark.parametrize(("file", "damage"), cases([OF_ROUNDS], every=12))
def test_episodes_that_a_run_learns_from_must_be_as_they_were(
    folders, commands, tmp_path, file, damage
):
    folder = damaged_copy(folders, tmp_path, "evol", file, damage)
    code, _, errors = commands("train", "--resume", folder)
    assert code == 2
    assert one_line(errors).startswith(f"palestra: {folder / file} ")


@pytest.mark.parametrize(("file", "damage"), cases(["trajectories/step-000003.jsonl"], every=100))
def test_episodes_that_it_does_not_learn_from_any_more_are_left_alone(
    folders, commands, tmp_path, file, damage
):
    folder = damaged_copy(folders, tmp_path, "ahead", file, damage)
    assert commands("train", "--resume", folder)[0] == 0
    ours, theirs = weights(folder), weights(folders / "ahead")
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


# put together by somebody: all digests are right


def seal_anew(folder, **changes):
    state, _ = checkpoint.read_description(folder)
    (folder / checkpoint.STATE).unlink()
    checkpoint.write_manifest(folder, state | changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"step": "four"}, "state.json is damaged: Expected `int`"),
        ({"step": 9}, "step-000004 is the checkpoint of another step: 9"),
        ({"records": {"metrics.jsonl": 1}}, "state.json is damaged: Expected `object`"),
        ({"config": 7}, "state.json is damaged: Expected `object`"),
        ({"success": {"echo": ["x"]}}, "state.json is damaged: Expected `float`"),
    ],
)
def test_a_state_of_wrong_types_with_right_digests(folders, commands, tmp_path, changes, says):
    folder = damaged_copy(
        folders, tmp_path, "ahead", HERE, lambda path, other: seal_anew(path, **changes)
    )
    code, out, errors = commands("train", "--resume", folder)
    assert code == 0, errors
    assert says in out
    assert "resumed after step 2" in out


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "critic.safetensors"]
)
@pytest.mark.parametrize("other", ["no tensors at all", "another model's"])
def test_tensors_that_do_not_fit_with_right_digests(folders, commands, tmp_path, name, other):
    folder = damaged_copy(folders, tmp_path, "ahead", HERE, lambda path, other: None)
    path = folder / HERE / name
    if other == "another model's":
        from safetensors.torch import save_file

        save_file(
            {
                key: value[..., :1].clone() if value.dim() else value
                for key, value in load_file(path).items()
            },
            path,
        )
    else:
        path.write_bytes(b"x" * 500)
    seal_anew(folder / HERE)
    code, _, errors = commands("train", "--resume", folder)
    assert code == 2
    assert one_line(errors).startswith(f"palestra: {folder / HERE}")


def test_files_that_were_added_and_names_that_lead_elsewhere(folders, commands, tmp_path):
    folder = damaged_copy(folders, tmp_path, "ahead", HERE, lambda path, other: None)
    shutil.copyfile(
        folders / "other-ahead" / HERE / "model.safetensors", folder / HERE / "model-2.safetensors"
    )
    assert (
        f"{folder / HERE}/model-2.safetensors is not of this checkpoint"
        in commands("train", "--resume", folder)[1]
    )
    shutil.rmtree(folder)
    folder = damaged_copy(folders, tmp_path, "ahead", HERE, lambda path, other: None)
    state = json.loads((folder / HERE / "state.json").read_text())
    state["files"]["/dev/zero"] = "0" * 64
    del state["files"]["state.json"]
    (folder / HERE / "state.json").write_text(json.dumps(state))
    assert (
        "'/dev/zero' is not the name of a file in this folder"
        in commands("train", "--resume", folder)[1]
    )


@pytest.mark.parametrize(
    "name",
    ["log.txt", "track.json", ".failure.json", "checkpoints", "trajectories", "eval", ".lock"],
)
@pytest.mark.parametrize(
    "damage", [make_directory, make_pipe, link_to_nothing, nest], ids=lambda damage: damage.__name__
)
def test_things_in_the_way(folders, commands, tmp_path, name, damage):
    folder = tmp_path / "run"
    shutil.copytree(folders / "killed-ahead", folder)
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
    path.write_bytes(b"")
    damage(path, None)
    code, _, errors = commands("train", "--resume", folder)
    assert code in (0, 2)
    if code:
        assert str(path) in one_line(errors)


# groups in the queue: what cannot be read is played again


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_group_is_not_taken(tmp_path, caplog, damage):
    queue, other = GroupQueue(tmp_path / "queue"), GroupQueue(tmp_path / "other")
    for place in (0, 1):
        queue.put(3, place, finished(1, 2))
    other.put(3, 0, finished(2, 2))
    path, _ = queue.entries().values()
    damage(path, next(iter(other.entries().values())))
    found = queue.read()
    assert found.pop((3, 1)) == finished(1, 2)
    if damage is another_runs:  # whole, and of the same place: its seeds will tell
        assert list(found) == [(3, 0)]
    else:
        assert found == {}
        assert str(path) in caplog.text or damage is miss
    queue.rewind(10)
    assert list(queue.folder.iterdir()) == []


def test_no_flipped_bit_of_a_group_goes_unnoticed(tmp_path):
    queue = GroupQueue(tmp_path / "queue")
    queue.put(3, 0, finished(1, 2))
    (path,) = queue.entries().values()
    whole = path.read_bytes()
    assert hashlib.sha256(whole.splitlines()[0]).hexdigest().encode() == whole.splitlines()[1]
    for place in range(0, len(whole) - 1, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert queue.read() == {}, place


# demonstrations


@pytest.mark.parametrize(
    "damage",
    [*(d for d in DAMAGES if d not in (miss, another_runs))],
    ids=lambda damage: damage.__name__,
)
def test_damaged_demonstrations(folders, commands, tmp_path, damage):
    data = tmp_path / "data"
    data.mkdir()
    shutil.copyfile(
        folders / "ahead" / "trajectories" / "step-000003.jsonl", data / "episodes.jsonl"
    )
    damage(data / "episodes.jsonl", None)
    recipe = tmp_path / "sft.toml"
    recipe.write_text(
        'steps = 1\ndevice = "cpu"\nthreads = 1\n[algo]\nname = "sft"\ndata = '
        f'["{data}"]\nmin_reward = 0.0\n'
        '[env]\nname = "tests.support.environments:Echo"\n'
        "[model]\nwidth = 16\nlayers = 1\nheads = 2\n"
        '[agent]\nformat = "plain"\ncontext_tokens = 64\nreply_tokens = 4\n[eval]\ntasks = 3\n'
    )
    code, _, errors = commands("train", recipe, "--out", tmp_path / "sft")
    if damage in (
        truncate,
        garble,
    ):  # a crash cuts the last line, and that is passed over; and who wrote the data left no digest
        assert code in (0, 2)
        return
    assert code == 2
    assert str(data) in one_line(
        [line + "\n" for line in errors.splitlines() if line.startswith("palestra: ")][-1]
    )


# the reader


def test_json_from_outside(tmp_path):
    path = tmp_path / "one.json"
    for text, value in [
        ('{"a": [1, 2.5, null, "[[[{{{\\\\\\"[["]}', {"a": [1, 2.5, None, '[[[{{{\\"[[']}),
        ("[" * 100 + "]" * 100, None),
    ]:
        path.write_text(text)
        assert read_json(path) == value or value is None
    for text, says in [
        ("[" * 102 + "]" * 102, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("NaN", "NaN is no number"),
        ("9" * 5000, "is not JSON"),
        ('"\udc80"', "is not JSON"),
        ("", "is not JSON"),
    ]:
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(CannotRead, match=says):
            read_json(path)
    path.write_bytes(b'"' + b"x" * 100 + b'"')
    with pytest.raises(CannotRead, match="larger than 100 bytes"):
        read_json(path, most_bytes=100)
    for damage, says in [
        (make_pipe, "is a FIFO"),
        (make_directory, "is a directory"),
        (link_to_device, "is a device"),
    ]:
        other = tmp_path / damage.__name__
        other.write_bytes(b"")
        damage(other, None)
        with pytest.raises(CannotRead, match=says):
            read_json(other)
