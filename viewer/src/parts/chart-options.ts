/** What uPlot is told: series, axes, bands of stages, points of evaluations. */

import uPlot from "uplot";
import type { Stage } from "../data/types";
import type { Panel, Point, Series } from "../lib/curves";
import { number, seconds, shareTick } from "../lib/format";
import { type Values, smoothed } from "../lib/statistics";
import { hoveredStep, setHoveredStep } from "./hovered-step";
import { themeColor } from "./theme";

interface Wanted {
  panel: Panel;
  steps: number[];
  stages: Stage[];
  smoothing: number;
  width: number;
  height: number;
  onPick: (step: number, file: string | null) => void;
}

/** Series as drawn: of each one of the panel first its band, then the raw values where they are smoothed, then the line. */
interface Drawn {
  values: Values;
  options: uPlot.Series;
}

export function plotData(panel: Panel, steps: number[], smoothing: number): uPlot.AlignedData {
  return [steps, ...drawnSeries(panel, smoothing).map(({ values }) => values)] as uPlot.AlignedData;
}

function drawnSeries(panel: Panel, smoothing: number): Drawn[] {
  if (panel.isStacked) return stacked(panel.series, smoothing);
  return panel.series.flatMap((series) => {
    const stroke = () => themeColor(series.color);
    const line = {
      stroke,
      width: 1.75,
      points: { show: series.values.length < 3 },
      spanGaps: true,
      ...(series.isDashed ? { dash: [5, 4] } : {}),
    };
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    const band =
      series.low && series.high
        ? [
            { values: smoothed(series.high, smoothing), options: edge },
            { values: smoothed(series.low, smoothing), options: edge },
          ]
        : [];
    const isSmoothed = smoothing > 0 && !series.isDashed;
    const raw = showsRaw(panel, series, smoothing)
      ? [{ values: series.values, options: { ...line, stroke: () => themeColor(series.color, 0.28), width: 1, points: { show: false } } }]
      : [];
    return [...band, ...raw, { values: isSmoothed ? smoothed(series.values, smoothing) : series.values, options: line }];
  });
}

/** Raw values behind the smoothed ones, unless there is a band, or so many series that they would be a thicket. */
function showsRaw(panel: Panel, series: Series, smoothing: number): boolean {
  return smoothing > 0 && !series.isDashed && series.low === undefined && panel.series.length <= 3;
}

/** Sums from the first on, drawn from the largest down, so that each covers what is below it. */
function stacked(series: Series[], smoothing: number): Drawn[] {
  const sums: Values[] = [];
  for (const { values } of series) {
    const below = sums.at(-1);
    sums.push(smoothed(values, smoothing).map((value, index) => (value === null ? null : value + (below?.[index] ?? 0))));
  }
  return series
    .map(({ color }, index): Drawn => {
      const fill = () => themeColor(color, 0.85);
      return {
        values: sums[index]!,
        options: { stroke: () => themeColor("surface"), width: 0.5, fill, points: { show: false }, spanGaps: true },
      };
    })
    .reverse();
}

function bandsOf(panel: Panel, smoothing: number): uPlot.Band[] {
  let next = 1;
  return panel.series.flatMap((series) => {
    const first = next;
    const hasBand = series.low !== undefined && series.high !== undefined;
    next += (hasBand ? 2 : 0) + (showsRaw(panel, series, smoothing) ? 1 : 0) + 1;
    return hasBand ? [{ series: [first, first + 1] as [number, number], fill: themeColor(series.color, 0.18) }] : [];
  });
}

export function optionsOf({ panel, steps, stages, smoothing, width, height, onPick }: Wanted): uPlot.Options {
  const format = panel.unit === "share" ? shareTick : panel.unit === "seconds" ? seconds : (value: number) => number(value);
  const ink = () => themeColor("muted");
  const grid = { stroke: () => themeColor("grid"), width: 1 };
  const axis = { stroke: ink, grid, ticks: { show: false }, font: "11px system-ui, sans-serif", gap: 4 };
  return {
    width,
    height,
    padding: [stages.length > 1 ? LABEL_ROOM : 8, 10, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "steps", setSeries: false }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, range: () => stepRange(steps, panel.points) },
      y: { range: (_plot, low, high) => valueRange(panel, low, high) },
    },
    axes: [
      { ...axis, size: 22, space: 60, values: (_plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? number(tick) : "")) },
      { ...axis, size: 52, space: 28, values: (_plot, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [{}, ...(panel.isStacked ? stacked(panel.series, smoothing) : drawnSeries(panel, smoothing)).map(({ options }) => options)],
    bands: bandsOf(panel, smoothing),
    hooks: {
      drawClear: [(plot) => drawStages(plot, stages)],
      draw: [(plot) => drawPoints(plot, panel.points)],
      setCursor: [(plot) => hover(plot, steps)],
      ready: [(plot) => listenTo(plot, steps, panel.points, onPick)],
    },
  };
}

