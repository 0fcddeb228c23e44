"""How a model writes an action, and how that is read: strict in what counts, forgiving to whitespace."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NamedTuple

from palestra.registry import Registry


class Parsed(NamedTuple):
    """Either an action, or what was wrong with the reply."""

    action: str | None
    error: str = ""


class Format(ABC):
    """A grammar for replies. `parse(write(thought, action))` gives the action back."""

    instructions: str
    """What the agent is told about it."""
    is_self_evident: bool = False
    """An environment without instructions needs none for it either."""

    @abstractmethod
    def parse(self, reply: str) -> Parsed: ...

    @abstractmethod
    def write(self, thought: str, action: str) -> str: ...


class ReAct(Format):
    """`Thought: ...` and then `Action: ...`, once each (arXiv:2210.03629)."""

    instructions = (
        "Answer every observation with one thought and one action, in exactly this form:\n"
        "Thought: why the next action is a good one\n"
        "Action: the action"
    )
    _action_label = re.compile(r"^[ \t]*Action[ \t]*:[ \t]*", re.MULTILINE)

    def parse(self, reply: str) -> Parsed:
        labels = list(self._action_label.finditer(reply))
        if not labels:
            return Parsed(None, "Expected 'Thought: ...' and then 'Action: ...' on a line of its own; there was no 'Action:'.")
        if len(labels) > 1:
            return Parsed(None, f"Expected exactly one 'Action:'; there were {len(labels)}. Give one action at a time.")
        action = reply[labels[0].end() :].strip()
        if not action:
            return Parsed(None, "Expected an action after 'Action:'; there was nothing.")
        if "\n" in action:
            return Parsed(None, "Expected one line after 'Action:'; there were more.")
        return Parsed(action)

    def write(self, thought: str, action: str) -> str:
        return f"Thought: {' '.join(thought.split())}\nAction: {action}" if thought.strip() else f"Action: {action}"


class Plain(Format):
    """The reply is the action."""

    is_self_evident = True
    instructions = "Answer every observation with one action and nothing else."

    def parse(self, reply: str) -> Parsed:
        action = reply.strip()
        return Parsed(action) if action else Parsed(None, "Expected an action; the reply was empty.")

    def write(self, thought: str, action: str) -> str:
        return action


formats: Registry[type[Format]] = Registry("formats", {"react": "palestra.agents.formats:ReAct", "plain": "palestra.agents.formats:Plain"})
