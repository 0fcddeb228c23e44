"""What the vLLM engines must do on any device, in process or as servers.

`engine` is one for all tests of a class.
"""

import asyncio
import copy

import pytest
import torch

from palestra.algos.batch import pack
from palestra.config.lora import LoraSettings
from palestra.core.types import Sampling
from palestra.engines.base import EngineFailed, Session
from palestra.learner.logprobs import predict
from palestra.models.attention import hidden_states
from palestra.models.lora import adapter_of, add_adapter
from palestra.models.tiny import tiny_model
from tests.support.engines import STOP, episodes


def contract_model(width, device):
    """With weights large enough for attention to matter and for replies to have a preference."""
    model = tiny_model(
        vocabulary=97,
        width=width,
        layers=2,
        heads=2,
        context=1024,
        stop_id=STOP,
        seed=3,
        device=torch.device(device),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    return model


def ask(engine, ids, **settings):
    return engine.generate(
        ids, Sampling(**{"stop_ids": (STOP,), "max_tokens": 8, **settings}), Session("x")
    )


def answer(engine, ids, **settings):
    return asyncio.run(ask(engine, ids, **settings))


def reload(engine, version=0):
    asyncio.run(engine.sync_weights(version))


class Contract:
    logprob_error = 1e-3
    """The largest difference from the learner's log-probs."""

    def is_busy(self, engine):
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _nothing_is_left_over(self, engine):
        reload(engine)
        yield
        assert not self.is_busy(engine)

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_log_probs_are_the_learners_at_the_sampling_temperature(self, engine, temperature):
        trajectories = asyncio.run(episodes(engine, 5, turns=20, temperature=temperature))
        batch = pack([trajectories]).to(engine.model.device)
        with torch.no_grad():
            error_C = (
                predict(engine.model, batch, temperature).logp_C - batch.sampled_logp_C
            ).abs()
        assert error_C.max() < self.logprob_error

    def test_greedy_takes_the_likeliest_token_and_reports_it_at_temperature_one(self, engine):
        trajectories = asyncio.run(episodes(engine, 3, temperature=0.0))
        batch = pack([trajectories]).to(engine.model.device)
        with torch.no_grad():
            assert (
                predict(engine.model, batch, 1.0).logp_C - batch.sampled_logp_C
            ).abs().max() < self.logprob_error
        for trajectory in trajectories:
            ids = torch.tensor([trajectory.segments[0].ids], device=engine.model.device)
            with torch.no_grad():
                hidden = hidden_states(
                    engine.model, ids, torch.arange(ids.shape[1], device=ids.device)[None]
                )
                logp_TV = engine.model.lm_head(hidden)[0].log_softmax(-1)
            chosen = torch.tensor(
                trajectory.segments[0].mask[1:], dtype=torch.bool, device=ids.device
            )
            best, taken = (
                logp_TV[:-1].max(-1).values,
                logp_TV[:-1].gather(-1, ids[0, 1:, None])[:, 0],
            )
            assert (best - taken)[chosen].max() < 2 * self.logprob_error

    def test_greedy_and_sampled_replies_share_a_batch(self, engine):
        async def together():
            return await asyncio.gather(
                *(ask(engine, [5, 6, 7], temperature=0.5 * (i % 2), seed=i) for i in range(6))
            )

        alone = answer(engine, [5, 6, 7], temperature=0.0)
        for reply in asyncio.run(together())[::2]:
            assert reply.logprobs[0] == pytest.approx(alone.logprobs[0], abs=self.logprob_error)

    def test_the_same_seed_gives_the_same_reply(self, engine):
        replies = []
        for seed in (3, 3, 4):
            reload(engine)
            replies.append(answer(engine, [5, 6, 7], seed=seed, max_tokens=30, stop_ids=()))
        assert replies[0].ids == replies[1].ids
        assert replies[0].logprobs == pytest.approx(replies[1].logprobs, abs=1e-6)
        assert replies[0].ids != replies[2].ids

    def test_replies_end_with_a_stop_token_or_at_their_length(self, engine):
        cut = answer(engine, [5, 6, 7], temperature=0.0, max_tokens=5, stop_ids=())
        assert (len(cut.ids), len(cut.logprobs), cut.finish) == (5, 5, "length")
        stop = cut.ids[2]
        ended = answer(engine, [5, 6, 7], temperature=0.0, max_tokens=5, stop_ids=(stop,))
        assert (ended.ids, ended.finish) == (cut.ids[: cut.ids.index(stop) + 1], "stop")

    def test_new_weights_arrive_and_old_results_are_forgotten(self, engine):
        ids = list(range(2, 90)) * 4  # over a block of the cache
        weight = engine.model.get_parameter("model.layers.0.self_attn.v_proj.weight")
        first = answer(engine, ids, temperature=0.0)
        with torch.no_grad():
            weight.mul_(-1)  # what the cache holds of layer 0 and of those above is wrong now
            try:
                reload(engine, version=7)
                second = answer(engine, ids, temperature=0.0)
                whole = torch.tensor([[*ids, *second.ids]], device=weight.device)
                hidden = hidden_states(
                    engine.model, whole, torch.arange(whole.shape[1], device=whole.device)[None]
                )
                logp_TV = engine.model.lm_head(hidden)[0].log_softmax(-1)
            finally:
                weight.mul_(-1)
        expected = [logp_TV[len(ids) - 1 + i, token].item() for i, token in enumerate(second.ids)]
        assert second.logprobs == pytest.approx(expected, abs=self.logprob_error)
        assert first.ids != second.ids
        assert (first.version, second.version) == (0, 7)
        reload(engine)
        assert answer(engine, ids, temperature=0.0).ids == first.ids

    def test_weights_wait_for_replies_in_the_making(self, engine):
        async def scenario():
            asked = [
                asyncio.create_task(ask(engine, [5, i], max_tokens=20, stop_ids=()))
                for i in range(2, 5)
            ]
            while not self.is_busy(engine):
                await asyncio.sleep(0)
            loading = asyncio.create_task(engine.sync_weights(3))
            await asyncio.sleep(0)
            late = asyncio.create_task(ask(engine, [6, 7]))
            await asyncio.gather(*asked, loading, late)
            return [task.result().version for task in (*asked, late)]

        assert asyncio.run(asyncio.wait_for(scenario(), 60)) == [0, 0, 0, 3]

    def test_a_cancelled_episode_is_dropped_and_the_others_go_on(self, engine):
        async def scenario():
            asked = [
                asyncio.create_task(ask(engine, [5, i], max_tokens=200, stop_ids=()))
                for i in range(2, 6)
            ]
            while not self.is_busy(engine):
                await asyncio.sleep(0)
            asked[1].cancel()
            return await asyncio.gather(*asked, return_exceptions=True)

        outcomes = asyncio.run(asyncio.wait_for(scenario(), 60))
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert [len(outcomes[i].ids) for i in (0, 2, 3)] == [200] * 3

    def test_more_episodes_than_there_is_room_for(self, engine):
        done = asyncio.run(
            asyncio.wait_for(episodes(engine, 40, turns=2, max_tokens=4), timeout=100)
        )
        assert len(done) == 40

    def test_what_vllm_would_do_otherwise_is_refused(self, engine):
        with pytest.raises(ValueError, match="log-probs after the cut"):
            answer(engine, [5], top_p=0.9)
        with pytest.raises(ValueError, match="vLLM takes 0, or 0.01 to 2.0"):
            answer(engine, [5], temperature=3.0)
        with pytest.raises(ValueError, match="exceed the context of 1024"):
            answer(engine, [2] * 1020)


class InProcessContract(Contract):
    """`engine` is one for all tests because a process has one vLLM."""

    def is_busy(self, engine):
        return bool(engine._running)

    @pytest.fixture(autouse=True)
    def _nothing_is_left_inside(self, engine):
        yield
        assert not engine._waiting
        assert not engine._llm.has_unfinished_requests()

    @pytest.mark.parametrize(
        "name",
        [
            "model.layers.0.self_attn.k_proj.weight",
            "model.layers.1.mlp.up_proj.weight",
            "model.norm.weight",
        ],
    )
    def test_a_weight_that_changed_is_named(self, engine, name):
        def tamper(model):
            fused = name.replace("k_proj", "qkv_proj").replace("up_proj", "gate_up_proj")
            width = engine.model.config.hidden_size
            row = {"k_proj": width, "up_proj": engine.model.config.intermediate_size}.get(
                name.split(".")[-2], 0
            )
            with torch.no_grad():
                model.get_parameter(fused)[row].flatten()[0] += 0.01

        engine.check_weights()
        engine._llm.apply_model(tamper)
        with pytest.raises(
            EngineFailed, match=f"not the learner's after the hand-over: {name} differs$"
        ):
            engine.check_weights()

    def test_a_weight_that_vllm_drops_without_a_word_ends_the_load(self, engine, monkeypatch):
        (model,) = engine._llm.apply_model(lambda model: model)
        lost, whole = "model.layers.1.self_attn.o_proj.weight", type(model).load_weights
        load = lambda self, weights: whole(  # noqa: E731
            self, ((name, weight) for name, weight in weights if name != lost)
        )
        monkeypatch.setattr(type(model), "load_weights", load)
        parameter = engine.model.get_parameter(lost)
        with torch.no_grad():
            parameter.mul_(2)
        try:
            with pytest.raises(EngineFailed, match=f"{lost} differs"):
                reload(engine, version=9)
            assert engine.version == 0
        finally:
            with torch.no_grad():
                parameter.div_(2)
        monkeypatch.undo()
        reload(engine)

    def test_an_adapter_is_handed_over_merged(self, engine, monkeypatch):
        pytest.importorskip("peft")
        plain, adapted = engine.model, copy.deepcopy(engine.model)
        add_adapter(adapted, rank=4, alpha=8, targets=LoraSettings().targets, base="", seed=0)
        with torch.no_grad():
            for parameter in adapter_of(adapted).values():
                parameter.normal_(std=0.2)
        monkeypatch.setattr(engine, "model", adapted)
        reload(engine, version=3)  # compares all weights
        batch = pack([asyncio.run(episodes(engine, 5, turns=3))]).to(plain.device)
        with torch.no_grad():
            errors = [
                (predict(model, batch, 1.0).logp_C - batch.sampled_logp_C).abs().mean()
                for model in (adapted, plain)
            ]
        assert 5 * errors[0] < errors[1]

    @pytest.mark.parametrize("fault", ["step", "ids"])
    def test_a_failure_reaches_everyone_and_the_next_request_is_served(
        self, engine, monkeypatch, fault
    ):
        async def scenario(third):
            calls = [ask(engine, ids) for ids in ([5], [6], third)]
            return await asyncio.wait_for(
                asyncio.gather(*calls, return_exceptions=True), timeout=60
            )

        def breaks():
            raise RuntimeError("out of memory")

        if fault == "step":
            monkeypatch.setattr(engine._llm, "step", breaks)
        outcomes = asyncio.run(scenario([9999] if fault == "ids" else [7]))
        assert [type(outcome) for outcome in outcomes] == [EngineFailed] * 3
        assert ("out of memory" if fault == "step" else "vocabulary of 97") in str(outcomes[0])
        monkeypatch.undo()
        assert answer(engine, [5]).ids

    @pytest.mark.parametrize("inline", [True, False])
    def test_in_a_thread_or_between_the_episodes_steps(self, engine, monkeypatch, inline):
        monkeypatch.setattr(
            engine, "settings", engine.settings.model_copy(update={"inline": inline})
        )
        assert engine.settings.max_sequences < 40
        done = asyncio.run(
            asyncio.wait_for(episodes(engine, 40, turns=2, max_tokens=4), timeout=100)
        )
        assert len(done) == 40
