"""The trackers that come with Palestra. Each imports its package only when it is used."""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import msgspec
import tomli_w

from palestra.core.evaluation import EvalResult
from palestra.core.tables import eval_table
from palestra.training.tracking import RunInfo, Tracker


class TensorBoard(Tracker):
    """Event files in the run folder: `tensorboard --logdir runs`."""

    package: ClassVar[str] = "tensorboard"

    def begin(self, run: RunInfo) -> str:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        # The steps that a resumed run repeats are shown once.
        self._writer = SummaryWriter(str(folder), purge_step=run.since + 1)
        self._writer.add_text("config", _indented(tomli_w.dumps(run.config)), max(run.since, 0))
        return folder.name

    def row(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def result(self, result: EvalResult) -> None:
        self._writer.add_text(f"eval/{result.phase}", eval_table(result).markdown(), result.step)
        self._writer.flush()

    def end(self, *, is_complete: bool) -> None:
        self._writer.close()


class WeightsAndBiases(Tracker):
    """W&B, configured by its own variables: WANDB_MODE=offline, WANDB_ENTITY, WANDB_BASE_URL."""

    package: ClassVar[str] = "wandb"

    @classmethod
    def objection(cls) -> str:
        import wandb

        is_online = os.environ.get("WANDB_MODE", "online") in ("online", "run", "shared")
        # Checked before the run, since W&B would prompt for the key in the middle of it.
        if is_online and not wandb.login(prompt=False, verify=False):
            return "there is no API key; run `wandb login`, or set WANDB_MODE=offline"
        return ""

    def begin(self, run: RunInfo) -> str:
        import wandb

        self._run = wandb.init(
            project=run.project,
            name=run.folder.name,
            id=run.token,
            resume="allow",
            dir=str(run.folder),
            config=run.config,
            settings=wandb.Settings(silent=True, console="off"),  # the terminal is the display's
        )
        # Our step, not W&B's own counter: a resumed run counts on from its checkpoint.
        self._run.define_metric("*", step_metric="step")
        return str(self._run.id)

    def row(self, step: int, values: dict[str, float]) -> None:
        self._run.log({"step": step, **values})

    def result(self, result: EvalResult) -> None:
        import wandb

        table = eval_table(result)
        shown = wandb.Table(columns=table.columns, data=table.rows)
        self._run.log({"step": result.step, f"tables/{result.name}": shown})

    def end(self, *, is_complete: bool) -> None:
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflow(Tracker):
    """MLflow, at the address in MLFLOW_TRACKING_URI."""

    package: ClassVar[str] = "mlflow"

    def begin(self, run: RunInfo) -> str:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        if run.id is not None:
            self._id = run.id
            self._client.update_run(self._id, status="RUNNING")
        else:
            found = self._client.get_experiment_by_name(run.project)
            if found is not None:
                experiment = found.experiment_id
            else:
                experiment = self._client.create_experiment(run.project)
            created = self._client.create_run(experiment, run_name=run.folder.name)
            self._id = str(created.info.run_id)
            params = [Param(name, str(value)[:500]) for name, value in _flat(run.config).items()]
            for start in range(0, len(params), 100):  # MLflow accepts at most 100 at once
                self._client.log_batch(self._id, params=params[start : start + 100])
        self._client.log_text(self._id, tomli_w.dumps(run.config), "config.toml")
        return self._id

    def row(self, step: int, values: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def result(self, result: EvalResult) -> None:
        self._client.log_text(self._id, eval_table(result).markdown(), f"eval/{result.name}.md")
        self._client.log_dict(self._id, msgspec.to_builtins(result), f"eval/{result.name}.json")

    def end(self, *, is_complete: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if is_complete else "KILLED")


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optim": {"lr": 1}} -> {"optim.lr": 1}"""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _indented(text: str) -> str:
    """A code block in Markdown."""
    return "".join(f"    {line}\n" for line in text.splitlines())
