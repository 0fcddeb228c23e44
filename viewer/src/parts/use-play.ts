/** A game with the server: what was played, what is being written, and who is asked for advice. */

import { useState } from "preact/hooks";
import { postJson } from "../data/api";
import { reason } from "../data/hooks";
import type { PlayReply, PlayStart, PlayStep } from "../data/types";
import type { Actor, Session } from "./play-session";

/** What the expert or the agent would do, where one was asked. */
interface Proposal {
  by: Actor;
  action: string;
  reply: PlayReply | null;
}

export interface Game {
  session: Session | null;
  draft: string;
  proposal: Proposal | null;
  why: string | null;
  isBusy: boolean;
  setDraft: (text: string) => void;
  begin: (env: string, split: string, task: string | null) => void;
  act: (action: string) => void;
  askExpert: () => void;
  askAgent: () => void;
}

export function useGame(): Game {
  const [session, setSession] = useState<Session | null>(null);
  const [draft, setDraft] = useState("");
  const [proposal, setProposal] = useState<Proposal | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  const [isBusy, setIsBusy] = useState(false);

  const ask = <T>(path: string, body: object, then: (answer: T) => void) => {
    setIsBusy(true);
    setWhy(null);
    postJson<T>(`./api/play/${path}`, body)
      .then(then)
      .catch((error: unknown) => setWhy(reason(error)))
      .finally(() => setIsBusy(false));
  };
  const goOn = (next: Session) => {
    setSession(next);
    setDraft("");
    setProposal(null);
  };
  const propose = (by: Actor, action: string, reply: PlayReply | null) => {
    setProposal({ by, action, reply });
    setDraft(action);
  };
  const own = { session: session?.start.session };
  return {
    session,
    draft,
    proposal,
    why,
    isBusy,
    setDraft,
    begin: (env, split, task) => ask<PlayStart>("start", { env, split, task }, (start) => goOn({ start, played: [], latest: start })),
    act: (action) =>
      ask<PlayStep>("step", { ...own, action }, (step) => {
        if (session === null) return;
        const by = proposal?.action === action ? proposal.by : "You";
        const played = { observation: session.latest.observation, action, by, reward: step.reward, invalid: step.invalid };
        goOn({ ...session, played: [...session.played, played], latest: step });
      }),
    askExpert: () =>
      ask<{ action: string | null }>("expert", own, ({ action }) => {
        if (action === null) setWhy("There is no expert for this task, or it does not know what to do.");
        else propose("Expert", action, null);
      }),
    askAgent: () => ask<PlayReply>("agent", own, (reply) => propose("Agent", reply.action ?? "", reply)),
  };
}
