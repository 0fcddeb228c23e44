"""The JSON answers to the page's requests. The server and a bundle give the same ones."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from palestra.core import untrusted
from palestra.core.intervals import student
from palestra.core.types import Trajectory
from palestra.core.untrusted import Unreadable, valid_utf8
from palestra.core.version import __version__
from palestra.runs.reader import RunFolder, group_names, readable_lines, runs_in
from palestra.view.index import Index, NotThere, read_line
from palestra.view.scenes import Scenes
from palestra.view.tokens import TokenTexts

log = logging.getLogger(__name__)

DAMAGED_CHARACTERS = 2000
EXPLAIN_LIMIT_S = 120


class ViewedRun:
    """A run, and what is kept in memory of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = RunFolder(folder)
        self.index = Index(folder)
        self.tokens = TokenTexts(folder)


class Pulse(NamedTuple):
    """The figures that change when a run does."""

    rows: int
    """Rows of the index."""
    steps: int
    """Rows of the metrics."""
    is_over: bool
    generation: int
    """The generation of the index."""

    def is_rewound_from(self, before: Pulse) -> bool:
        return self.generation != before.generation or self.steps < before.steps


class Answers:
    """The answers to the page's requests. Each may read files, so call them in a thread."""

    def __init__(self, paths: Sequence[Path], *, live: bool = True, can_play: bool = False) -> None:
        """`paths`: run folders, and folders of run folders, where more may appear later."""
        self._paths = paths
        self._runs: dict[str, ViewedRun] = {}
        self._scenes = Scenes()
        self.live, self.can_play = live, can_play
        self._explaining = threading.Lock()
        self._objectives: dict[str, dict[str, Any]] = {}
        """By the configuration's text."""
        self._decoding = threading.Lock()
        """Held while a large text is decoded, which takes up to sixteen times its memory."""
        self._look_for_runs()

    def _look_for_runs(self) -> None:
        known = {run.folder.path.resolve() for run in self._runs.values()}
        found: dict[Path, Path] = {}
        for path in self._paths:
            for folder in runs_in(path):
                found[folder.resolve()] = folder
        runs = dict(self._runs)
        for real, folder in found.items():
            if real not in known:
                runs[str(len(runs))] = ViewedRun(folder)
        self._runs = runs  # in one assignment: other threads iterate over the old dict

    @property
    def ids(self) -> list[str]:
        return list(self._runs)

    def close(self) -> None:
        for run in self._runs.values():
            run.index.stop()
        self._scenes.close()

    def _run(self, id: str) -> ViewedRun:
        if id not in self._runs:
            raise NotThere(f"run {id}: there is no such run")
        return self._runs[id]

    def index(self, id: str) -> Index:
        """The index of a run. It starts to read the episodes now, since most of many runs are never
        opened.
        """
        index = self._run(id).index
        if self.live:
            index.start()
        elif not index.is_complete:
            index.refresh()
        return index

    def folder(self, id: str) -> Path:
        return self._run(id).folder.path

    def runs(self) -> dict[str, Any]:
        known = self._runs
        named: list[tuple[str, dict[str, Any]]] = []
        for run in known.values():
            _, config, _ = run.folder.config()
            named.append((valid_utf8(run.folder.path.name), config))
        groups = group_names(named)
        runs: list[dict[str, Any]] = []
        for (id, run), group in zip(known.items(), groups, strict=True):
            runs.append({"id": id, **self._summary(run.folder), "group": group})
        most_seeds = max(Counter(groups).values(), default=0)
        return {
            "version": __version__,
            "live": self.live,
            "can_play": self.can_play,
            "runs": runs,
            "t_quantiles": [student(freedom) for freedom in range(1, most_seeds)],
        }

    def _summary(self, folder: RunFolder) -> dict[str, Any]:
        """A run's entry. An unexpected error in one run must not hide the others."""
        try:
            return folder.summary()
        except Exception:
            log.exception("%s: cannot be summed up", untrusted.terminal_safe(str(folder.path)))
            return {
                "name": valid_utf8(folder.path.name),
                "folder": valid_utf8(str(folder.path)),
                "algo": "",
                "envs": [],
                "seed": None,
                "steps": None,
                "done": 0,
                "is_over": False,
            }

    def run(self, id: str) -> dict[str, Any]:
        with self._decoding:
            return {"id": id, **self._run(id).folder.about()}

    def pulse(self) -> dict[str, Pulse]:
        """The figures of each run, and of new ones."""
        self._look_for_runs()
        return {id: self._pulse(run) for id, run in self._runs.items()}

    def _pulse(self, run: ViewedRun) -> Pulse:
        progress = run.folder.progress()
        return Pulse(run.index.total, progress.rows, progress.is_over, run.index.generation)

    def objective(self, id: str) -> dict[str, Any]:
        """The run's objective in words.

        Computed in another process, since torch would take hundreds of megabytes in this one.
        """
        run = self._run(id)
        text, tree, _ = run.folder.config()
        if not tree:
            return {"lines": [], "why": "config.toml cannot be read"}
        written = run.folder.objective()
        if written:
            return {"lines": written.splitlines()}
        with self._explaining:  # one process at a time
            if text not in self._objectives:
                self._objectives[text] = _explained(run.folder.path / "config.toml")
            return self._objectives[text]

    def episodes(self, id: str, first: int = 0) -> dict[str, Any]:
        return self.index(id).columns(first)

    def search(self, id: str, query: str) -> dict[str, Any]:
        index = self.index(id)
        return {"rows": index.search(query), "is_complete": index.is_complete}

    def texts(self, id: str) -> dict[str, Any]:
        return {"texts": self.index(id).texts()}

    def episode(self, id: str, file: str, number: int) -> dict[str, Any]:
        index = self.index(id)
        line = index.line(file, number)
        with self._decoding:
            trajectory = read_trajectory(line)
            if isinstance(trajectory, str):
                why = trajectory if line else index.unread.get(file, trajectory)
                return {"damaged": why, "text": line.decode(errors="replace")[:DAMAGED_CHARACTERS]}
            return {
                "trajectory": msgspec.Raw(line.strip()),
                "token_stats": read_token_stats(index.folder, file, trajectory),
                "tokens": self._run(id).tokens.of([segment.ids for segment in trajectory.segments]),
                "group": index.others_of_task(file, number),
                "scenes": None,
            }

    def scenes(self, id: str, file: str, number: int) -> dict[str, Any]:
        """The state of the environment before each turn and after the last."""
        line = self.index(id).line(file, number)
        with self._decoding:
            trajectory = read_trajectory(line)
        if isinstance(trajectory, str):
            return {"scenes": None, "why": trajectory}
        return self._scenes.of(self._run(id).folder.path, trajectory)


