"""Whether two checkouts of Palestra compute the same numbers, bit for bit.

    python benchmarks/same_numbers.py BEFORE AFTER [--keep DIR] [--only NAME...]

Both checkouts train the same small runs through the command line: six steps on the CPU with one
thread. Compared are every tensor of the last checkpoint and every row of metrics.jsonl, without
what is measured in seconds. Recipes are those of AFTER, and AFTER knows all renamed settings: an
older BEFORE gets them by its own names, and its metrics are translated to the new ones. `--keep`
stores what BEFORE computed, so that the next comparison runs AFTER only.

A checkout runs with the interpreter of its .venv, or with this one where it has none.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

TIMEOUT_S = 300
TAIL = 30
"""Lines of the log that are shown of a failed run."""
MEASURED = re.compile(r"(^|[/_])(time|seconds|per_s|memory|host|path)($|[/_])")
"""Metrics that differ from run to run."""

Tree = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A run to compare: a recipe, what is set otherwise by dotted names, and the steps after which
    the command ends and another one resumes the run.
    """

    recipe: str
    settings: Tree
    stops: tuple[int, ...] = (6,)


COMMON = {"seed": 0, "device": "cpu", "threads": 1, "eval.tasks": 8}
BABYAI = {"env.options.levels": ["GoToObj", "OpenDoorColor"], "env.options.train_seeds": 200}
WARM_START = {
    "warm_start.episodes": 200,
    "warm_start.noise": 0.2,
    "warm_start.updates": 60,
    "warm_start.batch": 16,
    "warm_start.check_every": 20,
    "warm_start.check_tasks": 16,
}
"""A few seconds: groups then differ in reward, and training has gradients."""
QUICKSTART = {**BABYAI, **WARM_START, "rollout.tasks": 4}

CASES = {
    "quickstart": Case("quickstart", QUICKSTART),
    "ppo": Case("quickstart", {**QUICKSTART, "algo": {"name": "ppo", "critic": {"warmup": 2}}}),
    "gigpo": Case("quickstart", {**QUICKSTART, "algo": {"name": "gigpo", "scale": False}}),
    "mixture": Case("mixture", {**WARM_START, "warm_start.updates": 160, "rollout.tasks": 4}),
    "sft": Case("sft", {**BABYAI, "algo.episodes": 200}),
    "evol": Case(
        "evol",
        {**BABYAI, **WARM_START, "rollout.tasks": 8, "algo.round": 3, "algo.batch": 16},
    ),
    "prefetch": Case("quickstart", {**QUICKSTART, "rollout.prefetch": 1}),
    "partial": Case("quickstart", {**QUICKSTART, "rollout.partial": 2}),
    "workers": Case("quickstart", {**QUICKSTART, "launch.workers": 2}),
    "resumed": Case("quickstart", QUICKSTART, stops=(3, 6)),
}

PROBE = """
import json, palestra, torch
try:
    from palestra.config import renamed
    tables = [renamed.RENAMED, renamed.RENAMED_VALUES, renamed.RENAMED_METRICS]
except ImportError:  # from before the first renaming
    tables = [{}, {}, {}]
print(json.dumps([palestra.__file__, torch.__version__, *tables]))
"""


class RunFailed(Exception):
    """A run ended with an error, or did not end in time."""


@dataclass(frozen=True)
class Renamed:
    """Old names to new ones, as in palestra/config/renamed.py."""

    settings: dict[str, str]
    values: dict[str, dict[str, str]]
    metrics: dict[str, str]


