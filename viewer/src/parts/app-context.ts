/** What every view may need to know: which runs there are, and whether a server is behind the page. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { RunSummary, Runs } from "../data/types";

export const AppContext = createContext<Runs>({ version: "", live: false, can_play: false, runs: [], t_quantiles: [] });

export function useRuns(): Runs {
  return useContext(AppContext);
}

export function useSummary(id: string): RunSummary | undefined {
  return useRuns().runs.find((run) => run.id === id);
}
