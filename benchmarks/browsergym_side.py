"""BrowserGym's side of `benchmarks/web.py`: run by a Python that has browsergym-miniwob, in a
process for each episode at a time.

    python browsergym_side.py TASK SEED SECONDS

Clicks on checkboxes and then on Submit, as the other side does. Prints one line of JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time

import browsergym.miniwob  # noqa: F401  registers its environments
import gymnasium


def clicks(observation: dict) -> list[str]:
    """What a script would do: tick what the goal names, then submit."""
    nodes = observation["axtree_object"]["nodes"]
    named = {
        (node["role"]["value"], node["name"]["value"]): node["browsergym_id"]
        for node in nodes
        if "browsergym_id" in node
    }
    wanted = re.sub(r"^Select | and click Submit\.$", "", observation["goal"]).split(", ")
    boxes = [named[("checkbox", name)] for name in wanted if ("checkbox", name) in named]
    return [f"click('{box}')" for box in [*boxes, named[("button", "Submit")]]]


def main() -> None:
    task, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    env = gymnasium.make(f"browsergym/miniwob.{task}", pw_chromium_kwargs={})
    steps = solved = episodes = 0
    resetting = 0.0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        at = time.perf_counter()
        observation, _ = env.reset(seed=seed + episodes)
        resetting += time.perf_counter() - at
        reward = 0.0
        for action in clicks(observation):
            _, reward, terminated, truncated, _ = env.step(action)
            steps += 1
            if terminated or truncated:
                break
        episodes += 1
        solved += reward > 0
    print(
        json.dumps(
            {
                "steps": steps,
                "episodes": episodes,
                "solved": solved,
                "seconds": time.perf_counter() - began,
                "resetting": resetting,
            }
        )
    )
    env.close()


if __name__ == "__main__":
    main()
