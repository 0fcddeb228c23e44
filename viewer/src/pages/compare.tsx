/** Several runs next to each other. */

import { useMemo } from "preact/hooks";
import { asPath } from "../data/api";
import { useAll } from "../data/hooks";
import type { Run, RunSummary } from "../data/types";
import { soundRun } from "../lib/curves";
import { type Contender, comparedPanels, comparedTable, contendersOf } from "../lib/comparison";
import { share } from "../lib/format";
import { linkTo } from "../lib/route";
import { useRuns } from "../parts/app-context";
import { Chart } from "../parts/chart";
import { IntervalBar } from "../parts/interval-bar";
import { adjust } from "../parts/place";
import { SameTask } from "../parts/same-task";
import { SmoothingSlider, useSmoothing } from "../parts/smoothing";
import { Empty, WhenReady } from "../parts/states";
import { HoveredStep } from "./run";

export function ComparePage({ query }: { query: URLSearchParams }) {
  const { runs } = useRuns();
  const wanted = (query.get("runs") ?? "").split(",").filter((id) => runs.some((run) => run.id === id));
  const chosen = runs.filter(({ id }) => wanted.includes(id));
  const joinsSeeds = query.get("seeds") !== "apart";
  const change = (changes: Record<string, string>) => {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) value === "" ? next.delete(name) : next.set(name, value);
    adjust(linkTo({ page: "compare" }, next));
  };
  const toggle = (id: string) => change({ runs: (wanted.includes(id) ? wanted.filter((own) => own !== id) : [...wanted, id]).join(",") });
  return (
    <>
      <div class="title">
        <h1>Compare</h1>
      </div>
      <Chooser
        runs={runs}
        wanted={wanted}
        toggle={toggle}
        joinsSeeds={joinsSeeds}
        setJoins={(joins) => change({ seeds: joins ? "" : "apart" })}
      />
      {chosen.length < 2 ? (
        <Empty>Choose two or more runs.</Empty>
      ) : (
        <Chosen summaries={chosen} joinsSeeds={joinsSeeds} query={query} change={change} />
      )}
    </>
  );
}

interface ChooserProps {
  runs: RunSummary[];
  wanted: string[];
  toggle: (id: string) => void;
  joinsSeeds: boolean;
  setJoins: (joins: boolean) => void;
}

function Chooser({ runs, wanted, toggle, joinsSeeds, setJoins }: ChooserProps) {
  return (
    <fieldset class="chooser">
      <legend class="label">Runs</legend>
      {runs.map((run) => (
        <label key={run.id} class="check">
          <input type="checkbox" checked={wanted.includes(run.id)} onChange={() => toggle(run.id)} /> {run.name}{" "}
          {run.seed !== null && <span class="muted">seed {run.seed}</span>}
        </label>
      ))}
      <label class="check is-apart">
        <input type="checkbox" checked={joinsSeeds} onChange={(event) => setJoins(event.currentTarget.checked)} /> seeds of the same
        settings as one mean
      </label>
    </fieldset>
  );
}

interface ChosenProps {
  summaries: RunSummary[];
  joinsSeeds: boolean;
  query: URLSearchParams;
  change: (changes: Record<string, string>) => void;
}

function Chosen({ summaries, joinsSeeds, query, change }: ChosenProps) {
  const loaded = useAll<Run>(
    summaries.map(({ id }) => asPath("runs", id, "run")),
    soundRun,
  );
  return (
    <WhenReady loaded={loaded} what="the runs">
      {(runs) => <Compared summaries={summaries} runs={runs} joinsSeeds={joinsSeeds} query={query} change={change} />}
    </WhenReady>
  );
}

function Compared({ summaries, runs, joinsSeeds, query, change }: ChosenProps & { runs: Run[] }) {
  const [smoothing, setSmoothing] = useSmoothing();
  const { t_quantiles } = useRuns();
  const contenders = useMemo(() => contendersOf(summaries, runs, joinsSeeds, t_quantiles), [runs, joinsSeeds, t_quantiles]);
  const { steps, panels } = useMemo(() => comparedPanels(contenders), [contenders]);
  const stages = useMemo(
    () => (runs.every((run) => JSON.stringify(run.stages) === JSON.stringify(runs[0]!.stages)) ? runs[0]!.stages : []),
    [runs],
  );
  return (
    <>
      <section aria-labelledby="curves">
        <div class="section-head">
          <h2 id="curves">Curves</h2>
          {steps.length > 0 && <HoveredStep last={steps.at(-1)!} />}
          <SmoothingSlider value={smoothing} onChange={setSmoothing} />
        </div>
        <ul class="contenders">
          {contenders.map(({ label, color }) => (
            <li key={color}>
              <span class={`swatch color-${color % 8}`} aria-hidden="true" /> {label}
            </li>
          ))}
        </ul>
        {contenders.some((contender) => contender.runs.length > 1) && (
          <p class="muted small">Lines are means over seeds, bands their 95% intervals (t distribution).</p>
        )}
        <div class="panels">
          {panels.map((panel) => (
            <Chart key={panel.key} panel={panel} steps={steps} stages={stages} smoothing={smoothing} />
          ))}
        </div>
      </section>
      <ComparedTable contenders={contenders} />
      <SameTask summaries={summaries} runs={runs} query={query} change={change} />
    </>
  );
}

function ComparedTable({ contenders }: { contenders: Contender[] }) {
  const rows = comparedTable(contenders);
  return (
    <section aria-labelledby="results">
      <h2 id="results">Final success by category</h2>
      {rows.length === 0 ? (
        <Empty>None of these runs was evaluated yet.</Empty>
      ) : (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Table of final success">
          <table class="data">
            <thead>
              <tr>
                <th scope="col">Category</th>
                {contenders.map(({ label, color }) => (
                  <th key={color} scope="col">
                    <span class={`swatch color-${color % 8}`} aria-hidden="true" /> {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ name, cells }) => (
                <tr key={name} class={name === "all tasks" ? "is-total" : ""}>
                  <th scope="row">{name}</th>
                  {cells.map((cell, index) => (
                    <td key={index}>
                      {cell === null ? (
                        <span class="muted">not evaluated</span>
                      ) : (
                        <span class="estimate">
                          <strong>{share(cell.mean)}</strong> <IntervalBar {...cell} color={index} />
                        </span>
                      )}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
