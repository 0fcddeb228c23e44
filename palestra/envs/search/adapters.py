"""Readers for corpora and questions in the formats of Search-R1, FlashRAG and the datasets' own
releases.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from palestra.core.errors import UserError
from palestra.core.untrusted import Unreadable, decode
from palestra.envs.search.data import Article, Question
from palestra.envs.search.retrievers import split_contents

Row = Mapping[str, Any]

HOPS = {"bamboogle": 2, "hotpotqa": 2}
"""Datasets whose questions all have the same number of hops."""
ALIASES = "id_aliases.json"
"""In the same folder as 2WikiMultihopQA's own files: alternative names of the answer entities."""
_MUSIQUE_ID = re.compile(r"([2-4])hop")


class FileFault(UserError, ValueError):
    """A file that is not in the format that it should be in."""


class _Original(msgspec.Struct):
    """The fields of HotpotQA's and 2WikiMultihopQA's own rows that are used. Their paragraphs,
    hundreds of megabytes, are skipped.
    """

    id: str = msgspec.field(name="_id")
    question: str
    answer: str | None = None
    type: str | None = None
    supporting_facts: list[tuple[str, int]] = []
    evidences: list[Any] | None = None
    answer_id: str | None = None


ORIGINALS = msgspec.json.Decoder(list[_Original])


def read_corpus(file: Path) -> Iterator[Article]:
    """A corpus line by line, plain or gzipped: {"id": "0", "contents": "\\"Title\\"\\nText"}, or
    with a title and a text apart.
    """
    for line, row in _json_lines(file):
        if "contents" in row:
            title, text = split_contents(str(row["contents"]))
        elif "text" in row:
            title, text = str(row.get("title", "")), str(row["text"])
        else:
            raise FileFault(
                f'{file}, line {line}: expected {{"id": ..., "contents": ...}}, got the '
                f"fields {', '.join(row)}"
            )
        yield Article(str(row.get("id", line - 1)), title, text)


def read_questions(file: Path) -> list[Question]:
    """Read FlashRAG's JSONL, Search-R1's parquet, or the original files of HotpotQA,
    2WikiMultihopQA and MuSiQue.

    Ids are the file's own, prefixed with the name of the dataset: "nq/test_12". Questions marked as
    unanswerable are omitted.
    """
    questions = [
        _question(row, f"{file}, row {number}", _set_of(row, file))
        for number, row in _rows(file)
        if row.get("answerable") is not False
    ]
    if not questions:
        raise FileFault(f"{file}: there is no question in it")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise FileFault(f"{file}: two questions have the id {question.id}")
        seen.add(question.id)
    return questions


def _question(row: Row, where: str, set_name: str) -> Question:
    text, answers, own_id = _text(row), _answers(row), _id(row)
    if not text:
        raise FileFault(
            f'{where}: expected {{"id": ..., "question": ..., "golden_answers": [...]}}, '
            f"got the fields {', '.join(row)}"
        )
    if not answers:
        raise FileFault(f"{where}: expected at least one golden answer, got none")
    if not own_id:
        raise FileFault(f"{where}: expected an id, got the fields {', '.join(row)}")
    kind = " ".join(filter(None, (set_name, _type(row))))
    return Question(f"{set_name}/{own_id}", text, answers, kind, _hops(row, set_name, own_id))


def _text(row: Row) -> str:
    """The question's own field, or the end of a prompt in verl's format."""
    text, prompt = row.get("question"), row.get("prompt")
    if text is None and isinstance(prompt, list) and prompt:
        text = str(_mapping(prompt[-1]).get("content", "")).rpartition("Question: ")[2]
    return text.strip() if isinstance(text, str) else ""


def _id(row: Row) -> str:
    """The question's own field. Rows in verl's format may only have an index in their split."""
    if row.get("id") is not None:
        return str(row["id"])
    info = _mapping(row.get("extra_info"))
    if info.get("index") is None:
        return ""
    return f"{info.get('split', 'row')}_{info['index']}"


