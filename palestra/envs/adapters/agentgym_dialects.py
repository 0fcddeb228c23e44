"""The protocol between AgentGym's servers and clients: one row per environment, used by both sides.

Success is defined as in AgentGym's evaluator: the reward of an episode's last step is 1 (for
SciWorld: a score of 100). BabyAI's reward decreases with time, but its servers only end an episode
at a success.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields of POST /create, /reset and /step, and the meaning of rewards."""

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
    """Answers include the score so far, in addition to the reward."""
    full_score: float = 1.0
    rewards: Literal["highest", "last", "final", "score", "each"] = "highest"
    """What an episode is worth so far: the highest reward (some servers repeat it), the last one,
    that of the step which ends the episode and no other, the last score, or the sum of all rewards.
    """
    solved_at: float = 1.0
    """An episode is solved if its last step's reward (for "score": the score divided by
    `full_score`) is at least this.
    """
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of /reset."""
    action: Literal["alone", "labeled", "tagged", "block"] = "alone"
    """The format of actions in /step: alone, after `Action:`, as a tag such as
    `<search>words</search>`, or between triple backticks.
    """
    observes_first: bool = False
    """What /reset answers lacks the goal: the first observation is that of GET /observation."""


_TOOLS = Dialect("env_idx", "id", created="number", begun="text", rewards="last", action="labeled")

GENERIC = Dialect("env_idx", "id", created="number", begun="text")
"""The dialect of environments that AgentGym does not have."""

DIALECTS: Mapping[str, Dialect] = {
    "textcraft": Dialect("id", created="begun"),
    # The reward is 1 - 0.9 t/T at success, once, and 0 otherwise.
    "babyai": Dialect("id", has_score=True, solved_at=0.01),
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
    """The action in a model's reply, extracted as by AgentGym's server. None if the reply is not in
    the dialect's format.
    """
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
