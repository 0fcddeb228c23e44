"""How a model writes an action, and how it is parsed: strict, except for whitespace."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NamedTuple

from palestra.core.registry import Registry


class Parsed(NamedTuple):
    """Either an action, or what is wrong with the reply."""

    action: str | None
    error: str = ""


class Format(ABC):
    """A grammar for replies. `parse(write(thought, action))` gives the action back."""

    instructions: str
    """The instructions for the agent."""
    is_self_evident: bool = False
    """Whether they can be left out if the environment has no instructions of its own."""

    @abstractmethod
    def parse(self, reply: str) -> Parsed: ...

    @abstractmethod
    def write(self, thought: str, action: str) -> str: ...


class ReAct(Format):
    """`Thought: ...` and then `Action: ...`, once each (arXiv:2210.03629)."""

    _form = "Thought: why the next action is a good one\nAction: the action"
    instructions = (
        f"Answer every observation with one thought and one action, in exactly this form:\n{_form}"
    )
    _action_label = re.compile(r"^[ \t]*Action[ \t]*:[ \t]*", re.MULTILINE)

    def parse(self, reply: str) -> Parsed:
        labels = list(self._action_label.finditer(reply))
        if not labels:
            return Parsed(
                None,
                "There was no line that begins with 'Action:'. Answer in exactly this "
                f"form:\n{self._form}",
            )
        if len(labels) > 1:
            return Parsed(
                None,
                f"Expected exactly one 'Action:'; there were {len(labels)}. Give one "
                "action at a time.",
            )
        action = reply[labels[0].end() :].strip()
        if not action:
            return Parsed(None, "Expected an action after 'Action:'; there was nothing.")
        if "\n" in action:
            return Parsed(None, "Expected one line after 'Action:'; there were more.")
        return Parsed(action)

    def write(self, thought: str, action: str) -> str:
        if not thought.strip():
            return f"Action: {action}"
        return f"Thought: {' '.join(thought.split())}\nAction: {action}"


class Plain(Format):
    """The reply is the action."""

    is_self_evident = True
    instructions = "Answer every observation with one action and nothing else."

    def parse(self, reply: str) -> Parsed:
        action = reply.strip()
        if not action:
            return Parsed(None, "Expected an action; the reply was empty.")
        return Parsed(action)

    def write(self, thought: str, action: str) -> str:
        return action


class Tags(Format):
    """`<think>...</think>` and then the action as a tag: `search[words]` is written
    `<search>words</search>` (arXiv:2503.09516).

    An action of any other form is written in `<action>`.
    """

    instructions = (
        "Answer every observation with one thought and one action, in exactly this form:\n"
        "<think>why the next action is a good one</think>\n"
        "<name>argument</name>\n"
        "where the tag is the name of the action: search[words] is written "
        "<search>words</search>. An action without brackets is "
        "written <action>the action</action>."
    )
    _thought = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
    _opening = re.compile(r"<([a-z_]+)>")
    _named = re.compile(r"([a-z_]+)\[((?!\s).*(?<!\s)|)\]", re.DOTALL)
    _reserved = ("think", "information", "action")

    def parse(self, reply: str) -> Parsed:
        thought = self._thought.match(reply)
        rest = reply[thought.end() :] if thought else reply
        opening = self._opening.search(rest)
        if opening is None or opening[1] in self._reserved[:2]:
            found = f"there was <{opening[1]}>" if opening else "there was no tag"
            return Parsed(
                None,
                "Expected <think>...</think> and then one action as a tag, such as "
                f"<search>words</search>; {found}.",
            )
        name, closing = opening[1], f"</{opening[1]}>"
        argument, found_end, after = rest[opening.end() :].partition(closing)
        if not found_end:
            return Parsed(None, f"Expected {closing} at the end of the action; there was none.")
        if after.strip():
            return Parsed(
                None,
                f"Expected nothing after {closing}; there was more. Give one action at a "
                "time and wait for its result.",
            )
        argument = argument.strip()
        if name != "action":
            return Parsed(f"{name}[{argument}]")
        if not argument:
            return Parsed(None, "Expected an action in <action>; there was nothing.")
        return Parsed(argument)

    def write(self, thought: str, action: str) -> str:
        named = self._named.fullmatch(action)
        if named is not None and named[1] not in self._reserved:
            tagged = f"<{named[1]}>{named[2]}</{named[1]}>"
        else:
            tagged = f"<action>{action}</action>"
        if not thought.strip():
            return tagged
        return f"<think>{' '.join(thought.split())}</think>\n{tagged}"


class Block(Format):
    """Any text, and then the action in three backticks: ```click [12]``` (arXiv:2307.13854)."""

    instructions = (
        "Answer every observation with what you think and one action, in exactly this form:\n"
        "Let's think step by step. Why the next action is a good one. In summary, the "
        "next action I will perform is ```the action```"
    )
    _block = re.compile(r"```(.*?)```", re.DOTALL)

    def parse(self, reply: str) -> Parsed:
        blocks = self._block.findall(reply)
        if len(blocks) != 1:
            found = f"there were {len(blocks)}" if blocks else "there was none"
            return Parsed(None, f"Expected exactly one action between ``` and ```; {found}.")
        action = blocks[0].strip()
        if not action:
            return Parsed(None, "Expected an action between ``` and ```; there was nothing.")
        return Parsed(action)

    def write(self, thought: str, action: str) -> str:
        why = f"Let's think step by step. {' '.join(thought.split())} " if thought.strip() else ""
        return f"{why}In summary, the next action I will perform is ```{action}```"


formats: Registry[type[Format]] = Registry(
    "formats",
    {
        "react": "palestra.core.action_formats:ReAct",
        "plain": "palestra.core.action_formats:Plain",
        "tags": "palestra.core.action_formats:Tags",
        "block": "palestra.core.action_formats:Block",
    },
    base="palestra.core.action_formats:Format",
)
