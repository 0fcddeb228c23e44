"""Converts a browser's accessibility nodes to lines of text, with ids for interactive elements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Node = Mapping[str, Any]
"""An AXNode of Chrome's protocol."""

INTERACTIVE = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "listbox",
    "checkbox",
    "radio",
    "switch",
    "slider",
    "spinbutton",
    "option",
    "menuitem",
    "menuitemcheckbox",
    "menuitemradio",
    "tab",
    "treeitem",
    "DisclosureTriangle",
    "PopUpButton",
    "Date",
    "DateTime",
    "InputTime",
    "ColorWell",
    "textarea",
    "Video",
    "Audio",
    "gridcell",
}
SKIPPED = {"InlineTextBox", "LineBreak", "ListMarker", "MenuListPopup", "RootWebArea", "Iframe"}
"""Roles that are replaced by their children, if any."""
UNNAMED_SHOWN = {"dialog", "alertdialog", "alert"}
OPTIONS_SHOWN = 30
LONGEST_NAME = 300
LONGEST_TEXT = 2000
NAMED_BY_CONTENT = {
    "button",
    "link",
    "heading",
    "row",
    "cell",
    "gridcell",
    "option",
    "tab",
    "menuitem",
    "menuitemcheckbox",
    "menuitemradio",
    "treeitem",
    "checkbox",
    "radio",
    "switch",
    "columnheader",
    "rowheader",
    "LayoutTableCell",
    "LayoutTableRow",
    "DisclosureTriangle",
    "tooltip",
}
"""Text below them is in their names already."""
FIELDS = {"textbox", "searchbox", "spinbutton", "textarea", "Date", "DateTime", "InputTime"}
"""Roles whose content is their value."""
SHORT_ROLES = {
    "DisclosureTriangle": "button",
    "PopUpButton": "combobox",
    "InputTime": "textbox",
    "Date": "textbox",
    "DateTime": "textbox",
}
_ICON = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Element:
    """A line of the tree."""

    role: str
    """"text" for plain text."""
    name: str
    depth: int = 0
    id: int = 0
    """The id in actions; 0 for an element that is not interactive."""
    value: str = ""
    states: tuple[str, ...] = ()
    """Such as checked, disabled or focused."""
    options: tuple[str, ...] = ()
    """What a combobox offers."""
    node: int = field(default=0, compare=False)
    """The browser's own number of it."""

    def __str__(self) -> str:
        parts = [f"[{self.id}]"] if self.id else []
        if self.role != "text":
            parts.append(self.role)
        if self.name:
            parts.append(self.name if self.role == "text" else f'"{self.name}"')
        if self.value:
            parts.append(f'value="{self.value}"')
        parts += self.states
        if self.options:
            shown = ", ".join(f'"{option}"' for option in self.options[:OPTIONS_SHOWN])
            more = len(self.options) - OPTIONS_SHOWN
            parts.append(f"options: {shown}" + (f" and {more} more" if more > 0 else ""))
        return " " * self.depth + " ".join(parts)


class Numbers:
    """Assigns small ids to elements in the order in which they are first seen. An element keeps its
    id as long as its document exists.
    """

    def __init__(self) -> None:
        self._document = 0
        self._of: dict[int, int] = {}
        self._nodes: dict[int, int] = {}

    def begin(self, document: int) -> None:
        """Another document: numbers begin at 1 again."""
        if document != self._document:
            self._document, self._of, self._nodes = document, {}, {}

    def give(self, node: int) -> int:
        number = self._of.setdefault(node, len(self._of) + 1)
        self._nodes[number] = node
        return number

    def node(self, number: int) -> int | None:
        """The browser's number of an element."""
        return self._nodes.get(number)


def elements(nodes: Sequence[Node], *, number_all: bool = False) -> list[Element]:
    """The elements to show, in the order of the page.

    Interactive elements have the placeholder id -1, which `numbered` replaces.
    """
    by_id = {node["nodeId"]: node for node in nodes}
    if not nodes:
        return []
    walk = _Walk(by_id, number_all)
    lines: list[Element] = []
    for node in nodes:
        if node.get("parentId") not in by_id:
            lines += walk.of(node)
    return _without_labels(lines)


def numbered(shown: Sequence[Element], numbers: Numbers) -> list[Element]:
    return [
        replace(element, id=numbers.give(element.node)) if element.id else element
        for element in shown
    ]


def written(shown: Sequence[Element], max_chars: int) -> tuple[str, int]:
    """The lines as text, and how many did not fit."""
    lines: list[str] = []
    size = 0
    for element in shown:
        line = str(element)
        size += len(line) + 1
        if size > max_chars:
            break
        lines.append(line)
    return "\n".join(lines), len(shown) - len(lines)


