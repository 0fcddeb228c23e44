/** All episodes of a run: choose, order, count, open. */

import { useEpisodes } from "../data/hooks";
import { useMatches } from "../data/matches";
import type { Episodes } from "../data/episode-store";
import { listQuery, parseSort, summarized } from "../lib/episodes";
import { count, interval, number, plural, share } from "../lib/format";
import { linkTo } from "../lib/route";
import { useRuns } from "../parts/app-context";
import { EpisodeFilters } from "../parts/episode-filters";
import { EpisodeTable } from "../parts/episode-table";
import { adjust } from "../parts/place";
import { Empty, Failed, Loading } from "../parts/states";

export function EpisodesPage({ run, query }: { run: string; query: URLSearchParams }) {
  const { live } = useRuns();
  const episodes = useEpisodes(run);
  const { numbers, isSearching, why } = useMatches(episodes, query, live);
  const change = (changes: Record<string, string>) => {
    const next = listQuery(query);
    for (const [key, value] of Object.entries(changes)) next.set(key, value);
    adjust(linkTo({ page: "episodes", run }, next));
  };
  if (episodes.why !== null && episodes.count === 0) return <Failed what="the episodes" why={episodes.why} />;
  if (episodes.count === 0 && !episodes.isComplete) return <Loading what="the episodes" />;
  if (episodes.count === 0) return <Empty>No episode has been played yet.</Empty>;
  return (
    <>
      <h1 class="hidden">Episodes</h1>
      <EpisodeFilters episodes={episodes} query={query} onChange={change} onClear={() => adjust(linkTo({ page: "episodes", run }))} />
      {why !== null && <Failed what="what the search found" why={why} />}
      <SummaryLine episodes={episodes} numbers={numbers} isSearching={isSearching} />
      {numbers.length === 0 && !isSearching ? (
        <Empty>No episode is like that.</Empty>
      ) : (
        <EpisodeTable
          episodes={episodes}
          numbers={numbers}
          sort={parseSort(query)}
          question={listQuery(query).toString()}
          onSort={(sort) => change({ sort })}
          linkTo={(row) =>
            linkTo(
              { page: "episode", run, file: episodes.files[episodes.rows.file[row]!]!, line: episodes.rows.line[row]! },
              listQuery(query),
            )
          }
          groupLink={(row) =>
            linkTo(
              { page: "group", run, file: episodes.files[episodes.rows.file[row]!]!, task: episodes.rows.task[row]! },
              { env: episodes.texts[episodes.rows.env[row]!] },
            )
          }
        />
      )}
    </>
  );
}

function SummaryLine({ episodes, numbers, isSearching }: { episodes: Episodes; numbers: number[]; isSearching: boolean }) {
  const { reward, success, turns } = summarized(episodes, numbers);
  return (
    <p class="summary-line" role="status">
      <span>
        <strong>{plural(numbers.length, "episode")}</strong>
        {numbers.length !== episodes.count && <span class="muted"> of {count(episodes.count)}</span>}
      </span>
      {success && (
        <span>
          success <strong>{share(success.mean)}</strong> <span class="muted">({interval(success.low, success.high)})</span>
        </span>
      )}
      {reward !== null && (
        <span>
          reward <strong>{number(reward)}</strong>
        </span>
      )}
      {turns !== null && (
        <span>
          turns <strong>{number(turns)}</strong>
        </span>
      )}
      {isSearching && <span class="muted">searching …</span>}
      {!episodes.isComplete && <span class="muted">the run folder is still being read …</span>}
    </p>
  );
}
