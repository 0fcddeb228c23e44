import { useEffect, useRef } from "preact/hooks";
import type { PlayReply } from "../data/types";
import { scaleOf } from "../lib/colors";
import { number } from "../lib/format";
import type { Session } from "./play-session";
import type { Game } from "./use-play";
import { Legend, shownText } from "./token-view";

interface Props {
  session: Session;
  game: Game;
  agent: string | null;
}

const MOST_ACTIONS = 60;

/** The next action: typed, chosen, or asked for. */
export function PlayForm({ session, game, agent }: Props) {
  const { draft, setDraft, proposal, isBusy } = game;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), [session, proposal]);
  const actions = session.latest.actions ?? [];
  const submit = (event: Event) => {
    event.preventDefault();
    if (draft !== "") game.act(draft);
  };
  return (
    <form class="play-form" onSubmit={submit}>
      <div class="buttons">
        <input
          ref={field}
          aria-label="Action"
          placeholder="what to do"
          value={draft}
          onInput={(event) => setDraft(event.currentTarget.value)}
          autocomplete="off"
        />
        <button type="submit" class="button is-main" disabled={isBusy || draft === ""}>
          Act
        </button>
        <button type="button" disabled={isBusy} onClick={game.askExpert}>
          Expert
        </button>
        {agent !== null && (
          <button type="button" disabled={isBusy} onClick={game.askAgent} title={agent}>
            Agent
          </button>
        )}
      </div>
      {proposal?.reply && <AgentReply reply={proposal.reply} />}
      {actions.length > 0 && (
        <ul class="actions" aria-label="Possible actions">
          {actions.slice(0, MOST_ACTIONS).map((action) => (
            <li key={action}>
              <button type="button" disabled={isBusy} onClick={() => game.act(action)}>
                {action}
              </button>
            </li>
          ))}
        </ul>
      )}
      {actions.length > MOST_ACTIONS && <p class="muted small">and {actions.length - MOST_ACTIONS} more</p>}
    </form>
  );
}

function AgentReply({ reply }: { reply: PlayReply }) {
  const scale = scaleOf("logprob", reply.logprobs);
  return (
    <div class="token-view">
      <div class="token-controls">
        <span class="label">The agent says</span> <Legend measure="logprob" scale={scale} />
      </div>
      <div class="tokens">
        {reply.tokens.map((text, index) => {
          const logprob = reply.logprobs[index] ?? 0;
          return (
            <span key={index} class="token is-chosen" title={`log-prob ${number(logprob)}`} style={{ background: scale.colorOf(logprob) }}>
              {shownText(text)}
            </span>
          );
        })}
      </div>
      {reply.action === null && <p class="mark is-invalid">No action can be read from this.</p>}
    </div>
  );
}
