/** What is asked of episodes; each field is a key of the hash. */

import { useEffect, useState } from "preact/hooks";
import type { Episodes } from "../data/episode-store";
import { formatRange, isEvaluation, parseRange, textsIn } from "../lib/episodes";

interface Props {
  episodes: Episodes;
  query: URLSearchParams;
  onChange: (changes: Record<string, string>) => void;
  onClear: () => void;
}

export function EpisodeFilters({ episodes, query, onChange, onClear }: Props) {
  const choice = (name: string, label: string, options: [string, string][]) => (
    <Choice label={label} value={query.get(name) ?? ""} options={options} onChange={(value) => onChange({ [name]: value })} />
  );
  const texts = (column: "env" | "category" | "split" | "stop"): [string, string][] =>
    textsIn(episodes, column).map((text) => [text, text.replaceAll("_", " ")]);
  const evaluations = episodes.files.filter(isEvaluation).map((file): [string, string] => [file, file]);
  const range = (name: string, label: string, step: string) => (
    <RangeFields label={label} step={step} text={query.get(name) ?? ""} onChange={(value) => onChange({ [name]: value })} />
  );
  return (
    <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <TextField value={query.get("text") ?? ""} onChange={(text) => onChange({ text })} />
      {range("step", "Step", "1")}
      {choice("kind", "Played in", [["train", "training"], ["eval", "evaluation"], ...evaluations])}
      {texts("env").length > 1 && choice("env", "Environment", texts("env"))}
      {choice("category", "Category", texts("category"))}
      {texts("split").length > 1 && choice("split", "Split", texts("split"))}
      {choice("success", "Success", [
        ["yes", "yes"],
        ["no", "no"],
        ["unknown", "unknown"],
      ])}
      {choice("stop", "Ended by", texts("stop"))}
      {range("reward", "Reward", "any")}
      {range("turns", "Turns", "1")}
      {query.get("task") && (
        <div class="field">
          <span class="label">Task</span>
          <button type="button" class="chip" onClick={() => onChange({ task: "" })} aria-label={`Do not ask for task ${query.get("task")}`}>
            {query.get("task")} ×
          </button>
        </div>
      )}
      <button type="button" class="button" onClick={onClear}>
        Clear
      </button>
    </form>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
}

export function Choice({ label, value, options, onChange }: ChoiceProps) {
  const isListed = value === "" || options.some(([own]) => own === value);
  return (
    <label class="field">
      <span class="label">{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">any</option>
        {!isListed && <option value={value}>{value}</option>}
        {options.map(([own, text]) => (
          <option key={own} value={own}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

function RangeFields({ label, text, step, onChange }: { label: string; text: string; step: string; onChange: (text: string) => void }) {
  const range = parseRange(text);
  const field = (end: "low" | "high", name: string) => (
    <input
      type="number"
      step={step}
      placeholder={name}
      aria-label={`${label}, ${name}`}
      value={range[end] ?? ""}
      onChange={(event) =>
        onChange(formatRange({ ...range, [end]: event.currentTarget.value === "" ? null : Number(event.currentTarget.value) }))
      }
    />
  );
  return (
    <fieldset class="field">
      <legend class="label">{label}</legend>
      {field("low", "from")}
      {field("high", "to")}
    </fieldset>
  );
}

const WAIT_MS = 300;

/** Searches when the typing pauses. */
function TextField({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => onChange(typed), WAIT_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <label class="field is-wide">
      <span class="label">Text</span>
      <input
        type="search"
        value={typed}
        placeholder="in observations, replies, task ids"
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
    </label>
  );
}
