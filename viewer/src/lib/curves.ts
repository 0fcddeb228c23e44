/** From the rows of a run to the panels that are drawn. */

import type { Episodes } from "../data/episode-store";
import type { Evaluation, Row, Run, Score } from "../data/types";
import { isEvaluation } from "./episodes";
import type { Values } from "./statistics";

export type Unit = "number" | "share" | "seconds";

export interface Series {
  label: string;
  /** An index into the palette. */
  color: number;
  values: Values;
  /** A band around the values, where there is one. */
  low?: Values;
  high?: Values;
  isDashed?: boolean;
}

/** An evaluation, with its 95% interval where it has one. */
export interface Point {
  step: number;
  value: number;
  low: number | null;
  high: number | null;
  label: string;
  color: number;
  file: string | null;
}

export interface Panel {
  key: string;
  title: string;
  unit: Unit;
  series: Series[];
  points: Point[];
  isStacked: boolean;
}

export interface Curves {
  steps: number[];
  panels: Panel[];
  /** Numbers that no panel above is made for. */
  more: Panel[];
}

interface Recipe {
  title: string;
  /** Each key with its label; the first one gives the panel its name. */
  keys: [string, string][];
  unit?: Unit;
  score?: (score: Score) => [number, number | null, number | null];
  dashed?: string;
}

const NO_INTERVAL: [null, null] = [null, null];

const RECIPES: Recipe[] = [
  { title: "Success", keys: [["success", "training"]], unit: "share", score: (s) => [s.success, ...s.success_interval] },
  {
    title: "Reward",
    keys: [
      ["reward", "training"],
      ["reward/greedy", "greedy"],
    ],
    score: (s) => [s.reward, ...(s.reward_interval ?? NO_INTERVAL)],
  },
  {
    title: "Turns",
    keys: [
      ["turns", "taken"],
      ["horizon", "allowed"],
    ],
    score: (s) => [s.turns, null, null],
    dashed: "horizon",
  },
  {
    title: "Tokens per step",
    keys: [
      ["tokens/sampled", "sampled"],
      ["tokens/all", "all"],
    ],
  },
  { title: "Entropy", keys: [["policy/entropy", "entropy"]] },
  { title: "KL to the sampler", keys: [["policy/kl", "KL"]] },
  {
    title: "KL to the reference",
    keys: [
      ["policy/kl_reference", "KL"],
      ["reference/kl", "KL"],
    ],
  },
  { title: "Mismatch of engine and learner", keys: [["policy/mismatch", "mismatch"]] },
  { title: "Clipped share", keys: [["policy/clipped", "clipped"]], unit: "share" },
  { title: "Gradient norm", keys: [["grad_norm", "norm"]] },
  { title: "Groups without a signal", keys: [["groups/zero_advantage", "dead"]], unit: "share" },
  { title: "Invalid actions", keys: [["invalid_actions", "invalid"]], unit: "share" },
  { title: "Loss", keys: [["loss", "loss"]] },
];

const STOPS = ["done", "horizon", "truncated", "context", "length", "env_fault", "timeout", "cancelled"];

/** Rows of training: those of evaluations and of the warm start carry a phase. After a rewind the later row of a step counts. */
export function trainingRows(rows: Row[]): Row[] {
  const byStep = new Map(rows.filter((row) => !("phase" in row)).map((row) => [row.step, row]));
  return [...byStep.values()].sort((a, b) => a.step - b.step);
}

