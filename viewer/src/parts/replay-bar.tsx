/** Step through the turns of an episode, and choose what is shown beside them. */

import type { Turn } from "../data/types";
import { Icon } from "./icon";
import { Timeline } from "./timeline";

interface Props {
  turns: Turn[];
  at: number;
  onGo: (at: number) => void;
  shows: { tokens: boolean; scene: boolean; help: boolean };
  toggle: { tokens: () => void; scene: () => void; help: () => void };
}

export function ReplayBar({ turns, at, onGo, shows, toggle }: Props) {
  const last = turns.length;
  const step = (label: string, key: string, target: number, path: string) => (
    <button type="button" onClick={() => onGo(target)} aria-label={label} title={`${label} (${key})`}>
      <Icon path={path} />
    </button>
  );
  return (
    <div class="replay">
      <div class="buttons" role="group" aria-label="Replay">
        {step("First turn", "Home", 0, "M3 3V13M13 3L6 8L13 13Z")}
        {step("Previous turn", "←", at - 1, "M11 3L4 8L11 13Z")}
        <output class="turn-count">{at < last ? `turn ${at + 1} of ${last}` : `the end (${last} turns)`}</output>
        {step("Next turn", "→", at + 1, "M5 3L12 8L5 13Z")}
        {step("The end", "End", last, "M13 3V13M3 3L10 8L3 13Z")}
      </div>
      <Timeline turns={turns} at={at} onGo={onGo} />
      <div class="buttons">
        <button type="button" aria-pressed={shows.tokens} onClick={toggle.tokens}>
          Tokens
        </button>
        <button type="button" aria-pressed={shows.scene} onClick={toggle.scene}>
          Scene
        </button>
        <button type="button" aria-pressed={shows.help} onClick={toggle.help} aria-label="Keys" title="Keys (?)">
          ?
        </button>
      </div>
    </div>
  );
}
