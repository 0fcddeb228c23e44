/** Color scales for the numbers of tokens. Tints over the page's own background, so that text stays readable in both themes. */

export type Measure = "mask" | "logprob" | "ratio" | "entropy" | "advantage";

export const MEASURES: { name: Measure; label: string; needsTokenStats: boolean }[] = [
  { name: "mask", label: "chosen by the model", needsTokenStats: false },
  { name: "logprob", label: "log-probability when sampled", needsTokenStats: false },
  { name: "ratio", label: "ratio learner to sampler", needsTokenStats: true },
  { name: "entropy", label: "entropy", needsTokenStats: true },
  { name: "advantage", label: "advantage", needsTokenStats: true },
];

type Rgb = readonly [number, number, number];

/** Okabe and Ito's palette, which color-blind people can tell apart. */
const BLUE: Rgb = [0, 114, 178];
const VERMILION: Rgb = [213, 94, 0];
const PURPLE: Rgb = [204, 121, 167];
const STRONGEST = 0.55;

export interface Scale {
  /** Values at the ends of the legend, and the neutral one where the scale has two sides. */
  ticks: number[];
  colorOf: (value: number) => string;
}

/** The share of `values` at or below the result is `share`. 0 for no values. */
export function quantile(values: number[], share: number): number {
  if (values.length === 0) return 0;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
}

/** The scale of a measure over the values that are shown; a few outliers do not bleach the rest. */
export function scaleOf(measure: Measure, values: number[]): Scale {
  const reach = (floor: number, size: (value: number) => number = Math.abs) => Math.max(quantile(values.map(size), 0.98), floor);
  switch (measure) {
    case "mask":
      return { ticks: [0, 1], colorOf: (value) => (value > 0 ? tint(BLUE, 0.6) : "transparent") };
    case "logprob": {
      const end = reach(0.5);
      return { ticks: [-end, 0], colorOf: (value) => tint(VERMILION, -value / end) };
    }
    case "entropy": {
      const end = reach(0.1);
      return { ticks: [0, end], colorOf: (value) => tint(PURPLE, value / end) };
    }
    case "ratio": {
      const end = reach(Math.log(1.05), (value) => Math.abs(Math.log(Math.max(value, 1e-12))));
      return { ticks: [Math.exp(-end), 1, Math.exp(end)], colorOf: (value) => twoSided(Math.log(Math.max(value, 1e-12)) / end) };
    }
    case "advantage": {
      const end = reach(1e-3);
      return { ticks: [-end, 0, end], colorOf: (value) => twoSided(value / end) };
    }
  }
}

/** Blue above, vermilion below. */
export function twoSided(strength: number): string {
  return tint(strength >= 0 ? BLUE : VERMILION, Math.abs(strength));
}

export function tint([red, green, blue]: Rgb, strength: number): string {
  const opacity = Math.max(0, Math.min(1, strength)) * STRONGEST;
  return `rgb(${red} ${green} ${blue} / ${opacity.toFixed(3)})`;
}
