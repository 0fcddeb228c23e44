import { describe, expect, it } from "vitest";
import { quantile, scaleOf, tint, twoSided } from "../src/lib/colours";

const opacity = (colour: string) => Number(/\/ ([\d.]+)\)/.exec(colour)![1]);

describe("scales", () => {
  it("leaves the neutral value untinted", () => {
    expect(opacity(scaleOf("ratio", [0.5, 2]).colourOf(1))).toBe(0);
    expect(opacity(scaleOf("advantage", [-1, 1]).colourOf(0))).toBe(0);
    expect(opacity(scaleOf("logprob", [-3]).colourOf(0))).toBe(0);
  });
  it("treats a ratio of 2 and of 1/2 as equally far, in two colours", () => {
    const { colourOf, ticks } = scaleOf("ratio", [0.5, 2]);
    expect(opacity(colourOf(2))).toBeCloseTo(opacity(colourOf(0.5)));
    expect(colourOf(2).split("/")[0]).not.toBe(colourOf(0.5).split("/")[0]);
    expect(ticks).toEqual([0.5, 1, 2].map((value) => expect.closeTo(value)));
  });
  it("is not stretched by noise: ratios within 5% stay pale", () =>
    expect(opacity(scaleOf("ratio", [1.001, 0.999]).colourOf(1.001))).toBeLessThan(0.02));
  it("is not bleached by an outlier", () => {
    const values = [...Array<number>(200).fill(-1), -100];
    expect(scaleOf("logprob", values).ticks).toEqual([-1, 0]);
  });
  it("stays pale enough for text to be read", () => expect(opacity(scaleOf("advantage", [1]).colourOf(1e9))).toBeLessThanOrEqual(0.55));
  it("knows the mask", () =>
    expect([scaleOf("mask", []).colourOf(0), opacity(scaleOf("mask", []).colourOf(1)) > 0]).toEqual(["transparent", true]));
  it("bears with a ratio of 0", () => expect(opacity(scaleOf("ratio", [0]).colourOf(0))).toBeGreaterThan(0));
});

it("tints by strength", () => {
  expect(tint([1, 2, 3], 2)).toBe("rgb(1 2 3 / 0.550)");
  expect(tint([1, 2, 3], -1)).toBe("rgb(1 2 3 / 0.000)");
  expect(twoSided(1)).not.toBe(twoSided(-1));
});

it("takes quantiles", () => expect([quantile([], 0.5), quantile([3, 1, 2], 0), quantile([3, 1, 2], 1)]).toEqual([0, 1, 3]));
