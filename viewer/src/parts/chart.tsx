/** One panel: curves over the bands of the horizon's stages, evaluations as points. The step under the pointer is shared by all panels. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Stage } from "../data/types";
import type { Panel, Point } from "../lib/curves";
import { number, seconds, share } from "../lib/format";
import { optionsOf, plotData, pointAt } from "./chart-options";
import { hoveredStep, setHoveredStep, useHoveredStep } from "./hovered-step";
import { useTheme } from "./theme";

interface Props {
  panel: Panel;
  steps: number[];
  stages: Stage[];
  smoothing: number;
  onPick?: (step: number, file: string | null) => void;
}

const HEIGHT = 150;

export function Chart({ panel, steps, stages, smoothing, onPick }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const pick = useRef(onPick);
  pick.current = onPick;
  const theme = useTheme();
  const data = useMemo(() => plotData(panel, steps, smoothing), [panel, steps, smoothing]);

  useEffect(() => {
    const element = holder.current;
    if (element === null) return;
    const width = element.clientWidth || 320;
    const options = optionsOf({
      panel,
      steps,
      stages,
      smoothing,
      width,
      height: HEIGHT,
      onPick: (step, file) => pick.current?.(step, file),
    });
    const made = new uPlot(options, data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [panel, data, stages, theme]);

  return (
    <figure class="panel">
      <Heading panel={panel} steps={steps} />
      <div
        ref={holder}
        class="plot"
        {...sliderRoles(panel, steps, useHoveredStep())}
        onKeyDown={(event) => moveByKey(event, steps, plot.current, (step) => onPick?.(step, null))}
        onBlur={() => setHoveredStep(null)}
      />
    </figure>
  );
}

function sliderRoles(panel: Panel, steps: number[], hovered: number | null) {
  const step = hovered ?? steps.at(-1) ?? 0;
  return {
    role: "slider" as const,
    tabIndex: 0,
    "aria-label": `${panel.title}, by step`,
    "aria-valuemin": steps[0] ?? 0,
    "aria-valuemax": steps.at(-1) ?? 0,
    "aria-valuenow": step,
    "aria-valuetext": `step ${step}: ${readings(panel, steps, hovered)
      .map(({ label, text }) => `${label} ${text}`)
      .join(", ")}`,
  };
}

/** The keys of a slider move the cursor; Enter opens the step's episodes. */
function moveByKey(event: KeyboardEvent, steps: number[], plot: uPlot | null, open: (step: number) => void): void {
  if (plot === null || steps.length === 0) return;
  const held = steps.indexOf(hoveredStep() ?? NaN);
  const at = held < 0 ? steps.length - 1 : held;
  const targets: Record<string, number> = {
    ArrowLeft: at - 1,
    ArrowRight: at + 1,
    PageDown: at - 10,
    PageUp: at + 10,
    Home: 0,
    End: steps.length - 1,
  };
  if (event.key === "Enter") open(steps[at]!);
  const target = targets[event.key];
  if (target === undefined) return;
  event.preventDefault();
  pointAt(plot, steps[Math.max(0, Math.min(steps.length - 1, target))]!);
}

function Heading({ panel, steps }: { panel: Panel; steps: number[] }) {
  const hovered = useHoveredStep();
  return (
    <figcaption>
      <h3>{panel.title}</h3>
      <ul class="readings">
        {readings(panel, steps, hovered).map(({ label, text, color, isPoint }, index) => (
          <li key={index}>
            <span class={`swatch color-${color % 8}${isPoint ? " is-point" : ""}`} aria-hidden="true" />
            {(panel.series.length > 1 || isPoint) && <span class="reading-label">{label}</span>}
            <span class="reading-value">{text}</span>
          </li>
        ))}
      </ul>
    </figcaption>
  );
}

interface Reading {
  label: string;
  text: string;
  color: number;
  isPoint: boolean;
}

/** More points than this at one step would hide the values. */
const MOST_POINTS = 3;

/** The values at the step under the pointer, else the last ones; evaluations likewise. */
function readings(panel: Panel, steps: number[], hovered: number | null): Reading[] {
  const at = hovered === null ? -1 : steps.indexOf(hovered);
  const lines = panel.series.map(({ label, color, values }) => {
    const value = at >= 0 ? values[at] : values.findLast((own) => own !== null);
    return { label, color, text: formatted(value ?? null, panel.unit), isPoint: false };
  });
  const step = hovered ?? Math.max(...panel.points.map((point) => point.step));
  const points = panel.points.filter((point) => point.step === step);
  if (points.length > MOST_POINTS) return lines;
  return [
    ...lines,
    ...points.map((point) => ({ label: point.label, color: point.color, text: pointText(point, panel.unit), isPoint: true })),
  ];
}

function pointText({ value, low, high }: Point, unit: Panel["unit"]): string {
  const center = formatted(value, unit);
  return low === null || high === null ? center : `${center} (${formatted(low, unit)} to ${formatted(high, unit)})`;
}

export function formatted(value: number | null, unit: Panel["unit"]): string {
  return unit === "share" ? share(value) : unit === "seconds" ? seconds(value) : number(value);
}
