/** One episode, turn by turn: what was said, what each token was worth, what the environment looked like. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { asPath } from "../data/api";
import { useEpisodes, useJson } from "../data/hooks";
import { useMatches } from "../data/matches";
import type { DamagedEpisode, Episode, Scenes } from "../data/types";
import { MEASURES, type Measure } from "../lib/colors";
import { listQuery, rowAt } from "../lib/episodes";
import { linkTo } from "../lib/route";
import { tokensOf } from "../lib/tokens";
import { useRuns } from "../parts/app-context";
import { Block } from "../parts/block";
import { Conversation } from "../parts/conversation";
import { EpisodeHead } from "../parts/episode-head";
import { KeyHelp } from "../parts/key-help";
import { adjust, go } from "../parts/place";
import { ReplayBar } from "../parts/replay-bar";
import { ScenePanel } from "../parts/scene-panel";
import { WhenReady } from "../parts/states";
import { TokenView } from "../parts/token-view";
import { useKeys } from "../parts/use-keys";

interface Props {
  run: string;
  file: string;
  line: number;
  query: URLSearchParams;
}

export function EpisodePage(props: Props) {
  const { run, file, line } = props;
  const loaded = useJson<Episode | DamagedEpisode>(asPath("runs", run, "episodes", file, line));
  return (
    <WhenReady loaded={loaded} what="the episode">
      {(episode) =>
        "damaged" in episode ? (
          <Damaged episode={episode} file={file} line={line} />
        ) : (
          <Shown key={`${file} ${line}`} episode={episode} {...props} />
        )
      }
    </WhenReady>
  );
}

function Damaged({ episode, file, line }: { episode: DamagedEpisode; file: string; line: number }) {
  return (
    <>
      <h1>
        {file}, line {line + 1}
      </h1>
      <div class="notice is-error" role="alert">
        <strong>This line cannot be read as an episode.</strong> {episode.damaged}
      </div>
      <Block label="The line as it is stored" text={episode.text} />
    </>
  );
}

/** The neighbors in the list that the hash describes. */
function useNeighbors({ run, file, line, query }: Props): { before: string | null; after: string | null; place: string } {
  const { live } = useRuns();
  const episodes = useEpisodes(run);
  const { numbers } = useMatches(episodes, query, live);
  return useMemo(() => {
    const row = rowAt(episodes, file, line);
    const at = row === null ? -1 : numbers.indexOf(row);
    const linkAt = (index: number) => {
      const own = numbers[index];
      if (at < 0 || own === undefined) return null;
      return linkTo(
        { page: "episode", run, file: episodes.files[episodes.rows.file[own]!]!, line: episodes.rows.line[own]! },
        keptQuery(query),
      );
    };
    return { before: linkAt(at - 1), after: linkAt(at + 1), place: at < 0 ? "" : `${at + 1} of ${numbers.length}` };
  }, [episodes, numbers, run, file, line, query]);
}

/** From one episode to the next, the list and the way of looking stay; the turn does not. */
function keptQuery(query: URLSearchParams): URLSearchParams {
  const kept = listQuery(query);
  for (const name of ["tokens", "scene"]) if (query.has(name)) kept.set(name, query.get(name)!);
  return kept;
}

function Shown({ episode, ...props }: Props & { episode: Episode }) {
  const { run, file, line, query } = props;
  const { trajectory } = episode;
  const [showsHelp, setShowsHelp] = useState(false);
  const neighbors = useNeighbors(props);
  const last = trajectory.turns.length;
  const at = Math.min(Math.max(Number(query.get("at") ?? "1") - 1, 0), last);
  const measure = MEASURES.find(({ name }) => name === query.get("tokens"))?.name ?? null;
  const showsScene = query.get("scene") !== "off";
  const scenes = useJson<Scenes>(showsScene ? asPath("runs", run, "scenes", file, line) : null);
  const tokens = useMemo(() => tokensOf(episode), [episode]);

  const change = (changes: Record<string, string>) => {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) value === "" ? next.delete(name) : next.set(name, value);
    adjust(linkTo({ page: "episode", run, file, line }, next));
  };
  const goTo = (turn: number) => change({ at: String(Math.max(0, Math.min(last, turn)) + 1) });
  const toggleTokens = () => change({ tokens: measure === null ? (episode.token_stats ? "advantage" : "logprob") : "" });
  const toggleScene = () => change({ scene: showsScene ? "off" : "" });
  useKeys({
    ArrowLeft: () => goTo(at - 1),
    k: () => goTo(at - 1),
    ArrowRight: () => goTo(at + 1),
    j: () => goTo(at + 1),
    Home: () => goTo(0),
    End: () => goTo(last),
    "[": () => neighbors.before && go(neighbors.before),
    "]": () => neighbors.after && go(neighbors.after),
    t: toggleTokens,
    s: toggleScene,
    "?": () => setShowsHelp((shown) => !shown),
    Escape: () => setShowsHelp(false),
  });
  useEffect(() => {
    if (query.has("at")) document.getElementById(`turn-${at}`)?.scrollIntoView({ block: "nearest" });
  }, [at]);

  return (
    <>
      <EpisodeHead
        {...props}
        episode={episode}
        neighbors={neighbors}
        scenes={scenes.state === "ready" ? scenes.value.scenes : null}
        measure={measure}
      />
      <ReplayBar
        turns={trajectory.turns}
        at={at}
        onGo={goTo}
        shows={{ tokens: measure !== null, scene: showsScene, help: showsHelp }}
        toggle={{ tokens: toggleTokens, scene: toggleScene, help: () => setShowsHelp(!showsHelp) }}
      />
      {showsHelp && <KeyHelp onClose={() => setShowsHelp(false)} />}
      <div class={showsScene ? "episode has-side" : "episode"}>
        <div class="episode-main">
          {measure !== null && (
            <TokenView
              tokens={tokens}
              turn={at}
              measure={measure}
              hasTokenStats={episode.token_stats !== null}
              onMeasure={(name: Measure) => change({ tokens: name })}
            />
          )}
          <Conversation trajectory={trajectory} at={at} onGo={goTo} />
        </div>
        {showsScene && <ScenePanel scenes={scenes} at={at} turns={last} />}
      </div>
    </>
  );
}
