/** How several runs played the same task, in a step or in their last evaluation. */

import { useMemo } from "preact/hooks";
import { asPath } from "../data/api";
import type { Episodes } from "../data/episode-store";
import { useAll, useEpisodes } from "../data/hooks";
import type { DamagedEpisode, Episode, Run, RunSummary } from "../data/types";
import { episodesFile, finalEvaluation } from "../lib/curves";
import { linkTo } from "../lib/route";
import { SideBySide, type Shown } from "./side-by-side";
import { Empty, WhenReady } from "./states";

interface Props {
  summaries: RunSummary[];
  runs: Run[];
  query: URLSearchParams;
  change: (changes: Record<string, string>) => void;
}

/** More columns than this cannot be read next to each other. */
const MOST_RUNS = 4;
const EPISODES_PER_RUN = 4;

export function SameTask({ summaries, runs, query, change }: Props) {
  const shown = runs.slice(0, MOST_RUNS);
  return (
    <section aria-labelledby="same-task">
      <h2 id="same-task">The same task</h2>
      {runs.length > MOST_RUNS && <p class="muted small">Of the first {MOST_RUNS} runs.</p>}
      <Gather
        runs={shown}
        found={[]}
        then={(all) => <Chosen summaries={summaries} runs={shown} all={all} query={query} change={change} />}
      />
    </section>
  );
}

/** One component for each run, because each has a hook of its own. */
function Gather({
  runs,
  found,
  then,
}: {
  runs: Run[];
  found: Episodes[];
  then: (all: Episodes[]) => preact.JSX.Element;
}): preact.JSX.Element {
  const next = runs[found.length];
  if (next === undefined) return then(found);
  return <GatherOne key={next.id} run={next} runs={runs} found={found} then={then} />;
}

function GatherOne({
  run,
  runs,
  found,
  then,
}: {
  run: Run;
  runs: Run[];
  found: Episodes[];
  then: (all: Episodes[]) => preact.JSX.Element;
}) {
  return <Gather runs={runs} found={[...found, useEpisodes(run.id)]} then={then} />;
}

function Chosen({ summaries, runs, all, query, change }: Props & { all: Episodes[] }) {
  const when = query.get("when") ?? "final";
  const files = runs.map((run) => fileAt(run, when));
  const tasks = useMemo(() => commonTasks(all, files), [all.map(({ count }) => count).join(), files.join()]);
  const task = query.get("task") ?? tasks[0] ?? "";
  const steps = runs[0]?.rows.flatMap((row) => ("phase" in row ? [] : [row.step])) ?? [];
  return (
    <>
      <div class="filters">
        <label class="field">
          <span class="label">When</span>
          <select value={when} onChange={(event) => change({ when: event.currentTarget.value, task: "" })}>
            <option value="final">last evaluation</option>
            {steps.map((step) => (
              <option key={step} value={step}>
                step {step}
              </option>
            ))}
          </select>
        </label>
        <label class="field is-wide">
          <span class="label">Task</span>
          <select value={task} onChange={(event) => change({ task: event.currentTarget.value })}>
            {tasks.slice(0, 2000).map((own) => (
              <option key={own} value={own}>
                {own}
              </option>
            ))}
          </select>
        </label>
      </div>
      {tasks.length === 0 ? (
        <Empty>No task was played by all of these runs then.</Empty>
      ) : (
        <Columns summaries={summaries} runs={runs} all={all} files={files} task={task} />
      )}
    </>
  );
}

function fileAt(run: Run, when: string): string {
  if (when !== "final") return `step-${when.padStart(6, "0")}`;
  const evaluation = finalEvaluation(run);
  return evaluation === undefined ? "" : episodesFile(evaluation);
}

/** Tasks that each run played in its file. */
function commonTasks(all: Episodes[], files: string[]): string[] {
  const sets = all.map(({ rows, files: own, count }, index) => {
    const code = own.indexOf(files[index]!);
    const tasks = new Set<string>();
    for (let row = 0; row < count; row++) if (rows.file[row] === code && !rows.damaged[row]) tasks.add(rows.task[row]!);
    return tasks;
  });
  return [...(sets[0] ?? [])].filter((task) => sets.every((own) => own.has(task)));
}

function Columns({
  summaries,
  runs,
  all,
  files,
  task,
}: {
  summaries: RunSummary[];
  runs: Run[];
  all: Episodes[];
  files: string[];
  task: string;
}) {
  const places = useMemo(
    () =>
      all.flatMap((episodes, index) => {
        const code = episodes.files.indexOf(files[index]!);
        const lines: { run: Run; summary: RunSummary; file: string; line: number; advantage: number | null }[] = [];
        for (let row = 0; row < episodes.count && lines.length < EPISODES_PER_RUN; row++) {
          const { rows } = episodes;
          const isWanted = rows.file[row] === code && rows.task[row] === task && !rows.damaged[row];
          if (isWanted)
            lines.push({
              run: runs[index]!,
              summary: summaries[index]!,
              file: files[index]!,
              line: rows.line[row]!,
              advantage: rows.advantage[row] ?? null,
            });
        }
        return lines;
      }),
    [all.map(({ count }) => count).join(), files.join(), task],
  );
  const loaded = useAll<Episode | DamagedEpisode>(places.map(({ run, file, line }) => asPath("runs", run.id, "episodes", file, line)));
  const value = loaded.state === "ready" ? loaded.value : null;
  const shown = useMemo(
    () =>
      (value ?? []).flatMap((episode, index): Shown[] => {
        const place = places[index];
        if (place === undefined || "damaged" in episode) return [];
        const link = linkTo({ page: "episode", run: place.run.id, file: place.file, line: place.line });
        return [{ label: named(place.summary), link, trajectory: episode.trajectory, advantage: place.advantage }];
      }),
    [value],
  );
  return (
    <WhenReady loaded={loaded} what="the episodes">
      {() => <SideBySide episodes={shown} />}
    </WhenReady>
  );
}

function named({ name, seed }: RunSummary): string {
  return seed === null ? name : `${name}, seed ${seed}`;
}
