"""What a report says, before it is a page: sections of text, tables, pictures and stories."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from palestra.core.tables import Table, eval_table, reward_with_interval, with_interval
from palestra.runs.reader import environments
from palestra.tools.report.compare import Estimate, RunGroup, difference, differing
from palestra.tools.report.read import Episode, Record


@dataclass(frozen=True)
class Pictures:
    """Titles by file name."""

    titles: dict[str, str]


@dataclass(frozen=True)
class Code:
    """Text shown as it is, folded up where the page can."""

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
"""Turns that are told of an episode."""


def title_of(groups: list[RunGroup]) -> str:
    return (
        " and ".join(group.name for group in groups)
        if len(groups) < 3
        else f"{groups[0].name} and {len(groups) - 1} others"
    )


def sections_of(groups: list[RunGroup], pictures: dict[str, str]) -> list[Section]:
    runs = [run for group in groups for run in group.runs]
    stories = list(_stories(groups))  # reading them may add notes
    sections = [
        Section("Runs", [_run_table(groups), *_warnings(groups)]),
        Section("Held-out success", list(_results(groups))),
        Section(
            "Curves", [Pictures(pictures)] if pictures else ["There are no training steps yet."]
        ),
        Section("Cost", [_cost_table(runs)]),
        Section("Episodes", stories or ["No episodes are stored yet."]),
    ]
    if len(groups) > 1:
        table = Table(
            ["setting", *(group.name for group in groups)],
            [[name, *values] for name, values in differing(groups)],
        )
        sections.append(Section("How they differ", [table]))
    sections.append(
        Section(
            "Configuration",
            [Code(_config_title(group), group.runs[0].config_text) for group in groups],
        )
    )
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    if notes:
        sections.append(
            Section(
                "What could not be read",
                [Code(f"{len(notes)} places were passed over", "\n".join(notes))],
            )
        )
    return sections


def _run_table(groups: list[RunGroup]) -> Table:
    rows = []
    for group in groups:
        for run in group.runs:
            done = run.steps[-1]["step"] if run.steps else 0
            state = "complete" if run.is_over else "not at its end: going on, or stopped"
            rows.append(
                [
                    group.name,
                    run.name,
                    _algo(run),
                    ", ".join(_envs(run)),
                    str(run.seed),
                    f"{done} of {run.planned}",
                    state,
                ]
            )
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
                f"{group.name}: two runs have the same seed; intervals take them for "
                "independent all the same."
            )
        if len(group.runs) > 1 and len({run.is_over for run in group.runs}) > 1:
            yield (
                f"{group.name}: some runs are not at their end; their last evaluation stands "
                "in for the final one."
            )


def _results(groups: list[RunGroup]) -> Iterator[Block]:
    if not any(run.last_eval for group in groups for run in group.runs):
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
            "else from the intervals of the two (Newcombe). One that does not hold 0 is marked."
        )
        yield differences


def _history(run: Record) -> Table:
    rows = []
    for result in run.evals:
        score = result.all
        success = with_interval(score.success, score.success_interval)
        reward = reward_with_interval(score.reward, score.reward_interval)
        rows.append(
            [
                result.phase,
                str(result.step),
                str(score.tasks),
                success,
                reward,
                f"{score.turns:.1f}",
            ]
        )
    return Table(["evaluation", "step", "tasks", "success", "reward", "turns"], rows)


def group_table(groups: list[RunGroup]) -> Table:
    finals = [group.finals() for group in groups]
    places = list(dict.fromkeys(place for own in finals for place in own))
    rows = [
        [env, category or "all", *(_shown(own.get((env, category))) for own in finals)]
        for env, category in places
    ]
    return Table(
        ["environment", "category", *(f"{group.name} (n = {len(group.runs)})" for group in groups)],
        rows,
    )


def difference_table(groups: list[RunGroup]) -> Table:
    """Where another group has been measured on the same environment and category as the first."""
    first, *others = [group.finals() for group in groups]
    rows = []
    for (env, category), base in first.items():
        gaps = [
            difference(own[env, category], base) if (env, category) in own else None
            for own in others
        ]
        if any(gaps):
            rows.append([env, category or "all", *(_gap(gap) for gap in gaps)])
    return Table(["environment", "category", *(group.name for group in groups[1:])], rows)


def _shown(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return with_interval(estimate.mean, (estimate.low, estimate.high))


def _gap(gap: Estimate | None) -> str:
    if gap is None:
        return "-"
    mark = " *" if gap.low > 0 or gap.high < 0 else ""
    low, high = (
        f"{100 * side:+.1f}" if math.isfinite(side) else "?" for side in (gap.low, gap.high)
    )
    return f"{100 * gap.mean:+.1f} [{low}, {high}]{mark}"


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
    phases = list(dict.fromkeys(phase for cost in costs for phase in cost["seconds"]))
    rows = []
    for run, cost in zip(runs, costs, strict=True):
        counts = [
            f"{cost[name]:,}" for name in ("steps", "episodes", "eval_episodes", "sampled_tokens")
        ]
        seconds = [clock(cost["seconds"].get(phase, 0.0)) for phase in phases]
        rows.append([run.name, *counts, *seconds, clock(sum(cost["seconds"].values()))])
    columns = ["run", "steps", "training episodes", "evaluation episodes", "sampled tokens"]
    return Table([*columns, *(phase.replace("_", " ") for phase in phases), "all phases"], rows)


def clock(seconds: float) -> str:
    """1:02:03"""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _stories(groups: list[RunGroup]) -> Iterator[Block]:
    """Of the first run of each group: more of them where there is only one group."""
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
    """Who, what, and a remark: a line for each thing that was seen or said."""
    for number, turn in enumerate(episode.turns[:LONGEST_STORY], 1):
        yield f"{number}", turn.observation, "observation"
        remarks = [
            f"reward {turn.reward:+.3f}" if turn.reward else "",
            "invalid" if turn.invalid else "",
        ]
        if turn.action is not None and turn.action.strip() != turn.reply.strip():
            remarks.insert(0, f"action: {turn.action}")
        yield "", turn.reply, ", ".join(filter(None, ["reply", *remarks]))
    if len(episode.turns) > LONGEST_STORY:
        yield "…", f"{len(episode.turns) - LONGEST_STORY} more turns", ""
    elif episode.final_observation:
        yield "end", episode.final_observation, "observation"
