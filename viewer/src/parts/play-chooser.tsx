import { useState } from "preact/hooks";
import { useJson } from "../data/hooks";
import type { PlayAbout } from "../data/types";
import { count } from "../lib/format";

/** Which environment, split and task. */
export function PlayChooser({
  about,
  isBusy,
  onStart,
}: {
  about: PlayAbout;
  isBusy: boolean;
  onStart: (env: string, split: string, task: string | null) => void;
}) {
  const [env, setEnv] = useState(about.envs[0]!.name);
  const splits = about.envs.find(({ name }) => name === env)?.splits ?? {};
  const [wanted, setSplit] = useState("");
  const split = wanted in splits ? wanted : (Object.keys(splits)[0] ?? "");
  const [task, setTask] = useState("");
  const chooses = (set: (value: string) => void) => (event: { currentTarget: HTMLSelectElement }) => {
    set(event.currentTarget.value);
    setTask("");
  };
  const submit = (event: Event) => {
    event.preventDefault();
    onStart(env, split, task === "" ? null : task);
  };
  return (
    <form class="filters" onSubmit={submit} aria-label="What to play">
      <label class="field">
        <span class="label">Environment</span>
        <select value={env} onChange={chooses(setEnv)}>
          {about.envs.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        <span class="label">Split</span>
        <select value={split} onChange={chooses(setSplit)}>
          {Object.entries(splits).map(([name, size]) => (
            <option key={name} value={name}>
              {name} ({count(size)})
            </option>
          ))}
        </select>
      </label>
      <label class="field is-wide">
        <span class="label">Task</span>
        <input list="play-tasks" value={task} placeholder="any" onInput={(event) => setTask(event.currentTarget.value)} />
        <TaskList env={env} split={split} />
      </label>
      <button type="submit" class="button is-main" disabled={isBusy}>
        Start
      </button>
    </form>
  );
}

/** The first tasks of a split, to choose from while typing. */
function TaskList({ env, split }: { env: string; split: string }) {
  const tasks = useJson<{ tasks: string[] }>(`./api/play/tasks.json?env=${encodeURIComponent(env)}&split=${encodeURIComponent(split)}`);
  return <datalist id="play-tasks">{tasks.state === "ready" && tasks.value.tasks.map((own) => <option key={own} value={own} />)}</datalist>;
}
