/** Episodes of one task next to each other, aligned turn by turn, with the point at which two of them part. */

import { useEffect, useState } from "preact/hooks";
import type { Trajectory } from "../data/types";
import { type Divergence, firstDivergence, inWords } from "../lib/diverge";
import { number } from "../lib/format";
import { Outcome, Stop } from "./outcome";
import { Said, TurnMarks } from "./turn";

export interface Shown {
  label: string;
  link: string;
  trajectory: Trajectory;
  advantage: number | null;
}

export function SideBySide({ episodes }: { episodes: Shown[] }) {
  const [pair, setPair] = useState<[number, number]>([0, 1]);
  useEffect(() => setPair(mostUnlike(episodes)), [episodes]);
  const [one, other] = [episodes[pair[0]], episodes[pair[1]]];
  const divergence = one && other ? firstDivergence(one.trajectory, other.trajectory) : null;
  const turns = Math.max(...episodes.map(({ trajectory }) => trajectory.turns.length));
  return (
    <>
      {episodes.length > 1 && (
        <div class="pair" role="group" aria-label="Two episodes to compare">
          <Chooser label="Compare" episodes={episodes} value={pair[0]} onChange={(index) => setPair([index, pair[1]])} />
          <Chooser label="with" episodes={episodes} value={pair[1]} onChange={(index) => setPair([pair[0], index])} />
          <p role="status">
            {inWords(divergence)}{" "}
            {divergence && (
              <button
                type="button"
                class="as-link"
                onClick={() => document.getElementById(`row-${divergence.turn}`)?.scrollIntoView({ block: "center" })}
              >
                Show
              </button>
            )}
          </p>
        </div>
      )}
      <div class="side-by-side" tabIndex={0} role="region" aria-label="Episodes side by side">
        <table style={{ minWidth: `${3 + episodes.length * 15}rem` }}>
          <thead>
            <tr>
              <th scope="col">Turn</th>
              {episodes.map((shown, index) => (
                <th scope="col" key={index} class={pair.includes(index) ? "is-chosen" : ""}>
                  <Head shown={shown} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {Array.from({ length: turns + 1 }, (_, turn) => (
              <tr key={turn} id={`row-${turn}`} class={divergence?.turn === turn ? "is-parting" : ""}>
                <th scope="row">{turn + 1}</th>
                {episodes.map(({ trajectory }, index) => (
                  <td key={index} class={marks(divergence, turn, pair.includes(index))}>
                    <TurnCell trajectory={trajectory} turn={turn} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The first episode and the first one with another outcome, else with another course. */
function mostUnlike(episodes: Shown[]): [number, number] {
  const first = episodes[0]?.trajectory;
  if (first === undefined) return [0, 1];
  const unlike = episodes.findIndex(({ trajectory }) => trajectory.success !== first.success);
  const parted = episodes.findIndex(({ trajectory }) => firstDivergence(first, trajectory) !== null);
  return [0, unlike > 0 ? unlike : parted > 0 ? parted : Math.min(1, episodes.length - 1)];
}

function marks(divergence: Divergence | null, turn: number, isOfPair: boolean): string {
  return divergence?.turn === turn && isOfPair ? `parts-${divergence.what}` : "";
}

function Chooser({
  label,
  episodes,
  value,
  onChange,
}: {
  label: string;
  episodes: Shown[];
  value: number;
  onChange: (index: number) => void;
}) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => onChange(Number(event.currentTarget.value))}>
        {episodes.map((shown, index) => (
          <option key={index} value={index}>
            {shown.label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Head({ shown: { label, link, trajectory, advantage } }: { shown: Shown }) {
  return (
    <>
      <a href={link}>{label}</a>
      <div class="head-facts">
        <Outcome success={trajectory.success} /> <Stop stop={trajectory.stop} />
      </div>
      <div class="head-facts">
        <span>reward {number(trajectory.reward)}</span>
        <span>{trajectory.turns.length} turns</span>
        {advantage !== null && <span>advantage {number(advantage)}</span>}
      </div>
    </>
  );
}

function TurnCell({ trajectory, turn }: { trajectory: Trajectory; turn: number }) {
  const played = trajectory.turns[turn];
  if (played !== undefined) {
    return (
      <>
        <Said who="Environment" kind="observation" text={played.observation} />
        <Said who={played.action === null ? "Model, no action" : "Action"} kind="action" text={played.action ?? played.reply} />
        <TurnMarks turn={played} />
      </>
    );
  }
  if (turn > trajectory.turns.length) return null;
  return (
    <>
      {trajectory.final_observation !== "" && <Said who="Environment, at the end" kind="observation" text={trajectory.final_observation} />}
      <p class="muted small">ended: {trajectory.stop.replaceAll("_", " ")}</p>
    </>
  );
}
