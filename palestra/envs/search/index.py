"""An index on disk: built once, resumable, and memory-mapped by every process that searches it.

A folder has `bm25/` (tantivy's own files, with the texts), `dense/` (one vector per article, if a
dense retriever was used) and, once all articles are indexed, `index.json`.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.core.errors import UserError
from palestra.core.files import read_json
from palestra.envs.search.data import Article

if TYPE_CHECKING:
    import tantivy

log = logging.getLogger(__name__)

FORMAT = 1
"""The version of the folder's format."""
ANALYZER = "english"
COMMIT_EVERY = 200_000
"""Articles per commit: the most that an interruption can lose."""
HEAP_BYTES = 256_000_000
LONGEST_WORD = 40

Articles = Callable[[], Iterable[Article]]
"""Reads them from the first on, as often as it is called."""
Progress = Callable[[int], None]
"""Told how many articles are in."""


class IndexFault(UserError, RuntimeError):
    """An index that is incomplete, of another corpus, or in another format."""


def analyzer() -> tantivy.TextAnalyzer:
    """The tokenization of articles and queries: lower case, no accents, no stop words, stemmed."""
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    filters = (
        tantivy.Filter.remove_long(LONGEST_WORD),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
        tantivy.Filter.stopword("english"),
        tantivy.Filter.stemmer("english"),
    )
    for each in filters:
        builder = builder.filter(each)
    return builder.build()


def open_tantivy(folder: Path) -> tantivy.Index:
    """Open the index in a folder, or create an empty one."""
    import tantivy

    folder.mkdir(parents=True, exist_ok=True)
    if tantivy.Index.exists(str(folder)):
        index = tantivy.Index.open(str(folder))
    else:
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field("number", indexed=True, fast=True)
        schema.add_bytes_field("id", stored=True)
        schema.add_text_field("title", stored=True, tokenizer_name=ANALYZER, index_option="freq")
        schema.add_text_field("text", stored=True, tokenizer_name=ANALYZER, index_option="freq")
        index = tantivy.Index(schema.build(), path=str(folder))
    index.register_tokenizer(ANALYZER, analyzer())
    return index


def build_bm25(
    articles: Articles, folder: Path, progress: Progress = lambda count: None, *, threads: int = 0
) -> int:
    """Index all articles that are not in yet and return how many there are.

    Memory does not grow with their number.
    """
    import tantivy

    index = open_tantivy(folder)
    count = index.searcher().num_docs  # a commit has all articles up to some number
    if count:
        log.info("%s: going on after %d articles", folder, count)
    progress(count)
    writer = index.writer(HEAP_BYTES, threads)
    for batch in _batches(itertools.islice(articles(), count, None), COMMIT_EVERY):
        for article in batch:
            document = tantivy.Document()
            document.add_unsigned("number", count)
            document.add_bytes("id", article.id.encode())
            document.add_text("title", article.title)
            document.add_text("text", article.text)
            writer.add_document(document)
            count += 1
            if count % 10_000 == 0:
                progress(count)
        writer.commit()
        progress(count)
    writer.wait_merging_threads()
    return count


def _batches(articles: Iterator[Article], size: int) -> Iterator[Iterator[Article]]:
    """Lazy batches of `size` articles."""
    for first in articles:
        yield itertools.chain([first], itertools.islice(articles, size - 1))


def build(
    articles: Articles,
    folder: Path,
    *,
    source: dict[str, Any],
    progress: Progress = lambda count: None,
    threads: int = 0,
) -> int:
    """Build an index, or resume building it.

    `source` identifies the corpus: an index of another corpus is not resumed but refused.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder / "lock")):
        begun = _read(folder / "source.json")
        if begun is not None and begun != source:
            raise IndexFault(
                f"{folder}: holds an index of something else ({begun}); remove it, or "
                "name another folder"
            )
        _write(folder / "source.json", source)
        done = _read(folder / "index.json")
        if done is not None:
            return int(done["articles"])
        count = build_bm25(articles, folder / "bm25", progress, threads=threads)
        if count == 0:
            raise IndexFault(f"{folder}: there was no article to index")
        _write(folder / "index.json", {"format": FORMAT, "articles": count})
        return count


def require_index(folder: Path) -> None:
    """Raise IndexFault unless the folder has a complete index in the current format."""
    done = _read(folder / "index.json")
    if done is None:
        what = "an index that is not complete" if (folder / "source.json").exists() else "no index"
        raise IndexFault(
            f"{folder}: there is {what}; make one with: palestra search index CORPUS --out {folder}"
        )
    if done["format"] != FORMAT:
        raise IndexFault(
            f"{folder}: the index has format {done['format']}, expected {FORMAT}; build it again"
        )


def _read(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    found = read_json(file)
    if not isinstance(found, dict):
        raise IndexFault(f"{file} is not part of an index: expected an object, got {found!r:.80}")
    return found


def _write(file: Path, value: dict[str, Any]) -> None:
    """Write atomically: an interruption leaves the old file or the new one."""
    draft = file.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(value))
    draft.replace(file)
