/** A share between 0 and 1 with its interval, drawn and in numbers. */

import { interval } from "../lib/format";

export function IntervalBar({ mean, low, high, color }: { mean: number; low: number; high: number; color: number }) {
  const at = (value: number) => `${(Math.max(0, Math.min(1, value)) * 100).toFixed(1)}%`;
  return (
    <span class="interval">
      <span class={`interval-track color-${color % 8}`} aria-hidden="true">
        <span class="interval-range" style={{ left: at(low), right: `calc(100% - ${at(high)})` }} />
        <span class="interval-mean" style={{ left: at(mean) }} />
      </span>
      <span class="interval-text">{interval(low, high)}</span>
    </span>
  );
}
