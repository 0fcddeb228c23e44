/** What a run is, in a few words. A configuration that cannot be read leaves some of them unknown. */

import type { RunSummary } from "../data/types";

export function RunChips({ summary: { algo, envs, seed } }: { summary: RunSummary }) {
  const words = [algo, ...envs, seed === null ? "" : `seed ${seed}`].filter(Boolean);
  return (
    <p class="chips">
      {words.map((word) => (
        <span class="chip" key={word}>
          {word}
        </span>
      ))}
    </p>
  );
}
