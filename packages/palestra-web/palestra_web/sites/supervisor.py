"""One process that holds all sites: it starts them, gives episodes their copies, and takes
everything down with it.

`python -m palestra_web.sites.supervisor shop forum` is what `palestra web up` puts into the
background.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from palestra_web.sites.building import BASE_FILE, base, python, site_variables
from palestra_web.sites.catalogue import SITES, Site, cache_folder

log = logging.getLogger(__name__)

LEASE_SECONDS = 3600.0
VISITOR = "visitor"
UP_FILE = "up.json"
SEED_FILE = "seed"
"""In the folder of an instance's databases."""


@dataclass
class Served:
    """A site's process. Should it die, it is started again on the port that browsers know."""

    site: Site
    instances: Path
    token: str
    base: Path
    """The base at startup. A change of the seeding code takes effect at the next start."""
    port: int = 0
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    seconds: float = 0.0

    async def start(self) -> None:
        began = time.monotonic()
        serving = {
            "SITE_PORT": str(self.port),
            "SITE_INSTANCES": str(self.instances),
            "SITE_TOKEN": self.token,
        }
        with (cache_folder() / "logs" / f"{self.site.name}.log").open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *(str(python(self.site)), "-m", *self.site.serve),
                env=site_variables(self.site) | serving,
                # closed when we end, however we do: then the site ends too
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
            )
        self.starts += 1
        assert self.process.stdout is not None
        said = await self.process.stdout.readline()
        if not said.strip().isdigit():
            raise RuntimeError(
                f"{self.site.name} did not start; see "
                f"{cache_folder() / 'logs' / self.site.name}.log"
            )
        self.port = int(said)
        await self._wait_until_it_answers()
        self.seconds = time.monotonic() - began

    async def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        async with aiohttp.ClientSession() as client:
            while self.process.returncode is None:
                try:
                    async with client.get(f"http://127.0.0.1:{self.port}/-/alive") as answer:
                        answer.raise_for_status()
                        return
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
        raise RuntimeError(f"{self.site.name} ended as soon as it had started")

    async def keep_up(self) -> None:
        while True:
            assert self.process is not None
            code = await self.process.wait()
            log.warning("%s ended with %s and is started again", self.site.name, code)
            await asyncio.sleep(min(2**self.starts, 300) / 20)
            try:
                await self.start()
            except RuntimeError as error:
                log.error("%s", error)

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass
class Supervisor:
    sites: dict[str, Served]
    instances: Path
    token: str
    opened: dict[str, float] = field(default_factory=dict)
    """The creation time of each instance."""

    def make_instance(self, name: str, sites: list[str], seed: str = "") -> None:
        """`seed`: for the sites' random choices."""
        folder = self.instances / name
        folder.mkdir(mode=0o700)
        (folder / SEED_FILE).write_text(seed)
        for site in sites:
            shutil.copyfile(self.sites[site].base / BASE_FILE, folder / f"{site}.sqlite3")
        self.opened[name] = time.monotonic()

    def remove_instance(self, name: str) -> bool:
        if self.opened.pop(name, None) is None:
            return False
        shutil.rmtree(self.instances / name, ignore_errors=True)
        return True

    async def sweep(self) -> None:
        """Instances that were not closed."""
        while True:
            await asyncio.sleep(60)
            for name, made in list(self.opened.items()):
                if name != VISITOR and time.monotonic() - made > LEASE_SECONDS:
                    self.remove_instance(name)

    async def post_instance(self, request: web.Request) -> web.Response:
        asked_for = await request.json() if request.can_read_body else {}
        wanted = asked_for.get("sites") or list(self.sites)
        unknown = [site for site in wanted if site not in self.sites]
        if unknown:
            return web.json_response(
                {"error": f"not up: {', '.join(unknown)}; there are: {', '.join(self.sites)}"},
                status=404,
            )
        name = secrets.token_hex(8)
        self.make_instance(name, wanted, str(asked_for.get("seed", "")))
        files = {site: str(self.instances / name / f"{site}.sqlite3") for site in wanted}
        return web.json_response(
            {
                "id": name,
                "files": files,
                "base": {site: str(self.sites[site].base / BASE_FILE) for site in wanted},
            }
        )

    async def delete_instance(self, request: web.Request) -> web.Response:
        return web.json_response({"removed": self.remove_instance(request.match_info["id"])})

    async def post_login(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        if wanted["site"] not in self.sites:
            return web.json_response({"error": f"not up: {wanted['site']}"}, status=404)
        url = f"http://127.0.0.1:{self.sites[wanted['site']].port}/-/login"
        headers = {"X-Instance": request.match_info["id"], "X-Token": self.token}
        async with (
            aiohttp.ClientSession() as client,
            client.post(url, json={"user": wanted["user"]}, headers=headers) as answer,
        ):
            if answer.status != 200:
                return web.json_response({"error": await answer.text()}, status=404)
            return web.json_response(
                {"cookies": json.loads(await answer.text()), "host": SITES[wanted["site"]].host}
            )

    async def get_status(self, request: web.Request) -> web.Response:
        sites = {
            name: {
                "port": served.port,
                "pid": served.process.pid if served.process else None,
                "starts": served.starts,
            }
            for name, served in self.sites.items()
        }
        return web.json_response(
            {"pid": os.getpid(), "sites": sites, "instances": len(self.opened)}
        )

    def application(self) -> web.Application:
        @web.middleware
        async def with_token(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            if not hmac.compare_digest(
                request.headers.get("Authorization", ""), f"Bearer {self.token}"
            ):
                return web.json_response({"error": "the token is in up.json"}, status=403)
            return await handler(request)

        application = web.Application(middlewares=[with_token])
        application.router.add_get("/status", self.get_status)
        application.router.add_post("/instances", self.post_instance)
        application.router.add_delete("/instances/{id}", self.delete_instance)
        application.router.add_post("/instances/{id}/login", self.post_login)
        return application


async def supervise(names: list[str]) -> None:
    """Start the sites, say so in `up.json`, and wait to be told to stop."""
    cache = cache_folder()
    instances = cache / "instances"
    for folder in (instances, cache / "logs"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
    token = secrets.token_hex(16)
    supervisor = Supervisor(
        {name: Served(SITES[name], instances, token, base(SITES[name])) for name in names},
        instances,
        token,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(supervisor.application(), access_log=None)
    tasks: list[asyncio.Task[None]] = []
    try:
        await asyncio.gather(*(served.start() for served in supervisor.sites.values()))
        supervisor.make_instance(VISITOR, names)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        _write_up_file(cache / UP_FILE, supervisor, runner.addresses[0][1])
        tasks = [asyncio.create_task(served.keep_up()) for served in supervisor.sites.values()]
        tasks.append(asyncio.create_task(supervisor.sweep()))
        await stopped.wait()
    finally:
        for task in tasks:
            task.cancel()
        (cache / UP_FILE).unlink(missing_ok=True)
        await asyncio.gather(*(served.stop() for served in supervisor.sites.values()))
        await runner.cleanup()
        shutil.rmtree(instances, ignore_errors=True)


def _write_up_file(path: Path, supervisor: Supervisor, port: int) -> None:
    """Write atomically, so that no reader sees a part. Readable only by the user, because it has
    the token.
    """
    sites = {
        name: {
            "host": served.site.host,
            "port": served.port,
            "base": str(served.base),
            "seconds": round(served.seconds, 2),
        }
        for name, served in supervisor.sites.items()
    }
    content = {
        "control": f"http://127.0.0.1:{port}",
        "pid": os.getpid(),
        "token": supervisor.token,
        "sites": sites,
    }
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)
    draft.rename(path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(supervise(sys.argv[1:]))
