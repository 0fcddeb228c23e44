"""A run from Python: its metrics, episodes and evaluations, in training or when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.config.run_format import format_error
from palestra.core.errors import ConfigError
from palestra.core.evaluation import EvalResult
from palestra.core.extras import naming_extras
from palestra.core.types import Trajectory

if TYPE_CHECKING:
    import pandas

    from palestra.api.viewing import Viewer
    from palestra.config.config import Config


class Rows(list[dict[str, Any]]):
    """A list of rows of `metrics.jsonl`: one dictionary per row."""

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas data frame, indexed by step."""
        import pandas

        frame = pandas.DataFrame(list(self))
        return frame.set_index("step") if len(frame) else frame


class Run:
    """A run folder.

    `palestra.train` returns one, and `palestra.load_run` opens one. Everything is read from the
    folder when it is asked for, so that it can be used while the run is trained elsewhere.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise ConfigError(f"{folder}: there is no run in this folder (no config.toml)")
        from palestra.runs.reader import read_config

        if reason := format_error(read_config(self.folder / "config.toml")[0]):
            raise ConfigError(f"{folder}: {reason}")

    def __repr__(self) -> str:
        rows = self.metrics()
        done = rows[-1]["step"] if rows else 0
        result = self.result
        success = f", success {result.success}" if result is not None else ""
        return f"Run({str(self.folder)!r}, step {done}{success})"

    @cached_property
    def config(self) -> Config:
        """The settings of the run. Classes that they name "module:Class" are not imported."""
        from palestra.config import config as configs

        return configs.load(self.folder / "config.toml")

    @property
    def result(self) -> EvalResult | None:
        """The newest evaluation in the run folder; None before the first one."""
        results = self.evaluations()
        return results[-1] if results else None

    @property
    def is_complete(self) -> bool:
        """Whether the final evaluation has been made."""
        return any(row.get("phase") == "final" for row in self.metrics())

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint. Its folder is a model: `train(..., model=run.checkpoint)`."""
        from palestra.api.evaluate import newest_checkpoint

        return newest_checkpoint(self.folder)

    def metrics(self, name: str | None = None) -> Rows:
        """The rows of `metrics.jsonl`, or only those that have the metric `name`."""
        from palestra.runs.reader import read_metrics

        rows, _ = read_metrics(self.folder / "metrics.jsonl")
        return Rows(row for row in rows if name is None or name in row)

    def evaluations(self) -> list[EvalResult]:
        """All evaluations in the run folder, in the order in which they were made."""
        from palestra.runs.reader import load_evals

        return load_evals(self.folder)

    def episodes(
        self,
        step: int | None = None,
        *,
        phase: str | None = None,
        env: str | None = None,
        success: bool | None = None,
    ) -> Iterator[Trajectory]:
        """Episodes in the order in which they were stored.

        `step`: of this training step only. `phase`: those of an evaluation ("raw", "warm start",
        "interim", "final") in place of those of training. `env` and `success` filter.
        """
        from palestra.runs.trajectories import read_trajectories

        folder = self.folder / "trajectories"
        number = "*" if step is None else f"{step:06d}"
        kind = "*" if phase is None else phase.replace(" ", "-")
        pattern = f"step-{number}.jsonl" if phase is None else f"eval-step-{number}-{kind}.jsonl"
        for path in sorted(folder.glob(pattern)):
            for episode in read_trajectories(path):
                if env is not None and episode.task.env != env:
                    continue
                if success is not None and episode.success is not success:
                    continue
                yield episode

    def episode(self, id: str) -> Trajectory:
        """The episode with this id, of training or of an evaluation."""
        from palestra.runs.trajectories import read_trajectories

        for path in sorted((self.folder / "trajectories").glob("*.jsonl")):
            for episode in read_trajectories(path, id=id):
                return episode
        raise ConfigError(f"{self.folder}: there is no episode {id!r} in this run")

    def evaluate(self, **settings: Any) -> EvalResult:
        """Play held-out tasks with the newest checkpoint: `palestra.evaluate` of this run."""
        from palestra.api.evaluate import evaluate

        return evaluate(self, **settings)

    def resume(self, **settings: Any) -> Run:
        """Continue training from the newest checkpoint: `palestra.train` with `resume=True`."""
        from palestra.api.train import train

        return train(out=self.folder, resume=True, **settings)

    @naming_extras("Run.export")
    def export(self, out: str | Path, *, adapter: bool = False) -> Path:
        """Write the newest checkpoint as a Hugging Face folder; `adapter`: only the adapter."""
        from palestra.tools.export import export_run

        export_run(self.folder, Path(out), adapter=adapter)
        return Path(out)

    def explain(self) -> str:
        """The objective that the run optimizes, with its numbers filled in."""
        from palestra.runs.explain import explain

        return explain(self.config)

    def view(self, *, port: int = 0, open_browser: bool = True) -> Viewer:
        """Show the run in the viewer, as `palestra view` does.

        A script waits here until Ctrl-C. In a notebook or an interactive session the viewer keeps
        running in the background until its `close()` or the end of the program.
        """
        from palestra.api.viewing import view

        return view([self.folder], port=port, open_browser=open_browser)


def load_run(path: str | Path) -> Run:
    """Open a run folder."""
    return Run(path)
