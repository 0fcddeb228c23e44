import { describe, expect, it } from "vitest";
import {
  chosen,
  formatRange,
  groupRows,
  listQuery,
  ordered,
  parseFilter,
  parseRange,
  parseSort,
  rowAt,
  summarized,
  textsIn,
} from "../src/lib/episodes";
import { sampleEpisodes } from "./sample";

const episodes = sampleEpisodes();
const choose = (query: string, found: Set<number> | null = null) => chosen(episodes, parseFilter(new URLSearchParams(query)), found);
const order = (sort: string) => ordered(episodes, choose(""), parseSort(new URLSearchParams(`sort=${sort}`)));

describe("choosing episodes", () => {
  it.each([
    ["", [0, 1, 2, 3, 4]],
    ["step=1", [0, 1, 2]],
    ["step=2..", [3, 4]],
    ["step=..1", [0, 1, 2]],
    ["kind=train", [0, 1, 2, 3]],
    ["kind=eval", [4]],
    ["kind=step-000002", [3]],
    ["category=GoTo", [0, 1, 3]],
    ["split=test", [4]],
    ["stop=done&step=1", [0, 2]],
    ["success=yes", [0, 2, 4]],
    ["success=no", [1]],
    ["success=unknown", [3]],
    ["reward=0.5..0.9", [0, 2]],
    ["turns=10", [1, 3]],
    ["task=a-2", [0, 1, 3]],
    ["category=nowhere", []],
    ["kind=no-such-file", []],
  ])("%s", (query, rows) => expect(choose(query)).toEqual(rows));

  it("keeps only rows whose texts were found", () => expect(choose("text=key&step=1", new Set([1, 4]))).toEqual([1]));
});

describe("ordering episodes", () => {
  it.each([
    ["reward", [1, 3, 2, 0, 4]],
    ["-reward", [4, 0, 2, 1, 3]], // ties stay in the order of the files
    ["task", [0, 1, 3, 2, 4]], // a-2 before a-10
    ["stop", [0, 2, 4, 1, 3]],
    ["-success", [0, 2, 4, 1, 3]], // the unknown one last
    ["success", [1, 0, 2, 4, 3]], // and last as well
    ["advantage", [1, 3, 2, 0, 4]], // no advantage: last
    ["nonsense", [0, 1, 2, 3, 4]],
  ])("%s", (sort, rows) => expect(order(sort)).toEqual(rows));
});

describe("summing up", () => {
  it("counts an unknown success neither way", () => {
    const summary = summarized(episodes, [0, 1, 3]);
    expect(summary.count).toBe(3);
    expect(summary.reward).toBeCloseTo(0.3);
    expect(summary.success?.mean).toBe(0.5);
    expect(summary.success?.size).toBe(2);
  });
  it("has no mean of nothing", () => expect(summarized(episodes, [])).toEqual({ count: 0, reward: null, turns: null, success: null }));
  it("leaves damaged lines out of the means", () => {
    const broken = sampleEpisodes();
    broken.rows.damaged[1] = 1;
    expect(summarized(broken, [0, 1]).reward).toBeCloseTo(0.9);
  });
});

describe("ranges", () => {
  it.each(["12", "10..20", "10..", "..20", "-0.5..1"])("%s survives a round trip", (text) =>
    expect(formatRange(parseRange(text))).toBe(text),
  );
  it("takes nonsense for no bound", () => expect(parseRange("x..y")).toEqual({ low: null, high: null }));
});

describe("finding rows", () => {
  it("by file and line", () => expect([rowAt(episodes, "step-000002", 0), rowAt(episodes, "step-000009", 0)]).toEqual([3, null]));
  it("of one task in one file", () => {
    expect(groupRows(episodes, "step-000001", "a-2", "")).toEqual([0, 1]);
    expect(groupRows(episodes, "step-000001", "a-2", "elsewhere")).toEqual([]);
  });
  it("lists the texts of a column", () => expect(textsIn(episodes, "stop")).toEqual(["done", "horizon"]));
});

it("carries only what makes the list from view to view", () =>
  expect(listQuery(new URLSearchParams("step=3&at=7&tokens=ratio&sort=-reward&stop=")).toString()).toBe("step=3&sort=-reward"));

it("is quick for 100,000 rows", () => {
  const many = sampleEpisodes();
  for (const column of Object.values(many.rows) as unknown[][]) {
    const first = column.slice();
    for (let copy = 1; copy < 20_000; copy++) column.push(...first);
  }
  many.count = 100_000;
  const start = performance.now();
  const rows = ordered(many, chosen(many, parseFilter(new URLSearchParams("stop=done")), null), { column: "task", descending: true });
  expect(rows).toHaveLength(60_000);
  expect(performance.now() - start).toBeLessThan(3000);
});
