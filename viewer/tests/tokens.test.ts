import { expect, it } from "vitest";
import type { Episode } from "../src/data/types";
import { tokensOf, valuesOf } from "../src/lib/tokens";
import { turn } from "./sample";

/** Two segments: shown, chosen, chosen, shown, chosen, shown; then shown, chosen. */
const episode = {
  trajectory: {
    segments: [
      { ids: [1, 2, 3, 4, 5, 6], mask: [0, 1, 1, 0, 1, 0], logprobs: [0, -1, -2, 0, -3, 0], versions: [-1, 7, 7, -1, 8, -1] },
      { ids: [9, 2], mask: [0, 1], logprobs: [0, -0.5], versions: [-1, 8] },
    ],
    turns: [turn("a", "b", "b", [1, 3]), turn("c", "d", "d", [4, 5]), { ...turn("e", "f", "f", [1, 2]), segment: 1 }],
  },
  token_stats: { advantage: [0.1, 0.2, 0.3, 0.4], logp: [-1, -1, null, -0.5], entropy: [1, 2, 3, 4] },
  tokens: [
    ["see", "go", " to", "see", "stop", "end"],
    ["x", "y"],
  ],
  group: [],
} as unknown as Episode;

it("gives each chosen token its learned values, over all segments", () => {
  const chosen = tokensOf(episode).filter((token) => token.isChosen);
  expect(chosen.map((token) => token.advantage)).toEqual([0.1, 0.2, 0.3, 0.4]);
  expect(chosen.map((token) => token.version)).toEqual([7, 7, 8, 8]);
  expect(chosen.map((token) => token.text)).toEqual(["go", " to", "stop", "y"]);
});

it("computes the ratio of learner to sampler, where both are known", () => {
  // exp(-1 - -1) = 1; exp(-1 - -2) = e; unknown; exp(-0.5 - -0.5) = 1
  const ratios = tokensOf(episode).flatMap((token) => (token.isChosen ? [token.ratio] : []));
  expect(ratios).toEqual([1, expect.closeTo(Math.E), null, 1]);
  expect(valuesOf(tokensOf(episode), "ratio")).toHaveLength(3);
});

it("knows which turn a token belongs to", () => expect(tokensOf(episode).map((token) => token.turn)).toEqual([0, 0, 0, 1, 1, null, 2, 2]));

it("shows ids where there are no texts, and knows nothing that was not learned", () => {
  const [, token] = tokensOf({ ...episode, tokens: null, token_stats: null });
  expect(token).toMatchObject({ text: "2", logprob: -1, ratio: null, entropy: null, advantage: null });
});