class _Walk:
    def __init__(self, by_id: Mapping[str, Node], number_all: bool) -> None:
        self._by_id, self._number_all = by_id, number_all

    def of(self, root: Node) -> list[Element]:
        """The lines of a node and its descendants.

        Iterative, because a deeply nested page would exceed the recursion limit.
        """
        lines: list[Element] = []
        stack: list[tuple[Node, int, str] | _Fold] = [(root, 0, "")]
        while stack:
            item = stack.pop()
            if isinstance(item, _Fold):
                item.fold(lines)
                continue
            node, depth, within = item
            own = None if node.get("ignored") else self._line(node, depth, within)
            below, heard = depth, within
            if own is not None:
                _append(lines, own)
                role = _text(node, "role")
                if own.options or role in FIELDS or role == "StaticText":
                    continue
                below, heard = min(depth + 1, 20), own.name if role in NAMED_BY_CONTENT else within
                stack.append(_Fold(len(lines) - 1))
            stack += [(child, below, heard) for child in reversed(self._children(node))]
        return lines

    def _children(self, node: Node) -> list[Node]:
        return [self._by_id[child] for child in node.get("childIds", ()) if child in self._by_id]

    def _line(self, node: Node, depth: int, within: str) -> Element | None:
        """The node's own line, or None if its children replace it.

        `within`: the name of the enclosing element.
        """
        role = _text(node, "role")
        number = node.get("backendDOMNodeId", 0)
        name = _clean(_text(node, "name"), LONGEST_TEXT if role == "StaticText" else LONGEST_NAME)
        if role == "StaticText":
            if not name or name in within:
                return None
            text_id = -1 if self._number_all and number else 0
            return Element("text", name, depth, text_id, node=number)
        properties = {
            entry["name"]: entry["value"].get("value") for entry in node.get("properties", ())
        }
        is_editor = properties.get("editable") == "richtext" and properties.get("focusable")
        if is_editor and role in ("generic", "paragraph", "none", "Section"):
            role = "textbox"
        acts = role in INTERACTIVE and (role != "gridcell" or bool(properties.get("focusable")))
        if role in SKIPPED or not (acts or name or role in UNNAMED_SHOWN):
            return None
        is_plain = role in ("generic", "none", "paragraph", "LabelText", "image", "img")
        if not acts and is_plain and name in within:
            return None
        value = _clean(_text(node, "value"), LONGEST_TEXT) if role not in ("link", "option") else ""
        options = self._options(node) if role in ("combobox", "PopUpButton") else ()
        shown_number = -1 if acts or (self._number_all and number) else 0
        return Element(
            SHORT_ROLES.get(role, role),
            name,
            depth,
            shown_number,
            value,
            _states(properties),
            options,
            number,
        )

    def _options(self, node: Node) -> tuple[str, ...]:
        """The options of a closed native list. Those of an open one have lines of their own."""
        options: list[str] = []
        for popup in self._children(node):
            if _text(popup, "role") == "MenuListPopup":
                options += [_clean(_text(option, "name")) for option in self._children(popup)]
        return tuple(options)


@dataclass(frozen=True, slots=True)
class _Fold:
    """Merges an element with its only child if their names are equal: a heading that only contains
    a link becomes the link, and a tab that only contains a link stays the tab.
    """

    at: int

    def fold(self, lines: list[Element]) -> None:
        own = lines[self.at]
        if own.name and len(lines) == self.at + 2 and lines[-1].name == own.name:
            child = lines.pop()
            if own.role not in INTERACTIVE:
                lines[self.at] = replace(child, depth=own.depth)


def _append(lines: list[Element], line: Element) -> None:
    """Append a line. Consecutive texts at one depth become one line."""
    last = lines[-1] if lines else None
    is_text = line.role == "text" and not line.id
    if last is not None and last.role == "text" and is_text and last.depth == line.depth:
        lines[-1] = replace(last, name=f"{last.name} {line.name}")
    else:
        lines.append(line)


def _without_labels(lines: list[Element]) -> list[Element]:
    """Drop texts that only repeat the name of the field before or after them."""
    kept = []
    for at, line in enumerate(lines):
        neighbors = [*lines[max(at - 1, 0) : at], *lines[at + 1 : at + 2]]
        is_label = line.role == "text" and any(_is_named(other, line.name) for other in neighbors)
        if not is_label:
            kept.append(line)
    return kept


def _is_named(line: Element, name: str) -> bool:
    """Whether this is an interactive element with that name."""
    return bool(line.id) and line.role != "text" and _bare(line.name) == _bare(name)


def _bare(name: str) -> str:
    return name.rstrip(":* ")


_STATES: dict[str, Callable[[Any], str]] = {
    "disabled": lambda value: "disabled" if value is True else "",
    "checked": lambda value: {"true": "checked", "mixed": "mixed"}.get(
        str(value).lower(), "unchecked"
    ),
    "pressed": lambda value: "pressed" if str(value).lower() == "true" else "",
    "selected": lambda value: "selected" if value is True else "",
    "expanded": lambda value: "expanded" if value is True else "collapsed",
    "required": lambda value: "required" if value is True else "",
    "readonly": lambda value: "readonly" if value is True else "",
    "focused": lambda value: "focused" if value is True else "",
}


def _states(properties: Mapping[str, Any]) -> tuple[str, ...]:
    said = (say(properties[name]) for name, say in _STATES.items() if name in properties)
    return tuple(state for state in said if state)


def _text(node: Node, key: str) -> str:
    return str(node.get(key, {}).get("value", ""))


def _clean(text: str, longest: int = LONGEST_NAME) -> str:
    text = _SPACE.sub(" ", _ICON.sub("", text)).strip()
    return text if len(text) <= longest else f"{text[:longest]}..."
