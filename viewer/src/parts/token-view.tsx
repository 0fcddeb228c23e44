/** Each token of an episode, colored by what is known of it; the numbers of one on hover and on keyboard focus. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { MEASURES, type Measure, type Scale, scaleOf } from "../lib/colors";
import { count, number } from "../lib/format";
import { type ShownToken, valueOf, valuesOf } from "../lib/tokens";

interface Props {
  tokens: ShownToken[];
  /** The current one, which is scrolled to. */
  turn: number;
  measure: Measure;
  hasTokenStats: boolean;
  onMeasure: (measure: Measure) => void;
}

/** Of an episode with more tokens, those of one turn are shown at a time. */
const MOST_TOKENS = 12_000;

export function TokenView({ tokens: all, turn, measure, hasTokenStats, onMeasure }: Props) {
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const isPart = all.length > MOST_TOKENS;
  const tokens = useMemo(() => (isPart ? all.filter((token) => (token.turn ?? turn) === turn) : all), [all, isPart && turn]);
  const scale = useMemo(() => scaleOf(measure, valuesOf(all, measure)), [all, measure]);
  const current = Math.max(0, Math.min(at, tokens.length - 1));
  useEffect(() => markCurrent(box.current, current), [current, tokens, scale]);
  useEffect(() => scrollToTurn(box.current, turn), [turn]);
  // The tokens themselves are made once: going from one to the next must not make thousands anew.
  const list = useMemo(
    () =>
      tokens.map((token, index) => (
        <Token
          key={index}
          token={token}
          index={index}
          background={backgroundOf(token, measure, scale)}
          startsTurn={token.turn !== tokens[index - 1]?.turn}
        />
      )),
    [tokens, measure, scale],
  );
  return (
    <div class="token-view">
      <div class="token-controls">
        <MeasureChoice measure={measure} hasTokenStats={hasTokenStats} onMeasure={onMeasure} />
        <Legend measure={measure} scale={scale} />
      </div>
      {!hasTokenStats && (
        <p class="muted small">
          Nothing was learned from this episode, or its values were not kept: ratio, entropy and advantage are unknown.
        </p>
      )}
      {isPart && (
        <p class="muted small">
          The episode has {count(all.length)} tokens; those of turn {turn + 1} are shown.
        </p>
      )}
      <TokenNumbers token={tokens[current]} total={all.length} />
      <div
        ref={box}
        class="tokens"
        role="group"
        aria-label="Tokens; arrow keys go from one to the next"
        onKeyDown={(event) => moveByKey(event, box.current, current, tokens.length)}
        onMouseOver={(event) => setAt(pointedAt(event) ?? current)}
        onFocusIn={(event) => setAt(pointedAt(event) ?? current)}
      >
        {list}
      </div>
    </div>
  );
}

/** Arrow keys go through the tokens, and not, as elsewhere on the page, through the turns. */
function moveByKey(event: KeyboardEvent, box: HTMLElement | null, at: number, count: number): void {
  const targets: Record<string, number> = {
    ArrowLeft: at - 1,
    ArrowRight: at + 1,
    ArrowUp: at - 10,
    ArrowDown: at + 10,
    Home: 0,
    End: count - 1,
  };
  const target = targets[event.key];
  if (target === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  tokenElement(box, Math.max(0, Math.min(count - 1, target)))?.focus();
}

function MeasureChoice({ measure, hasTokenStats, onMeasure }: Pick<Props, "measure" | "hasTokenStats" | "onMeasure">) {
  return (
    <label>
      Color{" "}
      <select value={measure} onChange={(event) => onMeasure(event.currentTarget.value as Measure)}>
        {MEASURES.map(({ name, label, needsTokenStats }) => (
          <option key={name} value={name} disabled={needsTokenStats && !hasTokenStats}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function tokenElement(box: HTMLElement | null, index: number): HTMLElement | null {
  return box?.querySelector<HTMLElement>(`[data-at="${index}"]`) ?? null;
}

/** One token at a time can be reached by Tab. */
function markCurrent(box: HTMLElement | null, index: number): void {
  const before = box?.querySelector<HTMLElement>(".is-current");
  before?.classList.remove("is-current");
  before?.setAttribute("tabindex", "-1");
  const now = tokenElement(box, index);
  now?.classList.add("is-current");
  now?.setAttribute("tabindex", "0");
}

function scrollToTurn(box: HTMLElement | null, turn: number): void {
  const mark = box?.querySelector<HTMLElement>(`[data-turn="${turn}"]`);
  if (box && mark) box.scrollTop = mark.offsetTop - box.offsetTop - 4;
}

function pointedAt(event: Event): number | null {
  const element = (event.target as HTMLElement).closest<HTMLElement>("[data-at]");
  return element === null ? null : Number(element.dataset["at"]);
}

export function backgroundOf(token: ShownToken, measure: Measure, scale: Scale): string {
  const value = valueOf(token, measure);
  return value === null ? "transparent" : scale.colorOf(value);
}

interface TokenProps {
  token: ShownToken;
  index: number;
  background: string;
  startsTurn: boolean;
}

function Token({ token, index, background, startsTurn }: TokenProps) {
  return (
    <>
      {startsTurn && (
        <span class="token-turn" data-turn={token.turn ?? "end"}>
          {token.turn === null ? "end" : `turn ${token.turn + 1}`}
        </span>
      )}
      <span class={`token${token.isChosen ? " is-chosen" : ""}`} data-at={index} role="button" tabIndex={-1} style={{ background }}>
        {shownText(token.text)}
      </span>
      {token.text.endsWith("\n") && <br />}
    </>
  );
}

/** Line breaks are made visible; an empty piece as well. */
export function shownText(text: string): string {
  return text === "" ? "∅" : text.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
}

export function Legend({ measure, scale }: { measure: Measure; scale: Scale }) {
  if (measure === "mask") {
    return (
      <span class="legend">
        <span class="token is-chosen" style={{ background: scale.colorOf(1) }}>
          chosen
        </span>
        <span class="token">shown</span>
      </span>
    );
  }
  const low = scale.ticks[0]!;
  const high = scale.ticks.at(-1)!;
  const isRatio = measure === "ratio";
  const between = (share: number) => (isRatio ? Math.exp(Math.log(low) + share * Math.log(high / low)) : low + share * (high - low));
  const stops = Array.from({ length: 9 }, (_, index) => scale.colorOf(between(index / 8)));
  return (
    <span class="legend">
      <span>≤ {number(low)}</span>
      <span class="legend-bar" style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }} />
      {scale.ticks.length === 3 && <span class="muted">middle {number(scale.ticks[1])}</span>}
      <span>≥ {number(high)}</span>
    </span>
  );
}

function TokenNumbers({ token, total }: { token: ShownToken | undefined; total: number }) {
  if (token === undefined) return <p class="muted">No tokens are stored.</p>;
  const facts: [string, string][] = [
    ["token", `${token.index + 1} of ${total}`],
    ["id", String(token.id)],
    ["log-prob", number(token.logprob)],
    ["learner's", number(token.learnerLogprob)],
    ["ratio", number(token.ratio)],
    ["entropy", number(token.entropy)],
    ["advantage", number(token.advantage)],
    ["weights", token.version === null ? "–" : `step ${token.version}`],
  ];
  return (
    <div class="token-numbers" aria-live="polite">
      <code class="token-text">{shownText(token.text)}</code>
      {facts.map(([name, value]) => (
        <span key={name}>
          <span class="label">{name}</span> {value}
        </span>
      ))}
    </div>
  );
}
