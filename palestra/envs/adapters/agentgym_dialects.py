"""What AgentGym's servers and clients say to each other: one row for each environment, for both
sides.

Success is what AgentGym's evaluator calls so: the reward of an episode's last step is 1 (of
SciWorld's points: 100). BabyAI's is less, the later the success, but its servers end an episode at
a success only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields of POST /create, /reset and /step, and what a reward means there."""

    session: Literal["id", "env_idx"]
    """The field that names a session."""
    task: str = "data_idx"
    """The field of /reset that names a task by its number."""
    created: Literal["number", "object", "begun"] = "object"
    """/create answers with the bare number, with an object that has it, or with one that has the
    first observation too.
    """
    begun: Literal["object", "text", "pair"] = "object"
    """/reset answers with an object, with the observation alone, or with [observation, null]."""
    observation: str = "observation"
    end: str = "done"
    """The field of /step that is true at the end of the episode."""
    has_score: bool = False
    """Answers have the score so far beside the reward."""
    full_score: float = 1.0
    rewards: Literal["highest", "last", "final", "score", "each"] = "highest"
    """What an episode is worth so far: the highest reward (some servers repeat it), the last one,
    that of the step which ends the episode and no other, the last score, or the sum of all rewards.
    """
    solved_at: float = 1.0
    """An episode is solved where the reward of the step that ends it (for "score": the score's
    share of `full_score`) is at least this."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of /reset."""
    action: Literal["alone", "labeled", "tagged", "block"] = "alone"
    """How /step wants the action: alone, after `Action:`, as a tag such as
    `<search>words</search>`, or between three backticks."""
    observes_first: bool = False
    """What /reset answers lacks the goal: the first observation is that of GET /observation."""


_TOOLS = Dialect("env_idx", "id", created="number", begun="text", rewards="last", action="labeled")

GENERIC = Dialect("env_idx", "id", created="number", begun="text")
"""For environments that AgentGym does not have."""

DIALECTS: Mapping[str, Dialect] = {
    "textcraft": Dialect("id", created="begun"),
    "babyai": Dialect(
        "id", has_score=True, solved_at=0.01
    ),  # 1 - 0.9 t/T at success, once; 0 otherwise
    "sciworld": Dialect("id", has_score=True, rewards="score", full_score=100.0),
    "alfworld": Dialect("id", "game", more={"world_type": "Text"}),
    # 1 at the goal; 0 for any other move; -1 for the one after the 50th, which ends the game
    "maze": Dialect("id", "game", rewards="each"),
    # 1 for the word, 0 for any other guess, the sixth among them, which ends the game
    "wordle": Dialect("id", "seed", rewards="each"),
    "searchqa": Dialect("env_idx", "id", created="number", begun="text", action="tagged"),
    # Before the end, the reward says whether the browser could do the action, not how the task
    # stands.
    "webarena": Dialect(
        "env_idx",
        "idx",
        end="terminated",
        rewards="final",
        more={"seed": 0},
        action="block",
        observes_first=True,
    ),
    "webshop": Dialect(
        "env_idx", "session_id", created="number", begun="pair", observation="state"
    ),
    "sqlgym": Dialect("env_idx", "item_id", created="number", begun="pair", observation="state"),
    **dict.fromkeys(("weather", "movie", "academia", "todo", "sheet"), _TOOLS),
}

SERVED: Mapping[str, Dialect] = {
    **DIALECTS,
    "search": DIALECTS["searchqa"],
    "web": DIALECTS["webarena"],
    "miniwob": DIALECTS["webarena"],
}
"""By the names of our environments: which of AgentGym's clients play them."""

_SEARCH_OR_ANSWER = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_WRITTEN = re.compile(r"(search|answer)\[(.*)\]", re.DOTALL)
_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)
_BARE = {"stop": "stop []", "scroll down": "scroll [down]", "scroll up": "scroll [up]"}
"""What their server takes without brackets, and our environments take with them."""


def write_action(dialect: Dialect, action: str) -> str:
    """An agent's action as their server reads it; one that is written so already stays as it is."""
    if dialect.action == "labeled" and "Action:" not in action:
        return f"Action: {action}"
    if dialect.action == "block" and "```" not in action:
        return f"```{action}```"
    if dialect.action == "tagged" and (named := _WRITTEN.fullmatch(action.strip())):
        return f"<{named[1]}>{named[2]}</{named[1]}>"
    return action


def find_action(dialect: Dialect, reply: str) -> str | None:
    """The action in what a model wrote, found as their server finds it; None where it is not
    written in the dialect's own way."""
    if dialect.action == "block":
        block = _BLOCK.search(reply)
        return None if block is None else _BARE.get(block[1].strip(), block[1].strip())
    if dialect.action == "tagged":
        tag = _SEARCH_OR_ANSWER.search(reply)
        if tag is None:
            return None
        # The first tag says what is done; of several answers the last one counts.
        argument = tag[2] if tag[1] == "search" else _ANSWER.findall(reply)[-1]
        return f"{tag[1]}[{argument.strip()}]"
    return None
