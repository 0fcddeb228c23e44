/** An episode as one HTML file that needs neither network nor script. */

import { render } from "preact";
import type { Episode, Scene } from "../data/types";
import { type Measure, MEASURES, scaleOf } from "../lib/colors";
import { number } from "../lib/format";
import { type ShownToken, tokensOf, valuesOf } from "../lib/tokens";
import { Ending } from "./conversation";
import { EpisodeFacts } from "./episode-head";
import { Outcome, Stop } from "./outcome";
import { SceneView } from "./scene";
import { Legend, backgroundOf, shownText } from "./token-view";
import { TurnText } from "./turn";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

export function saveEpisode(episode: Episode, scenes: (Scene | null)[] | null, measure: Measure | null): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([asFile(episode, scenes, measure)], { type: "text/html" }));
  link.download = `episode-${episode.trajectory.id.replace(/[^\w.-]/g, "_")}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Texts pass through text nodes of a document of their own, so that serializing escapes them. */
function asFile(episode: Episode, scenes: (Scene | null)[] | null, measure: Measure | null): string {
  const page = document.implementation.createHTMLDocument(`Episode ${episode.trajectory.id}`);
  page.documentElement.lang = "en";
  page.documentElement.dataset["theme"] = document.documentElement.dataset["theme"] ?? "light";
  const meta = (attributes: Record<string, string>) => {
    const element = page.createElement("meta");
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    page.head.prepend(element);
  };
  meta({ name: "viewport", content: "width=device-width, initial-scale=1" });
  meta({ "http-equiv": "Content-Security-Policy", content: POLICY });
  meta({ charset: "utf-8" });
  const style = page.createElement("style");
  style.textContent = ownStyle();
  page.head.append(style);
  const main = page.createElement("main");
  main.className = "saved";
  page.body.append(main);
  render(<SavedEpisode episode={episode} scenes={scenes} measure={measure ?? "mask"} />, main);
  return `<!doctype html>\n${page.documentElement.outerHTML}`;
}

function ownStyle(): string {
  return [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("\n");
}

function SavedEpisode({ episode, scenes, measure }: { episode: Episode; scenes: (Scene | null)[] | null; measure: Measure }) {
  const { trajectory, token_stats } = episode;
  const tokens = tokensOf(episode);
  const scene = (at: number) => scenes?.[at] ?? null;
  return (
    <>
      <div class="title">
        <h1>{trajectory.id}</h1>
        <Outcome success={trajectory.success} /> <Stop stop={trajectory.stop} />
      </div>
      <EpisodeFacts trajectory={trajectory} token_stats={token_stats} />
      <ol class="conversation">
        {trajectory.turns.map((turn, index) => (
          <li key={index} class="turn">
            <span class="turn-number">{index + 1}</span>
            <div class="turn-body">
              <TurnText turn={turn} />
            </div>
            {scene(index) && (
              <div class="turn-scene">
                <SceneView scene={scene(index)!} />
              </div>
            )}
          </li>
        ))}
        <li class="turn">
          <span class="turn-number">■</span>
          <div class="turn-body">
            <Ending trajectory={trajectory} />
          </div>
          {scene(trajectory.turns.length) && (
            <div class="turn-scene">
              <SceneView scene={scene(trajectory.turns.length)!} />
            </div>
          )}
        </li>
      </ol>
      <SavedTokens tokens={tokens} measure={measure} />
      <p class="muted small">Saved from the viewer of Palestra.</p>
    </>
  );
}

function SavedTokens({ tokens, measure }: { tokens: ShownToken[]; measure: Measure }) {
  const scale = scaleOf(measure, valuesOf(tokens, measure));
  return (
    <section class="token-view">
      <h2>Tokens, colored by {MEASURES.find(({ name }) => name === measure)!.label}</h2>
      <div class="token-controls">
        <Legend measure={measure} scale={scale} />
      </div>
      <div class="tokens">
        {tokens.map((token, index) => (
          <>
            {token.turn !== tokens[index - 1]?.turn && (
              <span class="token-turn">{token.turn === null ? "end" : `turn ${token.turn + 1}`}</span>
            )}
            <span
              class={token.isChosen ? "token is-chosen" : "token"}
              title={numbersOf(token)}
              style={{ background: backgroundOf(token, measure, scale) }}
            >
              {shownText(token.text)}
            </span>
          </>
        ))}
      </div>
    </section>
  );
}

function numbersOf(token: ShownToken): string {
  if (!token.isChosen) return `id ${token.id}, shown`;
  const facts = [
    ["log-prob", token.logprob],
    ["ratio", token.ratio],
    ["entropy", token.entropy],
    ["advantage", token.advantage],
  ] as const;
  return [`id ${token.id}`, ...facts.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${number(value)}`)].join(", ");
}
