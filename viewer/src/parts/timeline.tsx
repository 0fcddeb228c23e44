/** The rewards of an episode, turn by turn; a click or a key goes to a turn. */

import type { Turn } from "../data/types";
import { number } from "../lib/format";

export function Timeline({ turns, at, onGo }: { turns: Turn[]; at: number; onGo: (at: number) => void }) {
  const largest = Math.max(...turns.map((turn) => Math.abs(turn.reward)), 1e-9);
  return (
    <ol class="timeline" aria-label="Rewards by turn">
      {turns.map((turn, index) => (
        <li key={index}>
          <button
            type="button"
            class={turn.invalid ? "is-invalid" : ""}
            aria-current={index === at ? "step" : undefined}
            title={describe(turn, index)}
            aria-label={describe(turn, index)}
            onClick={() => onGo(index)}
          >
            <span
              class={`bar${turn.reward < 0 ? " is-negative" : turn.reward === 0 ? " is-zero" : ""}`}
              style={{ height: `${turn.reward === 0 ? 2 : 4 + (Math.abs(turn.reward) / largest) * 26}px` }}
            />
          </button>
        </li>
      ))}
      <li>
        <button
          type="button"
          class="is-end"
          aria-current={at === turns.length ? "step" : undefined}
          aria-label="The end"
          title="The end"
          onClick={() => onGo(turns.length)}
        >
          ■
        </button>
      </li>
    </ol>
  );
}

function describe(turn: Turn, index: number): string {
  return `turn ${index + 1}: reward ${number(turn.reward)}${turn.invalid ? ", invalid" : ""}`;
}
