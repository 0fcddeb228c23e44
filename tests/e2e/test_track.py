"""Trackers are told what goes into the run folder, go on where they were, and cannot harm a run
whatever they do.
"""

import logging
import os
import threading
import time
from importlib.util import find_spec

import pytest
import torch

from palestra.cli.main import main
from palestra.config.config import build, load
from palestra.config.track import trackers
from palestra.core.errors import ConfigError
from palestra.runs.run import Run
from palestra.training import tracking as track
from palestra.training.display import Display
from palestra.training.loop import run_training
from palestra.training.tracking import Tracker, objection, stored_ids
from tests.support.training import ECHO, records, stopped_after, trained, weights

SHORT = {"steps": 3, "eval.tasks": 6}


class Recorder(Tracker):
    """What it was told, by the name of the run folder."""

    told: dict[str, list] = {}

    def begin(self, run):
        self.notes = self.told.setdefault(run.folder.name, [])
        self.notes.append(("begin", run.since, run.id, run.project, run.config["steps"]))
        return f"id of {run.folder.name}"

    def row(self, step, values):
        self.notes.append(("row", step, values))

    def result(self, result):
        self.notes.append(("result", result))

    def end(self, *, is_complete):
        self.notes.append(("end", is_complete))


class RaisesAtFirst(Recorder):
    def begin(self, run):
        raise RuntimeError("no route to the server")


class RaisesLater(Recorder):
    def row(self, step, values):
        raise RuntimeError("no route to the server")


class RaisesLast(Recorder):
    def end(self, *, is_complete):
        raise RuntimeError("no route to the server")


class Exits(Recorder):
    def row(self, step, values):
        raise SystemExit(3)


class Hangs(Recorder):
    def row(self, step, values):
        threading.Event().wait()


class HangsLast(Recorder):
    def end(self, *, is_complete):
        threading.Event().wait()


BAD = [RaisesAtFirst, RaisesLater, RaisesLast, Exits, Hangs, HangsLast]

for kind in (Recorder, *BAD):
    trackers.register(f"test-{kind.__name__}")(kind)


def of(notes, kind):
    return [note for note in notes if note[0] == kind]


def test_rows_results_and_the_end(tmp_path):
    run = trained(
        tmp_path / "told", **SHORT, **{"track.names": ["test-Recorder"], "track.project": "echoes"}
    )
    notes = Recorder.told["told"]
    assert notes[0] == ("begin", -1, None, "echoes", 3)
    rows = run.metrics()
    assert [step for _, step, _ in of(notes, "row")] == [row["step"] for row in rows]
    numbers = [
        {name: value for name, value in row.items() if name not in ("step", "phase")}
        for row in rows
    ]
    assert [values for _, _, values in of(notes, "row")] == numbers
    assert [result.name for _, result in of(notes, "result")] == [
        "step-000000-raw",
        "step-000003-final",
    ]
    assert of(notes, "result")[1][1].all.success == rows[-1]["eval/success"]
    assert notes[-1] == ("end", True)


def test_a_resumed_run_goes_on_in_the_same_place(tmp_path):
    run = stopped_after(3, tmp_path / "halves", {"track.names": ["test-Recorder"]})
    assert Recorder.told["halves"][-1] == ("end", False)
    run_training(Run.open(run.folder), Display())
    assert of(Recorder.told["halves"], "begin")[1] == ("begin", 3, "id of halves", "palestra", 6)


@pytest.mark.parametrize("kind", BAD)
def test_a_tracker_cannot_harm_a_run(tmp_path, caplog, kind):
    plain = trained(tmp_path / "plain", **SHORT)
    began = time.monotonic()
    settings = {"track.names": [f"test-{kind.__name__}", "test-Recorder"], "track.timeout_s": 0.3}
    with caplog.at_level(logging.ERROR, "palestra"):
        run = trained(tmp_path / kind.__name__, **SHORT, **settings)
    assert time.monotonic() - began < 30
    assert records(run) == records(plain)
    assert all(torch.equal(value, weights(plain)[name]) for name, value in weights(run).items())
    messages = [
        record.message
        for record in caplog.records
        if record.name.startswith("palestra.training.tracking")
    ]
    assert len(messages) == 1, messages
    assert f"tracker test-{kind.__name__} is left out from here on" in messages[0]
    assert ("end", True) in Recorder.told[kind.__name__]  # the other one has all of it


def test_one_that_falls_behind_is_dropped(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(track, "MOST_WAITING", 2)
    with caplog.at_level(logging.ERROR, "palestra"):
        trained(
            tmp_path / "run", **SHORT, **{"track.names": ["test-Hangs"], "track.timeout_s": 0.1}
        )
    assert "2 rows behind" in caplog.records[0].message


class NeedsWhatIsNotThere(Recorder):
    package = "a_package_that_nobody_has"


def test_a_missing_package_stops_a_run_before_it_begins(tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[track]\nnames = ["{__name__}:NeedsWhatIsNotThere"]\n'
        '[env]\nname = "tests.support.environments:Echo"\n'
    )
    assert load(recipe).track.names  # the configuration itself can be read anywhere
    with pytest.raises(SystemExit) as exit_:
        main(["train", str(recipe), "--out", str(tmp_path / "run")])
    assert exit_.value.code == 2
    assert (
        "needs the package a_package_that_nobody_has; pip install 'palestra[track]'"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker():
    with pytest.raises(
        ConfigError,
        match=r"track\.names\.0 = 'tensorbord': no tracker is called .* did you mean 'tensorboard'",
    ):
        build(ECHO, {"track.names": ["tensorbord"]})


def needs(package):
    return pytest.mark.skipif(
        find_spec(package) is None, reason=f"needs the package {package} (extra track)"
    )


def tracked_in_halves(folder, name):
    """A run that is killed after 4 steps and resumed after step 3."""
    run = stopped_after(3, folder, {"track.names": [name], "track.timeout_s": 60})
    first = stored_ids(folder)
    run_training(Run.open(folder), Display())
    assert stored_ids(folder) == first
    assert first[name]
    return run


@needs("tensorboard")
def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tracked_in_halves(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    rows = [row for row in run.metrics() if "reward" in row]
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [
        (row["step"], pytest.approx(row["reward"])) for row in rows
    ]  # the step that was done twice is there once
    (final,) = events.Tensors("eval/final/text_summary")
    assert b"| echo (2 turns) | red |" in final.tensor_proto.string_val[0]


@needs("mlflow")
def test_mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    run = tracked_in_halves(tmp_path / "run", "mlflow")
    client, id = MlflowClient(), stored_ids(run.folder)["mlflow"]
    stored = client.get_run(id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["optim.lr"] == "0.003"
    rewards = {(metric.step, metric.value) for metric in client.get_metric_history(id, "reward")}
    assert rewards == {(row["step"], row["reward"]) for row in run.metrics() if "reward" in row}
    assert {"config.toml", "eval"} <= {file.path for file in client.list_artifacts(id)}
    assert len(client.search_runs([stored.info.experiment_id])) == 1


@needs("wandb")
def test_wandb(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tracked_in_halves(tmp_path / "run", "wandb")
    id = stored_ids(run.folder)["wandb"]
    files = list((run.folder / "wandb").glob(f"offline-run-*-{id}/run-{id}.wandb"))
    assert len(files) == 2  # one of each session, of one run
    assert b"policy/entropy" in b"".join(file.read_bytes() for file in files)


@needs("wandb")
def test_wandb_without_a_key_is_an_error_before_the_run_begins(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert "WANDB_API_KEY" not in os.environ
    assert "no API key" in objection(build(ECHO, {"track.names": ["wandb"]}).track)
