/** What an episode is, how it went, and where to go from it. */

import { useState } from "preact/hooks";
import type { Episode, Scene, Trajectory } from "../data/types";
import type { Measure } from "../lib/colors";
import { listQuery } from "../lib/episodes";
import { number, seconds } from "../lib/format";
import { linkTo } from "../lib/route";
import { mean } from "../lib/statistics";
import { Outcome, Stop } from "./outcome";
import { saveEpisode } from "./save-episode";

interface Props {
  run: string;
  file: string;
  line: number;
  query: URLSearchParams;
  episode: Episode;
  neighbors: { before: string | null; after: string | null; place: string };
  scenes: (Scene | null)[] | null;
  measure: Measure | null;
}

export function EpisodeHead({ run, file, query, episode, neighbors, scenes, measure }: Props) {
  const { trajectory } = episode;
  return (
    <div class="episode-head">
      <div class="title">
        <h1>{trajectory.id}</h1>
        <Outcome success={trajectory.success} />
        <Stop stop={trajectory.stop} />
        <span class="spring" />
        <nav class="buttons" aria-label="Episodes of the list">
          <a class="button" href={linkTo({ page: "episodes", run }, listQuery(query))}>
            List
          </a>
          <Neighbor href={neighbors.before} label="Previous episode ([)" text="‹" />
          <span class="muted">{neighbors.place}</span>
          <Neighbor href={neighbors.after} label="Next episode (])" text="›" />
        </nav>
        <div class="buttons">
          {episode.group.length > 0 && (
            <a class="button" href={linkTo({ page: "group", run, file, task: trajectory.task.id }, { env: trajectory.task.env })}>
              Group
            </a>
          )}
          <CopyLink />
          <button type="button" onClick={() => saveEpisode(episode, scenes, measure)}>
            Save as one HTML file
          </button>
        </div>
      </div>
      <EpisodeFacts trajectory={trajectory} token_stats={episode.token_stats} />
    </div>
  );
}

function Neighbor({ href, label, text }: { href: string | null; label: string; text: string }) {
  if (href === null)
    return (
      <span class="button is-off" aria-hidden="true">
        {text}
      </span>
    );
  return (
    <a class="button" href={href} aria-label={label} title={label}>
      {text}
    </a>
  );
}

export function EpisodeFacts({ trajectory, token_stats }: { trajectory: Trajectory; token_stats: Episode["token_stats"] }) {
  const { task, segments, timings } = trajectory;
  const versions = [...new Set(segments.flatMap((segment) => segment.versions))].filter((version) => version >= 0).sort((a, b) => a - b);
  const sampled = segments.reduce((sum, segment) => sum + segment.mask.reduce((own, chosen) => own + chosen, 0), 0);
  const advantages = token_stats?.advantage.filter((value) => value !== null) ?? [];
  const facts: [string, string][] = [
    ["Task", task.id],
    ["Environment", `${task.env}, ${task.split}`],
    ...(task.category ? [["Category", task.category] as [string, string]] : []),
    ["Reward", number(trajectory.reward)],
    ...(advantages.length > 0 ? [["Mean advantage", number(mean(advantages))] as [string, string]] : []),
    ["Turns", `${trajectory.turns.length} of ${trajectory.horizon}`],
    ["Tokens", number(sampled)],
    ["Step", `${trajectory.step} (stage ${trajectory.stage})`],
    ["Weights", versions.length > 0 ? `of step ${versions.join(", ")}` : "unknown"],
    ["Seed", String(trajectory.seed)],
    ...Object.entries(timings).map(([name, value]): [string, string] => [`Time, ${name.replace(/_s$/, "")}`, seconds(value)]),
    ...(trajectory.attempt > 0 ? [["Attempts before", String(trajectory.attempt)] as [string, string]] : []),
    ...(trajectory.is_baseline ? [["Role", "greedy baseline"] as [string, string]] : []),
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function CopyLink() {
  const [said, setSaid] = useState("");
  const copy = () => {
    const done = navigator.clipboard?.writeText(location.href) ?? Promise.reject(new Error("no clipboard"));
    done
      .then(
        () => setSaid("Copied"),
        () => setSaid("Copy the address bar"),
      )
      .then(() => setTimeout(() => setSaid(""), 2000));
  };
  return (
    <button type="button" onClick={copy} aria-live="polite">
      {said || "Copy link"}
    </button>
  );
}
