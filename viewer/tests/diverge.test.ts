import { expect, it } from "vitest";
import type { Turn } from "../src/data/types";
import { firstDivergence, inWords } from "../src/lib/diverge";
import { turn } from "./sample";

const played = (turns: Turn[], final_observation = "end") => ({ turns, final_observation });
const one = played([turn("door", "open"), turn("room", "go")]);

it("finds none in episodes that are alike", () => expect(firstDivergence(one, one)).toBeNull());

it.each([
  ["an action", played([turn("door", "push"), turn("room", "go")]), { turn: 0, what: "action" }],
  ["an observation", played([turn("door", "open"), turn("hall", "stay")]), { turn: 1, what: "observation" }],
  ["an early end", played([turn("door", "open")]), { turn: 1, what: "end" }],
  ["what is seen at the end", played([turn("door", "open"), turn("room", "go")], "dark"), { turn: 2, what: "observation" }],
])("finds %s", (_name, other, expected) => {
  expect(firstDivergence(one, other)).toEqual(expected);
  expect(firstDivergence(other, one)).toEqual(expected);
});

it("tells unreadable replies apart by their text, and from an action of the same words", () => {
  const unreadable = (reply: string) => played([turn("door", null, reply)]);
  expect(firstDivergence(unreadable("x"), unreadable("y"))).toEqual({ turn: 0, what: "action" });
  expect(firstDivergence(unreadable("x"), unreadable("x"))).toBeNull();
  expect(firstDivergence(unreadable("x"), played([turn("door", "x")]))).toEqual({ turn: 0, what: "action" });
});

it("counts turns from 1 in words", () => expect(inWords({ turn: 2, what: "action" })).toContain("turn 3"));
