"""`palestra search ...`: make an index of a corpus."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from palestra.cli.command import Command, Group, Json
from palestra.core.errors import UserError
from palestra.core.extras import require
from palestra.core.printing import plain_console, print_json

app = typer.Typer(cls=Group, help="Make a corpus searchable.")


@app.callback()
def search() -> None:
    """Make a corpus searchable."""


class IndexCommand(Command):
    """`--dense` may stand without its MODEL."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        if "--dense" in words:
            after = words.index("--dense") + 1
            if after == len(words) or words[after].startswith("-"):
                words.insert(after, "")
        return super().parse_args(ctx, words)


@app.command("index", cls=IndexCommand)
def make_index(
    corpus: Annotated[
        Path,
        typer.Argument(help='JSONL, plain or gzipped: {"id": "0", "contents": "Title\\nText"}'),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="what the environment's option corpus is set to")
    ],
    dense: Annotated[
        str | None,
        typer.Option(
            metavar="[MODEL]", help="vectors too, by this model's directory (default: MiniLM)"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Index a corpus, or continue after an interruption."""
    if not corpus.is_file():
        raise UserError(f"{corpus}: there is no such file")
    if dense and not Path(dense).is_dir():
        raise UserError(f"--dense {dense}: there is no such folder")

    require("search index", "tantivy")
    require("search index", "filelock")

    from palestra.envs.search.adapters import read_corpus
    from palestra.envs.search.index import build

    if next(iter(read_corpus(corpus)), None) is None:  # before the folder is created
        raise UserError(f"{corpus}: has no article; expected one JSON object a line")
    began = time.monotonic()
    stat = corpus.stat()
    source = {
        "path": str(corpus.resolve()),
        "bytes": stat.st_size,
        "modified_ns": stat.st_mtime_ns,
    }
    count = build(lambda: read_corpus(corpus), out, source=source, progress=_Told("articles"))
    if dense is not None:
        from palestra.envs.search.dense import build_dense

        build_dense(out, dense, _Told("vectors"))
    seconds = time.monotonic() - began
    if as_json:
        print_json({"index": str(out), "articles": count, "seconds": seconds})
    else:
        print(f"{out}: {count:,} articles, {seconds:.1f} s")


class _Told:
    """A line on the terminal every few seconds; what is counted, and how fast it goes."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.console = plain_console(stderr=True)
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
