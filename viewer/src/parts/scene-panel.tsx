/** The scene at the current turn, next to the conversation. */

import type { Loaded } from "../data/hooks";
import type { Scenes } from "../data/types";
import { Safely } from "./safely";
import { SceneView } from "./scene";
import { Empty, Failed, Loading } from "./states";

export function ScenePanel({ scenes, at, turns }: { scenes: Loaded<Scenes>; at: number; turns: number }) {
  return (
    <aside class="scene-panel" aria-label="Scene">
      <h2>
        Scene <span class="muted">{at < turns ? `before turn ${at + 1}` : "at the end"}</span>
      </h2>
      <Content scenes={scenes} at={at} />
    </aside>
  );
}

function Content({ scenes, at }: { scenes: Loaded<Scenes>; at: number }) {
  if (scenes.state === "loading") return <Loading what="scenes" />;
  if (scenes.state === "failed") return <Failed what="scenes" why={scenes.why} />;
  const scene = scenes.value.scenes?.[at];
  if (scene)
    return (
      <Safely key={at} what="this scene">
        <SceneView scene={scene} />
      </Safely>
    );
  return <Empty>{scenes.value.why ?? "There is no scene of this moment."}</Empty>;
}
