/** What a view waits for, and the news that make it ask again. */

import { useEffect, useRef, useState } from "preact/hooks";
import { asPath, getJson } from "./api";
import { soundRun } from "../lib/curves";
import { onChange } from "./events";
import { episodesOf, type Episodes } from "./episode-store";
import type { Change, Run } from "./types";

export type Loaded<T> = { state: "loading" } | { state: "failed"; why: string } | { state: "ready"; value: T };

const LOADING = { state: "loading" } as const;

function asItIs<T>(value: T): T {
  return value;
}

export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The answer to a GET; asked again where the path or `again` changes, and what was there stays until then. A null path asks nothing. */
export function useJson<T>(path: string | null, again = 0, read: (value: T) => T = asItIs): Loaded<T> {
  const [held, setHeld] = useState<{ path: string | null; loaded: Loaded<T> }>({ path, loaded: LOADING });
  useEffect(() => {
    if (path === null) return;
    const cancel = new AbortController();
    getJson<T>(path, cancel.signal).then(
      (value) => setHeld({ path, loaded: { state: "ready", value: read(value) } }),
      (error: unknown) => {
        if (!cancel.signal.aborted) setHeld({ path, loaded: { state: "failed", why: reason(error) } });
      },
    );
    return () => cancel.abort();
  }, [path, again]);
  return held.path === path ? held.loaded : LOADING;
}

/** Counts the server's news of a run (or of any run), at most one a second. On connecting the server tells all once: `isKnown` may say so. */
export function useNews(run: string | null, isKnown: (change: Change) => boolean = () => false): number {
  const [news, setNews] = useState(0);
  const known = useRef(isKnown);
  known.current = isKnown;
  useEffect(() => {
    let waiting: number | undefined;
    const stop = onChange((change) => {
      if ((run !== null && change.run !== run) || known.current(change)) return;
      waiting ??= window.setTimeout(() => {
        waiting = undefined;
        setNews((before) => before + 1);
      }, 1000);
    });
    return () => {
      stop();
      window.clearTimeout(waiting);
    };
  }, [run]);
  return news;
}

export function useRun(id: string): Loaded<Run> {
  const rows = useRef(-1);
  const news = useNews(id, (change) => change.steps === rows.current && !change.rewound);
  const loaded = useJson<Run>(asPath("runs", id, "run"), news, soundRun);
  if (loaded.state === "ready") rows.current = loaded.value.rows.length;
  return loaded;
}

/** The columns of all episodes, which grow while the index is built and while the run goes on. */
export function useEpisodes(run: string): Episodes {
  const store = episodesOf(run);
  const [shown, setShown] = useState(store.current);
  useEffect(() => {
    setShown(store.current);
    return store.subscribe(setShown);
  }, [store]);
  return shown.run === run ? shown : store.current;
}

/** Runs in parallel, in the order of their ids. */
export function useAll<T>(paths: string[], read: (value: T) => T = asItIs): Loaded<T[]> {
  const key = paths.join("\n");
  const [held, setHeld] = useState<{ key: string; loaded: Loaded<T[]> }>({ key, loaded: LOADING });
  useEffect(() => {
    const cancel = new AbortController();
    Promise.all(key === "" ? [] : key.split("\n").map((path) => getJson<T>(path, cancel.signal))).then(
      (values) => setHeld({ key, loaded: { state: "ready", value: values.map(read) } }),
      (error: unknown) => {
        if (!cancel.signal.aborted) setHeld({ key, loaded: { state: "failed", why: reason(error) } });
      },
    );
    return () => cancel.abort();
  }, [key]);
  return held.key === key ? held.loaded : LOADING;
}
