/** How an episode went, in a word and a mark; never by color alone. */

export function Outcome({ success }: { success: boolean | null }) {
  if (success === null) return <span class="outcome is-unknown">unknown</span>;
  return success ? <span class="outcome is-success">✓ success</span> : <span class="outcome is-failure">✗ failure</span>;
}

const MEANINGS: Record<string, string> = {
  done: "The environment reached its end.",
  horizon: "The turns allowed at this training step ran out.",
  truncated: "The environment's own time limit ran out.",
  context: "The next observation and a reply to it would not fit into the context.",
  length: "A reply was cut at its token budget.",
  env_fault: "The environment broke. Never trained on.",
  timeout: "The environment did not answer before its deadline. Never trained on.",
  cancelled: "The episode was stopped from outside. Never trained on.",
};

export function Stop({ stop }: { stop: string }) {
  const isFault = stop === "env_fault" || stop === "timeout" || stop === "cancelled";
  return (
    <span class={`stop${isFault ? " is-fault" : ""}`} title={MEANINGS[stop] ?? ""}>
      {stop.replaceAll("_", " ")}
    </span>
  );
}
