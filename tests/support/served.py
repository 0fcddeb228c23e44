"""A real server for tests, in a thread with an event loop of its own, and plain requests to it."""

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from aiohttp import web

from palestra.envs.serving.catalogue import Catalogue, Served
from palestra.envs.serving.request_auth import RequestAuth
from palestra.envs.serving.server import Server
from palestra.envs.serving.sessions import Sessions


class Running:
    """Where a server is, and what it is made of."""

    def __init__(self, server, port, loop):
        self.server, self.port, self.loop = server, port, loop
        self.address = f"http://127.0.0.1:{port}"

    def url(self, env):
        return f"{self.address}/{env}"

    def answered(self, call):
        """How many calls of this kind were answered without an error."""
        labels = {"call": call, "code": "ok"}
        return self.server.registry.get_sample_value("palestra_calls_total", labels) or 0

    def run(self, coroutine):
        """Runs on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def ask(self, method, path, body=None, **headers):
        """Status and decoded body."""
        status, _, content = self.raw(method, path, body, **headers)
        return status, json.loads(content)

    def raw(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(
                method,
                path,
                data,
                {name.replace("_", "-"): value for name, value in headers.items()},
            )
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def open(self, env, task=None, **headers):
        """A session's path, reset to the first task."""
        status, answer = self.ask("POST", "/v1/sessions", {"env": env}, **headers)
        assert status == 200, answer
        path = f"/v1/sessions/{answer['session']}"
        if task is not None:
            assert (
                self.ask(
                    "POST", f"{path}/reset", {"task": {"split": "train", "id": task}}, **headers
                )[0]
                == 200
            )
        return path


@contextmanager
def running(
    *names,
    port=0,
    tokens=(),
    clock=time.monotonic,
    deadline_s=20.0,
    isolation="inline",
    options=None,
    limits=None,
    **settings,
):
    catalogue = Catalogue([Served(name, options or {}, isolation, deadline_s) for name in names])
    loop = asyncio.new_event_loop()

    async def start():
        sessions = Sessions(catalogue.pools, catalogue.tasks, clock=clock, **settings)
        server = Server(catalogue, sessions, RequestAuth(tokens), limits=limits)
        runner = server.runner(shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return server, runner

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server, runner = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    try:
        yield Running(server, runner.addresses[0][1], loop)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def command(*arguments, processes=1, **environment):
    """`palestra env serve ...`, once it listens."""
    code = "from palestra.cli.main import main; main()"
    line = [
        sys.executable,
        "-c",
        code,
        "env",
        "serve",
        *arguments,
        *(["--processes", str(processes)] if processes > 1 else []),
    ]
    child = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        for _ in range(processes):
            event = json.loads(child.stderr.readline())
            assert event["event"] == "listening", event
        child.at = Running(None, int(re.search(r":(\d+)$", event["url"]).group(1)), None)
        yield child
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
