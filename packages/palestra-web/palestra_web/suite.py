"""Starts and stops the five sites together, for `palestra web`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from palestra.core.credentials import without_secrets
from palestra.core.errors import UserError
from palestra.core.registry import nearest
from palestra.envs.web.browser import CHROMIUMS
from palestra.envs.web.suite import RunningSite, RunningSuite, SiteSuite
from palestra_web.client import Sites, SitesDown
from palestra_web.sites.building import BuildFailed, alone, base, make_ready, need_program
from palestra_web.sites.catalogue import SITES, cache_folder
from palestra_web.sites.supervisor import UP_FILE

START_SECONDS = 120


class SelfHosted(SiteSuite):
    """The sites of `SITES`, run by one supervisor process."""

    def up(self, names: Sequence[str], tell: Callable[[str], None]) -> RunningSuite:
        """Start the sites. Sites that are already up and unchanged are left running."""
        for name in names:
            if name not in SITES:
                raise UserError(f"{name}: there is no such site; {nearest(name, SITES)}")
        with alone("up"):
            return self._bring_up(names or list(SITES), tell)

    def _bring_up(self, wanted: Sequence[str], tell: Callable[[str], None]) -> RunningSuite:
        running = self.status()
        if running is not None:
            bases = {name: site["base"] for name, site in _up_file()["sites"].items()}
            is_current = all(bases[name] == str(base(SITES[name])) for name in bases)
            if set(wanted) <= set(bases) and is_current:
                return running
            wanted = [name for name in SITES if name in {*wanted, *bases}]
        for name in wanted:
            for program in SITES[name].programs:
                need_program(program, name, tell)
        if "CHROMIUM" not in os.environ and not any(Path(path).exists() for path in CHROMIUMS):
            need_program(Path(CHROMIUMS[0]).name, "the environment web", tell)
        with ThreadPoolExecutor() as threads:  # they mostly wait for pip
            list(threads.map(lambda name: make_ready(SITES[name], tell), wanted))
        if running is not None:
            _stop(running.pid)
        return self._start(wanted)

    def _start(self, wanted: Sequence[str]) -> RunningSuite:
        """Start the supervisor in a session of its own, and wait until all sites answer."""
        output = cache_folder() / "supervisor.log"
        with output.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "palestra_web.sites.supervisor", *wanted],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=without_secrets(),
            )
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < START_SECONDS:
            running = self.status()
            if running is not None:
                return running
            time.sleep(0.05)
        process.kill()
        process.wait()
        raise BuildFailed(
            f"the sites did not start; {output} ends with:\n{output.read_text()[-1500:]}"
        )

    def down(self) -> Sequence[str]:
        running = self.status()
        if running is None:
            return []
        _stop(running.pid)
        return list(running.sites)

    def status(self) -> RunningSuite | None:
        """The content of `up.json`, or None if its supervisor does not answer: a killed supervisor
        leaves the file behind.
        """
        try:
            answered = Sites.find().ask("GET", "/status")
        except SitesDown:
            return None
        up = _up_file()
        sites = {
            name: RunningSite(
                about=SITES[name].about,
                url=SITES[name].url,
                port=site["port"],
                pid=answered["sites"][name]["pid"],
                starts=answered["sites"][name]["starts"],
                start_seconds=site["seconds"],
            )
            for name, site in up["sites"].items()
        }
        return RunningSuite(sites, answered["instances"], up["pid"])


def _up_file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cache_folder() / UP_FILE).read_text())
    return found


def _stop(pid: int) -> None:
    """Terminate the supervisor, and kill it after 10 seconds. The sites end with it either way."""
    try:
        os.kill(pid, signal.SIGTERM)
        for _ in range(200):
            time.sleep(0.05)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
