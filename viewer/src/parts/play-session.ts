/** A game in progress. */

import type { PlayStart, PlayStep } from "../data/types";

export type Actor = "You" | "Expert" | "Agent";

export interface Played {
  observation: string;
  action: string;
  by: Actor;
  reward: number;
  invalid: boolean;
}

export interface Session {
  start: PlayStart;
  played: Played[];
  latest: PlayStart | PlayStep;
}

export function isOver({ latest }: Session): boolean {
  return "terminated" in latest && (latest.terminated || latest.truncated);
}
