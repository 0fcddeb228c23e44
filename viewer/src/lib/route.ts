/** The address of each view, in the part of the URL after the hash. Filters live there too: every view has a permalink. */

export type Route =
  | { page: "runs" }
  | { page: "run"; run: string }
  | { page: "episodes"; run: string }
  | { page: "episode"; run: string; file: string; line: number }
  | { page: "group"; run: string; file: string; task: string }
  | { page: "compare" }
  | { page: "play" }
  | { page: "unknown"; path: string };

export interface Place {
  route: Route;
  query: URLSearchParams;
}

export function parseHash(hash: string): Place {
  const [path = "", ...rest] = hash.replace(/^#/, "").split("?");
  return { route: routeOf(path), query: new URLSearchParams(rest.join("?")) };
}

function routeOf(path: string): Route {
  const parts = path.split("/").filter(Boolean).map(decoded);
  const [page, run, view, file, last] = parts;
  if (page === undefined) return { page: "runs" };
  if (page === "compare" || page === "play") return { page };
  if (page === "run" && run !== undefined) {
    if (view === undefined) return { page: "run", run };
    if (view === "episodes") return { page: "episodes", run };
    if (view === "episode" && file !== undefined && /^\d+$/.test(last ?? "")) return { page: "episode", run, file, line: Number(last) };
    if (view === "group" && file !== undefined && last !== undefined) return { page: "group", run, file, task: last };
  }
  return { page: "unknown", path };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The hash of a view; empty values are left out of the query. */
export function linkTo(route: Route, query: Query = {}): string {
  const entries = query instanceof URLSearchParams ? [...query.entries()] : Object.entries(query);
  const given = entries.flatMap(([key, value]) => (value === null || value === undefined || value === "" ? [] : [[key, String(value)]]));
  const text = new URLSearchParams(given as [string, string][]).toString();
  return `#${pathOf(route)}${text && `?${text}`}`;
}

export type Query = URLSearchParams | Record<string, string | number | null | undefined>;

function pathOf(route: Route): string {
  switch (route.page) {
    case "runs":
      return "/";
    case "compare":
    case "play":
      return `/${route.page}`;
    case "run":
      return `/run/${encodeURIComponent(route.run)}`;
    case "episodes":
      return `/run/${encodeURIComponent(route.run)}/episodes`;
    case "episode":
      return `/run/${encodeURIComponent(route.run)}/episode/${encodeURIComponent(route.file)}/${route.line}`;
    case "group":
      return `/run/${encodeURIComponent(route.run)}/group/${encodeURIComponent(route.file)}/${encodeURIComponent(route.task)}`;
    case "unknown":
      return route.path;
  }
}
