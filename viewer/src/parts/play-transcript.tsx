import { number } from "../lib/format";
import { Outcome } from "./outcome";
import { type Session, isOver } from "./play-session";
import { Said } from "./turn";

/** What happened so far, the newest at the end. */
export function PlayTranscript({ session }: { session: Session }) {
  const { played, latest } = session;
  return (
    <ol class="conversation" aria-label="Transcript" aria-live="polite">
      {played.map(({ observation, action, by, reward, invalid }, index) => (
        <li key={index} class="turn">
          <span class="turn-number">{index + 1}</span>
          <div class="turn-body">
            <Said who="Environment" kind="observation" text={observation} />
            <Said who={by} kind="action" text={action} />
            <p class="marks">
              {reward !== 0 && <span class="mark is-reward">reward {number(reward)}</span>}
              {invalid && <span class="mark is-invalid">! invalid</span>}
            </p>
          </div>
        </li>
      ))}
      <li class="turn is-current">
        <span class="turn-number">{isOver(session) ? "■" : played.length + 1}</span>
        <div class="turn-body">
          <Said who="Environment" kind="observation" text={latest.observation} />
          {isOver(session) && "success" in latest && (
            <p class="marks">
              <Outcome success={latest.success} /> <span class="muted">{latest.truncated ? "out of turns" : "over"}</span>
            </p>
          )}
        </div>
      </li>
    </ol>
  );
}
