/** What the server says, field by field. */

export interface Runs {
  version: string;
  live: boolean;
  /** False in a bundle of files: no events, no search, no play. */
  can_play: boolean;
  runs: RunSummary[];
  /** Of Student's t, for 95% intervals over 2, 3, ... seeds: as many as the largest group has. */
  t_quantiles: number[];
}

export interface RunSummary {
  id: string;
  name: string;
  folder: string;
  algo: string;
  envs: string[];
  seed: number | null;
  steps: number | null;
  done: number;
  is_over: boolean;
  /** Runs whose configs differ in nothing but the seed have the same group. */
  group: string;
}

export type Row = Record<string, number | string | null> & { step: number };

export interface Stage {
  first_step: number;
  last_step: number;
  stage: number;
  horizon: number;
}

export interface Score {
  tasks: number;
  episodes: number;
  success: number;
  success_interval: [number, number];
  pass_at_k: number;
  pass_interval: [number, number];
  reward: number;
  /** Older runs have none, nor have rewards that are all alike. */
  reward_interval?: [number, number] | null;
  turns: number;
  tokens: number;
}

export interface Evaluation {
  file: string;
  phase: string;
  step: number;
  split: string;
  k: number;
  faults: number;
  all: Score;
  /** By environment, then by horizon. */
  envs: Record<string, Record<string, { all: Score; categories: Record<string, Score> }>>;
}

export interface Damage {
  file: string;
  line: number;
  why: string;
}

export interface Run {
  id: string;
  name: string;
  config: string;
  rows: Row[];
  stages: Stage[];
  evals: Evaluation[];
  log: string;
  damaged: Damage[];
  has_token_stats: boolean;
}

export interface EpisodePage {
  from: number;
  total: number;
  is_complete: boolean;
  files: string[];
  texts: string[];
  rows: EpisodeRows;
}

/** Columns of the same length. `file` is an index into files; env, split, category and stop are indices into texts. */
export interface EpisodeRows {
  file: number[];
  line: number[];
  id: string[];
  step: number[];
  stage: number[];
  env: number[];
  split: number[];
  category: number[];
  task: string[];
  reward: number[];
  /** 1, 0, or -1 where it is unknown. */
  success: number[];
  stop: number[];
  turns: number[];
  tokens: number[];
  invalid: number[];
  advantage: (number | null)[];
  attempt: number[];
  baseline: number[];
  damaged: number[];
}

export interface Task {
  env: string;
  split: string;
  id: string;
  category: string;
}

/** One append-only stream of tokens. The four lists are parallel. */
export interface Segment {
  ids: number[];
  /** 1 where the policy chose the token. */
  mask: number[];
  logprobs: number[];
  /** Of the weights that chose the token; -1 elsewhere. */
  versions: number[];
}

export interface Turn {
  observation: string;
  /** All the model wrote. */
  reply: string;
  /** What the environment was given; null where the reply could not be read as an action. */
  action: string | null;
  reward: number;
  /** Where its sampled tokens lie in the segment. */
  span: [number, number];
  segment: number;
  invalid: boolean;
  info: Record<string, unknown>;
}

export interface Trajectory {
  id: string;
  task: Task;
  segments: Segment[];
  turns: Turn[];
  stop: string;
  success: boolean | null;
  reward: number;
  horizon: number;
  /** Text where a number could not hold all its digits. */
  seed: number | string;
  step: number;
  stage: number;
  is_baseline: boolean;
  attempt: number;
  final_observation: string;
  fault: string;
  timings: Record<string, number>;
}

/** Parallel to the chosen tokens of all segments in order; null where nothing was computed. */
export interface TokenStats {
  advantage: (number | null)[];
  logp: (number | null)[];
  entropy: (number | null)[];
}

export interface Episode {
  trajectory: Trajectory;
  token_stats: TokenStats | null;
  /** Per segment; null where the run folder has no tokenizer. */
  tokens: string[][] | null;
  /** File and line of the other episodes of its task. */
  group: [string, number][];
}

export interface DamagedEpisode {
  damaged: string;
  text: string;
}

export type Scene = Record<string, unknown> & { kind: string };

export interface Scenes {
  scenes: (Scene | null)[] | null;
  why?: string;
}

export interface Change {
  run: string;
  rows: number;
  steps: number;
  is_over: boolean;
  rewound: boolean;
}

export interface PlayAbout {
  envs: { name: string; splits: Record<string, number>; max_turns: number }[];
  agent: string | null;
}

export interface PlayStart {
  session: string;
  task: string;
  category: string;
  observation: string;
  instructions: string;
  actions: string[] | null;
  scene: Scene | null;
  max_turns: number;
}

export interface PlayStep {
  observation: string;
  reward: number;
  terminated: boolean;
  truncated: boolean;
  success: boolean | null;
  invalid: boolean;
  actions: string[] | null;
  scene: Scene | null;
}

export interface PlayReply {
  reply: string;
  action: string | null;
  tokens: string[];
  logprobs: number[];
}
