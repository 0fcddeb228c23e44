"""`palestra web ...`: start, stop and look at the self-hosted sites of the package palestra-web."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from palestra.cli.command import Command, Group, Json
from palestra.core.printing import print_json, print_table
from palestra.core.tables import Table

if TYPE_CHECKING:
    from palestra.envs.web.suite import RunningSuite, SiteSuite

app = typer.Typer(cls=Group, help="The self-hosted sites that the environment web plays on.")


@app.command("up", cls=Command)
def up(
    only: Annotated[
        str | None, typer.Option(metavar="SITE,...", help="some of them (default: all)")
    ] = None,
) -> None:
    """Start the sites; the first time they are installed and seeded."""
    wanted = only.split(",") if only else []
    _print_sites(_suite().up(wanted, _tell))


@app.command("down", cls=Command)
def down() -> None:
    """Stop them all."""
    stopped = _suite().down()
    print(f"stopped: {', '.join(stopped)}" if stopped else "no sites are up")


@app.command("status", cls=Command)
def status(as_json: Json = False) -> None:
    """Which are up."""
    running = _suite().status()
    if as_json:
        print_json(running)
    elif running is None:
        print("no sites are up; start them: palestra web up")
    else:
        _print_sites(running)
        print(f"{running.instances} instances, supervisor {running.pid}")


def _tell(line: str) -> None:
    """Print in a single write, since sites are installed in parallel."""
    sys.stderr.write(f"{line}\n")


def _suite() -> SiteSuite:
    from palestra.envs.web.suite import suites

    return suites["web"]()


def _print_sites(running: RunningSuite) -> None:
    rows: list[list[str]] = []
    for name, site in running.sites.items():
        local = f"http://127.0.0.1:{site.port}/"
        rows.append([name, site.url, local, f"{site.start_seconds:.1f}", site.about])
    columns = ["site", "in the environment", "in your browser", "seconds", ""]
    print_table(Table(columns, rows))
