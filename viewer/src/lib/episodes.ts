/** Choosing and ordering episodes by their columns, as the hash says. Pure, and quick for 100,000 rows. */

import type { Episodes } from "../data/episode-store";
import { type Estimate, wilson } from "./statistics";

export interface Range {
  low: number | null;
  high: number | null;
}

export interface Filter {
  step: Range;
  reward: Range;
  turns: Range;
  /** "train", "eval", or the name of one file. */
  kind: string;
  env: string;
  category: string;
  split: string;
  stop: string;
  task: string;
  /** "yes", "no" or "unknown". */
  success: string;
  /** What the texts must contain. */
  text: string;
}

export type Column =
  "id" | "step" | "task" | "env" | "category" | "split" | "reward" | "success" | "stop" | "turns" | "tokens" | "invalid" | "advantage";

export interface Sort {
  column: Column;
  descending: boolean;
}

const COLUMNS: readonly string[] = [
  "id",
  "step",
  "task",
  "env",
  "category",
  "split",
  "reward",
  "success",
  "stop",
  "turns",
  "tokens",
  "invalid",
  "advantage",
] satisfies Column[];

/** "12" is 12 alone; "10..20", "10.." and "..20" are ranges. */
export function parseRange(text: string | null): Range {
  if (text === null || text.trim() === "") return { low: null, high: null };
  const [low = "", high] = text.split("..");
  return { low: asNumber(low), high: asNumber(high ?? low) };
}

export function formatRange(range: Range): string {
  if (range.low === null && range.high === null) return "";
  return range.low === range.high ? String(range.low) : `${range.low ?? ""}..${range.high ?? ""}`;
}

function asNumber(text: string): number | null {
  return text.trim() === "" || Number.isNaN(Number(text)) ? null : Number(text);
}

export function parseFilter(query: URLSearchParams): Filter {
  const word = (name: string) => query.get(name) ?? "";
  return {
    step: parseRange(query.get("step")),
    reward: parseRange(query.get("reward")),
    turns: parseRange(query.get("turns")),
    kind: word("kind"),
    env: word("env"),
    category: word("category"),
    split: word("split"),
    stop: word("stop"),
    task: word("task"),
    success: word("success"),
    text: word("text"),
  };
}

export function parseSort(query: URLSearchParams): Sort | null {
  const text = query.get("sort") ?? "";
  const column = text.replace(/^-/, "");
  return COLUMNS.includes(column) ? { column: column as Column, descending: text.startsWith("-") } : null;
}

/** Those keys of a query that choose and order episodes, to be carried along from view to view. */
export function listQuery(query: URLSearchParams): URLSearchParams {
  const kept = ["step", "reward", "turns", "kind", "env", "category", "split", "stop", "task", "success", "text", "sort"];
  return new URLSearchParams([...query.entries()].filter(([key, value]) => kept.includes(key) && value !== ""));
}

export function isEvaluation(file: string): boolean {
  return !/^step-\d+$/.test(file);
}

/** Row numbers that pass, in the order of the files. `found`: those whose texts match, where a text is asked for. */
export function chosen(episodes: Episodes, filter: Filter, found: Set<number> | null): number[] {
  const { rows, texts, files } = episodes;
  const codeOf = (text: string) => (text === "" ? null : texts.indexOf(text));
  const tests: ((row: number) => boolean)[] = [];
  const equal = (column: number[], code: number | null) => {
    if (code !== null) tests.push((row) => column[row] === code);
  };
  const within = (column: number[], { low, high }: Range) => {
    if (low !== null) tests.push((row) => column[row]! >= low);
    if (high !== null) tests.push((row) => column[row]! <= high);
  };
  within(rows.step, filter.step);
  within(rows.reward, filter.reward);
  within(rows.turns, filter.turns);
  equal(rows.env, codeOf(filter.env));
  equal(rows.category, codeOf(filter.category));
  equal(rows.split, codeOf(filter.split));
  equal(rows.stop, codeOf(filter.stop));
  if (filter.success !== "") equal(rows.success, { yes: 1, no: 0 }[filter.success] ?? -1);
  if (filter.task !== "") tests.push((row) => rows.task[row] === filter.task);
  if (filter.kind !== "") {
    const passes = files.map((file) =>
      filter.kind === "train" || filter.kind === "eval" ? isEvaluation(file) === (filter.kind === "eval") : file === filter.kind,
    );
    tests.push((row) => passes[rows.file[row]!]!);
  }
  if (found !== null) tests.push((row) => found.has(row));
  const numbers: number[] = [];
  for (let row = 0; row < episodes.count; row++) {
    if (tests.every((test) => test(row))) numbers.push(row);
  }
  return numbers;
}

