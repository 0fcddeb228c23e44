import { describe, expect, it } from "vitest";
import { withWholeSeeds } from "../src/data/api";
import { rowsContaining } from "../src/data/matches";
import { count, number, plural, seconds, share, shareTick } from "../src/lib/format";
import { overSeeds, smoothed, wilson } from "../src/lib/statistics";

describe("numbers as text", () => {
  it.each([
    [0, "0"],
    [0.12345, "0.123"],
    [-1.5, "−1.5"],
    [12345.6, "12\u202f346"],
    [4e-4, "4e−4"],
    [1.42e-7, "1.4e−7"],
    [2.5e8, "2.5e8"],
    [null, "–"],
    [NaN, "–"],
  ])("%s", (value, text) => expect(number(value)).toBe(text));
  it.each([
    [0.9033, "90.3%"],
    [1, "100%"],
    [0, "0%"],
    [0.9999, "100%"],
    [1e-18, "0%"],
    [-1e-9, "0%"],
    [0.12, "12.0%"],
    [null, "–"],
  ])("share %s", (value, text) => expect(share(value)).toBe(text));
  it("is short on an axis", () => expect([0.5, 0.125].map(shareTick)).toEqual(["50%", "12.5%"]));
  it("has units of time", () => expect([0.0027, 1.5, 300].map(seconds)).toEqual(["2.7 ms", "1.5 s", "5 min"]));
  it("counts", () => expect([plural(1, "turn"), plural(2, "turn"), count(1234567)]).toEqual(["1 turn", "2 turns", "1\u202f234\u202f567"]));
});

describe("statistics", () => {
  it("agrees with Wilson's interval as Python has it: 271 of 300", () => {
    const { mean, low, high } = wilson(271, 300)!;
    expect([mean, low, high]).toEqual([expect.closeTo(0.90333, 5), expect.closeTo(0.8646183, 6), expect.closeTo(0.9318497, 6)]);
  });
  it("has no interval over a single seed, and nothing over none", () => {
    expect(overSeeds([0.4], [])).toEqual({ mean: 0.4, low: 0.4, high: 0.4, size: 1 });
    expect(overSeeds([], [])).toBeNull();
  });
  it("takes the t distribution for few seeds", () => {
    // 1, 2, 3: mean 2, deviation 1, t(2) = 4.303: 4.303 / sqrt(3) = 2.4843
    expect(overSeeds([1, 2, 3], [12.706, 4.303])!.high).toBeCloseTo(2 + 2.4843, 3);
  });
  it("smooths over gaps", () => {
    expect(smoothed([1, null, 3], 0.5)).toEqual([1, null, 2]);
    expect(smoothed([1, 5], 0)).toEqual([1, 5]);
  });
});

it("keeps all digits of a seed, and texts as they are", () => {
  const text = '{"seed":3228649297975057642,"small":{"seed": 7},"said":"\\"seed\\":3228649297975057642"}';
  expect(JSON.parse(withWholeSeeds(text))).toEqual({ seed: "3228649297975057642", small: { seed: 7 }, said: '"seed":3228649297975057642' });
});

it("searches texts ignoring case", () => expect(rowsContaining(["An Iron key", "a ball", "iron"], "IRON")).toEqual([0, 2]));
