"""`palestra web ...`: start, stop and look at the self-hosted sites of the package palestra-web."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from palestra.printing import print_json, print_table

if TYPE_CHECKING:
    from palestra.envs.web.suite import RunningSuite, SiteSuite


def add(commands: Any, parser_class: type[argparse.ArgumentParser]) -> None:
    web = commands.add_parser(
        "web", help="the self-hosted sites that the environment web plays on", allow_abbrev=False
    )
    verbs = web.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=parser_class
    )
    start = verbs.add_parser(
        "up",
        help="start the sites; the first time they are installed and seeded",
        allow_abbrev=False,
    )
    start.add_argument("--only", metavar="SITE,...", help="some of them (default: all)")
    start.set_defaults(run=up, takes_settings=False)
    stop = verbs.add_parser("down", help="stop them all")
    stop.set_defaults(run=down, takes_settings=False)
    state = verbs.add_parser("status", help="which are up")
    state.add_argument("--json", action="store_true")
    state.set_defaults(run=status, takes_settings=False)


def up(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    wanted = known.only.split(",") if known.only else []
    _print_sites(_suite().up(wanted, _tell))


def down(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    stopped = _suite().down()
    print(f"stopped: {', '.join(stopped)}" if stopped else "no sites are up")


def status(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    running = _suite().status()
    if known.json:
        print_json(running)
    elif running is None:
        print("no sites are up; start them: palestra web up")
    else:
        _print_sites(running)
        print(f"{running.instances} instances, supervisor {running.pid}")


def _tell(line: str) -> None:
    """In one write: sites are installed side by side."""
    sys.stderr.write(f"{line}\n")


def _suite() -> SiteSuite:
    from palestra.envs.web.suite import suites

    return suites["web"]()


def _print_sites(running: RunningSuite) -> None:
    rows = [
        [
            name,
            site.url,
            f"http://127.0.0.1:{site.port}/",
            f"{site.start_seconds:.1f}",
            site.about,
        ]
        for name, site in running.sites.items()
    ]
    print_table(["site", "in the environment", "in your browser", "seconds", ""], rows)
