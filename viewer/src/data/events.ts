/** The server's news of runs that are still going on. */

import type { Change } from "./types";

type Listener = (change: Change) => void;

const listeners = new Set<Listener>();
let source: EventSource | null = null;

/** Returns what ends it. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Begins to listen; only where there is a server. */
export function listen(): void {
  if (source !== null) return;
  source = new EventSource("./api/events");
  source.addEventListener("change", (event) => {
    const change = JSON.parse((event as MessageEvent<string>).data) as Change;
    for (const listener of listeners) listener(change);
  });
}
