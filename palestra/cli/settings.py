"""Dotted settings on the command line: reading, listing and completing them."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from palestra.config.units import UNITS

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from palestra.config.config import Config
    from palestra.core.registry import Registry
    from palestra.core.settings import Settings


WIDE = 100
"""Columns of a terminal with room for a setting's meaning next to its type and default."""
LONGEST_DEFAULT = 40


def split_settings(words: list[str], flags: Mapping[str, bool]) -> tuple[list[str], dict[str, Any]]:
    """The words that are a command's own, and all other flags as settings.

    `flags`: the command's own, and whether each takes a value. `--optim.lr 1e-6 --agent.example` ->
    {"optim.lr": 1e-6, "agent.example": True}; hyphens may stand for underscores.
    """
    own: list[str] = []
    settings: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") or name in flags:
            own.append(word)
            if flags.get(name) and not equals and waiting:
                own.append(waiting.pop(0))
            continue
        if not equals:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        settings[name[2:].replace("-", "_")] = _value(value)
    return own, settings


def _value(text: str) -> Any:
    """A number, a list or a truth value as TOML writes it; anything else is text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


class Setting(NamedTuple):
    """One line of the list of settings."""

    table: str
    """"" for what stands in no table."""
    is_set: bool
    """Whether the table is there: an optional one may not be."""
    name: str
    """With its table: `optim.lr`."""
    type: str
    default: str
    unit: str
    """"" for what is no number."""
    meaning: str


def settings_of(config: Config) -> Iterator[Setting]:
    """Every setting there is under the choices of this configuration, with the value it has."""
    yield from _settings_of(type(config), config, "")


def settings_of_class(kind: type[Settings], table: str = "") -> Iterator[Setting]:
    """Every setting of a table that a class describes, with its own default."""
    yield from _settings_of(kind, None, table)


def _settings_of(kind: type[Settings], values: Settings | None, table: str) -> Iterator[Setting]:
    """Those of one table first, then those of the tables in it.

    `values` is None where the table is not set: its settings then have their own defaults.
    """
    inner: list[tuple[type[Settings], Settings | None, str]] = []
    for name, field in kind.model_fields.items():
        dotted = f"{table}.{name}" if table else name
        is_required = values is None and field.is_required()
        own_default = field.get_default(call_default_factory=True)
        value = own_default if values is None else getattr(values, name)
        table_kind = None if is_required else _table_kind(field, value)
        if table_kind is None:
            optional = " | none"
            type_name = _type_text(field.annotation)
            limits = _limits(field.metadata)
            if limits and type_name.endswith(optional):
                type_name, limits = type_name.removesuffix(optional), limits + optional
            default = "required" if is_required else _value_text(value)
            type_name += limits
            meaning = _meaning(kind, name, table)
            unit = UNITS.get(dotted, "")
            yield Setting(table, values is not None, dotted, type_name, default, unit, meaning)
        else:
            inner.append((table_kind, value, dotted))
    for table_kind, value, dotted in inner:
        yield from _settings_of(table_kind, value, dotted)


def _meaning(kind: type[Settings], name: str, table: str) -> str:
    """A field that a class only gives another default means what it means in its base."""
    from palestra.algos import algos
    from palestra.config.config import CHOICES
    from palestra.config.model import models
    from palestra.engines import engines
    from palestra.horizons import horizons

    registries: dict[str, Registry[Any]] = {
        "algo": algos,
        "engine": engines,
        "horizon": horizons,
        "model": models,
    }
    if table in registries and CHOICES[table] == name:
        return f"One of {', '.join(registries[table].names())}; or a class as module:Class."
    for base in kind.__mro__:
        field = getattr(base, "model_fields", {}).get(name)
        if field is not None and field.description:
            return " ".join(field.description.split())
    return ""


def _table_kind(field: FieldInfo, value: Any) -> type[Settings] | None:
    """The class of the table that a field holds, or would hold; None where it is no table."""
    from palestra.core.settings import Settings

    if isinstance(value, Settings):
        return type(value)
    if value is not None:
        return None
    for kind in get_args(field.annotation):
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


def _value_text(value: Any) -> str:
    """As it is written on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_value_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value_text(item)}" for key, item in value.items()) + "}"
    return str(value) or '""'


