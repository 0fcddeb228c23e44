"""The index of a run's episodes against what is in its files: whole, damaged, growing, rewound."""

import threading
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.core.types import Stop, Turn
from palestra.runs.trajectories import encode_trajectory, read_trajectories
from palestra.view import index as indexing
from palestra.view.index import Index, NotThere
from tests.support.viewed import (
    DAMAGED,
    HOSTILE,
    WHOLE,
    episode,
    trained_copy,
    write_learned,
    write_lines,
)


def indexed(folder):
    index = Index(folder)
    index.refresh()
    return index


def test_columns_are_what_the_files_say(tmp_path):
    run = trained_copy(tmp_path / "run")
    columns = indexed(run.folder).columns()
    rows, texts = columns["rows"], columns["texts"]
    names = [
        "eval-step-000000-raw",
        "step-000001",
        "step-000002",
        "step-000003",
        "eval-step-000003-final",
    ]
    assert columns["files"] == names
    stored = [
        (name, line, t)
        for name in names
        for line, t in enumerate(read_trajectories(run.trajectory_file(name)))
    ]
    assert columns["total"] == len(stored) == len(rows["id"]) > 200
    assert columns["is_complete"]
    for row, (name, line, t) in enumerate(stored):
        assert (
            names[rows["file"][row]],
            rows["line"][row],
            rows["id"][row],
            rows["task"][row],
        ) == (name, line, t.id, t.task.id)
        named = [texts[rows[column][row]] for column in ("env", "split", "category", "stop")]
        assert named == [t.task.env, t.task.split, t.task.category, t.stop]
        assert rows["success"][row] == {True: 1, False: 0, None: -1}[t.success]
        assert rows["reward"][row] == pytest.approx(t.reward)
        assert (rows["turns"][row], rows["tokens"][row]) == (len(t.turns), t.sampled_tokens)
        assert rows["invalid"][row] == sum(turn.invalid for turn in t.turns)
        assert (rows["step"][row], rows["stage"][row], rows["damaged"][row]) == (t.step, t.stage, 0)
    assert len({len(values) for values in rows.values()}) == 1


def test_later_rows_alone(tmp_path):
    run = trained_copy(tmp_path / "run")
    index = indexed(run.folder)
    whole, rest = index.columns(), index.columns(100)
    assert (rest["from"], rest["total"], rest["files"]) == (100, whole["total"], whole["files"])
    assert msgspec.json.encode(
        {name: values[100:] for name, values in whole["rows"].items()}
    ) == msgspec.json.encode(rest["rows"])
    assert index.columns(10_000)["rows"]["id"] == []


def test_the_step_of_a_carried_episode_is_that_which_learned_from_it(tmp_path):
    write_lines(tmp_path, "step-000007", episode("000006-0001", step=6))
    write_lines(tmp_path, "by-hand", episode("x", step=6))
    assert indexed(tmp_path).columns()["rows"]["step"] == [7, 6]


def test_advantages_come_from_what_was_learned(tmp_path):
    fault = episode("c", stop=Stop.ENV_FAULT, attempt=0)
    write_lines(
        tmp_path,
        "step-000001",
        episode("a"),
        episode("b"),
        fault,
        episode("c", attempt=1),
        episode("d", is_baseline=True),
    )
    learned = [
        {"id": id, "advantage": [0.5, value], "logp": [], "entropy": []}
        for id, value in (("a", -1.0), ("c", 1.5), ("d", 1.0))
    ]
    write_learned(
        tmp_path,
        "step-000001",
        *learned,
        {"id": "b", "advantage": [None, None]},
        {"id": 3},
        "nonsense",
    )
    rows = indexed(tmp_path).columns()["rows"]
    assert rows["advantage"] == pytest.approx(
        [-0.25, float("nan"), float("nan"), 1.0, float("nan")], nan_ok=True
    )
    assert (rows["attempt"], rows["baseline"]) == ([0, 0, 0, 1, 0], [0, 0, 0, 0, 1])