/** The name of the file that holds an evaluation's episodes. */
export function episodesFile(evaluation: Evaluation): string {
  const name = evaluation.file.replace(/^.*\//, "").replace(/\.jsonl?$/, "");
  return name.startsWith("eval-") ? name : `eval-${name}`;
}

export function curvesOf(run: Run): Curves {
  const rows = withEvaluated(trainingRows(run.rows), run.evals);
  const steps = rows.map((row) => row.step);
  const names = numericKeys(rows);
  const panels = RECIPES.flatMap((recipe) => fromRecipe(recipe, rows, names, run.evals));
  panels.splice(1, 0, ...byEnvironment(rows, names, run.evals));
  panels.push(...stopReasons(rows, names), ...timings(rows, names));
  const used = new Set([
    ...RECIPES.flatMap((recipe) => recipe.keys.map(([key]) => key)),
    "step",
    "stage",
    ...names.filter((name) => /^(stop|time|env)\//.test(name)),
  ]);
  const more = names.filter((name) => !used.has(name)).map((name) => plain(name, name, rows));
  return { steps, panels, more };
}

/** Steps that were only evaluated get a row with nothing in it, so that they can be pointed at. */
function withEvaluated(rows: Row[], evals: Evaluation[]): Row[] {
  const known = new Set(rows.map((row) => row.step));
  const others = new Set(evals.map((evaluation) => evaluation.step).filter((step) => !known.has(step)));
  return [...rows, ...[...others].map((step): Row => ({ step }))].sort((a, b) => a.step - b.step);
}

function numericKeys(rows: Row[]): string[] {
  const names = new Set<string>();
  for (const row of rows) for (const [name, value] of Object.entries(row)) if (typeof value === "number") names.add(name);
  return [...names];
}

export function valuesAt(rows: Row[], key: string): Values {
  return rows.map((row) => {
    const value = row[key];
    return typeof value === "number" ? value : null;
  });
}

function plain(key: string, title: string, rows: Row[]): Panel {
  return { key, title, unit: "number", series: [{ label: title, color: 0, values: valuesAt(rows, key) }], points: [], isStacked: false };
}

function fromRecipe({ title, keys, unit = "number", score, dashed }: Recipe, rows: Row[], names: string[], evals: Evaluation[]): Panel[] {
  const present = keys.filter(([key]) => names.includes(key));
  const series = present.map(([key, label], color) => ({ label, color, values: valuesAt(rows, key), isDashed: key === dashed }));
  const points = score === undefined ? [] : evals.map((evaluation) => pointOf(evaluation, score(evaluation.all), EVALUATION_COLOR, ""));
  return series.length + points.length === 0 ? [] : [{ key: keys[0]![0], title, unit, series, points, isStacked: false }];
}

/** Evaluations are drawn in this color of the palette where nothing else tells them apart. */
export const EVALUATION_COLOR = 1;

function pointOf(evaluation: Evaluation, [value, low, high]: [number, number | null, number | null], color: number, of: string): Point {
  const label = of === "" ? evaluation.phase : `${of}, ${evaluation.phase}`;
  return { step: evaluation.step, value, low, high, label, color, file: episodesFile(evaluation) };
}

function byEnvironment(rows: Row[], names: string[], evals: Evaluation[]): Panel[] {
  const envs = names.flatMap((name) => /^env\/(.+)\/success$/.exec(name)?.[1] ?? []).sort();
  if (envs.length === 0) return [];
  const series = envs.map((env, color) => ({ label: env, color, values: valuesAt(rows, `env/${env}/success`) }));
  const points = envs.flatMap((env, color) =>
    evals.flatMap((evaluation) => {
      const score = fullHorizon(evaluation, env)?.all;
      return score === undefined ? [] : [pointOf(evaluation, [score.success, ...score.success_interval], color, env)];
    }),
  );
  return [{ key: "success by environment", title: "Success by environment", unit: "share", series, points, isStacked: false }];
}

/** The result of one environment at the longest horizon that was looked at. */
export function fullHorizon(evaluation: Evaluation, env: string): { all: Score; categories: Record<string, Score> } | undefined {
  const horizons = evaluation.envs[env];
  if (horizons === undefined) return undefined;
  const longest = Object.keys(horizons)
    .sort((a, b) => Number(a) - Number(b))
    .at(-1);
  return longest === undefined ? undefined : horizons[longest];
}

function stopReasons(rows: Row[], names: string[]): Panel[] {
  const keys = names.filter((name) => name.startsWith("stop/"));
  const stops = [
    ...STOPS.filter((stop) => keys.includes(`stop/${stop}`)),
    ...keys.map((key) => key.slice(5)).filter((stop) => !STOPS.includes(stop)),
  ];
  if (stops.length === 0) return [];
  const series = stops.map((stop) => ({
    label: stop,
    color: Math.max(STOPS.indexOf(stop), 0),
    values: rows.map((row) => (keys.some((key) => key in row) ? Number(row[`stop/${stop}`] ?? 0) : null)),
  }));
  return [{ key: "stop", title: "Why episodes ended", unit: "share", series, points: [], isStacked: true }];
}

function timings(rows: Row[], names: string[]): Panel[] {
  const keys = names.filter((name) => name.startsWith("time/"));
  if (keys.length === 0) return [];
  const series = keys.map((key, color) => ({ label: key.slice(5), color, values: valuesAt(rows, key) }));
  return [{ key: "time", title: "Seconds per step", unit: "seconds", series, points: [], isStacked: false }];
}

const MOST_CATEGORIES = 7;

/** Success of the training episodes of each category, from the episodes themselves, with evaluations as points. */
export function categoryPanel(steps: number[], episodes: Episodes, evals: Evaluation[]): Panel | null {
  const { rows, texts, files } = episodes;
  const sizes = new Map<string, number>();
  const cells = new Map<string, [number, number]>();
  for (let row = 0; row < episodes.count; row++) {
    if (rows.damaged[row] || rows.success[row]! < 0 || isEvaluation(files[rows.file[row]!] ?? "")) continue;
    const category = texts[rows.category[row]!] ?? "";
    if (category === "") continue;
    sizes.set(category, (sizes.get(category) ?? 0) + 1);
    const key = `${rows.step[row]}\0${category}`;
    const [succeeded, all] = cells.get(key) ?? [0, 0];
    cells.set(key, [succeeded + rows.success[row]!, all + 1]);
  }
  const categories = [...sizes]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_CATEGORIES)
    .map(([name]) => name)
    .sort();
  if (categories.length < 2) return null;
  const series = categories.map((label, color) => ({
    label,
    color,
    values: steps.map((step) => {
      const cell = cells.get(`${step}\0${label}`);
      return cell === undefined ? null : cell[0] / cell[1];
    }),
  }));
  const points = categories.flatMap((category, color) => evals.flatMap((evaluation) => categoryPoint(evaluation, category, color)));
  return { key: "success by category", title: "Success by category", unit: "share", series, points, isStacked: false };
}

function categoryPoint(evaluation: Evaluation, category: string, color: number): Point[] {
  return Object.keys(evaluation.envs).flatMap((env) => {
    const score = fullHorizon(evaluation, env)?.categories[category];
    return score === undefined ? [] : [pointOf(evaluation, [score.success, null, null], color, category)];
  });
}

/** Without evaluations that have another form than ours: other programs may write files there too. */
export function soundRun(run: Run): Run {
  return { ...run, evals: run.evals.filter(isSound) };
}

function isSound(evaluation: Partial<Evaluation>): boolean {
  const { step, all, envs } = evaluation;
  return typeof step === "number" && typeof all?.success === "number" && Array.isArray(all.success_interval) && typeof envs === "object";
}

/** The last evaluation, preferably the final one. */
export function finalEvaluation(run: Run): Evaluation | undefined {
  return run.evals.find((evaluation) => evaluation.phase === "final") ?? [...run.evals].sort((a, b) => a.step - b.step).at(-1);
}
