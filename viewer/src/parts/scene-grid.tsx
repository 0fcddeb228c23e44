/** A grid world drawn as SVG: walls, doors, things, the agent as a triangle, and the cells it sees lit. */

export type Cell = [x: number, y: number, type: string, color: string, state: string];

export interface GridScene {
  width: number;
  height: number;
  cells: Cell[];
  /** x, y and direction: 0 right, 1 down, 2 left, 3 up. */
  agent: [number, number, number];
  view?: [number, number][];
  carrying?: [string, string] | null;
  mission?: string;
}

const SIZE = 20;

export function Grid({ scene }: { scene: GridScene }) {
  const { width, height, cells, agent, view = [], carrying = null, mission = "" } = scene;
  const things = cells
    .filter(([, , type]) => type !== "wall" && type !== "empty")
    .map(([, , type, color, state]) => [state, color, type].filter(Boolean).join(" "));
  const facing = ["right", "down", "left", "up"][agent[2]] ?? "";
  return (
    <div class="grid-scene">
      {mission && (
        <p>
          <span class="label">Mission</span> {mission}
        </p>
      )}
      <svg
        viewBox={`0 0 ${width * SIZE} ${height * SIZE}`}
        role="img"
        aria-label={`The agent at ${agent[0]}, ${agent[1]} faces ${facing}. There are: ${things.join(", ") || "only walls"}.`}
      >
        <rect class="grid-floor" width={width * SIZE} height={height * SIZE} />
        {view.map(([x, y]) => (
          <rect key={`${x} ${y}`} class="grid-seen" x={x * SIZE} y={y * SIZE} width={SIZE} height={SIZE} />
        ))}
        <path class="grid-lines" d={lines(width, height)} />
        {cells.map(([x, y, type, color, state], index) => (
          <g key={index} transform={`translate(${x * SIZE} ${y * SIZE})`} class={`thing-${color}`}>
            <Thing type={type} state={state} />
          </g>
        ))}
        <g transform={`translate(${(agent[0] + 0.5) * SIZE} ${(agent[1] + 0.5) * SIZE}) rotate(${agent[2] * 90})`}>
          <path class="grid-agent" d="M7.5 0L-6 6V-6Z" />
        </g>
      </svg>
      <p>
        <span class="label">Carries</span> {carrying ? [carrying[1], carrying[0]].join(" ") : "nothing"}
      </p>
    </div>
  );
}

function lines(width: number, height: number): string {
  const across = Array.from({ length: height - 1 }, (_, row) => `M0 ${(row + 1) * SIZE}H${width * SIZE}`);
  const down = Array.from({ length: width - 1 }, (_, column) => `M${(column + 1) * SIZE} 0V${height * SIZE}`);
  return [...across, ...down].join("");
}

function Thing({ type, state }: { type: string; state: string }) {
  switch (type) {
    case "empty":
      return null;
    case "wall":
      return <rect class="grid-wall" width={SIZE} height={SIZE} />;
    case "door":
      return <Door state={state} />;
    case "key":
      return <path class="thing-line" d="M7 7.5a3 3 0 1 0 6 0a3 3 0 1 0-6 0M10 10.5V17M10 14H13M10 17H13" />;
    case "ball":
      return <circle class="thing-fill" cx="10" cy="10" r="6" />;
    case "box":
      return <path class="thing-line" d="M4 4H16V16H4ZM4 10H16" />;
    case "goal":
      return <rect class="grid-goal" width={SIZE} height={SIZE} />;
    default:
      return (
        <text class="thing-text" x="10" y="14" text-anchor="middle">
          {type.slice(0, 2)}
        </text>
      );
  }
}

/** Closed: a filled leaf with a handle. Locked: with a keyhole. Open: a leaf at the side. */
function Door({ state }: { state: string }) {
  if (state === "open") return <path class="thing-line" d="M2 2H6V18H2Z" />;
  return (
    <>
      <rect class="thing-fill" x="2" y="2" width="16" height="16" rx="1" />
      {state === "locked" ? (
        <path class="door-mark" d="M8 9a2 2 0 1 1 4 0a2 2 0 0 1-1 1.7V15H9V10.700A2 2 0 0 1 8 9" />
      ) : (
        <circle class="door-mark" cx="14" cy="10" r="1.6" />
      )}
    </>
  );
}
