/** A few episodes to choose from. */

import { type Episodes, noRows } from "../src/data/episode-store";
import type { Turn } from "../src/data/types";

type SampleRow = [
  file: number,
  line: number,
  step: number,
  task: string,
  category: number,
  reward: number,
  success: number,
  stop: number,
  turns: number,
];

const FILES = ["step-000001", "step-000002", "eval-step-000002-final"];
const TEXTS = ["babyai", "train", "test", "GoTo", "Open", "done", "horizon"];

const ROWS: SampleRow[] = [
  [0, 0, 1, "a-2", 3, 0.9, 1, 5, 2],
  [0, 1, 1, "a-2", 3, 0, 0, 6, 10],
  [0, 2, 1, "a-10", 4, 0.5, 1, 5, 5],
  [1, 0, 2, "a-2", 3, 0, -1, 6, 10],
  [2, 0, 2, "b-1", 4, 1, 1, 5, 1],
];

export function sampleEpisodes(): Episodes {
  const rows = noRows();
  for (const [file, line, step, task, category, reward, success, stop, turns] of ROWS) {
    rows.file.push(file);
    rows.line.push(line);
    rows.step.push(step);
    rows.task.push(task);
    rows.category.push(category);
    rows.reward.push(reward);
    rows.success.push(success);
    rows.stop.push(stop);
    rows.turns.push(turns);
    rows.id.push(`${step}-${line}`);
    rows.env.push(0);
    rows.split.push(file === 2 ? 2 : 1);
    rows.stage.push(0);
    rows.tokens.push(turns * 3);
    rows.invalid.push(0);
    rows.advantage.push(file === 2 ? null : reward - 0.5);
    rows.attempt.push(0);
    rows.baseline.push(0);
    rows.damaged.push(0);
  }
  return { run: "0", files: FILES, texts: TEXTS, rows, count: ROWS.length, isComplete: true, why: null };
}

export function turn(observation: string, action: string | null, reply = action ?? "", span: [number, number] = [0, 0]): Turn {
  return { observation, reply, action, reward: 0, span, segment: 0, invalid: action === null, info: {} };
}
