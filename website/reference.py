"""The parts of reference pages that come from the code: `make reference` writes them.

They are committed, so that they can be read and linked to without a build. A test compares them
with the code. What comes before the mark in a page is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Any, get_args

import typer

from palestra.algos import algos
from palestra.algos.base import Algorithm
from palestra.algos.policy import PolicyGradient
from palestra.cli.command import SettingsCommand
from palestra.cli.main import app
from palestra.cli.settings import Setting, settings_of_class
from palestra.config.config import Config
from palestra.config.env import EnvSettings, Member
from palestra.config.model import models
from palestra.core.registry import Registry
from palestra.core.settings import Settings
from palestra.engines import engines
from palestra.horizons import horizons
from palestra.runs.metric_glossary import SECTIONS

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MARK = "<!-- What follows is made by `make reference`. -->\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown. A cell cannot have the sign that separates cells, not even as code:
    code hosts and the site's generator read its escape differently.
    """
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    for cells in lines:
        assert not [cell for cell in cells if "|" in cell], cells
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# settings


def settings_page() -> str:
    page = []
    page += ["## Run\n", *_of_class(Config, "", is_flat=True)]
    for name, field in Config.model_fields.items():
        if name in CHOICES:
            page += CHOICES[name]()
            continue
        kind = _settings_class(field.annotation)
        if kind is None:
            continue
        page += [f"## {name}\n"]
        page += [_sentence(field.description or kind.__doc__)]
        if kind is Member:
            shared = {
                setting.name.split(".")[1] for setting in settings_of_class(EnvSettings, "env")
            }
            own = [s for s in settings_of_class(Member, name) if s.name.split(".")[1] not in shared]
            page += ["Each `[[mixture]]` table has the settings of [env](#env), and these:\n"]
            page += [_rows(own)]
        else:
            page += _of_class(kind, name)
    return "\n".join(page)


def _settings_class(annotation: Any) -> type[Settings] | None:
    """The class of a field that holds a table, an optional table, or a list of them."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


def _of_class(kind: type[Settings], name: str, *, is_flat: bool = False) -> Iterator[str]:
    found = [s for s in settings_of_class(kind, name) if not is_flat or not s.table]
    yield _rows(found)


def _of_choices(name: str, registry: Registry[Any], key: str) -> Iterator[str]:
    yield f"## {name}\n"
    for choice in registry.names():
        kind = registry[choice]
        yield f'### {name}.{key} = "{choice}"\n'
        yield _sentence(kind.__doc__)
        yield _rows(s for s in settings_of_class(kind, name) if s.name != f"{name}.{key}")


def _of_algorithms() -> Iterator[str]:
    """Policy gradients share most settings: these stand in one table, and each algorithm's own
    table has the rest, and shared ones with another default.
    """
    kinds: dict[str, type[Algorithm]] = {name: algos[name] for name in algos.names()}
    policies = [name for name, kind in kinds.items() if issubclass(kind, PolicyGradient)]
    shared = [s for s in settings_of_class(PolicyGradient, "algo") if s.name != "algo.name"]
    yield "## algo\n"
    yield "The [guide](../guides/algorithms.md) compares the algorithms.\n"
    yield "### Settings of all policy gradients\n"
    yield f"For {', '.join(f'`{name}`' for name in policies)}.\n"
    yield _rows(shared)
    for name, kind in kinds.items():
        yield f'### algo.name = "{name}"\n'
        yield _sentence(kind.__doc__)
        own = [
            setting
            for setting in settings_of_class(kind, "algo")
            if setting not in shared and setting.name != "algo.name"
        ]
        if name in policies:
            yield "The settings of all policy gradients. Added, or with another default:\n"
        yield _rows(own) if own else "None.\n"


CHOICES: dict[str, Callable[[], Iterator[str]]] = {
    "algo": _of_algorithms,
    "engine": lambda: _of_choices("engine", engines, "name"),
    "horizon": lambda: _of_choices("horizon", horizons, "kind"),
    "model": lambda: _of_choices("model", models, "kind"),
}


def _sentence(docstring: str | None) -> str:
    """The first paragraph of a docstring, as a paragraph."""
    first = " ".join((docstring or "").split("\n\n")[0].split())
    return f"{fill(first, 100, break_long_words=False, break_on_hyphens=False)}\n" if first else ""


def _rows(settings: Iterable[Setting]) -> str:
    rows = []
    for setting in settings:
        kinds = "` or `".join(setting.type.split(" | "))
        rows.append(
            [
                f"`{setting.name}`",
                f"`{kinds}`",
                f"`{setting.default}`",
                setting.unit or "-",
                setting.meaning,
            ]
        )
    return table(["setting", "type", "default", "unit", "meaning"], rows) + "\n"


# the command line


def command_line_page() -> str:
    root = typer.main.get_command(app)
    page = []
    for path, command in _commands(root, ["palestra"]):
        page += _of_command(path, command)
    return "\n".join(page)


def _commands(group: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    for name, command in group.commands.items():
        yield [*path, name], command
        if hasattr(command, "commands"):
            yield from _commands(command, [*path, name])


def _help(command: Any) -> str:
    return " ".join((command.help or "").split())


def _of_command(path: list[str], command: Any) -> Iterator[str]:
    """A heading, the help, the usage, and a table of arguments and options."""
    yield f"## {' '.join(path)}\n"
    yield f"{_help(command)}\n"
    if hasattr(command, "commands"):
        return
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    usage = command.get_usage(context).removeprefix("Usage: ")
    settings = " [SETTINGS]" if isinstance(command, SettingsCommand) else ""
    yield f"```text\n{' '.join(usage.split())}{settings}\n```\n"
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            flag, meaning = record
            rows.append(
                [f"`{flag.replace('|', ', ')}`", meaning.replace("  ", " ").replace("<", "&lt;")]
            )
    if rows:
        yield table(["argument or option", "meaning"], rows) + "\n"


# metrics


def metrics_page() -> str:
    page = []
    for title, metrics in SECTIONS.items():
        rows = [[f"`{m.name}`", m.unit, m.meaning, m.healthy] for m in metrics]
        page += [f"## {title.replace('`', '')}\n"]
        page += [table(["metric", "unit", "meaning", "healthy"], rows) + "\n"]
    return "\n".join(page)


PAGES = {
    "settings.md": settings_page,
    "command-line.md": command_line_page,
    "metrics.md": metrics_page,
}


def with_reference(page: Path) -> str:
    """A page with its generated part as the code has it."""
    by_hand, mark, _ = page.read_text().partition(MARK)
    assert mark, f"{page}: expected the line {MARK.strip()}"
    return f"{by_hand}{MARK}\n{PAGES[page.name]()}"


if __name__ == "__main__":
    for name in PAGES:
        page = FOLDER / name
        page.write_text(with_reference(page))
