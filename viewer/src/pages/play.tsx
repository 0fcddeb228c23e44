/** Play an environment by hand, next to its expert and to a trained agent. */

import { useState } from "preact/hooks";
import { postJson } from "../data/api";
import { reason, useJson } from "../data/hooks";
import type { PlayAbout, PlayReply, PlayStart, PlayStep } from "../data/types";
import { number } from "../lib/format";
import { Block } from "../parts/block";
import { PlayChooser } from "../parts/play-chooser";
import { PlayForm } from "../parts/play-form";
import { type Actor, type Session, isOver } from "../parts/play-session";
import { PlayTranscript } from "../parts/play-transcript";
import { SceneView } from "../parts/scene";
import { Empty, Failed, WhenReady } from "../parts/states";

export function PlayPage() {
  const about = useJson<PlayAbout>("./api/play/about.json");
  return (
    <>
      <div class="title"><h1>Play</h1></div>
      <WhenReady loaded={about} what="the environments">
        {(value) => (value.envs.length === 0 ? <Empty>There is no environment to play.</Empty> : <Play about={value} />)}
      </WhenReady>
    </>
  );
}

function Play({ about }: { about: PlayAbout }) {
  const [session, setSession] = useState<Session | null>(null);
  const [draft, setDraft] = useState("");
  const [proposal, setProposal] = useState<{ by: Actor; action: string } | null>(null);
  const [reply, setReply] = useState<PlayReply | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  const [isBusy, setIsBusy] = useState(false);

  const attempt = (work: () => Promise<void>) => {
    setIsBusy(true);
    setWhy(null);
    void work().catch((error: unknown) => setWhy(reason(error))).finally(() => setIsBusy(false));
  };
  const clear = () => {
    setDraft("");
    setReply(null);
    setProposal(null);
  };
  const begin = (env: string, split: string, task: string | null) =>
    attempt(async () => {
      const start = await postJson<PlayStart>("./api/play/start", { env, split, task, options: {} });
      setSession({ start, played: [], latest: start });
      clear();
    });
  const act = (action: string) =>
    attempt(async () => {
      if (session === null) return;
      const step = await postJson<PlayStep>("./api/play/step", { session: session.start.session, action });
      const by = proposal?.action === action ? proposal.by : "You";
      const played = { observation: session.latest.observation, action, by, reward: step.reward, invalid: step.invalid };
      setSession({ ...session, played: [...session.played, played], latest: step });
      clear();
    });
  const propose = (by: Actor, action: string) => {
    setProposal({ by, action });
    setDraft(action);
  };
  const askExpert = () => attempt(async () => propose("Expert", (await postJson<{ action: string }>("./api/play/expert", { session: session?.start.session })).action));
  const askAgent = () =>
    attempt(async () => {
      const own = await postJson<PlayReply>("./api/play/agent", { session: session?.start.session });
      setReply(own);
      propose("Agent", own.action ?? "");
    });

  return (
    <>
      <PlayChooser about={about} isBusy={isBusy} onStart={begin} />
      {why !== null && <Failed what="that" why={why} />}
      {session === null ? <Empty>Choose an environment and start.</Empty> : (
        <div class="episode has-side">
          <div class="episode-main">
            {session.start.instructions !== "" && <details class="info"><summary>What the agent is told</summary><Block label="Instructions" text={session.start.instructions} /></details>}
            <PlayTranscript session={session} />
            {!isOver(session) && (
              <PlayForm session={session} draft={draft} setDraft={setDraft} reply={reply} agent={about.agent} isBusy={isBusy} onAct={act} onExpert={askExpert} onAgent={askAgent} />
            )}
          </div>
          <aside class="scene-panel" aria-label="Scene">
            <h2>Scene <span class="muted">turn {session.played.length + 1} of {session.start.max_turns}, reward so far {number(session.played.reduce((sum, { reward }) => sum + reward, 0))}</span></h2>
            {session.latest.scene ? <SceneView scene={session.latest.scene} /> : <Empty>This environment has no picture.</Empty>}
          </aside>
        </div>
      )}
    </>
  );
}
