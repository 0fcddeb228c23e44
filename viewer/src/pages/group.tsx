/** The episodes of one task of a step, side by side. */

import { useMemo } from "preact/hooks";
import { asPath } from "../data/api";
import { useAll, useEpisodes } from "../data/hooks";
import type { DamagedEpisode, Episode } from "../data/types";
import type { Episodes } from "../data/episode-store";
import { groupRows } from "../lib/episodes";
import { plural } from "../lib/format";
import { linkTo } from "../lib/route";
import { SideBySide, type Shown } from "../parts/side-by-side";
import { Empty, Failed, Loading, WhenReady } from "../parts/states";

/** More columns than this cannot be read next to each other. */
const MOST_COLUMNS = 16;

export function GroupPage({ run, file, task, query }: { run: string; file: string; task: string; query: URLSearchParams }) {
  const episodes = useEpisodes(run);
  const env = query.get("env") ?? "";
  const rows = useMemo(() => groupRows(episodes, file, task, env), [episodes, file, task, env]);
  if (rows.length === 0 && episodes.why !== null) return <Failed what="the episodes" why={episodes.why} />;
  if (rows.length === 0 && !episodes.isComplete) return <Loading what="the episodes" />;
  return (
    <>
      <div class="title">
        <h1>{task}</h1>
        <p class="muted">
          {plural(rows.length, "episode")} in {file}
          {env && `, ${env}`}
        </p>
        <a class="button" href={linkTo({ page: "episodes", run }, { task, kind: "train" })}>
          This task in all steps
        </a>
      </div>
      {rows.length === 0 ? (
        <Empty>There is no episode of this task in {file}.</Empty>
      ) : (
        <Columns run={run} episodes={episodes} rows={rows.slice(0, MOST_COLUMNS)} />
      )}
      {rows.length > MOST_COLUMNS && <p class="muted">The first {MOST_COLUMNS} are shown.</p>}
    </>
  );
}

function Columns({ run, episodes, rows }: { run: string; episodes: Episodes; rows: number[] }) {
  const places = rows.map((row) => ({ row, file: episodes.files[episodes.rows.file[row]!]!, line: episodes.rows.line[row]! }));
  const loaded = useAll<Episode | DamagedEpisode>(places.map(({ file, line }) => asPath("runs", run, "episodes", file, line)));
  const value = loaded.state === "ready" ? loaded.value : null;
  const shown = useMemo(
    () =>
      (value ?? []).flatMap((episode, index): Shown[] => {
        const { row, file, line } = places[index]!;
        if ("damaged" in episode) return [];
        const link = linkTo({ page: "episode", run, file, line });
        return [{ label: episode.trajectory.id, link, trajectory: episode.trajectory, advantage: episodes.rows.advantage[row] ?? null }];
      }),
    [value],
  );
  return (
    <WhenReady loaded={loaded} what="the episodes of this task">
      {() => <SideBySide episodes={shown} />}
    </WhenReady>
  );
}
