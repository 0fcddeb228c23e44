/** The turns of an episode as they were played. */

import type { Trajectory } from "../data/types";
import { Outcome, Stop } from "./outcome";
import { Said, TurnText } from "./turn";

export function Conversation({ trajectory, at, onGo }: { trajectory: Trajectory; at: number; onGo: (at: number) => void }) {
  const last = trajectory.turns.length;
  return (
    <ol class="conversation" aria-label="Turns">
      {trajectory.turns.map((turn, index) => (
        <li
          key={index}
          id={`turn-${index}`}
          class={index === at ? "turn is-current" : "turn"}
          aria-current={index === at ? "step" : undefined}
        >
          <button type="button" class="turn-number" onClick={() => onGo(index)} aria-label={`Go to turn ${index + 1}`}>
            {index + 1}
          </button>
          <div class="turn-body">
            <TurnText turn={turn} />
          </div>
        </li>
      ))}
      <li id={`turn-${last}`} class={at === last ? "turn is-current" : "turn"} aria-current={at === last ? "step" : undefined}>
        <button type="button" class="turn-number" onClick={() => onGo(last)} aria-label="Go to the end">
          ■
        </button>
        <div class="turn-body">
          <Ending trajectory={trajectory} />
        </div>
      </li>
    </ol>
  );
}

export function Ending({ trajectory }: { trajectory: Trajectory }) {
  return (
    <>
      {trajectory.final_observation !== "" && <Said who="Environment, at the end" kind="observation" text={trajectory.final_observation} />}
      <p class="marks">
        <Outcome success={trajectory.success} /> <Stop stop={trajectory.stop} />
      </p>
      {trajectory.fault !== "" && (
        <div class="notice is-error">
          <strong>What broke:</strong> {trajectory.fault}
        </div>
      )}
    </>
  );
}
