"""The field's own files: wiki-18's corpus and question files of NQ, TriviaQA, PopQA, HotpotQA,
2Wiki, MuSiQue and Bamboogle.
"""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palestra.cli.main import main
from palestra.core.files import CannotRead
from palestra.envs.search import index
from palestra.envs.search.adapters import FileFault, read_corpus, read_questions
from palestra.envs.search.env import Search
from palestra.envs.search.retrievers import Bm25
from tests.support.search_world import ARTICLES

WIKI_18 = [
    {"id": "0", "contents": '"Horatio Vane"\nHoratio Vane (born 1931) is a lobbyist from Dremmel.'},
    {
        "id": "1",
        "contents": '"Horatio Vane"\nand was later made ambassador to the Grey Hills. He wrote '
        '""Salt"" in 1960.',
    },
    {
        "id": "2",
        "contents": '"Yass, New South Wales"\nYass is a town with a mill. <div> A branch line was '
        "opened in 1898.",
    },
]
"""Passages of 100 words in the original; an article has several, all with its title in quotes."""

ROWS = {
    "nq": {"id": "test_0", "question": "who got the first prize in physics",
    "golden_answers": ["Osk Tarrow"]},
    "triviaqa": {"id": "test_3", "question": "Which Salt was sung?",
    "golden_answers": ["The Salt Harvest", "Salt Harvest"]},
    "popqa": {
        "id": "test_9", "question": "What is Petra Quill's occupation?",
        "golden_answers": ["politician", "political leader"],
        "metadata": {"popularity": 233, "subj": "Petra Quill", "prop": "occupation",
        "possible_answers": '["politician"]'},
    },
    "hotpotqa": {
        "id": "dev_0", "question": "Were they of the same town?", "golden_answers": ["yes"],
        "metadata": {
            "type": "comparison", "level": "hard",
            "supporting_facts": {"title": ["Osk Tarrow", "Ilse Varnholt"], "sent_id": [0, 0]},
            "context": {"title": ["Osk Tarrow"], "sentences": [["He was an organist."]]},
        },
    },
    "2wikimultihopqa": {
        "id": "dev_1", "question": "Whose mayor is older?", "golden_answers": ["Petra Quill"],
        "metadata": {
            "type": "bridge_comparison",
            "supporting_facts": {"title": ["A", "B", "C", "D"], "sent_id": [0, 0, 0, 0]},
        },
    },
    "musique": {"id": "3hop1__305282_282081_73772", "question": "When was it founded?",
    "golden_answers": ["1866"], "metadata": {}},
    "bamboogle": {"id": "test_1", "question": "Who was mayor when?",
    "golden_answers": ["Petra Quill"]},
}  # fmt: skip
CATEGORIES = {
    "nq": ("nq", 0),
    "triviaqa": ("triviaqa", 0),
    "popqa": ("popqa", 0),
    "hotpotqa": ("hotpotqa comparison", 2),
    "2wikimultihopqa": ("2wikimultihopqa bridge-comparison", 4),
    "musique": ("musique", 3),
    "bamboogle": ("bamboogle", 2),
}