/** Ties stay in the order of the files; what has no value comes last either way. */
export function ordered(episodes: Episodes, numbers: number[], sort: Sort | null): number[] {
  if (sort === null) return numbers;
  const keys = sortKeys(numbers.map(valueOf(episodes, sort.column)), sort.descending);
  return numbers
    .map((_, place) => place)
    .sort((a, b) => keys[a]! - keys[b]! || numbers[a]! - numbers[b]!)
    .map((place) => numbers[place]!);
}

/** Numbers whose order is that of the values: comparing texts once for each pair of rows would take seconds. */
function sortKeys(values: (string | number | null)[], descending: boolean): Float64Array {
  const texts = [...new Set(values.filter((value) => typeof value === "string"))].sort(COLLATOR.compare);
  const ranks = new Map(texts.map((text, rank) => [text, rank]));
  return Float64Array.from(values, (value) => {
    if (value === null) return Number.MAX_VALUE;
    const key = typeof value === "string" ? ranks.get(value)! : value;
    return descending ? -key : key;
  });
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

function valueOf(episodes: Episodes, column: Column): (row: number) => string | number | null {
  const { rows, texts } = episodes;
  if (column === "env" || column === "category" || column === "split" || column === "stop") return (row) => texts[rows[column][row]!] ?? "";
  if (column === "success") return (row) => (rows.success[row]! < 0 ? null : rows.success[row]!);
  return (row) => rows[column][row] ?? null;
}

export interface Summary {
  count: number;
  reward: number | null;
  success: Estimate | null;
  turns: number | null;
}

/** Over what is shown; damaged lines have nothing to count, and an unknown success is no failure. */
export function summarized(episodes: Episodes, numbers: number[]): Summary {
  const { rows } = episodes;
  let whole = 0,
    reward = 0,
    turns = 0,
    known = 0,
    succeeded = 0;
  for (const row of numbers) {
    if (rows.damaged[row]) continue;
    whole += 1;
    reward += rows.reward[row]!;
    turns += rows.turns[row]!;
    known += Number(rows.success[row]! >= 0);
    succeeded += Number(rows.success[row] === 1);
  }
  return {
    count: numbers.length,
    reward: whole ? reward / whole : null,
    turns: whole ? turns / whole : null,
    success: wilson(succeeded, known),
  };
}

/** The distinct texts of a column, sorted, for a list to choose from. */
export function textsIn(episodes: Episodes, column: "env" | "category" | "split" | "stop"): string[] {
  const codes = new Set(episodes.rows[column]);
  return [...codes]
    .map((code) => episodes.texts[code] ?? "")
    .filter(Boolean)
    .sort(COLLATOR.compare);
}

export function rowAt(episodes: Episodes, file: string, line: number): number | null {
  const code = episodes.files.indexOf(file);
  for (let row = 0; row < episodes.count; row++) {
    if (episodes.rows.file[row] === code && episodes.rows.line[row] === line) return row;
  }
  return null;
}

/** The rows of one task in one file; where two environments have the same task id, of the one that is named. */
export function groupRows(episodes: Episodes, file: string, task: string, env: string): number[] {
  const { rows, files, texts } = episodes;
  const code = files.indexOf(file);
  const numbers: number[] = [];
  for (let row = 0; row < episodes.count; row++) {
    const isSame = rows.file[row] === code && rows.task[row] === task && !rows.damaged[row];
    if (isSame && (env === "" || texts[rows.env[row]!] === env)) numbers.push(row);
  }
  return numbers;
}