@pytest.mark.parametrize("line", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_line_is_a_row_and_hides_no_other(tmp_path, line):
    write_lines(tmp_path, "step-000004", episode("a"), line, episode("b"))
    index = indexed(tmp_path)
    rows = index.columns()["rows"]
    assert rows["damaged"] == [0, 1, 0]
    assert (rows["id"], rows["task"], rows["step"], rows["line"]) == (
        ["a", "", "b"],
        ["7", "", "7"],
        [4, 4, 4],
        [0, 1, 2],
    )
    assert (rows["success"], rows["turns"]) == ([1, -1, 1], [1, 0, 1])
    assert index.line("step-000004", 1) == line
    assert index.line("step-000004", 2) == encode_trajectory(episode("b")) + b"\n"
    assert index.search("guess the") == [0, 2]
    assert index.others_of_task("step-000004", 0) == [("step-000004", 2)]
    assert index.others_of_task("step-000004", 1) == []


def test_a_last_line_that_was_cut_is_a_damaged_row_until_it_is_whole(tmp_path):
    path = write_lines(tmp_path, "step-000001", episode("a"), WHOLE[:100])
    index = indexed(tmp_path)
    assert index.columns()["rows"]["damaged"] == [0, 1]
    with path.open("ab") as file:
        file.write(WHOLE[100:] + b"\n")
    index.refresh()
    assert index.columns()["rows"]["damaged"] == [0, 0]
    assert index.generation == 1


def test_an_empty_run_is_complete(tmp_path):
    columns = indexed(tmp_path).columns()
    assert (columns["total"], columns["files"], columns["texts"], columns["is_complete"]) == (
        0,
        [],
        [""],
        True,
    )
    assert indexed(tmp_path / "nothing").columns()["total"] == 0


def test_a_file_that_cannot_be_read_is_one_damaged_row(tmp_path):
    (tmp_path / "trajectories" / "step-000001.jsonl").mkdir(parents=True)
    index = indexed(tmp_path)
    assert index.columns()["rows"]["damaged"] == [1]
    assert index.line("step-000001", 0) == b""


def test_new_files_are_appended_and_row_numbers_stay(tmp_path):
    write_lines(tmp_path, "step-000001", episode("a"), episode("b"))
    index = indexed(tmp_path)
    first = index.columns()
    write_lines(tmp_path, "eval-step-000001-interim", episode("e"))
    write_lines(tmp_path, "step-000002", episode("c"))
    index.refresh()
    now = index.columns()
    assert now["rows"]["id"] == ["a", "b", "e", "c"]
    assert now["generation"] == first["generation"] == 0
    assert now["files"][:1] == first["files"]
    assert now["texts"][: len(first["texts"])] == first["texts"]


def test_a_rewound_run_loses_rows_and_says_so(tmp_path):
    run = trained_copy(tmp_path / "run")
    index = indexed(run.folder)
    before = index.columns()
    run.rewind(1)
    index.refresh()
    after = index.columns()
    assert after["files"] == ["eval-step-000000-raw", "step-000001", "eval-step-000003-final"]
    assert after["total"] < before["total"]
    assert after["generation"] == before["generation"] + 1
    with pytest.raises(NotThere, match="step-000002, line 0: there is no such episode"):
        index.line("step-000002", 0)


def test_a_replaced_file_is_read_anew(tmp_path):
    write_lines(tmp_path, "step-000001", episode("a"), episode("b"))
    write_lines(tmp_path, "step-000002", episode("c"))
    index = indexed(tmp_path)
    write_lines(tmp_path, "step-000001", episode("z", says="seventeen"))
    with pytest.raises(NotThere, match="the file has changed"):
        index.line("step-000001", 1)
    index.refresh()
    assert index.columns()["rows"]["id"] == ["c", "z"]
    assert (index.generation, index.search("seventeen"), index.search("16")) == (1, [1], [0])


def test_parts_of_a_large_file_make_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "PART_LINES", 3)
    episodes = [episode(f"{n}", task=str(n % 4), says=f"say {n}") for n in range(11)]
    write_lines(tmp_path, "step-000001", *episodes)
    index = indexed(tmp_path)
    columns = index.columns(4)
    assert columns["files"] == ["step-000001"]
    assert columns["rows"]["line"] == [4, 5, 6, 7, 8, 9, 10]
    assert [index.line("step-000001", n) for n in range(11)] == [
        encode_trajectory(one) + b"\n" for one in episodes
    ]
    assert index.others_of_task("step-000001", 9) == [("step-000001", 1), ("step-000001", 5)]
    assert index.search("SAY 1") == [1, 10]
    with pytest.raises(NotThere):
        index.line("step-000001", 11)


words = st.text(alphabet=st.sampled_from("aAbß İÿé火\n\x00"), max_size=6)


@pytest.mark.parametrize("unpacked", [0, 10**9], ids=["packed", "as they are"])
@given(said=st.lists(st.tuples(words, words), min_size=1, max_size=8), query=words)
def test_search_finds_what_a_slow_search_finds(tmp_path_factory, unpacked, said, query):
    folder = tmp_path_factory.mktemp("run")
    turns = [[Turn(seen, reply, None, 0.0, (0, 0))] for seen, reply in said]
    write_lines(
        folder,
        "step-000001",
        *(episode(str(n), turns=one, final_observation="") for n, one in enumerate(turns)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "UNPACKED_TEXT_BYTES", unpacked)
        index = indexed(folder)
    texts = [f"7\n{seen}\n{reply}\n\n".lower() for seen, reply in said]
    assert index.texts() == texts
    assert index.search(query) == [row for row, text in enumerate(texts) if query.lower() in text]


def test_hostile_text_is_only_text(tmp_path):
    hostile = episode(HOSTILE, task=HOSTILE, says=HOSTILE, fault=HOSTILE)
    write_lines(tmp_path, "step-000001", hostile, episode("b"))
    index = indexed(tmp_path)
    assert index.columns()["rows"]["id"] == [HOSTILE, "b"]
    assert index.search(HOSTILE) == [0]
    assert index.search("ALERT('X')") == [0]
    assert index.search("\udcff") == []
    assert index.search("") == [0, 1]


def test_it_follows_in_the_background_while_others_ask(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "POLL_S", 0.01)
    index = Index(tmp_path)
    index.start()
    index.start()
    assert sum(thread.name == f"index {tmp_path.name}" for thread in threading.enumerate()) == 1
    try:
        for step in range(1, 6):
            write_lines(tmp_path, f"step-{step:06d}", *(episode(f"{step}-{n}") for n in range(20)))
            until = time.monotonic() + 20
            while index.total < 20 * step and time.monotonic() < until:
                rows = index.columns()["rows"]
                assert len({len(values) for values in rows.values()}) == 1
            assert index.total == 20 * step
    finally:
        index.stop()


def test_an_episode_is_waited_for_while_files_are_read(tmp_path):
    write_lines(tmp_path, "step-000001", episode("a"))
    index = Index(tmp_path)
    with pytest.raises(NotThere, match="no-such-file"):
        index.line("no-such-file", 0)
    found = []
    asking = threading.Thread(target=lambda: found.append(index.line("step-000001", 0)))
    asking.start()
    time.sleep(0.1)
    assert not found
    index.refresh()
    asking.join(10)
    assert found == [encode_trajectory(episode("a")) + b"\n"]
