"""The field's own files: corpora and questions as Search-R1 and FlashRAG keep them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from palestra.envs.search.data import Article, Question
from palestra.envs.search.retrievers import split_contents

HOPS = {"bamboogle": 2, "hotpotqa": 2}
"""Of sets whose questions all take as many."""
_MUSIQUE_ID = re.compile(r"([2-4])hop")


class FileFault(ValueError):
    """A file that is not in the format that it should be in."""


def read_corpus(file: Path) -> Iterator[Article]:
    """A corpus line by line, plain or gzipped: {"id": "0", "contents": "\\"Title\\"\\nText"}, or with a title and a text apart."""
    for line, row in _json_lines(file):
        if "contents" in row:
            title, text = split_contents(str(row["contents"]))
        elif "text" in row:
            title, text = str(row.get("title", "")), str(row["text"])
        else:
            raise FileFault(f'{file}, line {line}: expected {{"id": ..., "contents": ...}}, got the fields {", ".join(row)}')
        yield Article(str(row.get("id", line - 1)), title, text)


def read_questions(file: Path) -> list[Question]:
    """FlashRAG's JSONL or Search-R1's parquet. Ids are the file's own, after the name of the set: "nq/test_12"."""
    rows: Iterable[tuple[int, Mapping[str, Any]]] = _parquet(file) if file.suffix == ".parquet" else _json_lines(file)
    questions = [_question(row, f"{file}, row {number}", _set_of(row, file)) for number, row in rows]
    if not questions:
        raise FileFault(f"{file}: there is no question in it")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise FileFault(f"{file}: two questions have the id {question.id}")
        seen.add(question.id)
    return questions


def _question(row: Mapping[str, Any], where: str, set_name: str) -> Question:
    text, answers = row.get("question"), _answers(row)
    if not isinstance(text, str) or not text.strip():
        raise FileFault(f'{where}: expected {{"id": ..., "question": ..., "golden_answers": [...]}}, got the fields {", ".join(row)}')
    if not answers:
        raise FileFault(f"{where}: expected at least one golden answer, got none")
    if "id" not in row:
        raise FileFault(f"{where}: expected an id, got the fields {', '.join(row)}")
    own_id = str(row["id"])
    kind = " ".join(filter(None, (set_name, _type(row))))
    return Question(f"{set_name}/{own_id}", text.strip(), answers, kind, _hops(row, set_name, own_id))


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """In FlashRAG's field, or in the one that verl's reward functions read."""
    answers: Any = row.get("golden_answers")
    if answers is None:
        truth = (row.get("reward_model") or {}).get("ground_truth") or {}
        answers = truth.get("target") if isinstance(truth, Mapping) else truth
    if isinstance(answers, str):
        answers = [answers]
    return tuple(str(answer) for answer in answers if str(answer).strip()) if answers is not None else ()


def _type(row: Mapping[str, Any]) -> str:
    """HotpotQA and 2WikiMultihopQA say what kind of question it is."""
    kind = (row.get("metadata") or {}).get("type")
    return kind.replace("_", "-") if isinstance(kind, str) else ""


def _hops(row: Mapping[str, Any], set_name: str, own_id: str) -> int:
    original = str((row.get("metadata") or {}).get("id", own_id))
    if match := _MUSIQUE_ID.match(original):  # 2hop__482757_12019
        return int(match[1])
    facts = (row.get("metadata") or {}).get("supporting_facts")
    titles = facts.get("title") if isinstance(facts, Mapping) else None
    return len(set(titles)) if titles else HOPS.get(set_name, 0)


def _set_of(row: Mapping[str, Any], file: Path) -> str:
    """What the row says, else the folder of `nq/test.jsonl`, else the file's own name."""
    named = row.get("data_source")
    if isinstance(named, str) and named:
        return named
    return file.parent.name if file.name.split(".")[0] in ("train", "dev", "test") and file.parent.name else file.name.split(".")[0]


def _json_lines(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield number, decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise FileFault(f"{file}, line {number}: expected a JSON object: {error}") from error


def _parquet(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise FileFault(f"{file}: parquet needs pyarrow; pip install pyarrow") from error
    wanted = ("id", "question", "golden_answers", "data_source", "reward_model", "metadata")
    table = parquet.ParquetFile(file)
    columns = [name for name in table.schema_arrow.names if name in wanted]
    number = 0
    for batch in table.iter_batches(columns=columns):
        for row in batch.to_pylist():
            number += 1
            yield number, row
