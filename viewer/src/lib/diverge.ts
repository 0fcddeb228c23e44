/** Where two episodes of the same task part. */

import type { Trajectory } from "../data/types";

export interface Divergence {
  /** Counted from 0. */
  turn: number;
  what: "observation" | "action" | "end";
}

type Played = Pick<Trajectory, "turns" | "final_observation">;

/** The first turn whose observation or action differs, or at which only one of them goes on. Null where they are alike throughout. */
export function firstDivergence(one: Played, other: Played): Divergence | null {
  const shorter = Math.min(one.turns.length, other.turns.length);
  for (let turn = 0; turn < shorter; turn++) {
    const a = one.turns[turn]!;
    const b = other.turns[turn]!;
    if (a.observation !== b.observation) return { turn, what: "observation" };
    if (actionOf(a) !== actionOf(b)) return { turn, what: "action" };
  }
  if (one.turns.length !== other.turns.length) return { turn: shorter, what: "end" };
  return one.final_observation === other.final_observation ? null : { turn: shorter, what: "observation" };
}

/** A reply that could not be read is told apart from others by its text. */
function actionOf(turn: { action: string | null; reply: string }): string {
  return turn.action ?? `\0${turn.reply}`;
}

export function inWords(divergence: Divergence | null): string {
  if (divergence === null) return "They are alike in every observation and action.";
  const turn = divergence.turn + 1;
  if (divergence.what === "end") return `They are alike until one of them ends before turn ${turn}.`;
  return `They part at turn ${turn}: the ${divergence.what} differs.`;
}