def _type_text(annotation: Any) -> str:
    """As a person would say it: `int > 0`, `cpu | cuda`, `list of str`."""
    from palestra.core.settings import Settings

    arguments = get_args(annotation)
    origin = get_origin(annotation) or annotation
    if origin is Annotated:
        return _type_text(arguments[0]) + _limits(arguments[1:])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, UnionType):
        return " | ".join(map(_type_text, arguments))
    if origin in (tuple, list):
        return f"list of {_type_text(arguments[0])}"
    if origin is NoneType:
        return "none"
    if origin is dict or (isinstance(origin, type) and issubclass(origin, Settings)):
        return "table"
    return origin.__name__ if isinstance(origin, type) else str(origin)


def _limits(metadata: Iterable[Any]) -> str:
    """The bounds of a number, from pydantic's annotations."""
    found = []
    for note in metadata:
        for attribute, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
            limit = getattr(note, attribute, None)
            if limit is not None:
                found.append(f" {sign} {limit:g}")
    return ",".join(found)


def print_settings(config: Config) -> None:
    """Flag, type, default and meaning of each setting, table by table.

    The meaning stands below the rest where the terminal is narrow.
    """
    from rich.padding import Padding
    from rich.table import Table

    from palestra.core.printing import plain_console

    console = plain_console()
    by_table = groupby(settings_of(config), key=lambda setting: (setting.table, setting.is_set))
    for (table, is_set), settings in by_table:
        heading = f"[{table}]" if table else "(top level)"
        console.print(f"\n{heading}{'' if is_set else '  not set'}", style="bold")
        shown = Table(box=None, pad_edge=False, show_header=False)
        shown.add_column(no_wrap=True)
        shown.add_column(overflow="fold", max_width=20)
        shown.add_column(overflow="fold", max_width=20)
        shown.add_column(overflow="fold")
        for setting in settings:
            default = shorten(setting.default, LONGEST_DEFAULT, placeholder=" ...")
            flag = f"--{setting.name}"
            if console.width >= WIDE:
                shown.add_row(flag, setting.type, default, setting.meaning)
            else:
                console.print(f"{flag}  {setting.type}  (default: {default})", soft_wrap=True)
                console.print(Padding(setting.meaning, (0, 0, 0, 4)))
        if console.width >= WIDE:
            console.print(shown)


# completion


def complete_recipe(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """Recipes and folders on the way to them; for the beginning of a flag, settings."""
    if incomplete.startswith("--"):
        return list(_matching_settings(ctx, incomplete))
    from palestra.config.config import shipped_recipes

    names = [name for name in sorted(shipped_recipes()) if name.startswith(incomplete)]
    return [
        *((name, "a shipped recipe") for name in names),
        *_matching_paths(incomplete, recipes=True),
    ]


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """Run folders, and folders on the way to them."""
    return _matching_paths(incomplete, recipes=False)


def _matching_paths(incomplete: str, *, recipes: bool) -> list[tuple[str, str]]:
    """A folder that is the only choice is looked into: a shell would end the word after it."""
    beginning = incomplete.rpartition("/")[2]
    folder = incomplete.removesuffix(beginning)
    found = []
    for path in sorted(Path(folder or ".").glob("*")):
        if not path.name.startswith(beginning) or path.name.startswith("."):
            continue
        if (path / "config.toml").is_file():
            found.append((f"{folder}{path.name}", "a run"))
        elif path.is_dir():
            found.append((f"{folder}{path.name}/", "a folder"))
        elif recipes and path.suffix == ".toml":
            found.append((f"{folder}{path.name}", "a recipe"))
    if len(found) == 1 and found[0][0].endswith("/"):
        return _matching_paths(found[0][0], recipes=recipes) or found
    return found


def _matching_settings(ctx: Any, incomplete: str) -> Iterator[tuple[str, str]]:
    """Those of the recipe on the command line; of the defaults where it cannot be read."""
    from palestra.config import config as configs
    from palestra.core.errors import UserError

    logging.disable()  # nothing but completions may reach the terminal
    config = configs.Config()
    recipe = next(iter(ctx.params.values()), None)
    if isinstance(recipe, str | Path):
        with suppress(UserError):
            config = configs.load(recipe, ctx.obj)
    for setting in settings_of(config):
        if f"--{setting.name}".startswith(incomplete):
            yield f"--{setting.name}", setting.meaning
