"""What all commands share: the class that parses them, and their common checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from palestra.cli.settings import split_settings
from palestra.config.run_format import format_error
from palestra.core.credentials import name_hosts
from palestra.core.errors import ConfigError, UserError
from palestra.core.extras import naming_extras

try:
    from typer import TyperException as CommandError
except ImportError:  # older versions of typer raise the errors of the package click
    from click import ClickException as CommandError  # type: ignore[assignment]

Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


@contextmanager
def pointing_to_help(ctx: Any) -> Iterator[None]:
    """Turn a mistake in the words of a command into one line, which names its help."""
    try:
        yield
    except CommandError as error:
        message = " ".join(error.format_message().replace("Value error, ", "").split())
        raise UserError(f"{message} (see: {ctx.command_path} --help)") from error


class Group(TyperGroup):
    """Commands below a name, such as `palestra env`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with pointing_to_help(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with pointing_to_help(ctx):
            return super().invoke(ctx)


class Command(TyperCommand):
    """A command whose mistakes are one line each. `ctx.obj` has its dotted settings."""

    takes_settings = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = {}
        if self.takes_settings:
            takes_value: dict[str, bool] = {}
            for param in self.get_params(ctx):
                # No class to ask for: in older versions of typer, --help is an option of click.
                if param.param_type_name == "option":
                    option: Any = param
                    takes_value |= dict.fromkeys(option.opts, not option.is_flag)
            args, ctx.obj = split_settings(args, takes_value)
        with pointing_to_help(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        name_hosts(ctx.params, ctx.obj)
        with naming_extras(ctx.command_path.removeprefix("palestra ")):
            return super().invoke(ctx)


class SettingsCommand(Command):
    """A command that takes any setting as a dotted flag: `--optim.lr 1e-6`."""

    takes_settings = True

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The command's own flags, and the settings, which its argument completes."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("--"):
            for param in self.params:
                if isinstance(param, TyperArgument):
                    found += param.shell_complete(ctx, incomplete)
        return found


def find_modules_here() -> None:
    """Let "my_module:MyEnv" name a class in the working folder.

    The folder comes last, so that no file in it replaces a package. Commands that only read do not
    call this: they may be run in a stranger's folder.
    """
    sys.path.append(os.getcwd())


def check_run_folder(run: Path) -> None:
    """Raise ConfigError if there is no run, before anything heavy is imported."""
    if not (run / "config.toml").is_file():
        raise ConfigError(f"{run}: there is no run in this folder (no config.toml)")
    check_run_format(run)


def check_run_format(run: Path) -> None:
    """Raise ConfigError where another version has written the run folder."""
    from palestra.runs.reader import read_config

    text, _, _ = read_config(run / "config.toml")
    if reason := format_error(text):
        raise ConfigError(f"{run}: {reason}")
