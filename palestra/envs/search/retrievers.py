"""Search engines behind one small interface: BM25, dense, both together, or one that is asked over
HTTP.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from palestra.envs.search.index import analyzer, open_tantivy

MOST_TERMS = 64
"""Distinct words of a query that count; the first ones."""
TITLE_BOOST = 2.0
FUSION_CONSTANT = 60
FUSED_DEPTH = 50
"""The number of hits of each retriever that are fused."""
SPARE = 16
"""Additional hits that are fetched, so that ties at the cutoff have a deterministic order."""
LONGEST_ANSWER = 64 << 20
"""Bytes of a server's answer."""


class Hit(NamedTuple):
    """An article that was found, with all of its text."""

    id: str
    title: str
    text: str
    score: float


class Retriever(Protocol):
    def search(self, query: str, k: int) -> list[Hit]:
        """Up to `k` hits, best first. A query is plain text without syntax."""


class RetrieverFault(RuntimeError):
    """The search engine is to blame, not the query."""


class Bm25:
    """tantivy's BM25 over an index on disk.

    The query is taken word for word, past tantivy's query language.
    """

    def __init__(self, folder: Path) -> None:
        self._index = open_tantivy(folder / "bm25")
        # The index is final, so no thread needs to watch it for commits.
        self._index.config_reader("manual")
        self._searcher = self._index.searcher()
        self._analyzer = analyzer()

    def search(self, query: str, k: int) -> list[Hit]:
        import tantivy

        terms = list(dict.fromkeys(self._analyzer.analyze(query)))[:MOST_TERMS]
        if not terms:
            return []
        schema = self._index.schema
        words = []
        for term in terms:
            in_title = tantivy.Query.term_query(schema, "title", term, index_option="freq")
            in_text = tantivy.Query.term_query(schema, "text", term, index_option="freq")
            words += [
                (tantivy.Occur.Should, tantivy.Query.boost_query(in_title, TITLE_BOOST)),
                (tantivy.Occur.Should, in_text),
            ]
        found = self._searcher.search(
            tantivy.Query.boolean_query(words), limit=k + SPARE, count=False
        ).hits
        numbers = self._searcher.fast_field_values("number", [address for _, address in found])
        ranked = sorted(
            (-round(score, 4), number, address)
            for (score, address), number in zip(found, numbers, strict=True)
        )
        return [self._hit(address, -score) for score, _, address in ranked[:k]]

    @property
    def count(self) -> int:
        return int(self._searcher.num_docs)

    def numbered(self, number: int, score: float = 0.0) -> Hit:
        """The article that was the `number`-th to be indexed."""
        import tantivy

        query = tantivy.Query.term_query(self._index.schema, "number", number)
        ((_, address),) = self._searcher.search(query, limit=1, count=False).hits
        return self._hit(address, score)

    def _hit(self, address: Any, score: float) -> Hit:
        document = self._searcher.doc(address)
        return Hit(
            bytes(document["id"][0]).decode(),
            document["title"][0],
            document["text"][0],
            float(score),
        )


class Hybrid:
    """Combines retrievers by reciprocal rank fusion (Cormack et al., 2009)."""

    def __init__(self, retrievers: Sequence[Retriever]) -> None:
        self._retrievers = retrievers

    def search(self, query: str, k: int) -> list[Hit]:
        hits: dict[str, Hit] = {}
        scores: dict[str, float] = {}
        for retriever in self._retrievers:
            for rank, hit in enumerate(retriever.search(query, max(k, FUSED_DEPTH)), 1):
                hits.setdefault(hit.id, hit)
                scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (FUSION_CONSTANT + rank)
        best = sorted(scores, key=lambda id: (-scores[id], id))[:k]
        return [hits[id]._replace(score=scores[id]) for id in best]


class Remote:
    """A server that speaks Search-R1's `/retrieve`: queries in, documents of a title, a new line
    and a text out.
    """

    def __init__(self, url: str, *, timeout_s: float = 30.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"retriever = {url!r}: expected http://host:port/retrieve")
        self.url = url
        self.timeout_s = timeout_s

    def search(self, query: str, k: int) -> list[Hit]:
        body = json.dumps({"queries": [query], "topk": k, "return_scores": True}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})  # noqa: S310  checked above
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
                (found,) = json.loads(answer.read(LONGEST_ANSWER))["result"]
            return [_remote_hit(item) for item in found[:k]]
        except (
            OSError,
            HTTPException,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise RetrieverFault(
                f"{self.url}: expected the answer of a /retrieve, got "
                f"{type(error).__name__}: {error}"
            ) from error


def _remote_hit(item: dict[str, Any]) -> Hit:
    # Without scores, a server returns the documents alone.
    document = item.get("document", item)
    if "contents" in document:
        title, text = split_contents(document["contents"])
    else:
        title, text = str(document["title"]), str(document["text"])
    return Hit(
        str(document.get("id", f"{title}\n{text}")), title, text, float(item.get("score", 0.0))
    )


def split_contents(contents: str) -> tuple[str, str]:
    """The title, which wiki-18 puts in quotes, and the text.

    Contents without a line break are a text without a title.
    """
    title, _, text = contents.partition("\n") if "\n" in contents else ("", "", contents)
    title = title.strip()
    if len(title) > 1 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return title, text.strip()


@cache
def bm25(folder: Path) -> Bm25:
    """One for all environments of a process."""
    return Bm25(folder)


RETRIEVERS = ("bm25", "dense", "hybrid")
"""The retrievers over a local index."""


def open_retriever(kind: str, folder: Path, *, model: str = "") -> Retriever:
    """Open a retriever over a complete index.

    `model`: the directory of a sentence-embedding model for the dense retriever. Default: the
    bundled MiniLM.
    """
    words = bm25(folder)
    if kind == "bm25":
        return words
    from palestra.envs.search.dense import dense

    meaning = dense(folder, model)
    return meaning if kind == "dense" else Hybrid([words, meaning])
