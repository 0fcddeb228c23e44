"""The user's cache: generated worlds, and indexes without a folder of their own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from palestra.envs.search.data import Article, World
from palestra.envs.search.index import FORMAT, Articles, build

MOST_FOR_ONE_THREAD = 50_000
"""A small corpus is indexed by one thread, so that equal scores come in the same order on every
machine.
"""


def cached_world(split: str, seed: int, questions: int | None) -> World:
    """A generated world. Making one takes some seconds, too long for each of many processes."""
    from filelock import FileLock

    # The key includes the generator's source files: a changed generator makes another world.
    here = Path(__file__).parent
    sources = (here / "data.py", *sorted(here.glob("world*")))
    maker = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:12]
    file = cache_folder() / f"world-{split}-{seed}-{questions or 'all'}-{maker}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        if not file.exists():
            from palestra.envs.search.world import world

            draft = file.with_suffix(".draft")
            draft.write_bytes(msgspec.json.encode(world(split, seed=seed, questions=questions)))
            draft.replace(file)
    return msgspec.json.decode(file.read_bytes(), type=World)


def cached_index(articles: list[Article]) -> Path:
    """The folder in the user's cache with the index of these articles, built on first use."""
    digest = digest_of(articles)
    folder = cache_folder() / digest
    if not (folder / "index.json").exists():
        threads = 1 if len(articles) <= MOST_FOR_ONE_THREAD else 0
        build(lambda: articles, folder, source={"digest": digest}, threads=threads)
    return folder


def cached_index_of_file(file: Path, articles: Articles) -> Path:
    """The cached index of a corpus file.

    The file is identified by path, size and modification time: hashing a large one takes minutes.
    """
    stat = file.stat()
    source = {"path": str(file.resolve()), "bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}
    folder = cache_folder() / hashlib.sha256(json.dumps([FORMAT, source]).encode()).hexdigest()[:16]
    if not (folder / "index.json").exists():
        build(articles, folder, source=source)
    return folder


def digest_of(articles: Iterable[Article]) -> str:
    digest = hashlib.sha256(str(FORMAT).encode())
    for article in articles:
        digest.update("\x00".join((*article, "\x01")).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return user / "palestra" / "search"
