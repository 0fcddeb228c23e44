"""The content of a report: sections of text, tables, pictures and episodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from palestra.core.tables import Table, eval_table, reward_with_interval, with_interval
from palestra.runs.reader import environments
from palestra.tools.report.compare import Estimate, RunGroup, difference, differing, runs_of
from palestra.tools.report.read import Episode, Record


@dataclass(frozen=True)
class Pictures:
    """Titles by file name."""

    titles: dict[str, str]


@dataclass(frozen=True)
class Code:
    """Text shown as it is, collapsed if the format allows it."""

    title: str
    text: str


@dataclass(frozen=True)
class Story:
    """An episode, turn by turn."""

    title: str
    episode: Episode


Block = str | Table | Pictures | Code | Story


@dataclass(frozen=True)
class Section:
    title: str
    blocks: list[Block]


LONGEST_STORY = 60
"""Turns that are shown of an episode."""


def title_of(groups: list[RunGroup]) -> str:
    if len(groups) < 3:
        return " and ".join(group.name for group in groups)
    return f"{groups[0].name} and {len(groups) - 1} others"


def sections_of(groups: list[RunGroup], pictures: dict[str, str]) -> list[Section]:
    runs = runs_of(groups)
    # Before the notes are collected below: reading the episodes may add some.
    stories = list(_stories(groups))
    curves: list[Block] = [Pictures(pictures)] if pictures else ["There are no training steps yet."]
    sections = [
        Section("Runs", [_run_table(groups), *_warnings(groups)]),
        Section("Held-out success", list(_results(groups))),
        Section("Curves", curves),
        Section("Cost", [_cost_table(runs)]),
        Section("Episodes", stories or ["No episodes are stored yet."]),
    ]
    if len(groups) > 1:
        columns = ["setting", *(group.name for group in groups)]
        rows = [[name, *values] for name, values in differing(groups)]
        sections.append(Section("How they differ", [Table(columns, rows)]))
    configs = [Code(_config_title(group), group.runs[0].config_text) for group in groups]
    sections.append(Section("Configuration", list(configs)))
    notes: list[str] = []
    for run in runs:
        notes += [f"{run.name}: {note}" for note in run.notes]
    if notes:
        unread = Code(f"{len(notes)} places were passed over", "\n".join(notes))
        sections.append(Section("What could not be read", [unread]))
    return sections


def _run_table(groups: list[RunGroup]) -> Table:
    rows: list[list[str]] = []
    for group in groups:
        for run in group.runs:
            done = run.steps[-1]["step"] if run.steps else 0
            steps = f"{done} of {run.planned}"
            state = "complete" if run.is_over else "not complete: running, or stopped"
            envs = ", ".join(_envs(run))
            rows.append([group.name, run.name, _algo(run), envs, str(run.seed), steps, state])
    return Table(["group", "run", "algorithm", "environments", "seed", "steps", "state"], rows)


def _config_title(group: RunGroup) -> str:
    others = " (the others of the group differ only in the seed)" if len(group.runs) > 1 else ""
    return f"{group.runs[0].name}: config.toml{others}"


def _algo(run: Record) -> str:
    algo = run.config.get("algo")
    return str(algo.get("name", "?")) if isinstance(algo, dict) else "?"


def _envs(run: Record) -> list[str]:
    return [env.label or env.name or "?" for env in environments(run.config)]


def _warnings(groups: list[RunGroup]) -> Iterator[str]:
    for group in groups:
        seeds = [run.seed for run in group.runs]
        if len(set(seeds)) < len(seeds):
            yield (
                f"{group.name}: two runs have the same seed; the intervals still treat them as "
                "independent."
            )
        if len({run.is_over for run in group.runs}) > 1:
            yield (
                f"{group.name}: some runs are not complete; their last evaluation is used in "
                "place of the final one."
            )


def _results(groups: list[RunGroup]) -> Iterator[Block]:
    if all(run.last_eval is None for run in runs_of(groups)):
        yield "There is no evaluation yet."
        return
    if len(groups) == 1 and len(groups[0].runs) == 1:
        (run,) = groups[0].runs
        assert run.last_eval is not None
        yield _history(run)
        yield (
            f"The last one ({run.last_eval.phase}, after step {run.last_eval.step}), "
            "with 95% intervals over tasks:"
        )
        yield eval_table(run.last_eval)
        return
    yield (
        "The last evaluation of each run. 95% intervals: over runs (Student's t) where a "
        "group has several, else over the run's tasks."
    )
    yield group_table(groups)
    differences = difference_table(groups)
    if differences.rows:
        yield (
            f"Differences from {groups[0].name}, in points: Welch's interval where both "
            "groups have several runs, "
            "else from the intervals of the two (Newcombe). An interval without 0 is marked."
        )
        yield differences


def _history(run: Record) -> Table:
    rows: list[list[str]] = []
    for result in run.evals:
        score = result.all
        success = with_interval(score.success, score.success_interval)
        reward = reward_with_interval(score.reward, score.reward_interval)
        step, tasks, turns = str(result.step), str(score.tasks), f"{score.turns:.1f}"
        rows.append([result.phase, step, tasks, success, reward, turns])
    return Table(["evaluation", "step", "tasks", "success", "reward", "turns"], rows)


def group_table(groups: list[RunGroup]) -> Table:
    finals = [group.finals() for group in groups]
    keys: dict[tuple[str, str], None] = {}
    for own in finals:
        keys |= dict.fromkeys(own)
    rows: list[list[str]] = []
    for env, category in keys:
        shown = [_shown(own.get((env, category))) for own in finals]
        rows.append([env, category or "all", *shown])
    names = [f"{group.name} (n = {len(group.runs)})" for group in groups]
    return Table(["environment", "category", *names], rows)


def difference_table(groups: list[RunGroup]) -> Table:
    """The differences from the first group, by environment and category that both have."""
    first, *others = [group.finals() for group in groups]
    rows: list[list[str]] = []
    for key, base in first.items():
        env, category = key
        gaps = [difference(own[key], base) if key in own else None for own in others]
        if any(gaps):
            rows.append([env, category or "all", *map(_gap, gaps)])
    return Table(["environment", "category", *(group.name for group in groups[1:])], rows)


def _shown(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return with_interval(estimate.mean, (estimate.low, estimate.high))


def _gap(gap: Estimate | None) -> str:
    if gap is None:
        return "-"
    mark = " *" if gap.low > 0 or gap.high < 0 else ""
    return f"{100 * gap.mean:+.1f} [{_points(gap.low)}, {_points(gap.high)}]{mark}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}" if math.isfinite(share) else "?"


def cost_of(run: Record) -> dict[str, Any]:
    return {
        "steps": len(run.steps),
        "episodes": run.count_episodes(),
        "eval_episodes": sum(result.all.episodes for result in run.evals),
        "sampled_tokens": run.sampled_tokens,
        "seconds": run.seconds,
    }


def _cost_table(runs: list[Record]) -> Table:
    costs = [cost_of(run) for run in runs]
    phases: dict[str, None] = {}
    for cost in costs:
        phases |= dict.fromkeys(cost["seconds"])
    rows: list[list[str]] = []
    for run, cost in zip(runs, costs, strict=True):
        counted = ("steps", "episodes", "eval_episodes", "sampled_tokens")
        counts = [f"{cost[name]:,}" for name in counted]
        seconds = [clock(cost["seconds"].get(phase, 0.0)) for phase in phases]
        rows.append([run.name, *counts, *seconds, clock(sum(cost["seconds"].values()))])
    columns = ["run", "steps", "training episodes", "evaluation episodes", "sampled tokens"]
    return Table([*columns, *(phase.replace("_", " ") for phase in phases), "all phases"], rows)


def clock(seconds: float) -> str:
    """1:02:03"""
    rounded = round(seconds)
    return f"{rounded // 3600}:{rounded // 60 % 60:02d}:{rounded % 60:02d}"


def _stories(groups: list[RunGroup]) -> Iterator[Block]:
    """Episodes of the first run of each group; more of them if there is only one group."""
    for group in groups:
        run = group.runs[0]
        source, best, worst = run.told(3 if len(groups) == 1 else 1)
        if source:
            yield f"{run.name}: the best and the worst of {source}."
        for kind, episodes in (("best", best), ("worst", worst)):
            for episode in episodes:
                yield Story(f"{kind}: {headline(episode)}", episode)


def headline(episode: Episode) -> str:
    outcome = {True: "solved", False: "not solved", None: "outcome unknown"}[episode.success]
    category = f", {episode.task.category}" if episode.task.category else ""
    turns = f"{len(episode.turns)} of {episode.horizon} turns"
    return (
        f"{episode.task.env} {episode.task.id}{category}: {outcome}, reward "
        f"{episode.reward:.3f}, {turns}, ended by {episode.stop}"
    )


def told(episode: Episode) -> Iterator[tuple[str, str, str]]:
    """The number, the text and a remark for each observation and reply."""
    for number, turn in enumerate(episode.turns[:LONGEST_STORY], 1):
        yield f"{number}", turn.observation, "observation"
        remarks = ["reply"]
        if turn.action is not None and turn.action.strip() != turn.reply.strip():
            remarks.append(f"action: {turn.action}")
        if turn.reward:
            remarks.append(f"reward {turn.reward:+.3f}")
        if turn.invalid:
            remarks.append("invalid")
        yield "", turn.reply, ", ".join(remarks)
    if len(episode.turns) > LONGEST_STORY:
        yield "…", f"{len(episode.turns) - LONGEST_STORY} more turns", ""
    elif episode.final_observation:
        yield "end", episode.final_observation, "observation"