def read_trajectory(line: bytes) -> Trajectory | str:
    """An episode with all its fields, or what is wrong with the line."""
    episode = read_line(line)
    if isinstance(episode, str):
        return episode
    try:
        untrusted.decode(line, _everything)  # refuses unknown fields that are nested too deeply
        return untrusted.decode(line, _trajectory)
    except Unreadable as error:
        return str(error)


class _TokenStats(msgspec.Struct):
    id: str
    advantage: list[float | None]
    logp: list[float | None]
    entropy: list[float | None]


def read_token_stats(folder: Path, file: str, trajectory: Trajectory) -> dict[str, Any] | None:
    """The statistics of the episode's action tokens. None if the step did not train on it, or if
    the lists do not have its length.
    """
    if trajectory.is_baseline or trajectory.stop.is_fault:
        return None
    for stats in readable_lines(folder, f"token_stats/{file}.jsonl", _decoder):
        if stats.id == trajectory.id:
            values = {"advantage": stats.advantage, "logp": stats.logp, "entropy": stats.entropy}
            lengths = {len(numbers) for numbers in values.values()}
            return values if lengths == {trajectory.sampled_tokens} else None
    return None


_decoder = msgspec.json.Decoder(_TokenStats)
_trajectory = msgspec.json.Decoder(Trajectory)
_everything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _explained(config: Path) -> dict[str, Any]:
    # -P: nothing is imported from the working folder, which may be a stranger's.
    command = [sys.executable, "-P", "-m", "palestra", "explain", str(config)]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=EXPLAIN_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"lines": [], "why": f"no answer within {EXPLAIN_LIMIT_S} s"}
    if done.returncode:
        errors = done.stderr.strip().splitlines()
        return {"lines": [], "why": errors[-1] if errors else "it failed"}
    return {"lines": done.stdout.splitlines()}
