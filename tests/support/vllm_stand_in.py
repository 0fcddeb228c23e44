"""A small HTTP server that speaks what we use of vLLM's protocol, with the native engine behind it,
and that can be made to fail.
"""

import asyncio
import copy
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from safetensors.torch import load_file

from palestra.core.types import Sampling
from palestra.engines.base import Session
from palestra.engines.fingerprint import fingerprint
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.engines.vllm.common import LOGPROBS_MODE, WEIGHTS_FILE


class StandIn:
    """Attributes are changed by the tests, from another thread."""

    def __init__(self, model, *, port=0, api_key=""):
        self.model = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.normal_(0, 0.02)  # what it samples before a hand-over is of no use
        self.engine = TorchEngineSettings(slots=4).build(self.model, 1024)
        self.port = port
        self.api_key = api_key
        self.facts = {
            "dtypes": ["float32"],
            "logprobs_mode": LOGPROBS_MODE,
            "context_tokens": 1024,
            "tensor_parallel": 1,
            "data_parallel": 1,
        }
        self.mark = ""
        self.workers = 1
        self.others: dict[str, Any] = {}
        """What the workers but the first answer, by method, where that is something else."""
        self.is_paused = False
        self.replies = 0
        self.paths: list[str] = []
        self.received: set[torch.dtype] = set()
        self.loads = 0
        self.drop_weight = ""
        """A weight that does not arrive, after so many good loads."""
        self.good_loads = 0
        self.breaks_at = 0
        """The load at which it answers with an error."""
        self.in_flight = 0
        self.cut_short = 0
        """Replies that were in the making when it was paused: vLLM would have given them up."""
        self.fault = ""
        """hang up | hang | abort | no number | nonsense | an HTTP status: for the next `faults`
        replies.
        """
        self.faults = 0
        self.reply_s = 0.0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def generate(self, request):
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        assert not self.is_paused
        self.replies += 1
        if self.faults:
            self.faults -= 1
            return await self.fail(request)
        body = await request.json()
        asked = dict(body["sampling_params"])
        assert (asked.pop("ignore_eos"), asked.pop("logprobs"), asked.pop("detokenize")) == (
            True,
            0,
            False,
        )
        self.in_flight += 1
        try:
            return await self.reply(body["token_ids"], asked)
        finally:
            self.in_flight -= 1

    async def reply(self, ids, asked):
        await asyncio.sleep(self.reply_s)
        sampling = Sampling(stop_ids=tuple(asked.pop("stop_token_ids")), **asked)
        session = Session("stand-in")
        reply = await self.engine.generate(ids, sampling, session)
        self.engine.release(session)
        content = [
            {"token_id": token, "logprob": logprob}
            for token, logprob in zip(reply.ids, reply.logprobs, strict=True)
        ]
        return self.answer(reply.ids, content, reply.finish)

    def answer(self, ids, content, finish):
        return web.json_response(
            {
                "choices": [
                    {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": finish}
                ]
            }
        )

    async def fail(self, request):
        if self.fault == "hang up":
            request.transport.abort()
        elif self.fault == "hang":
            await asyncio.sleep(30)
        elif self.fault == "abort":
            return self.answer([], [], "abort")
        elif self.fault == "no number":
            return self.answer([5], [{"token_id": 5, "logprob": -9999.0}], "length")
        elif self.fault == "nonsense":
            return web.Response(text="<html>hello</html>")
        else:
            error = {"error": {"message": "EngineCore encountered\nan issue"}}
            return web.json_response(
                error,
                status=int(self.fault),
                headers={"Location": "/elsewhere"} if self.fault == "302" else {},
            )
        return web.Response()

    async def control(self, request):
        self.paths.append(request.path)
        if request.path == "/pause":
            self.is_paused = True
            self.cut_short += self.in_flight
        elif request.path == "/resume":
            self.is_paused = False
        elif request.path == "/reset_prefix_cache":
            await self.engine.sync_weights(0)
            return web.Response()  # as vLLM 0.24: nothing is said
        return web.json_response({"status": "done"})

    async def collective_rpc(self, request):
        body = await request.json()
        self.paths.append(body["method"])
        method = getattr(self, body["method"], None)
        if method is None:
            text = f"Worker failed with error ''Worker' object has no attribute '{body['method']}''"
            return web.json_response({"error": {"message": text}}, status=500)
        first = method(*body["args"])
        return web.json_response(
            {"results": [first, *[self.others.get(body["method"], first)] * (self.workers - 1)]}
        )

    def palestra_describe(self):
        return {**self.facts, "tensor_parallel": self.workers, "mark": self.mark}

    def palestra_load(self, folder):
        assert self.is_paused
        self.loads += 1
        if self.loads == self.breaks_at:
            raise RuntimeError
        sent = load_file(Path(folder) / WEIGHTS_FILE)
        self.received = {weight.dtype for weight in sent.values()}
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name != self.drop_weight or self.loads <= self.good_loads:
                    parameter.copy_(sent[name])

    def palestra_fingerprint(self, shapes):
        return fingerprint(self.model.named_parameters())

    def palestra_set_mark(self, mark):
        self.mark = mark

    async def serve(self, started, stop):
        app = web.Application()
        app.router.add_post("/inference/v1/generate", self.generate)
        app.router.add_post("/collective_rpc", self.collective_rpc)
        for path in ("/pause", "/resume", "/reset_prefix_cache"):
            app.router.add_post(path, self.control)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        started.set()
        while not stop.is_set():
            await asyncio.sleep(0.01)
        await runner.cleanup()


@contextmanager
def running(stand_in):
    """`stand_in` in a thread; `stop()` ends it early."""
    started, stop = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(stand_in.serve(started, stop)), daemon=True
    )
    thread.start()
    assert started.wait(10)

    def end():
        stop.set()
        thread.join(10)

    try:
        yield end
    finally:
        end()
