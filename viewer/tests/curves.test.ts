import { describe, expect, it } from "vitest";
import type { Evaluation, Row, Run, RunSummary, Score } from "../src/data/types";
import { comparedPanels, comparedTable, contendersOf } from "../src/lib/comparison";
import { categoryPanel, curvesOf, episodesFile, finalEvaluation, soundRun, trainingRows } from "../src/lib/curves";
import { sampleEpisodes } from "./sample";

function score(success: number): Score {
  return {
    tasks: 10,
    episodes: 10,
    success,
    success_interval: [success - 0.1, success + 0.1],
    pass_at_k: success,
    pass_interval: [0, 1],
    reward: success,
    turns: 3,
    tokens: 9,
  };
}

function evaluation(step: number, phase: string, success: number): Evaluation {
  const envs = { babyai: { "5": { all: score(0), categories: {} }, "16": { all: score(success), categories: { GoTo: score(success) } } } };
  return { file: `step-00000${step}-${phase}`, phase, step, split: "test", k: 1, faults: 0, all: score(success), envs };
}

function run(rows: Row[], evals: Evaluation[] = []): Run {
  return { id: "0", name: "run", config: "", rows, stages: [], evals, log: "", damaged: [], has_token_stats: false };
}

const ROWS: Row[] = [
  { step: 0, phase: "raw", "eval/success": 0 },
  { step: 1, success: 0.2, "stop/done": 0.4, "stop/horizon": 0.6, "time/learn": 2, odd: 5 },
  { step: 2, success: 0.3, "stop/done": 1 },
];

describe("curves of a run", () => {
  const { steps, panels, more } = curvesOf(run(ROWS, [evaluation(0, "raw", 0.1)]));
  const named = (key: string) => panels.find((panel) => panel.key === key)!;
  it("have a place for a step that was only evaluated", () => {
    expect(steps).toEqual([0, 1, 2]);
    expect(named("success").series[0]!.values).toEqual([null, 0.2, 0.3]);
    expect(named("success").points).toMatchObject([{ step: 0, value: 0.1, low: 0, high: 0.2, file: "eval-step-000000-raw" }]);
  });
  it("stack the reasons of ends, with 0 for one that did not occur", () => {
    expect(named("stop").isStacked).toBe(true);
    expect(named("stop").series.map(({ label, values }) => [label, values])).toEqual([
      ["done", [null, 0.4, 1]],
      ["horizon", [null, 0.6, 0]],
    ]);
  });
  it("show what no panel is made for", () => expect(more.map((panel) => panel.key)).toEqual(["odd"]));
});

it("draws the interval of a reward where the evaluation has one", () => {
  const [older, newer] = [evaluation(1, "interim", 0.3), evaluation(2, "final", 0.5)];
  const scores = newer.envs["babyai"]!["16"]!;
  scores.all = { ...scores.all, reward_interval: [0.45, 0.55] };
  newer.all = scores.all;
  const rewarded = ROWS.map((row) => ({ ...row, reward: 0 }));
  const panel = curvesOf(run(rewarded, [older, newer])).panels.find(({ key }) => key === "reward")!;
  expect(panel.points).toMatchObject([
    { value: 0.3, low: null, high: null },
    { value: 0.5, low: 0.45, high: 0.55 },
  ]);
});

it("takes the later of two rows of a step", () =>
  expect(
    trainingRows([
      { step: 1, success: 0 },
      { step: 2, success: 0 },
      { step: 1, success: 1 },
    ]),
  ).toEqual([
    { step: 1, success: 1 },
    { step: 2, success: 0 },
  ]));

it("draws each environment of a mixture", () => {
  const { panels } = curvesOf(run([{ step: 1, success: 0.5, "env/a/success": 0.2, "env/b/success": 0.8 }]));
  expect(panels[1]!.series.map(({ label, values }) => [label, values])).toEqual([
    ["a", [0.2]],
    ["b", [0.8]],
  ]);
});

it("counts success by category from training episodes alone", () => {
  // step 1: GoTo 1 of 2, Open 1 of 1; step 2: GoTo unknown; the evaluation's Open does not count
  const panel = categoryPanel([1, 2], sampleEpisodes(), [])!;
  expect(panel.series.map(({ label, values }) => [label, values])).toEqual([
    ["GoTo", [0.5, null]],
    ["Open", [1, null]],
  ]);
});

it("names an evaluation's episodes", () => {
  expect(episodesFile({ ...evaluation(2, "final", 1), file: "step-000002-final.json" })).toBe("eval-step-000002-final");
  expect(episodesFile({ ...evaluation(2, "final", 1), file: "eval-step-000002-final" })).toBe("eval-step-000002-final");
});

it("leaves out evaluations of another form", () => {
  const odd = [{ file: "x" }, { file: "y", step: 1, all: {} }] as unknown as Evaluation[];
  expect(soundRun(run([], [...odd, evaluation(2, "final", 1)])).evals.map((own) => own.file)).toEqual(["step-000002-final"]);
});

it("prefers the final evaluation to a later one", () => {
  const evals = [evaluation(3, "interim", 0), evaluation(2, "final", 1)];
  expect(finalEvaluation(run([], evals))?.phase).toBe("final");
  expect(finalEvaluation(run([], evals.slice(0, 1)))?.phase).toBe("interim");
  expect(finalEvaluation(run([]))).toBeUndefined();
});

describe("comparison", () => {
  const summary = (id: string, group: string): RunSummary => ({
    id,
    name: `${group}-${id}`,
    folder: "",
    algo: "grpo",
    envs: [],
    seed: Number(id),
    steps: 2,
    done: 2,
    is_over: true,
    group,
  });
  const runs = [0.2, 0.4, 0.9].map((success) => run([{ step: 1, success }], [evaluation(1, "final", success)]));
  const summaries = [summary("0", "a"), summary("1", "a"), summary("2", "b")];
  it("joins the seeds of a group into a mean with an interval", () => {
    const contenders = contendersOf(summaries, runs, true, [12.706]);
    expect(contenders.map(({ label }) => label)).toEqual(["a, 2 seeds", "b"]);
    const success = comparedPanels(contenders).panels.find((panel) => panel.key === "success")!;
    // mean 0.3, deviation sqrt(0.02) = 0.1414, t(1) = 12.706: 12.706 * 0.1414 / sqrt(2) = 1.2706
    expect(success.series[0]!.values[0]).toBeCloseTo(0.3);
    expect(success.series[0]!.high![0]).toBeCloseTo(0.3 + 1.2706, 3);
    expect(success.series[1]!.low).toBeUndefined();
  });
  it("keeps seeds apart where asked to", () => expect(contendersOf(summaries, runs, false, [12.706])).toHaveLength(3));
  it("tables final success by category at the full horizon, within 0 and 1", () => {
    const table = comparedTable(contendersOf(summaries, runs, true, [12.706]));
    expect(table.map(({ name }) => name)).toEqual(["all tasks", "GoTo"]);
    expect(table[1]!.cells[0]).toMatchObject({ mean: expect.closeTo(0.3), low: 0, high: 1 });
    expect(table[1]!.cells[1]).toMatchObject({ mean: 0.9, low: 0.8, high: 1 });
  });
});