/** Only a place on the plot is taken: a plot that is made anew has no cursor at first, and must not take it from the others. */
function hover(plot: uPlot, steps: number[]): void {
  const { idx, left = -1 } = plot.cursor;
  if (idx != null && left >= 0 && steps[idx] !== undefined) setHoveredStep(steps[idx]);
}

function listenTo(plot: uPlot, steps: number[], points: Point[], onPick: Wanted["onPick"]): void {
  plot.over.addEventListener("click", () => pickAt(plot, steps, points, onPick));
  plot.over.addEventListener("mouseleave", () => setHoveredStep(null));
  const held = hoveredStep();
  if (held !== null) pointAt(plot, held);
}

export function pointAt(plot: uPlot, step: number): void {
  plot.setCursor({ left: plot.valToPos(step, "x"), top: plot.bbox.height / 2 / devicePixelRatio });
}

function stepRange(steps: number[], points: Point[]): [number, number] {
  const all = [...steps.slice(0, 1), ...steps.slice(-1), ...points.map((point) => point.step)];
  const low = Math.min(...all);
  const high = Math.max(...all);
  const margin = Math.max((high - low) * 0.015, 0.5);
  return [low - margin, high + margin];
}

/** Shares from 0 to 1 where they fill that; else what there is, with the intervals of the points, and a little air. */
function valueRange(panel: Panel, low: number, high: number): [number, number] {
  if (panel.isStacked) return [0, 1];
  const ends = panel.points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
  const given = [low, high].filter((value) => value !== null && Number.isFinite(value));
  const bottom = Math.min(...given, ...ends);
  const top = Math.max(...given, ...ends);
  if (!Number.isFinite(bottom) || !Number.isFinite(top)) return [0, 1];
  if (panel.unit === "share" && top > 0.5) return [0, 1];
  const air = (top - bottom) * 0.08 || Math.abs(top) * 0.1 || 1;
  return [bottom >= 0 && bottom - air < top * 0.35 ? 0 : bottom - air, top + air];
}

const LABEL_ROOM = 20;

/** A band for each horizon, with its turns written above the curves where there is room. */
function drawStages(plot: uPlot, stages: Stage[]): void {
  const { ctx, bbox } = plot;
  if (stages.length < 2) return;
  ctx.save();
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const top = bbox.top - LABEL_ROOM * devicePixelRatio;
  stages.forEach(({ first_step, last_step, horizon }, number) => {
    const left = Math.max(plot.valToPos(first_step - 0.5, "x", true), bbox.left);
    const right = Math.min(plot.valToPos(last_step + 0.5, "x", true), bbox.left + bbox.width);
    ctx.fillStyle = themeColor(number % 2 === 0 ? "band" : "band-other");
    ctx.fillRect(left, top, right - left, bbox.height + bbox.top - top);
    const label = `${horizon} turns`;
    if (ctx.measureText(label).width + 6 > right - left) return;
    ctx.fillStyle = themeColor("band-ink");
    ctx.fillText(label, (left + right) / 2, top + (LABEL_ROOM / 2) * devicePixelRatio);
  });
  ctx.restore();
}

function drawPoints(plot: uPlot, points: Point[]): void {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  const inside = (y: number) => Math.max(bbox.top, Math.min(bbox.top + bbox.height, y));
  ctx.save();
  ctx.lineWidth = 1.5 * scale;
  for (const { step, value, low, high, color } of points) {
    const x = plot.valToPos(step, "x", true);
    ctx.strokeStyle = ctx.fillStyle = themeColor(color);
    if (low !== null && high !== null) {
      const [top, bottom] = [inside(plot.valToPos(high, "y", true)), inside(plot.valToPos(low, "y", true))];
      ctx.beginPath();
      for (const end of [top, bottom]) {
        ctx.moveTo(x - 3 * scale, end);
        ctx.lineTo(x + 3 * scale, end);
      }
      ctx.moveTo(x, top);
      ctx.lineTo(x, bottom);
      ctx.stroke();
    }
    ctx.beginPath();
    ctx.arc(x, plot.valToPos(value, "y", true), 3.5 * scale, 0, 2 * Math.PI);
    ctx.fill();
    ctx.strokeStyle = themeColor("surface");
    ctx.stroke();
  }
  ctx.restore();
}

const NEAR = 9;

/** A click near an evaluation opens its episodes, any other those of the step. */
function pickAt(plot: uPlot, steps: number[], points: Point[], onPick: Wanted["onPick"]): void {
  const { left = -1, top = -1, idx } = plot.cursor;
  const near = points.find(
    (point) => point.file !== null && Math.hypot(plot.valToPos(point.step, "x") - left, plot.valToPos(point.value, "y") - top) < NEAR,
  );
  const step = idx == null ? undefined : steps[idx];
  if (near !== undefined) onPick(near.step, near.file);
  else if (step !== undefined) onPick(step, null);
}
