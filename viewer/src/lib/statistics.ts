/** Means and their 95% intervals, as the Python side computes them. */

export interface Estimate {
  mean: number;
  low: number;
  high: number;
  size: number;
}

const Z = 1.959963984540054;

export function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The mean over seeds and its interval by the t distribution, whose quantiles for 2, 3, ... seeds are given; a single seed has no interval. */
export function overSeeds(values: number[], tQuantiles: number[]): Estimate | null {
  const size = values.length;
  if (size === 0) return null;
  const center = mean(values);
  if (size === 1) return { mean: center, low: center, high: center, size };
  const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (size - 1);
  const quantile = tQuantiles[Math.min(size - 2, tQuantiles.length - 1)]!; // a run may have been evaluated twice at a step
  const half = quantile * Math.sqrt(variance / size);
  return { mean: center, low: center - half, high: center + half, size };
}

/** Wilson's score interval of a proportion: sound for small n and near 0 and 1. */
export function wilson(successes: number, size: number): Estimate | null {
  if (size === 0) return null;
  const p = successes / size;
  const spread = 1 + (Z * Z) / size;
  const center = (p + (Z * Z) / (2 * size)) / spread;
  const half = (Z / spread) * Math.sqrt((p * (1 - p)) / size + (Z * Z) / (4 * size * size));
  return { mean: p, low: Math.max(0, center - half), high: Math.min(1, center + half), size };
}

export type Values = (number | null)[];

/** An exponential moving average that passes over gaps. `strength` 0 changes nothing; towards 1 it gets smoother. */
export function smoothed(values: Values, strength: number): Values {
  let held: number | null = null;
  return values.map((value) => {
    if (value === null) return null;
    held = held === null ? value : strength * held + (1 - strength) * value;
    return held;
  });
}
