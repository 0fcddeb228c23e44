"""`palestra ...`: finds the command, runs it and turns what goes wrong into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from palestra.cli import (
    doctor,
    env,
    evaluate,
    explain,
    init,
    model,
    plan,
    play,
    recipes,
    replay,
    report,
    search,
    serve,
    train,
    view,
    web,
)
from palestra.cli.command import Command, CommandError, Group, SettingsCommand
from palestra.core.credentials import hidden
from palestra.core.errors import UserError
from palestra.core.interrupts import Interrupted, end_in_time
from palestra.core.untrusted import terminal_safe
from palestra.core.version import __version__
from palestra.envs.serving.watchdog import watchdog

COMPLETE = "_PALESTRA_COMPLETE"
"""Set by the shell's completion script when it asks what could come next."""

app = typer.Typer(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"palestra {__version__}")
        raise typer.Exit


@app.callback()
def _palestra(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Train LLM agents for long-horizon, multi-turn decision making by reinforcement learning."""


app.command("train", cls=SettingsCommand, add_help_option=False)(train.train)
app.command("init", cls=Command)(init.init)
app.command("recipes", cls=Command)(recipes.recipes)
app.command("explain", cls=SettingsCommand)(explain.explain)
app.command("eval", cls=SettingsCommand)(evaluate.evaluate)
app.command("replay", cls=Command)(replay.replay)
app.command("view", cls=Command)(view.view)
app.command("play", cls=SettingsCommand)(play.play)
app.command("report", cls=Command)(report.report)
app.command("doctor", cls=SettingsCommand)(doctor.doctor)
app.command("plan", cls=SettingsCommand)(plan.plan)
env.app.command("serve", cls=SettingsCommand)(serve.serve)
app.add_typer(env.app, name="env")
app.add_typer(web.app, name="web")
app.add_typer(search.app, name="search")
app.add_typer(model.app, name="model")


def main(arguments: Sequence[str] | None = None) -> None:
    """`arguments`: in place of the program's own, for a caller that continues afterwards."""
    if arguments is not None:
        return _run(arguments)
    if COMPLETE in os.environ:
        return app(prog_name="palestra")
    watchdog.is_wanted = True
    code = 1
    try:
        _run(sys.argv[1:])
        code = 0
    except SystemExit as end:
        if isinstance(end.code, int):
            code = end.code
        elif end.code is None:
            code = 0
        raise
    finally:
        end_in_time(code)


def _run(arguments: Sequence[str]) -> None:
    group = typer.main.get_command(app)
    try:
        with group.make_context("palestra", list(arguments)) as context:
            group.invoke(context)
    except typer.Exit as end:
        raise SystemExit(end.exit_code) from None
    except CommandError as error:
        _fail(error.format_message())
    except UserError as error:
        _fail(str(error))
    except Interrupted as interrupted:
        raise SystemExit(interrupted.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None


def _fail(message: str) -> NoReturn:
    """Print an error and exit. The message may have a stranger's text, so control characters are
    replaced.
    """
    lines = f"palestra: {hidden(message)}".split("\n")
    print("\n".join(map(terminal_safe, lines)), file=sys.stderr)
    raise SystemExit(2)
