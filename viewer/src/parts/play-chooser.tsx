import { useState } from "preact/hooks";
import { useJson } from "../data/hooks";
import type { PlayAbout } from "../data/types";
import { count } from "../lib/format";

/** Which environment, split and task. */
export function PlayChooser({ about, isBusy, onStart }: { about: PlayAbout; isBusy: boolean; onStart: (env: string, split: string, task: string | null) => void }) {
  const [env, setEnv] = useState(about.envs[0]!.name);
  const splits = about.envs.find(({ name }) => name === env)?.splits ?? {};
  const [wanted, setSplit] = useState("");
  const split = wanted in splits ? wanted : (Object.keys(splits)[0] ?? "");
  const [task, setTask] = useState("");
  const tasks = useJson<{ tasks: string[] }>(`./api/play/tasks.json?env=${encodeURIComponent(env)}&split=${encodeURIComponent(split)}`);
  const submit = (event: Event) => {
    event.preventDefault();
    onStart(env, split, task === "" ? null : task);
  };
  return (
    <form class="filters" onSubmit={submit} aria-label="What to play">
      <label class="field">
        <span class="label">Environment</span>
        <select value={env} onChange={(event) => { setEnv(event.currentTarget.value); setTask(""); }}>
          {about.envs.map(({ name }) => <option key={name} value={name}>{name}</option>)}
        </select>
      </label>
      <label class="field">
        <span class="label">Split</span>
        <select value={split} onChange={(event) => { setSplit(event.currentTarget.value); setTask(""); }}>
          {Object.entries(splits).map(([name, size]) => <option key={name} value={name}>{name} ({count(size)})</option>)}
        </select>
      </label>
      <label class="field is-wide">
        <span class="label">Task</span>
        <input list="play-tasks" value={task} placeholder="any" onInput={(event) => setTask(event.currentTarget.value)} />
        <datalist id="play-tasks">{tasks.state === "ready" && tasks.value.tasks.map((own) => <option key={own} value={own} />)}</datalist>
      </label>
      <button type="submit" class="button is-main" disabled={isBusy}>Start</button>
    </form>
  );
}