@dataclass(frozen=True)
class Numbers:
    """What a run computed."""

    weights: dict[str, str]
    """Digests of the last checkpoint's tensors."""
    rows: list[dict[str, Any]]
    """Of metrics.jsonl, by the names of the checkout."""


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        own = self.folder / ".venv" / "bin" / "python"
        self.python = str(own) if own.exists() else sys.executable
        self.env = os.environ | {
            "PYTHONPATH": str(self.folder),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        with tempfile.TemporaryDirectory() as scratch:  # a working directory is imported from first
            done = subprocess.run(
                [self.python, "-c", PROBE],
                env=self.env,
                cwd=scratch,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
        if done.returncode != 0:
            raise SystemExit(f"{folder}: Palestra cannot be imported:\n{done.stderr[-2000:]}")
        imported, self.torch, settings, values, metrics = json.loads(done.stdout.splitlines()[-1])
        if not Path(imported).resolve().is_relative_to(self.folder):
            raise SystemExit(f"{folder}: {self.python} imports {imported} instead")
        self.renamed = Renamed(settings, values, metrics)

    def source_digest(self) -> str:
        hasher = hashlib.sha256(self.torch.encode())
        for path in sorted((self.folder / "palestra").rglob("*.py")):
            hasher.update(f"{path.relative_to(self.folder)}\0".encode() + path.read_bytes())
        return hasher.hexdigest()

    def palestra(self, words: list[str], folder: Path, log: Path) -> None:
        """Run a command in a folder; its output is appended to the log."""
        with log.open("a") as output:
            process = subprocess.Popen(
                [self.python, "-m", "palestra", *words],
                env=self.env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise RunFailed(f"took more than {TIMEOUT_S} s") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # with its workers
                    process.wait()
        if code != 0:
            raise RunFailed(f"exit code {code}")

    def compute(self, case: Case, tree: Tree, log: Path) -> Numbers:
        log.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            (folder / "recipe.toml").write_text(tomli_w.dumps(tree))
            what = ["recipe.toml", "--out", "run"]
            for stop in case.stops:
                self.palestra(["train", *what, "--steps", str(stop)], folder, log)
                what = ["--resume", "run"]
            return numbers_of(folder / "run", case.stops[-1])


def settings_of(case: Case, recipes: Path) -> Tree:
    """The recipe with what the case sets, by the new names."""
    tree = tomllib.loads((recipes / f"{case.recipe}.toml").read_text())
    for dotted, value in {**COMMON, **case.settings}.items():
        *tables, name = dotted.split(".")
        table = tree
        for key in tables:
            table = table.setdefault(key, {})
        table[name] = deepcopy(value)
    return tree


def in_old_names(tree: Tree, renamed: Renamed, known: Renamed) -> Tree:
    """Settings by the names of a checkout that knows only some of the renamings."""
    old_names = {new: old for old, new in renamed.settings.items() if old not in known.settings}
    translated: Tree = {}
    for table, content in tree.items():
        if not isinstance(content, dict):
            translated[table] = content
            continue
        settings: Tree = {}
        for name, value in content.items():
            dotted = f"{table}.{name}"
            new_values = renamed.values.get(dotted, {})
            for old, new in new_values.items():
                if value == new and old not in known.values.get(dotted, {}):
                    value = old
            settings[old_names.get(dotted, dotted).partition(".")[2]] = value
        translated[table] = settings
    return translated


def numbers_of(run: Path, step: int) -> Numbers:
    weights: dict[str, str] = {}
    for path in sorted((run / "checkpoints" / f"step-{step:06d}").glob("*.safetensors")):
        weights |= tensor_digests(path)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    if not weights or not lines:
        raise RunFailed(f"no weights or no metrics of step {step}")  # nothing equals nothing
    return Numbers(weights, [without_measured(json.loads(line)) for line in lines])


def without_measured(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not MEASURED.search(name)}


def tensor_digests(path: Path) -> dict[str, str]:
    """Of a safetensors file: type, shape and bytes of each tensor, without the file's metadata."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    digests: dict[str, str] = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        kind = f"{tensor['dtype']} {tensor['shape']} ".encode()
        tensor_bytes = content[start + begin : start + end]
        digests[f"{path.name}: {name}"] = hashlib.sha256(kind + tensor_bytes).hexdigest()
    return digests


def in_new_names(numbers: Numbers, renamed: Renamed) -> Numbers:
    def new_name(name: str) -> str:
        for old, new in renamed.metrics.items():
            if f"/{name}".endswith(f"/{old}"):  # also that of one environment: env/babyai/...
                return name.removesuffix(old) + new
        return name

    rows = []
    for row in numbers.rows:
        rows.append({new_name(name): value for name, value in row.items()})
    return Numbers(numbers.weights, rows)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what differs, in the order of the first; what one of them lacks differs as well."""
    # as text: 1 and 1.0, and 0.0 and -0.0, are not the same
    ours = {name: json.dumps(value) for name, value in before.items()}
    theirs = {name: json.dumps(value) for name, value in after.items()}
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


def first_difference(before: Numbers, after: Numbers) -> str:
    """The earliest row and metric, or else the first tensor; empty where all is equal."""
    for number, (ours, theirs) in enumerate(zip(before.rows, after.rows, strict=False), 1):
        for name in differences(ours, theirs):
            return (
                f"row {number} (step {ours.get('step')}): {name} = "
                f"{ours.get(name, 'absent')!r} before, {theirs.get(name, 'absent')!r} after"
            )
    if len(before.rows) != len(after.rows):
        return f"{len(before.rows)} rows before, {len(after.rows)} after"
    different = differences(before.weights, after.weights)
    return f"{len(different)} tensors differ, first {different[0]}" if different else ""


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def shown(before: Any, after: Any) -> str:
    ours, theirs = digest(before), digest(after)
    return ours if ours == theirs else f"{ours} / {theirs}"


def kept_or_computed(
    checkout: Checkout, case: Case, tree: Tree, log: Path, kept: Path | None
) -> Numbers:
    """What a checkout computes, from the file where it was kept, of the same sources and case."""
    key = digest([checkout.source_digest(), case.stops, tree])
    if kept is not None and kept.is_file():
        content = json.loads(kept.read_text())
        if content["key"] == key:
            return Numbers(content["weights"], content["rows"])
    numbers = checkout.compute(case, tree, log)
    if kept is not None:
        kept.write_text(json.dumps({"key": key, **asdict(numbers)}, indent=1) + "\n")
    return numbers


def compare(before: Checkout, after: Checkout, name: str, logs: Path, keep: Path | None) -> str:
    """Print the row of a case; returns what differs first."""
    case = CASES[name]
    tree = settings_of(case, after.folder / "palestra" / "recipes")
    log = logs / f"{name}-before.log"
    try:
        old_tree = in_old_names(tree, after.renamed, before.renamed)
        kept = keep / f"{name}.json" if keep else None
        ours = kept_or_computed(before, case, old_tree, log, kept)
        log = logs / f"{name}-after.log"
        theirs = after.compute(case, tree, log)
    except RunFailed as error:
        tail = log.read_text(errors="replace").splitlines()[-TAIL:]
        print("\n".join([f"{name:12}failed", *tail]), flush=True)
        return f"{log.stem}: {error}"
    ours, theirs = in_new_names(ours, after.renamed), in_new_names(theirs, after.renamed)
    found = first_difference(ours, theirs)
    weights, metrics = shown(ours.weights, theirs.weights), shown(ours.rows, theirs.rows)
    print(f"{name:12}{weights:29}{metrics:29}{'no' if found else 'yes'}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="a checkout of the same age, or a newer one")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="of BEFORE's results and all logs")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    given = parser.parse_args()
    before, after = Checkout(given.before), Checkout(given.after)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    print(f"before: {before.folder}, torch {before.torch}")
    print(f"after:  {after.folder}, torch {after.torch}")
    print(f"{'name':12}{'weights':29}{'metrics':29}equal", flush=True)
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.only:
            found[name] = compare(before, after, name, given.keep or Path(scratch), given.keep)
    for name, difference in found.items():
        if difference:
            print(f"{name}: {difference}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
