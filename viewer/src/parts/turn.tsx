/** One turn as text: what the agent saw, wrote and did. All of it as text nodes, whatever it contains. */

import type { Turn } from "../data/types";
import { number } from "../lib/format";
import { Fields } from "./scene";

export function TurnText({ turn }: { turn: Turn }) {
  const isWhole = turn.action === turn.reply;
  return (
    <>
      <Said who="Environment" kind="observation" text={turn.observation} />
      <Said who={isWhole ? "Model (reply and action)" : "Model"} kind="reply" text={turn.reply} />
      {!isWhole && turn.action !== null && <Said who="Action given" kind="action" text={turn.action} />}
      <div class="turn-foot">
        <TurnMarks turn={turn} />
        {Object.keys(turn.info).length > 0 && (
          <details class="info">
            <summary>Info</summary>
            <Fields fields={turn.info} />
          </details>
        )}
      </div>
    </>
  );
}

export function Said({ who, kind, text }: { who: string; kind: "observation" | "reply" | "action"; text: string }) {
  return (
    <div class={`said is-${kind}`}>
      <span class="who">{who}</span>
      <pre>{text === "" ? <span class="muted">(nothing)</span> : text}</pre>
    </div>
  );
}

export function TurnMarks({ turn }: { turn: Turn }) {
  if (turn.reward === 0 && !turn.invalid) return null;
  return (
    <p class="marks">
      {turn.reward !== 0 && <span class="mark is-reward">reward {number(turn.reward)}</span>}
      {turn.invalid && <span class="mark is-invalid">! invalid{turn.action === null && ": no action could be read from the reply"}</span>}
    </p>
  );
}
