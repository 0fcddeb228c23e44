/** The episodes of each run, asked for once and then only what is new. */

import { asPath, getJson } from "./api";
import { onChange } from "./events";
import type { EpisodePage, EpisodeRows } from "./types";

export interface Episodes {
  run: string;
  files: string[];
  texts: string[];
  rows: EpisodeRows;
  count: number;
  /** False while the server still reads the run folder. */
  isComplete: boolean;
  why: string | null;
}

type Listener = (episodes: Episodes) => void;

const stores = new Map<string, EpisodeStore>();
let isLive = true;

export function setLive(live: boolean): void {
  isLive = live;
}

export function episodesOf(run: string): EpisodeStore {
  let store = stores.get(run);
  if (store === undefined) stores.set(run, (store = new EpisodeStore(run)));
  return store;
}

export function noRows(): EpisodeRows {
  return {
    file: [],
    line: [],
    id: [],
    step: [],
    stage: [],
    env: [],
    split: [],
    category: [],
    task: [],
    reward: [],
    success: [],
    stop: [],
    turns: [],
    tokens: [],
    invalid: [],
    advantage: [],
    attempt: [],
    baseline: [],
    damaged: [],
  };
}

class EpisodeStore {
  current: Episodes;
  private listeners = new Set<Listener>();
  private isAsking = false;
  private wantsMore = false;
  private isStarted = false;

  constructor(private readonly run: string) {
    this.current = this.empty();
    onChange((change) => {
      if (change.run !== run || !this.isStarted) return;
      if (change.rewound) this.current = this.empty();
      else if (change.rows === this.current.count && this.current.isComplete) return;
      void this.ask();
    });
  }

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    if (!this.isStarted || this.current.why !== null) void this.ask();
    return () => this.listeners.delete(listener);
  }

  private empty(): Episodes {
    return { run: this.run, files: [], texts: [], rows: noRows(), count: 0, isComplete: false, why: null };
  }

  /** Asks until the server's index is complete. */
  private async ask(): Promise<void> {
    this.isStarted = true;
    this.wantsMore = true;
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      while (this.wantsMore) {
        this.wantsMore = false;
        const path = asPath("runs", this.run, "episodes");
        const before = this.current;
        const page = await getJson<EpisodePage>(isLive ? `${path}?from=${before.count}` : path);
        if (this.current !== before) this.wantsMore = true;
        else this.take(page);
        if (!page.is_complete) {
          this.wantsMore = true;
          await new Promise((resolve) => setTimeout(resolve, 500));
        }
      }
    } catch (error) {
      this.show({ ...this.current, why: error instanceof Error ? error.message : String(error) });
    } finally {
      this.isAsking = false;
    }
  }

  private take(page: EpisodePage): void {
    const rows = page.from === 0 ? page.rows : joined(this.current.rows, page.rows);
    const { files, texts } = page;
    this.show({ run: this.run, files, texts, rows, count: rows.line.length, isComplete: page.is_complete, why: null });
  }

  private show(episodes: Episodes): void {
    this.current = episodes;
    for (const listener of this.listeners) listener(episodes);
  }
}

function joined(before: EpisodeRows, more: EpisodeRows): EpisodeRows {
  const both = Object.entries(before).map(([name, values]) => [
    name,
    [...(values as unknown[]), ...(more[name as keyof EpisodeRows] as unknown[])],
  ]);
  return Object.fromEntries(both) as unknown as EpisodeRows;
}
