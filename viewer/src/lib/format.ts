/** Numbers as people read them. */

const MINUS = "\u2212";
const NOTHING = "\u2013";

/** Four significant digits at the most; very large and very small ones in powers of ten. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) return withMinus(value.toExponential(1).replace("e+", "e").replace(".0e", "e"));
  if (size >= 1000) return withMinus(grouped(Math.round(value)));
  return withMinus(String(Number(value.toPrecision(digits))));
}

export function share(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  return `${withMinus((value * 100).toFixed(1).replace(/^-?(0|100)\.0$/, "$1"))}%`;
}

/** As short as a tick of an axis should be. */
export function shareTick(value: number): string {
  return `${withMinus(String(Number((value * 100).toFixed(2))))}%`;
}

export function interval(low: number, high: number): string {
  return `${share(low)} to ${share(high)}`;
}

/** Digits in threes, parted by a narrow space that does not break. */
export function count(value: number): string {
  return withMinus(grouped(value));
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  if (value < 1) return `${number(value * 1000)} ms`;
  return value < 120 ? `${number(value)} s` : `${number(value / 60)} min`;
}

export function plural(amount: number, noun: string): string {
  return `${count(amount)} ${noun}${amount === 1 ? "" : "s"}`;
}

function grouped(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

function withMinus(text: string): string {
  return text.replace(/-/g, MINUS);
}
