"""`palestra search ...`: make an index of a corpus."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from palestra.printing import fail, print_json


def add(commands: Any, parser_class: type[argparse.ArgumentParser]) -> None:
    search = commands.add_parser("search", help="make a corpus searchable", allow_abbrev=False)
    verbs = search.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=parser_class
    )
    index = verbs.add_parser(
        "index", help="index a corpus, or go on after an interruption", allow_abbrev=False
    )
    index.add_argument(
        "corpus",
        type=Path,
        metavar="CORPUS",
        help='JSONL, plain or gzipped: {"id": "0", "contents": "Title\\nText"}',
    )
    index.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="what the environment's option corpus is set to",
    )
    index.add_argument(
        "--dense",
        nargs="?",
        const="",
        metavar="MODEL",
        help="vectors too, by this model's directory (default: MiniLM)",
    )
    index.add_argument("--json", action="store_true", help="print the result as JSON")
    index.set_defaults(run=make_index, takes_settings=False)


def make_index(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.envs.search.adapters import read_corpus
    from palestra.envs.search.index import build

    if not known.corpus.is_file():
        fail(f"{known.corpus}: there is no such file")
    if known.dense and not Path(known.dense).is_dir():
        fail(f"--dense {known.dense}: there is no such folder")
    began = time.monotonic()
    stat = known.corpus.stat()
    source = {
        "path": str(known.corpus.resolve()),
        "bytes": stat.st_size,
        "modified_ns": stat.st_mtime_ns,
    }
    count = build(
        lambda: read_corpus(known.corpus), known.out, source=source, progress=_Told("articles")
    )
    if known.dense is not None:
        from palestra.envs.search.dense import build_dense

        build_dense(known.out, known.dense, _Told("vectors"))
    seconds = time.monotonic() - began
    if known.json:
        print_json({"index": str(known.out), "articles": count, "seconds": seconds})
    else:
        print(f"{known.out}: {count:,} articles, {seconds:.1f} s")


class _Told:
    """A line on the terminal every few seconds; what is counted, and how fast it goes."""

    def __init__(self, what: str) -> None:
        from rich.console import Console

        self.what = what
        self.console = Console(stderr=True, highlight=False)
        self.began = self.last = time.monotonic()
        self.first: int | None = None

    def __call__(self, count: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = count
            if count:
                self.console.print(f"going on after {count:,} {self.what}")
        elif now - self.last >= 2:
            self.last = now
            self.console.print(
                f"{count:,} {self.what}, {(count - self.first) / (now - self.began):,.0f} a second"
            )
