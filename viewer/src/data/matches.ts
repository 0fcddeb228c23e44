/** The episodes that the hash asks for, in its order. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { chosen, listQuery, ordered, parseFilter, parseSort } from "../lib/episodes";
import { asPath, getJson } from "./api";
import type { Episodes } from "./episode-store";
import { reason } from "./hooks";

export interface Matches {
  numbers: number[];
  isSearching: boolean;
  /** Why the texts could not be searched. */
  why: string | null;
}

const texts = new Map<string, Promise<string[]>>();

export function useMatches(episodes: Episodes, query: URLSearchParams, isLive: boolean): Matches {
  const key = listQuery(query).toString();
  const filter = useMemo(() => parseFilter(query), [key]);
  const sort = useMemo(() => parseSort(query), [key]);
  const { found, why } = useFound(episodes, filter.text, isLive);
  const numbers = useMemo(() => {
    if (filter.text !== "" && found === null) return [];
    return ordered(episodes, chosen(episodes, filter, found), sort);
  }, [episodes, filter, sort, found]);
  return { numbers, isSearching: filter.text !== "" && found === null && why === null, why };
}

function useFound(episodes: Episodes, text: string, isLive: boolean): { found: Set<number> | null; why: string | null } {
  const [held, setHeld] = useState<{ text: string; found: Set<number> | null; why: string | null }>({ text: "", found: null, why: null });
  useEffect(() => {
    if (text === "") return;
    let isCurrent = true;
    search(episodes.run, text, isLive).then(
      (rows) => isCurrent && setHeld({ text, found: new Set(rows), why: null }),
      (error: unknown) => isCurrent && setHeld({ text, found: null, why: reason(error) }),
    );
    return () => {
      isCurrent = false;
    };
  }, [episodes.run, episodes.count, text, isLive]);
  return held.text === text ? held : { found: null, why: null };
}

/** The server searches; a bundle has the texts in a file. */
async function search(run: string, text: string, isLive: boolean): Promise<number[]> {
  if (isLive) return (await getJson<{ rows: number[] }>(`${asPath("runs", run, "search")}?q=${encodeURIComponent(text)}`)).rows;
  let all = texts.get(run);
  if (all === undefined) texts.set(run, (all = getJson<{ texts: string[] }>(asPath("runs", run, "texts")).then((answer) => answer.texts)));
  return rowsContaining(await all, text);
}

export function rowsContaining(all: string[], text: string): number[] {
  const wanted = text.toLowerCase();
  return all.flatMap((own, row) => (own.toLowerCase().includes(wanted) ? [row] : []));
}