def write_lines(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    file.write_bytes(
        gzip.compress(text.encode(), mtime=0) if file.suffix == ".gz" else text.encode()
    )
    return file


@pytest.mark.parametrize("name", ["wiki-18.jsonl", "wiki-18.jsonl.gz"])
def test_wiki_18(tmp_path, name):
    articles = list(read_corpus(write_lines(tmp_path / name, WIKI_18)))
    assert [article.id for article in articles] == ["0", "1", "2"]
    assert [article.title for article in articles] == [
        "Horatio Vane",
        "Horatio Vane",
        "Yass, New South Wales",
    ]
    assert (
        articles[1].text
        == 'and was later made ambassador to the Grey Hills. He wrote ""Salt"" in 1960.'
    )


def test_titles_and_texts_apart(tmp_path):
    file = write_lines(tmp_path / "c.jsonl", [{"id": 5, "title": "Aune", "text": "A river."}])
    assert list(read_corpus(file)) == [("5", "Aune", "A river.")]


@pytest.mark.parametrize(("name", "row"), ROWS.items())
def test_flashrag_questions(tmp_path, name, row):
    (question,) = read_questions(write_lines(tmp_path / name / "dev.jsonl", [row]))
    assert question.id == f"{name}/{row['id']}"
    assert question.text == row["question"]
    assert question.answers == tuple(row["golden_answers"])
    assert (question.kind, question.hops) == CATEGORIES[name]
    assert question.chain == ()


def search_r1_row(source, row, split, number):
    """What Search-R1's preparation makes of a row of FlashRAG's."""
    content = f"Answer the given question. Question: {row['question']}\n"
    return {
        **{name: row[name] for name in ("id", "question", "golden_answers")},
        "data_source": source,
        "prompt": [{"role": "user", "content": content}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": row["golden_answers"]}},
        "extra_info": {"split": split, "index": number},
    }


def test_search_r1_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        search_r1_row(name, ROWS[name], "train", number)
        for number, name in enumerate(("nq", "hotpotqa"))
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    questions = read_questions(tmp_path / "train.parquet")
    assert [(q.id, q.answers, q.kind) for q in questions] == [
        ("nq/test_0", ("Osk Tarrow",), "nq"),
        ("hotpotqa/dev_0", ("yes",), "hotpotqa"),
    ]
    bare = [
        {name: value for name, value in row.items() if name != "golden_answers"} for row in rows
    ]
    parquet.write_table(pyarrow.Table.from_pylist(bare), tmp_path / "train.parquet")
    assert read_questions(tmp_path / "train.parquet") == questions


def test_search_r1_rows_of_ones_own(tmp_path):
    """As its README asks for them: no question, answers or id beside what verl reads."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    own = ("data_source", "prompt", "ability", "reward_model", "extra_info")
    row = search_r1_row("mine", ROWS["triviaqa"], "train", 7)
    parquet.write_table(
        pyarrow.Table.from_pylist([{name: row[name] for name in own}]), tmp_path / "train.parquet"
    )
    (question,) = read_questions(tmp_path / "train.parquet")
    assert (question.id, question.text) == ("mine/train_7", "Which Salt was sung?")
    assert question.answers == ("The Salt Harvest", "Salt Harvest")
    bare = {
        "data_source": "mine",
        "extra_info": {"split": "test", "index": 0},
        "reward_model": {"style": "rule", "ground_truth": "Aune"},
    }
    (question,) = read_questions(
        write_lines(
            tmp_path / "x.jsonl",
            [{**bare, "prompt": [{"role": "user", "content": "Which river?"}]}],
        )
    )
    assert (question.id, question.text, question.answers) == (
        "mine/test_0",
        "Which river?",
        ("Aune",),
    )


HOTPOT = {
    "_id": "5a7a06935542990198eaf050", "question": "Which was started first?",
    "answer": "Salt Review", "type": "comparison",
    "level": "medium",
    "supporting_facts": [["Salt Review", 0], ["First for Salt", 0], ["First for Salt", 1]],
    "context": [["Salt Review", ["It was begun in 1844.", " It ended in 1846."]], ["Aune",
    ["A river."]]],
}  # fmt: skip
TWO_WIKI = {
    "_id": "13f5ad2c088c11ebbd6fac1f6bf848b6", "type": "bridge_comparison",
    "question": "Are both of one country?", "answer": "Dremland",
    "context": [["Aune", ["A river."]]], "entity_ids": "Q1_Q2_Q3_Q4", "answer_id": "Q38",
    "supporting_facts": [["A", 0], ["B", 1], ["C", 0], ["D", 2]],
    "evidences": [["A", "director", "C"]], "evidences_id": [["Q1", "director", "Q3"]],
}  # fmt: skip
MUSIQUE = {
    "id": "2hop__482757_12019", "question": "When was the seat of it founded?", "answer": "1866",
    "answer_aliases": ["in 1866"],
    "answerable": True,
    "paragraphs": [{"idx": 0, "title": "Aune", "paragraph_text": "A river.",
    "is_supporting": True}],
    "question_decomposition": [{"id": 482757, "question": "It >> seat", "answer": "Dremmel",
    "paragraph_support_idx": 0}],
}  # fmt: skip


def test_hotpotqas_own_file(tmp_path):
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(json.dumps([HOTPOT]))
    (question,) = read_questions(tmp_path / "hotpot_dev_distractor_v1.json")
    assert (question.id, question.text, question.answers) == (
        "hotpotqa/5a7a06935542990198eaf050",
        HOTPOT["question"],
        ("Salt Review",),
    )
    assert (question.kind, question.hops) == ("hotpotqa comparison", 2)
    hidden = {
        name: HOTPOT[name] for name in ("_id", "question", "context")
    }  # hotpot_test_fullwiki_v1.json
    (tmp_path / "hotpot_test.json").write_text(json.dumps([hidden]))
    with pytest.raises(FileFault, match="at least one golden answer"):
        read_questions(tmp_path / "hotpot_test.json")


def test_2wikis_own_file_with_the_aliases_beside_it(tmp_path):
    (tmp_path / "dev.json").write_text(
        json.dumps(
            [
                TWO_WIKI,
                TWO_WIKI | {"_id": "2", "answer": "yes", "answer_id": None, "evidences_id": []},
            ]
        )
    )
    assert [question.answers for question in read_questions(tmp_path / "dev.json")] == [
        ("Dremland",),
        ("yes",),
    ]
    write_lines(
        tmp_path / "id_aliases.json",
        [{"Q_id": "Q38", "aliases": ["Land of Drem"], "demonyms": ["Dremlandic"]}],
    )
    first, second = read_questions(tmp_path / "dev.json")
    assert first.id == "2wikimultihopqa/13f5ad2c088c11ebbd6fac1f6bf848b6"
    assert (first.kind, first.hops) == ("2wikimultihopqa bridge-comparison", 4)
    assert first.answers == (
        "Dremland",
        "Land of Drem",
        "Dremlandic",
    )  # as its own evaluation counts them
    assert second.answers == ("yes",)


def test_musiques_own_file(tmp_path):
    """The full set asks everything twice, once without the paragraphs that it would take."""
    rows = [MUSIQUE, MUSIQUE | {"answerable": False, "answer_aliases": []}]
    (question,) = read_questions(write_lines(tmp_path / "musique_full_v1.0_dev.jsonl", rows))
    assert (question.id, question.answers) == ("musique/2hop__482757_12019", ("1866", "in 1866"))
    assert (question.kind, question.hops) == ("musique", 2)


def test_fields_of_other_shapes_are_not_read(tmp_path):
    row = {
        "id": 3,
        "question": "Who?",
        "golden_answers": ["x"],
        "metadata": "{'type': 'bridge'}",
        "supporting_facts": '[["A", 0]]',
    }
    (question,) = read_questions(write_lines(tmp_path / "q.jsonl", [row]))
    assert (question.id, question.hops) == ("hotpotqa/3", 2)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.jsonl.gz", b"no gzip"),
        ("q.jsonl.gz", gzip.compress(b'{"id": 1, "question": "?", "answer": "x"}\n', mtime=0)[:-9]),
        ("q.parquet", b"PAR1 not"),
    ],
)
def test_files_that_are_broken_off(tmp_path, name, content):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFault, match=r"expected a (whole gzip|parquet) file"):
        read_questions(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: expected a JSON object"),
        ("[]", "there is no question"),
        ('[{"question": "Who?"}]', "expected a list of questions"),
        (
            '{"id": "1", "question": "Who?", "golden_answers": ["x"]}\n[]',
            "line 2: expected a JSON object",
        ),
        ('{"id": "1"}', 'expected {"id": ..., "question"'),
        ('{"id": "1", "question": "Who?"}', "at least one golden answer"),
        ('{"id": "1", "question": "Who?", "golden_answers": [" "]}', "at least one golden answer"),
        ('{"question": "Who?", "golden_answers": ["x"]}', "expected an id"),
        ("", "there is no question"),
        (
            '{"id": "1", "question": "Who?", "golden_answers": ["x"]}\n' * 2,
            "two questions have the id nq/1",
        ),
    ],
)
def test_question_files_that_are_none(tmp_path, line, message):
    (tmp_path / "nq.jsonl").write_text(line)
    with pytest.raises(FileFault, match=re.escape(message)):
        read_questions(tmp_path / "nq.jsonl")


def test_deep_json_is_a_fault_of_the_file(tmp_path):
    deep = '{"id": ' + "[" * 100_000
    (tmp_path / "corpus.jsonl").write_text(deep)
    with pytest.raises(FileFault, match="line 1: expected a JSON object: nested too deeply"):
        list(read_corpus(tmp_path / "corpus.jsonl"))
    (tmp_path / "questions.json").write_text(f"[{deep}")
    with pytest.raises(FileFault, match="nested too deeply"):
        read_questions(tmp_path / "questions.json")
    (tmp_path / "index.json").write_text(deep)
    with pytest.raises(CannotRead, match="nested too deeply"):
        index.require_index(tmp_path)


def test_a_corpus_that_is_none(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": "1", "contents": "A\\nb"}\n\n{"body": "x"}\n')
    with pytest.raises(
        FileFault, match='line 3: expected {"id": ..., "contents": ...}, got the fields body'
    ):
        list(read_corpus(tmp_path / "c.jsonl"))


def test_an_environment_over_ones_own_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write_lines(tmp_path / "wiki-18.jsonl", WIKI_18)
    train = write_lines(tmp_path / "nq" / "train.jsonl", [ROWS["nq"]])
    tests = [
        str(write_lines(tmp_path / name / "test.jsonl", [ROWS[name]]))
        for name in ("popqa", "musique")
    ]
    main(["search", "index", str(corpus), "--out", str(tmp_path / "index"), "--json"])
    assert json.loads(capsys.readouterr().out)["articles"] == 3
    for place in (
        tmp_path / "index",
        corpus,
    ):  # an index, or a file that is indexed when it is needed
        env = Search(corpus=str(place), train=str(train), test=tests)
        assert [task.id for task in env.tasks("train")] == ["nq/test_0"]
        assert env.tasks("dev") == []
        assert [task.category for task in env.tasks("test")] == ["popqa", "musique 3"]
        assert env.reset(env.tasks("test")[0]) == "Question: What is Petra Quill's occupation?"
        shown = env.step("search[ambassador to the Grey Hills]").observation
        assert "[1] Horatio Vane\nand was later made ambassador" in shown
        assert env.expert() is None  # nobody wrote down how these are answered
        assert env.step("answer[Political leader]").success
    with pytest.raises(ValueError, match="must not overlap"):
        Search(corpus=str(corpus), test=[str(train), str(train)]).tasks("test")
    with pytest.raises(index.IndexFault, match="there is no index"):
        Search(corpus=str(tmp_path / "nq"), test=tests)


def test_bad_files_are_one_line_on_the_command_line(tmp_path, capsys):
    (tmp_path / "c.jsonl").write_text("nonsense\n")
    for arguments, message in (
        ([str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "i")], "there is no such file"),
        (
            [str(tmp_path / "c.jsonl"), "--out", str(tmp_path / "i")],
            "line 1: expected a JSON object",
        ),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["search", "index", *arguments])
        assert stopped.value.code == 2
        told = capsys.readouterr().err
        assert message in told
        assert told.count("\n") == 1


def test_an_index_that_was_killed_is_gone_on_with(tmp_path):
    """The real command, killed outright while it works."""
    rows = (
        {"id": str(n), "contents": f"{ARTICLES[n % 20].title} {n}\n{ARTICLES[n % 20].text}"}
        for n in range(60_000)
    )
    corpus = write_lines(tmp_path / "corpus.jsonl", rows)
    program = (
        "import sys\nfrom palestra.envs.search import index\nindex.COMMIT_EVERY = 5000\nfrom "
        "palestra.cli.main import main\nmain(sys.argv[1:])"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "search",
        "index",
        str(corpus),
        "--out",
        str(tmp_path / "index"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    running = subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    meta = tmp_path / "index" / "bm25" / "meta.json"
    while not (
        meta.exists()
        and '"opstamp":' in meta.read_text()
        and '"segments": []' not in meta.read_text()
    ):
        assert running.poll() is None, "ended before it could be killed"
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "index" / "index.json").exists()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "going on after" in done.stderr
    assert "60,000 articles" in done.stdout
    engine = Bm25(tmp_path / "index")
    assert engine.count == 60_000
    assert [engine.numbered(n).id for n in (0, 4_999, 5_000, 59_999)] == [
        "0",
        "4999",
        "5000",
        "59999",
    ]
