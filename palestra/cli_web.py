"""`palestra web ...`: start, stop and look at the self-hosted sites."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from palestra.core.credentials import without_secrets
from palestra.printing import fail, print_json, print_table

START_SECONDS = 120


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
    from palestra.sites.building import BuildFailed, alone
    from palestra.sites.catalogue import SITES

    wanted = known.only.split(",") if known.only else list(SITES)
    for name in wanted:
        if name not in SITES:
            fail(f"--only {name}: there is no such site; there are: {', '.join(SITES)}")
    try:
        with alone("up"):
            _print_sites(_bring_up(wanted))
    except BuildFailed as error:
        fail(str(error))


def _bring_up(wanted: list[str]) -> dict[str, Any]:
    """These sites beside those that are up; what is up already and has not changed since is left
    alone.
    """
    from concurrent.futures import ThreadPoolExecutor

    from palestra.envs.web.browser import CHROMIUMS
    from palestra.sites.building import base, make_ready, need_program
    from palestra.sites.catalogue import SITES

    running = _running()
    if running is not None:
        is_current = all(
            site["base"] == str(base(SITES[name])) for name, site in running["sites"].items()
        )
        if set(wanted) <= set(running["sites"]) and is_current:
            return running
        wanted = [name for name in SITES if name in {*wanted, *running["sites"]}]
    for program, user in [(program, name) for name in wanted for program in SITES[name].programs]:
        need_program(program, user, _tell)
    if "CHROMIUM" not in os.environ and not any(Path(path).exists() for path in CHROMIUMS):
        need_program(Path(CHROMIUMS[0]).name, "the environment web", _tell)
    with ThreadPoolExecutor() as threads:  # they mostly wait for pip
        list(threads.map(lambda name: make_ready(SITES[name], _tell), wanted))
    if running is not None:
        _stop(running["pid"])
    return _start(wanted)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _start(sites: list[str]) -> dict[str, Any]:
    """The supervisor, in the background and in a session of its own; what it says when all sites
    answer.
    """
    from palestra.sites.catalogue import cache_folder

    output = cache_folder() / "supervisor.log"
    with output.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "palestra.sites.supervisor", *sites],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **without_secrets(),
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
                ),
            },
        )
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < START_SECONDS:
        found = _running()
        if found is not None:
            return found
        time.sleep(0.05)
    process.kill()
    process.wait()
    fail(f"the sites did not start; {output} ends with:\n{output.read_text()[-1500:]}")


def down(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    running = _running()
    if running is None:
        print("no sites are up")
    else:
        _stop(running["pid"])
        print(f"stopped: {', '.join(running['sites'])}")


def status(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    running = _running()
    if known.json:
        print_json(
            None
            if running is None
            else {key: value for key, value in running.items() if key != "token"}
        )
    elif running is None:
        print("no sites are up; start them: palestra web up")
    else:
        _print_sites(running)
        print(f"{running['status']['instances']} instances, supervisor {running['pid']}")


def _running() -> dict[str, Any] | None:
    """What `up.json` says, where the supervisor it names answers.

    One that was killed left the file behind.
    """
    from palestra.envs.web.sites import Sites, SitesDown
    from palestra.sites.catalogue import cache_folder

    try:
        answered = Sites.find().ask("GET", "/status")
    except SitesDown:
        return None
    return {**json.loads((cache_folder() / "up.json").read_text()), "status": answered}


def _stop(pid: int) -> None:
    """Asked first; the sites end with it in any case."""
    try:
        os.kill(pid, signal.SIGTERM)
        for _ in range(200):
            time.sleep(0.05)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _print_sites(running: dict[str, Any]) -> None:
    from palestra.sites.catalogue import SITES

    rows = [
        [
            name,
            SITES[name].url,
            f"http://127.0.0.1:{site['port']}/",
            f"{site['seconds']:.1f}",
            SITES[name].about,
        ]
        for name, site in running["sites"].items()
    ]
    print_table(["site", "in the environment", "in your browser", "seconds", ""], rows)
