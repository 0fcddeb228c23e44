/** Several runs next to each other; those that differ only in their seed as one, with an interval over the seeds. */

import type { Evaluation, Run, RunSummary, Score } from "../data/types";
import { type Panel, type Point, type Series, curvesOf, finalEvaluation, fullHorizon } from "./curves";
import { type Estimate, overSeeds } from "./statistics";

/** What one color stands for: a run, or the seeds of a group. */
export interface Contender {
  label: string;
  color: number;
  runs: Run[];
  /** For intervals over 2, 3, ... of the runs. */
  tQuantiles: number[];
}

export function contendersOf(summaries: RunSummary[], runs: Run[], joinsSeeds: boolean, tQuantiles: number[]): Contender[] {
  const names = summaries.map(({ name }) => name);
  const byLabel = new Map<string, Run[]>();
  summaries.forEach((summary, index) => {
    const isNameTaken = names.filter((name) => name === summary.name).length > 1;
    const label = joinsSeeds ? summary.group : isNameTaken ? `${summary.name} (seed ${summary.seed})` : summary.name;
    const key = joinsSeeds ? label : `${label}\0${summary.id}`;
    byLabel.set(key, [...(byLabel.get(key) ?? []), runs[index]!]);
  });
  return [...byLabel].map(([key, members], color) => ({
    label: labeled(key.split("\0")[0]!, members.length),
    color,
    runs: members,
    tQuantiles,
  }));
}

function labeled(label: string, seeds: number): string {
  return seeds > 1 ? `${label}, ${seeds} seeds` : label;
}

/** Panels whose first series every contender draws in its own color. */
export function comparedPanels(contenders: Contender[]): { steps: number[]; panels: Panel[] } {
  const curves = contenders.map(({ runs }) => runs.map(curvesOf));
  const steps = [...new Set(curves.flat().flatMap((own) => own.steps))].sort((a, b) => a - b);
  const all = curves
    .flat()
    .flatMap((own) => own.panels)
    .filter((panel) => !panel.isStacked && panel.key !== "time");
  const kinds = new Map(all.map((panel) => [panel.key, panel]));
  const panels = [...kinds.values()].map((kind): Panel => {
    const ofEach = curves.map((members) =>
      members.map((own) => ({ steps: own.steps, panel: own.panels.find(({ key }) => key === kind.key) })),
    );
    return {
      ...kind,
      series: contenders.map((contender, index) => joinedSeries(contender, steps, ofEach[index]!)),
      points: contenders.flatMap((contender, index) =>
        joinedPoints(
          contender,
          ofEach[index]!.flatMap(({ panel }) => panel?.points ?? []),
        ),
      ),
    };
  });
  return { steps, panels: panels.filter((panel) => !panel.key.startsWith("success by")) };
}

function joinedSeries(
  { label, color, runs, tQuantiles }: Contender,
  steps: number[],
  members: { steps: number[]; panel: Panel | undefined }[],
): Series {
  const lookups = members.map(
    ({ steps: own, panel }) => new Map(own.map((step, index) => [step, panel?.series[0]?.values[index] ?? null])),
  );
  const estimates = steps.map((step) =>
    overSeeds(
      lookups.flatMap((lookup) => lookup.get(step) ?? []),
      tQuantiles,
    ),
  );
  const values = estimates.map((estimate) => estimate?.mean ?? null);
  if (runs.length === 1) return { label, color, values };
  return { label, color, values, low: estimates.map((e) => e?.low ?? null), high: estimates.map((e) => e?.high ?? null) };
}

/** A run's own points keep their intervals; those of several seeds are averaged. Shares, which come with intervals, stay within 0 and 1. */
function joinedPoints({ color, runs, tQuantiles }: Contender, points: Point[]): Point[] {
  if (runs.length === 1) return points.map((point) => ({ ...point, color, file: null }));
  const together = new Map<string, Point[]>();
  for (const point of points)
    together.set(`${point.step} ${point.label}`, [...(together.get(`${point.step} ${point.label}`) ?? []), point]);
  return [...together.values()].map((own) => {
    const { mean, low, high } = overSeeds(
      own.map((point) => point.value),
      tQuantiles,
    )!;
    const hasInterval = own[0]!.low !== null;
    const ends = hasInterval ? { low: Math.max(low, 0), high: Math.min(high, 1) } : { low, high };
    return { step: own[0]!.step, value: mean, ...ends, label: own[0]!.label, color, file: null };
  });
}

export interface ComparedRow {
  name: string;
  /** Of each contender; null where it was not evaluated on this. */
  cells: (Estimate | null)[];
}

/** Final success, of all tasks and of each category. */
export function comparedTable(contenders: Contender[]): ComparedRow[] {
  const scores = contenders.map(({ runs }) => runs.map((run) => scoresOf(finalEvaluation(run))));
  const names = [...new Set(scores.flat().flatMap((own) => [...own.keys()]))];
  return names.map((name) => ({
    name,
    cells: contenders.map(({ tQuantiles }, index) =>
      estimateOf(
        scores[index]!.flatMap((own) => own.get(name) ?? []),
        tQuantiles,
      ),
    ),
  }));
}

function estimateOf(scores: Score[], tQuantiles: number[]): Estimate | null {
  const [only] = scores;
  if (only === undefined) return null;
  if (scores.length > 1) {
    const successes = scores.map((score) => score.success);
    const estimate = overSeeds(successes, tQuantiles)!;
    return { ...estimate, low: Math.max(estimate.low, 0), high: Math.min(estimate.high, 1) };
  }
  return { mean: only.success, low: only.success_interval[0], high: only.success_interval[1], size: 1 };
}

export function scoresOf(evaluation: Evaluation | undefined): Map<string, Score> {
  const scores = new Map<string, Score>();
  if (evaluation === undefined) return scores;
  scores.set("all tasks", evaluation.all);
  const envs = Object.keys(evaluation.envs);
  for (const env of envs) {
    const own = fullHorizon(evaluation, env);
    if (own === undefined) continue;
    if (envs.length > 1) scores.set(env, own.all);
    for (const [category, score] of Object.entries(own.categories))
      if (category !== "") scores.set(envs.length > 1 ? `${env}: ${category}` : category, score);
  }
  return scores;
}
