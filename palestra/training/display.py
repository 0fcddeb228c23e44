"""The display of a run in progress: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from palestra.core.errors import ConfigError
from palestra.core.evaluation import EvalResult
from palestra.core.printing import plain_console
from palestra.core.types import Trajectory

# In a notebook, libraries with progress bars warn where the package ipywidgets is missing. None of
# their bars is shown here.
warnings.filterwarnings("ignore", message="IProgress not found")


class Display:
    """Shows nothing. The base of displays that do."""

    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def begin_step(self, step: int) -> None: ...
    def episode_done(self, trajectory: Trajectory) -> None: ...
    def progress(self, done: int, total: int) -> None:
        """How far a phase is that plays no step: demonstrations, updates."""

    def end_step(self, row: dict[str, Any]) -> None: ...
    def begin_eval(self, phase: str, episodes: int) -> None: ...
    def end_eval(self, phase: str, result: EvalResult) -> None: ...
    def close(self) -> None: ...


class LineDisplay(Display):
    """One line per step."""

    def __init__(self, steps: int, console: Console | None = None) -> None:
        self.console = console or plain_console(soft_wrap=True)
        self.steps = steps
        self._began: float | None = None
        self._first_step = 0
        self._phase = ""

    def phase(self, text: str) -> None:
        if text != self._phase:  # a phase that a check has interrupted is one line
            self.console.print(text)
        self._phase = text

    def note(self, text: str) -> None:
        self.console.print(text)

    def begin_step(self, step: int) -> None:
        if self._began is None:
            self._began, self._first_step = time.monotonic(), step

    def end_step(self, row: dict[str, Any]) -> None:
        figures = [f"{name} {value}" for name, value in self.describe(row).items()]
        self.console.print("  ".join(figures))

    def end_eval(self, phase: str, result: EvalResult) -> None:
        first, *others = self.eval_lines(phase, result)
        self.console.print(first, style="bold")
        for line in others:
            self.console.print(line)

    def eval_lines(self, phase: str, result: EvalResult) -> list[str]:
        """All tasks, and each environment where there are several."""
        named = {"": result.all}
        if len(result.envs) > 1:
            named |= {env: scores.all for env, scores in result.at_full_horizon().items()}
        lines = []
        for env, score in named.items():
            low, high = score.success_interval
            figures = (
                f"{score.success:.1%} [{low:.1%}, {high:.1%}]  ({score.tasks} tasks, "
                f"{score.turns:.1f} turns)"
            )
            of_env = f", {env}" if env else ""
            lines.append(f"held-out success, {phase}{of_env}: {figures}")
        return lines

    def describe(self, row: dict[str, Any]) -> dict[str, str]:
        """The figures to show of a step: of its episodes, or of the loss if it played none."""
        figures = {"step": f"{row['step']}/{self.steps}"}
        if "success" in row:
            envs = sorted({name.split("/")[1] for name in row if name.startswith("env/")})
            horizons, successes = [], []
            for prefix in [f"env/{env}/" for env in envs] or [""]:
                horizons.append(f"{row[f'{prefix}horizon']} (stage {row[f'{prefix}stage']})")
                successes.append(f"{row[f'{prefix}success']:.1%}")
            stops = []
            for name, share in row.items():
                if name.startswith("stop/"):
                    stops.append(f"{name.removeprefix('stop/')} {share:.0%}")
            seconds = row["time/collect"] + row["time/learn"]
            figures |= {
                "horizon": " | ".join(horizons),
                "reward": f"{row['reward']:.3f}",
                "success": " | ".join(successes),
                "turns": f"{row['turns']:.1f}",
                "invalid": f"{row['invalid_actions']:.1%}",
                "stops": " ".join(stops),
                "tok/s": f"{row['tokens/all'] / seconds:,.0f}",
            }
        elif "loss" in row:
            figures["loss"] = f"{row['loss']:.4f}"
            for name in ("dpo/accuracy", "dpo/margin"):
                if name in row:
                    figures[name.split("/")[1]] = f"{row[name]:.3f}"
        return figures | {"ETA": self._remaining(row["step"])}

    def _remaining(self, step: int) -> str:
        if self._began is None:
            return "?"
        seconds_per_step = (time.monotonic() - self._began) / (step - self._first_step + 1)
        seconds = seconds_per_step * (self.steps - step)
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


class LiveDisplay(LineDisplay):
    """A table that stays in place: the last steps, and the progress of the current one."""

    SHOWN = 12

    def __init__(self, steps: int, episodes_per_step: int | None, console: Console) -> None:
        super().__init__(steps, console)
        self.episodes_per_step = episodes_per_step
        self._rows: list[dict[str, str]] = []
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
        )
        self._task = self._progress.add_task("", total=None)
        self._live = Live(self._render(), console=console, refresh_per_second=4)
        self._live.start()

    def phase(self, text: str) -> None:
        self._begin(text, None)
        self._live.update(self._render())

    def begin_step(self, step: int) -> None:
        super().begin_step(step)
        self._begin(f"step {step}", self.episodes_per_step)

    def begin_eval(self, phase: str, episodes: int) -> None:
        self._begin(f"evaluating ({phase})", episodes)

    def _begin(self, description: str, total: int | None) -> None:
        """A new task: rich cannot make the total of an old one unknown."""
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(description, total=total)

    def episode_done(self, trajectory: Trajectory) -> None:
        self._progress.advance(self._task)

    def progress(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def end_step(self, row: dict[str, Any]) -> None:
        self._rows = [*self._rows[1 - self.SHOWN :], self.describe(row)]
        self._live.update(self._render())

    def end_eval(self, phase: str, result: EvalResult) -> None:
        if phase == "final":
            self.close()  # it comes after the table of steps
        super().end_eval(phase, result)

    def close(self) -> None:
        if not self._live.is_started:
            return
        self._progress.update(self._task, visible=False)
        self._live.update(self._render(), refresh=True)
        self._live.stop()

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        columns = self._rows[-1] if self._rows else {}
        for name in columns:
            table.add_column(name, justify="left" if name == "stops" else "right", no_wrap=True)
        for row in self._rows:
            table.add_row(*row.values())
        # An empty table would be an empty line.
        return Group(table, self._progress) if self._rows else Group(self._progress)


class ProgressDisplay(Display):
    """The number of finished episodes of an evaluation, in a terminal. On stderr, so that stdout
    has only the result.
    """

    def __init__(self, console: Console | None = None) -> None:
        console = console or plain_console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("episodes"),
        )
        self._progress = Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True
        )

    def begin_eval(self, phase: str, episodes: int) -> None:
        self._progress.start()
        self._task = self._progress.add_task(f"{phase} plays", total=episodes)

    def episode_done(self, trajectory: Trajectory) -> None:
        self._progress.advance(self._task)

    def close(self) -> None:
        self._progress.stop()


class NotebookDisplay(LineDisplay):
    """One small table that is updated in place, in the output of the cell."""

    SHOWN = 8
    REFRESH_S = 0.5

    def __init__(self, steps: int, episodes_per_step: int | None) -> None:
        from IPython.display import HTML, display

        super().__init__(steps)
        self.episodes_per_step = episodes_per_step
        self._html = HTML
        self._rows: list[dict[str, str]] = []
        self._notes: list[str] = []
        self._status, self._done, self._total = "", 0, episodes_per_step
        self._shown_at = 0.0
        self._handle = display(HTML(""), display_id=True)

    def phase(self, text: str) -> None:
        self._begin(text, None)

    def note(self, text: str) -> None:
        self._notes.append(text)
        self._show()

    def begin_step(self, step: int) -> None:
        super().begin_step(step)
        self._begin(f"step {step}", self.episodes_per_step)

    def begin_eval(self, phase: str, episodes: int) -> None:
        self._begin(f"evaluating ({phase})", episodes)

    def episode_done(self, trajectory: Trajectory) -> None:
        self._done += 1
        if time.monotonic() - self._shown_at > self.REFRESH_S:
            self._show()

    def progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if time.monotonic() - self._shown_at > self.REFRESH_S:
            self._show()

    def end_step(self, row: dict[str, Any]) -> None:
        self._rows = [*self._rows[1 - self.SHOWN :], self.describe(row)]
        self._show()

    def end_eval(self, phase: str, result: EvalResult) -> None:
        self._notes += self.eval_lines(phase, result)
        self._show()

    def close(self) -> None:
        self._begin("", None)

    def _begin(self, status: str, total: int | None) -> None:
        self._status, self._done, self._total = status, 0, total
        self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        parts = [f"<div>{escape(note)}</div>" for note in self._notes]
        if self._rows:
            parts.append(_html_table(self._rows))
        if self._status and self._total:
            parts.append(f"<div>{escape(self._status)}: {self._done}/{self._total}</div>")
        elif self._status:
            parts.append(f"<div>{escape(self._status)}</div>")
        self._handle.update(self._html("".join(parts)))


def _html_table(rows: list[dict[str, str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[-1])
    lines = []
    for row in rows:
        cells = "".join(f"<td>{escape(value)}</td>" for value in row.values())
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


DISPLAYS = ("auto", "live", "lines", "notebook", "json", "none")


def check_display(kind: str) -> None:
    if kind not in DISPLAYS:
        raise ConfigError(f"display = {kind!r}: expected one of {', '.join(DISPLAYS)}")


def display_for(kind: str, steps: int, episodes_per_step: int | None) -> Display:
    """`kind`: one of `DISPLAYS`; "auto" is a live table in a terminal, a small one in a notebook,
    and lines elsewhere.
    """
    if kind == "auto":
        kind = "live" if plain_console().is_terminal else "lines"
        if is_notebook():
            kind = "notebook"
    if kind == "live":
        return LiveDisplay(steps, episodes_per_step, plain_console())
    if kind == "lines":
        return LineDisplay(steps)
    if kind == "notebook":
        return NotebookDisplay(steps, episodes_per_step)
    return Display()


def is_notebook() -> bool:
    """Whether a Jupyter kernel runs this program."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and kernel.IPKernelApp.initialized()
