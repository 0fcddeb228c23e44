/** Means and their 95% intervals, as the Python side computes them. */

export interface Estimate {
  mean: number;
  low: number;
  high: number;
  size: number;
}

const Z = 1.959963984540054;

/** Two-sided 95% quantiles of Student's t distribution for 1, 2, ... degrees of freedom. */
const STUDENT = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086,
  2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];

export function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The mean over seeds and its interval by the t distribution; a single seed has no interval. */
export function overSeeds(values: number[]): Estimate | null {
  const size = values.length;
  if (size === 0) return null;
  const center = mean(values);
  if (size === 1) return { mean: center, low: center, high: center, size };
  const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (size - 1);
  const half = (STUDENT[size - 2] ?? Z) * Math.sqrt(variance / size);
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
