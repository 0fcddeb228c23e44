import { describe, expect, it } from "vitest";
import { quantile, scaleOf, tint, twoSided } from "../src/lib/colors";

const opacity = (color: string) => Number(/\/ ([\d.]+)\)/.exec(color)![1]);

describe("scales", () => {
  it("leaves the neutral value untinted", () => {
    expect(opacity(scaleOf("ratio", [0.5, 2]).colorOf(1))).toBe(0);
    expect(opacity(scaleOf("advantage", [-1, 1]).colorOf(0))).toBe(0);
    expect(opacity(scaleOf("logprob", [-3]).colorOf(0))).toBe(0);
  });
  it("treats a ratio of 2 and of 1/2 as equally far, in two colors", () => {
    const { colorOf, ticks } = scaleOf("ratio", [0.5, 2]);
    expect(opacity(colorOf(2))).toBeCloseTo(opacity(colorOf(0.5)));
    expect(colorOf(2).split("/")[0]).not.toBe(colorOf(0.5).split("/")[0]);
    expect(ticks).toEqual([0.5, 1, 2].map((value) => expect.closeTo(value)));
  });
  it("is not stretched by noise: ratios within 5% stay pale", () =>
    expect(opacity(scaleOf("ratio", [1.001, 0.999]).colorOf(1.001))).toBeLessThan(0.02));
  it("is not bleached by an outlier", () => {
    const values = [...Array<number>(200).fill(-1), -100];
    expect(scaleOf("logprob", values).ticks).toEqual([-1, 0]);
  });
  it("stays pale enough for text to be read", () => expect(opacity(scaleOf("advantage", [1]).colorOf(1e9))).toBeLessThanOrEqual(0.55));
  it("knows the mask", () =>
    expect([scaleOf("mask", []).colorOf(0), opacity(scaleOf("mask", []).colorOf(1)) > 0]).toEqual(["transparent", true]));
  it("bears with a ratio of 0", () => expect(opacity(scaleOf("ratio", [0]).colorOf(0))).toBeGreaterThan(0));
});

it("tints by strength", () => {
  expect(tint([1, 2, 3], 2)).toBe("rgb(1 2 3 / 0.550)");
  expect(tint([1, 2, 3], -1)).toBe("rgb(1 2 3 / 0.000)");
  expect(twoSided(1)).not.toBe(twoSided(-1));
});

it("takes quantiles", () => expect([quantile([], 0.5), quantile([3, 1, 2], 0), quantile([3, 1, 2], 1)]).toEqual([0, 1, 3]));
