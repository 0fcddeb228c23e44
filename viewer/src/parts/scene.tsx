/** What the environment looks like at one moment. */

import type { ComponentChildren } from "preact";
import type { Scene } from "../data/types";
import { Grid, type GridScene } from "./scene-grid";

interface CraftingNode {
  item: string;
  count: number;
  have: number;
  needs: CraftingNode[];
}

interface CraftingScene {
  goal: string;
  inventory: Record<string, number>;
  tree: CraftingNode | null;
}

interface ScienceScene {
  score: number;
  moves: number;
  goals: { text: string; is_done: boolean; is_optional: boolean }[];
  location: string;
}

interface PageScene {
  url: string;
  title: string;
  marks: string[];
  /** A JPEG in base64, or nothing where a dialog stands before the page. */
  image: string;
  goal?: string;
}

/** Each kind is drawn in its own way; a scene that lacks what its kind needs, or is of another kind, is a table. */
export function SceneView({ scene }: { scene: Scene }) {
  switch (scene.kind) {
    case "grid":
      if (Array.isArray(scene["cells"]) && Array.isArray(scene["agent"])) return <Grid scene={scene as unknown as GridScene} />;
      break;
    case "crafting":
      if (isRecord(scene["inventory"])) return <Crafting scene={scene as unknown as CraftingScene} />;
      break;
    case "sciworld":
      if (Array.isArray(scene["goals"])) return <Science scene={scene as unknown as ScienceScene} />;
      break;
    case "page":
      if (typeof scene["image"] === "string" && Array.isArray(scene["marks"])) return <WebPage scene={scene as unknown as PageScene} />;
      break;
    case "image":
      if (typeof scene["png"] === "string")
        return <img class="scene-image" alt="What the environment shows" src={`data:image/png;base64,${scene["png"]}`} />;
      break;
  }
  return <Fields fields={scene} />;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function Crafting({ scene }: { scene: CraftingScene }) {
  const items = Object.entries(scene.inventory);
  return (
    <div class="crafting">
      <p>
        <span class="label">Goal</span> {scene.goal}
      </p>
      <p class="label">Inventory</p>
      {items.length === 0 ? (
        <p class="muted">empty</p>
      ) : (
        <ul class="inventory">
          {items.map(([item, count]) => (
            <li key={item}>
              <span class="count">{count}</span> {item}
            </li>
          ))}
        </ul>
      )}
      {scene.tree && (
        <>
          <p class="label">What the goal needs</p>
          <ul class="recipe">
            <RecipeNode node={scene.tree} />
          </ul>
        </>
      )}
    </div>
  );
}

function RecipeNode({ node }: { node: CraftingNode }): ComponentChildren {
  const isEnough = node.have >= node.count;
  return (
    <li>
      <span class={isEnough ? "need is-met" : "need"}>
        {isEnough ? "✓" : "○"} {node.item}{" "}
        <span class="count">
          {node.have} of {node.count}
        </span>
      </span>
      {node.needs.length > 0 && (
        <ul>
          {node.needs.map((need, index) => (
            <RecipeNode key={index} node={need} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Science({ scene }: { scene: ScienceScene }) {
  return (
    <div class="science">
      <dl class="facts">
        <div>
          <dt>Score</dt>
          <dd>{String(scene.score)}</dd>
        </div>
        <div>
          <dt>Moves</dt>
          <dd>{String(scene.moves)}</dd>
        </div>
        <div>
          <dt>Place</dt>
          <dd>{scene.location}</dd>
        </div>
      </dl>
      <p class="label">Subgoals</p>
      <ul class="goals">
        {scene.goals.map((goal, index) => (
          <li key={index} class={goal.is_done ? "is-met" : ""}>
            {goal.is_done ? "✓" : "○"} {goal.text}
            {goal.is_optional && <span class="muted"> (optional)</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A page of the web as the browser drew it. Its address is text, not a link: it is an episode's own. */
function WebPage({ scene }: { scene: PageScene }) {
  return (
    <figure class="web-page">
      {scene.goal && (
        <p>
          <span class="label">Goal</span> {scene.goal}
        </p>
      )}
      <figcaption>
        <span class="web-title">{String(scene.title)}</span> <span class="muted web-address">{String(scene.url)}</span>
      </figcaption>
      {scene.image ? (
        <img class="scene-image" alt={`Screenshot of ${scene.title || scene.url}`} src={`data:image/jpeg;base64,${scene.image}`} />
      ) : (
        <p class="muted">A dialog stands before the page.</p>
      )}
      {scene.marks.length > 0 && <p class="muted">{scene.marks.join(", ")}</p>}
    </figure>
  );
}

/** Any fields as a table; what has parts is written as JSON. */
export function Fields({ fields }: { fields: Record<string, unknown> }) {
  const entries = Object.entries(fields).filter(([name]) => name !== "kind");
  return (
    <table class="fields">
      <tbody>
        {entries.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{typeof value === "object" && value !== null ? JSON.stringify(value) : String(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
