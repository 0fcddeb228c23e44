/** The tokens of an episode, each with all that is known of it. */

import type { Episode } from "../data/types";
import type { Measure } from "./colors";

export interface ShownToken {
  /** Among all tokens of the episode. */
  index: number;
  segment: number;
  id: number;
  text: string;
  isChosen: boolean;
  /** The turn it belongs to: its reply, or what was shown before it. Null after the last. */
  turn: number | null;
  version: number | null;
  logprob: number | null;
  /** The learner's log-probability when it first learned from the token. */
  learnerLogprob: number | null;
  ratio: number | null;
  entropy: number | null;
  advantage: number | null;
}

/** TokenStats values are parallel to the chosen tokens of all segments in order. */
export function tokensOf({ trajectory, token_stats, tokens }: Episode): ShownToken[] {
  const shown: ShownToken[] = [];
  let chosenBefore = 0;
  trajectory.segments.forEach((segment, number) => {
    const turns = trajectory.turns.flatMap((turn, index) => (turn.segment === number ? [{ index, end: turn.span[1] }] : []));
    let next = 0;
    segment.ids.forEach((id, position) => {
      while (next < turns.length && position >= turns[next]!.end) next += 1;
      const isChosen = segment.mask[position] === 1;
      const logprob = isChosen ? (segment.logprobs[position] ?? null) : null;
      const learnerLogprob = isChosen ? (token_stats?.logp[chosenBefore] ?? null) : null;
      shown.push({
        index: shown.length,
        segment: number,
        id,
        text: tokens?.[number]?.[position] ?? String(id),
        isChosen,
        turn: turns[next]?.index ?? null,
        version: isChosen ? (segment.versions[position] ?? null) : null,
        logprob,
        learnerLogprob,
        ratio: logprob === null || learnerLogprob === null ? null : Math.exp(learnerLogprob - logprob),
        entropy: isChosen ? (token_stats?.entropy[chosenBefore] ?? null) : null,
        advantage: isChosen ? (token_stats?.advantage[chosenBefore] ?? null) : null,
      });
      chosenBefore += Number(isChosen);
    });
  });
  return shown;
}

export function valueOf(token: ShownToken, measure: Measure): number | null {
  return measure === "mask" ? Number(token.isChosen) : token[measure];
}

export function valuesOf(tokens: ShownToken[], measure: Measure): number[] {
  return tokens.flatMap((token) => valueOf(token, measure) ?? []);
}
