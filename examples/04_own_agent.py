"""An agent of your own: here, one that forgets. Its context holds the newest observation alone.

python examples/04_own_agent.py [--steps 30]
"""

import argparse
from dataclasses import replace

import palestra
from treasure import SETTINGS, Treasure


@palestra.register("forgetful", kind="agent")
class Forgetful(palestra.ChatAgent):
    """Begins a new context in every turn, so that it stays short however long the episode is."""

    def __init__(self, context):
        super().__init__(context)
        self.past = []

    # What is trained on: all contexts of the episode, with their tokens as they were sampled.
    @property
    def segments(self):
        return [*self.past, *super().segments]

    async def act(self, observation):
        if self.segment.ids:
            self.past.append(self.segment)
            self.segment = palestra.Segment([], [], [], [])
        action = await super().act(observation)
        # The action says in which context its tokens are.
        return replace(action, segment=len(self.past))


def main(steps):
    for agent in ("chat", "forgetful"):
        run = palestra.train(
            Treasure,
            steps=steps,
            agent={"name": agent, "format": "plain"},
            display="none",
            **SETTINGS,
        )
        episodes = run.episodes(phase="final")
        longest = max(len(segment.ids) for episode in episodes for segment in episode.segments)
        print(f"{agent:10}  success {run.result.success}  longest context: {longest} tokens")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    main(parser.parse_args().steps)
