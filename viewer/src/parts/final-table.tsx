/** The results of each evaluation, by category, with 95% intervals. */

import { useState } from "preact/hooks";
import type { Evaluation, Run, Score } from "../data/types";
import { scoresOf } from "../lib/comparison";
import { episodesFile, finalEvaluation } from "../lib/curves";
import { count, number, share } from "../lib/format";
import { linkTo } from "../lib/route";
import { Empty } from "./states";
import { IntervalBar } from "./interval-bar";

export function FinalTable({ run }: { run: Run }) {
  const [file, setFile] = useState<string | null>(null);
  const evaluation = run.evals.find((own) => own.file === file) ?? finalEvaluation(run);
  return (
    <section aria-labelledby="results">
      <div class="section-head">
        <h2 id="results">Results by category</h2>
        {run.evals.length > 1 && evaluation && (
          <label>
            Evaluation{" "}
            <select value={evaluation.file} onChange={(event) => setFile(event.currentTarget.value)}>
              {run.evals.map((own) => (
                <option key={own.file} value={own.file}>
                  {own.phase || "evaluation"}, step {own.step}
                </option>
              ))}
            </select>
          </label>
        )}
        {evaluation && <a href={linkTo({ page: "episodes", run: run.id }, { kind: episodesFile(evaluation) })}>Its episodes</a>}
      </div>
      {evaluation === undefined ? <Empty>There is no evaluation yet.</Empty> : <EvaluationTable evaluation={evaluation} />}
    </section>
  );
}

function EvaluationTable({ evaluation }: { evaluation: Evaluation }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Table of results">
      <table class="data">
        <caption class="hidden">
          Success of the evaluation {evaluation.phase} at step {evaluation.step}, split {evaluation.split}
        </caption>
        <thead>
          <tr>
            <th scope="col">Category</th>
            <th scope="col" class="is-number">
              Success
            </th>
            <th scope="col">95% interval</th>
            {evaluation.k > 1 && (
              <th scope="col" class="is-number">
                pass@{evaluation.k}
              </th>
            )}
            <th scope="col" class="is-number">
              Reward
            </th>
            <th scope="col" class="is-number">
              Turns
            </th>
            <th scope="col" class="is-number">
              Tokens
            </th>
            <th scope="col" class="is-number">
              Tasks
            </th>
          </tr>
        </thead>
        <tbody>
          {[...scoresOf(evaluation)].map(([name, score]) => (
            <ScoreRow key={name} name={name} score={score} hasPasses={evaluation.k > 1} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function ScoreRow({ name, score, hasPasses }: { name: string; score: Score; hasPasses: boolean }) {
  return (
    <tr class={name === "all tasks" ? "is-total" : ""}>
      <th scope="row">{name}</th>
      <td class="is-number">{share(score.success)}</td>
      <td>
        <IntervalBar mean={score.success} low={score.success_interval[0]} high={score.success_interval[1]} color={0} />
      </td>
      {hasPasses && <td class="is-number">{share(score.pass_at_k)}</td>}
      <td
        class="is-number"
        title={score.reward_interval ? `95%: ${score.reward_interval.map((end) => number(end)).join(" to ")}` : undefined}
      >
        {number(score.reward)}
      </td>
      <td class="is-number">{number(score.turns)}</td>
      <td class="is-number">{number(score.tokens)}</td>
      <td class="is-number">{count(score.tasks)}</td>
    </tr>
  );
}
