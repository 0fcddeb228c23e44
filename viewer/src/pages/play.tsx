/** Play an environment by hand, next to its expert and to a trained agent. */

import { useJson } from "../data/hooks";
import type { PlayAbout } from "../data/types";
import { number } from "../lib/format";
import { Block } from "../parts/block";
import { PlayChooser } from "../parts/play-chooser";
import { PlayForm } from "../parts/play-form";
import { type Session, isOver } from "../parts/play-session";
import { PlayTranscript } from "../parts/play-transcript";
import { Safely } from "../parts/safely";
import { SceneView } from "../parts/scene";
import { Empty, WhenReady } from "../parts/states";
import { type Game, useGame } from "../parts/use-play";

export function PlayPage() {
  const about = useJson<PlayAbout>("./api/play/about.json");
  return (
    <>
      <div class="title">
        <h1>Play</h1>
      </div>
      <WhenReady loaded={about} what="the environments">
        {(value) => (value.envs.length === 0 ? <Empty>There is no environment to play.</Empty> : <Play about={value} />)}
      </WhenReady>
    </>
  );
}

function Play({ about }: { about: PlayAbout }) {
  const game = useGame();
  return (
    <>
      <PlayChooser about={about} isBusy={game.isBusy} onStart={game.begin} />
      {game.why !== null && <Notice why={game.why} />}
      {game.session === null ? (
        <Empty>Choose an environment and start.</Empty>
      ) : (
        <div class="episode has-side">
          <Table session={game.session} game={game} agent={about.agent} />
          <PlayScene session={game.session} />
        </div>
      )}
    </>
  );
}

function Notice({ why }: { why: string }) {
  return (
    <div class="notice is-error" role="alert">
      {why}
    </div>
  );
}

function Table({ session, game, agent }: { session: Session; game: Game; agent: string | null }) {
  const { instructions } = session.start;
  return (
    <div class="episode-main">
      {instructions !== "" && (
        <details class="info">
          <summary>What the agent is told</summary>
          <Block label="Instructions" text={instructions} />
        </details>
      )}
      <PlayTranscript session={session} />
      {!isOver(session) && <PlayForm session={session} game={game} agent={agent} />}
    </div>
  );
}

function PlayScene({ session: { played, start, latest } }: { session: Session }) {
  const reward = played.reduce((sum, turn) => sum + turn.reward, 0);
  return (
    <aside class="scene-panel" aria-label="Scene">
      <h2>
        Scene{" "}
        <span class="muted">
          {start.task}, turn {Math.min(played.length + 1, start.max_turns)} of {start.max_turns}, reward so far {number(reward)}
        </span>
      </h2>
      {latest.scene ? (
        <Safely key={played.length} what="this scene">
          <SceneView scene={latest.scene} />
        </Safely>
      ) : (
        <Empty>This environment has no picture.</Empty>
      )}
    </aside>
  );
}
