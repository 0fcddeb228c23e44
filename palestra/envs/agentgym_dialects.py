"""What AgentGym's environment servers and clients say to each other: one row for each environment, for both sides."""

from __future__ import annotations

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
    """/create answers with the bare number, with an object that has it, or with one that has the first observation too."""
    begun: Literal["object", "text", "pair"] = "object"
    """/reset answers with an object, with the observation alone, or with [observation, null]."""
    observation: str = "observation"
    end: str = "done"
    """The field of /step that is true at the end of the episode."""
    has_score: bool = False
    """Answers have the score so far beside the reward."""
    full_score: float = 1.0
    rewards: Literal["highest", "score", "each"] = "highest"
    """What an episode is worth: the highest reward (some servers repeat it), the last score, or the sum of all rewards."""
    solved_at: float = 1.0
    """At the end, the least that counts as solved, of what the last line names; for "each" of the last reward."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of /reset."""
    wants_label: bool = False
    """The server reads the action itself, out of a reply that says `Action: ...`."""


_TOOLS = Dialect("env_idx", "id", created="number", begun="text", wants_label=True)

GENERIC = Dialect("env_idx", "id", created="number", begun="text")
"""For environments that AgentGym does not have."""

DIALECTS: Mapping[str, Dialect] = {
    "textcraft": Dialect("id", created="begun"),
    "babyai": Dialect("id", has_score=True, solved_at=0.01),  # 1 - 0.9 t/T at success, once; 0 otherwise
    "sciworld": Dialect("id", has_score=True, rewards="score", full_score=100.0),
    "alfworld": Dialect("id", "game", more={"world_type": "Text"}),
    "maze": Dialect("id", "game", rewards="each", solved_at=0.0),  # -1 a move, 0 at the goal
    "wordle": Dialect("id", "seed", rewards="each", solved_at=0.0),
    "searchqa": GENERIC,
    "webarena": Dialect("env_idx", "idx", end="terminated", more={"seed": 0}),
    "webshop": Dialect("env_idx", "session_id", created="number", begun="pair", observation="state"),
    "sqlgym": Dialect("env_idx", "item_id", created="number", begun="pair", observation="state"),
    **dict.fromkeys(("weather", "movie", "academia", "todo", "sheet"), _TOOLS),
}
