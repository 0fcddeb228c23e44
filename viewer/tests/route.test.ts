import { describe, expect, it } from "vitest";
import { type Route, linkTo, parseHash } from "../src/lib/route";

const ROUTES: Route[] = [
  { page: "runs" },
  { page: "compare" },
  { page: "play" },
  { page: "run", run: "0" },
  { page: "episodes", run: "3" },
  { page: "episode", run: "0", file: "eval-step-000120-final", line: 7 },
  { page: "group", run: "0", file: "step-000012", task: "web/shop?q=a b#é%" },
];

describe("routes", () => {
  it.each(ROUTES)("$page survives a round trip", (route) => expect(parseHash(linkTo(route, { step: 12 }))).toMatchObject({ route }));
  it("keeps the query", () => expect(parseHash("#/run/0/episodes?step=12&text=a%3Fb").query.get("text")).toBe("a?b"));
  it("leaves empty values out", () =>
    expect(linkTo({ page: "run", run: "0" }, { a: "", b: null, c: undefined, d: 0 })).toBe("#/run/0?d=0"));
  it("is the list of runs where there is no hash", () => expect(parseHash("").route).toEqual({ page: "runs" }));
  it.each(["#/nowhere", "#/run", "#/run/0/episode/step-000001/x", "#/run/0/group/step-000001"])("%s is unknown", (hash) =>
    expect(parseHash(hash).route.page).toBe("unknown"),
  );
  it("bears with a broken escape", () => expect(parseHash("#/run/%E0%A4%A").route).toEqual({ page: "run", run: "%E0%A4%A" }));
});
