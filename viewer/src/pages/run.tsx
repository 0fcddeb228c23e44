/** One run: its curves, its results, its settings. */

import { useMemo } from "preact/hooks";
import { asPath } from "../data/api";
import { useEpisodes, useJson, useRun } from "../data/hooks";
import type { Damage, Run } from "../data/types";
import { categoryPanel, curvesOf, trainingRows } from "../lib/curves";
import { plural } from "../lib/format";
import { linkTo } from "../lib/route";
import { useSummary } from "../parts/app-context";
import { Block } from "../parts/block";
import { Chart } from "../parts/chart";
import { FinalTable } from "../parts/final-table";
import { useHoveredStep } from "../parts/hovered-step";
import { go } from "../parts/place";
import { RunChips } from "../parts/run-chips";
import { Safely } from "../parts/safely";
import { SmoothingSlider, useSmoothing } from "../parts/smoothing";
import { Empty, WhenReady } from "../parts/states";
import { Progress } from "./runs";

export function RunPage({ id }: { id: string }) {
  const summary = useSummary(id)!;
  const loaded = useRun(id);
  return (
    <>
      <div class="title">
        <h1>{summary.name}</h1>
        <RunChips summary={summary} />
        <Progress summary={summary} />
        <a class="button" href={linkTo({ page: "episodes", run: id })}>
          Episodes
        </a>
      </div>
      <WhenReady loaded={loaded} what="the run">
        {(run) => (
          <>
            <DamageNotice damaged={run.damaged} />
            <Safely what="the curves">
              <Curves run={run} />
            </Safely>
            <Safely what="the results">
              <FinalTable run={run} />
            </Safely>
            <Objective id={id} />
            <Details summary="Settings of the run" text={run.config} />
            <Details summary="End of the log" text={run.log} />
          </>
        )}
      </WhenReady>
    </>
  );
}

export function DamageNotice({ damaged }: { damaged: Damage[] }) {
  if (damaged.length === 0) return null;
  return (
    <details class="notice is-warning">
      <summary>
        {plural(damaged.length, "line")} of the run folder could not be read and {damaged.length === 1 ? "is" : "are"} left out.
      </summary>
      <ul>
        {damaged.slice(0, 100).map(({ file, line, why }, index) => (
          <li key={index}>
            <code>{file}</code>, line {line}: {why}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Curves({ run }: { run: Run }) {
  const [smoothing, setSmoothing] = useSmoothing();
  const episodes = useEpisodes(run.id);
  const { steps, panels, more } = useMemo(() => curvesOf(run), [run]);
  const byCategory = useMemo(() => categoryPanel(steps, episodes, run.evals), [steps, episodes, run.evals]);
  if (steps.length === 0) return <Empty>No step has been finished yet. Curves appear here as soon as there is one.</Empty>;
  const all = byCategory ? [...panels.slice(0, 1), byCategory, ...panels.slice(1)] : panels;
  const trained = new Set(trainingRows(run.rows).map((row) => row.step));
  const open = (step: number, file: string | null) =>
    go(linkTo({ page: "episodes", run: run.id }, file ? { kind: file } : { step, kind: trained.has(step) ? "train" : "eval" }));
  return (
    <section aria-labelledby="curves">
      <div class="section-head">
        <h2 id="curves">Curves</h2>
        <HoveredStep last={steps.at(-1)!} />
        <SmoothingSlider value={smoothing} onChange={setSmoothing} />
      </div>
      <p class="muted small">
        Dots are evaluations on held-out tasks with their 95% intervals{run.stages.length > 1 && "; bands are stages of the horizon"}. A
        click opens the episodes of a step; with the keyboard, arrow keys and Enter.
      </p>
      <div class="panels">
        {all.map((panel) => (
          <Chart key={panel.key} panel={panel} steps={steps} stages={run.stages} smoothing={smoothing} onPick={open} />
        ))}
      </div>
      {more.length > 0 && (
        <details>
          <summary>{plural(more.length, "more curve")}</summary>
          <div class="panels">
            {more.map((panel) => (
              <Chart key={panel.key} panel={panel} steps={steps} stages={run.stages} smoothing={smoothing} onPick={open} />
            ))}
          </div>
        </details>
      )}
    </section>
  );
}

export function HoveredStep({ last }: { last: number }) {
  const hovered = useHoveredStep();
  return <output class="hovered-step">step {hovered ?? last}</output>;
}

function Objective({ id }: { id: string }) {
  const loaded = useJson<{ lines: string[] }>(asPath("runs", id, "objective"));
  return (
    <section aria-labelledby="objective">
      <h2 id="objective">What is optimized</h2>
      <WhenReady loaded={loaded} what="the objective">
        {({ lines }) => <Block label="Text of the objective" text={lines.join("\n")} />}
      </WhenReady>
    </section>
  );
}

function Details({ summary, text }: { summary: string; text: string }) {
  return (
    <details>
      <summary>{summary}</summary>
      {text.trim() === "" ? <Empty>There is none.</Empty> : <Block label={summary} text={text} />}
    </details>
  );
}
