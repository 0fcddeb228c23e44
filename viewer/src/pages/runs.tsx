/** The runs that the server was given. */

import { useRun } from "../data/hooks";
import type { Run, RunSummary } from "../data/types";
import { finalEvaluation, trainingRows, valuesAt } from "../lib/curves";
import { count, interval, share } from "../lib/format";
import { linkTo } from "../lib/route";
import { smoothed } from "../lib/statistics";
import { RunChips } from "../parts/run-chips";
import { Empty } from "../parts/states";

/** As many as can be told apart on one screen. */
const COMPARED_AT_FIRST = 4;

export function RunsPage({ runs }: { runs: RunSummary[] }) {
  if (runs.length === 0) return <Empty>No run was given.</Empty>;
  const first = runs.slice(0, COMPARED_AT_FIRST).map(({ id }) => id);
  return (
    <>
      <div class="title">
        <h1>Runs</h1>
        {runs.length > 1 && (
          <a class="button" href={linkTo({ page: "compare" }, { runs: first.join(",") })}>
            Compare
          </a>
        )}
      </div>
      <ul class="cards">
        {runs.map((run) => (
          <li key={run.id}>
            <RunCard summary={run} />
          </li>
        ))}
      </ul>
    </>
  );
}

function RunCard({ summary }: { summary: RunSummary }) {
  const loaded = useRun(summary.id);
  const run = loaded.state === "ready" ? loaded.value : null;
  const final = run && finalEvaluation(run);
  return (
    <article class="card">
      <h2>
        <a href={linkTo({ page: "run", run: summary.id })}>{summary.name}</a>
      </h2>
      <p class="muted small">{summary.folder}</p>
      <RunChips summary={summary} />
      {run && <Spark run={run} />}
      <p>
        {final ? (
          <>
            <strong>{share(final.all.success)}</strong>{" "}
            <span class="muted">
              {final.phase}, {interval(...final.all.success_interval)}
            </span>
          </>
        ) : (
          <span class="muted">not evaluated yet</span>
        )}
      </p>
      <Progress summary={summary} />
    </article>
  );
}

export function Progress({ summary: { done, steps, is_over } }: { summary: RunSummary }) {
  return (
    <p class="progress">
      {steps !== null && <progress max={steps} value={done} aria-label="Training steps done" />} {count(done)}
      {steps !== null && ` of ${count(steps)}`} steps <span class={is_over ? "muted" : "is-live"}>{is_over ? "over" : "● running"}</span>
    </p>
  );
}

/** Success while training, in a stroke. */
function Spark({ run }: { run: Run }) {
  const rows = trainingRows(run.rows);
  const values = smoothed(valuesAt(rows, "success"), 0.8);
  const points = values.flatMap((value, index) =>
    value === null ? [] : [`${((index / Math.max(values.length - 1, 1)) * 200).toFixed(1)},${(38 - value * 36).toFixed(1)}`],
  );
  if (points.length < 2) return <p class="muted small">no steps yet</p>;
  return (
    <svg
      class="spark"
      viewBox="0 0 200 40"
      preserveAspectRatio="none"
      role="img"
      aria-label={`Success while training, from ${share(values[0])} to ${share(values.at(-1))}`}
    >
      <path class="spark-base" d="M0 38H200M0 2H200" />
      <polyline points={points.join(" ")} />
    </svg>
  );
}