def _answers(row: Row) -> tuple[str, ...]:
    """FlashRAG's field, the one that verl's reward functions read,
    or an answer with its aliases.
    """
    answers: Any = row.get("golden_answers")
    if answers is None:
        truth = _mapping(row.get("reward_model")).get("ground_truth")
        answers = truth.get("target") if isinstance(truth, Mapping) else truth
    if answers is None and row.get("answer") is not None:
        answers = [row["answer"], *(row.get("answer_aliases") or ())]
    if answers is None:
        return ()
    if isinstance(answers, str):
        answers = [answers]
    return tuple(dict.fromkeys(str(answer) for answer in answers if str(answer).strip()))


def _type(row: Row) -> str:
    """The kind of question in HotpotQA and 2WikiMultihopQA."""
    kind = _mapping(row.get("metadata")).get("type", row.get("type"))
    return kind.replace("_", "-") if isinstance(kind, str) else ""


def _hops(row: Row, set_name: str, own_id: str) -> int:
    metadata = _mapping(row.get("metadata"))
    if match := _MUSIQUE_ID.match(str(metadata.get("id", own_id))):  # 2hop__482757_12019
        return int(match[1])
    facts = metadata.get("supporting_facts", row.get("supporting_facts"))
    titles: Any = None
    if isinstance(facts, Mapping):
        titles = facts.get("title")
    elif isinstance(facts, list):
        titles = [fact[0] for fact in facts]
    return len(set(titles)) if titles else HOPS.get(set_name, 0)


def _set_of(row: Row, file: Path) -> str:
    """The dataset's name: from the row, from fields that only one dataset has, from the folder of
    `nq/test.jsonl`, or from the file name.
    """
    named = row.get("data_source")
    if isinstance(named, str) and named:
        return named
    if "question_decomposition" in row:
        return "musique"
    if "supporting_facts" in row:
        return "hotpotqa" if row.get("evidences") is None else "2wikimultihopqa"
    stem = file.name.split(".")[0]
    if stem in ("train", "dev", "test") and file.parent.name:
        return file.parent.name
    return stem


def _mapping(value: Any) -> Row:
    return value if isinstance(value, Mapping) else {}


def _rows(file: Path) -> Iterable[tuple[int, Row]]:
    if file.suffix == ".parquet":
        return _parquet(file)
    with _opened(file) as text:
        is_list = text.read(64).lstrip().startswith(b"[")
    return _originals(file) if is_list else _json_lines(file)


def _originals(file: Path) -> Iterator[tuple[int, Row]]:
    """HotpotQA and 2WikiMultihopQA are one list; the aliases that 2WikiMultihopQA's own evaluation
    counts are added.
    """
    with _opened(file) as text:
        whole = text.read()
    try:
        rows = decode(whole, ORIGINALS, is_flat=True)
    except Unreadable as error:
        raise FileFault(
            f"{file}: expected a list of questions as HotpotQA has them: {error}"
        ) from error
    aliases = _aliases(file.with_name(ALIASES))
    for number, row in enumerate(rows, 1):
        answer_aliases = aliases.get(row.answer_id or "", [])
        yield number, msgspec.structs.asdict(row) | {"answer_aliases": answer_aliases}


def _aliases(file: Path) -> dict[str, list[str]]:
    if not file.exists():
        return {}
    return {
        str(row.get("Q_id")): [*row.get("aliases", ()), *row.get("demonyms", ())]
        for _, row in _json_lines(file)
    }


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Plain or gzipped."""
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as opened:
            yield cast(IO[bytes], opened)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileFault(f"{file}: expected a whole gzip file: {error}") from error


def _json_lines(file: Path) -> Iterator[tuple[int, Row]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = decode(line, decoder, is_flat=True)
            except Unreadable as error:
                raise FileFault(
                    f"{file}, line {number}: expected a JSON object: {error}"
                ) from error
            yield number, row


def _parquet(file: Path) -> Iterator[tuple[int, Row]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise FileFault(f"{file}: parquet needs pyarrow; pip install pyarrow") from error
    wanted = (
        "id",
        "question",
        "golden_answers",
        "data_source",
        "prompt",
        "reward_model",
        "extra_info",
        "metadata",
    )
    try:
        table = parquet.ParquetFile(file)
    except ArrowInvalid as error:
        raise FileFault(f"{file}: expected a parquet file: {error}") from error
    columns = [name for name in wanted if name in table.schema_arrow.names]
    number = 0
    for batch in table.iter_batches(columns=columns):
        for row in batch.to_pylist():
            number += 1
            yield number, row
