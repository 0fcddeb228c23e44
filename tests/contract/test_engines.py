"""Every engine: ids in, the sampled ids and their log-probs out, whatever else is being served."""

import asyncio
import copy
import sys
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from palestra.algos.batch import pack
from palestra.core.types import Sampling
from palestra.engines.base import EngineFailed, Session
from palestra.engines.torch.sampling import draw, noise
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.learner.logprobs import predict
from palestra.models.attention import hidden_states, sdpa
from palestra.models.loading import prepare_model
from palestra.models.tiny import tiny_model
from tests.support.engines import STOP, computed_once, episode, episodes, native


def test_log_probs_equal_the_learners_over_a_twenty_turn_episode(model):
    trajectories = asyncio.run(episodes(native(model, slots=3), 5, turns=20))
    with torch.no_grad():
        for trajectory in trajectories:
            batch = pack([[trajectory]])
            recomputed = predict(model, batch, 1.0).logp_C
            assert (recomputed - batch.sampled_logp_C).abs().max() < 1e-4


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_log_probs_are_those_of_the_policy_at_its_temperature(model, temperature):
    (trajectory,) = asyncio.run(episodes(native(model), 1, temperature=temperature))
    batch = pack([[trajectory]])
    with torch.no_grad():
        assert (predict(model, batch, temperature).logp_C - batch.sampled_logp_C).abs().max() < 1e-4


def test_greedy_tokens_equal_generates(model):
    """Against transformers' own loop, which starts each turn from nothing."""
    trajectories = asyncio.run(episodes(native(model, slots=4), 6, temperature=0.0))
    plain = tiny_model(
        vocabulary=97,
        width=64,
        layers=2,
        heads=4,
        context=1024,
        stop_id=STOP,
        seed=3,
        device=torch.device("cpu"),
    )
    plain.set_attn_implementation("sdpa")
    for trajectory in trajectories:
        ids = trajectory.segments[0].ids
        for turn in trajectory.turns:
            start, end = turn.span
            prompt = torch.tensor([ids[:start]])
            out = plain.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=12,
                do_sample=False,
                eos_token_id=STOP,
                pad_token_id=0,
            )
            assert out[0, start:].tolist() == ids[start:end]


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_episode_does_not_depend_on_its_company(model, deterministic):
    alone = [asyncio.run(episode(native(model), number)) for number in range(6)]
    together = asyncio.run(episodes(native(model, slots=3, deterministic=deterministic), 6))
    assert [t.segments[0].ids for t in together] == [t.segments[0].ids for t in alone]


def test_a_deterministic_engine_repeats_itself_bit_for_bit(model):
    one, other = (asyncio.run(episodes(native(model, slots=3), 7)) for _ in range(2))
    assert [t.segments for t in one] == [t.segments for t in other]


@pytest.mark.parametrize("shape", ["qwen2", "llama"])
def test_models_with_fewer_key_heads_than_query_heads(shape):
    kinds = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
    config, kind = kinds[shape]
    torch.manual_seed(0)
    grouped = prepare_model(
        kind(
            config(
                vocab_size=97,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=1024,
                tie_word_embeddings=True,
            )
        )
    )
    (trajectory, other) = asyncio.run(episodes(native(grouped), 2, turns=5))
    batch = pack([[trajectory, other]])
    with torch.no_grad():
        assert (predict(grouped, batch, 1.0).logp_C - batch.sampled_logp_C).abs().max() < 1e-4


def test_heads_with_a_key_head_in_common_look_at_it_together():
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(3, 6, 1, 8, generator=rng)
    key, value = (torch.randn(3, 2, 5, 8, generator=rng) for _ in range(2))
    mask = (torch.arange(5) <= torch.tensor([[4], [0], [2]]))[:, None, None, :]
    expected = scaled_dot_product_attention(
        query, *(x.repeat_interleave(3, 1) for x in (key, value)), attn_mask=mask, scale=0.3
    )
    assert torch.allclose(sdpa(query, key, value, scale=0.3, mask=mask), expected, atol=1e-6)


def test_models_that_packing_would_change_are_refused():
    config = MistralConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=3,
        max_position_embeddings=64,
    )
    with pytest.raises(ValueError, match="gives other results with packed attention"):
        prepare_model(MistralForCausalLM(config))


def test_threads_and_many_short_episodes_lose_nobody(model):
    """The model runs beside the episodes; none of them may wait for ever, however the threads
    interleave.
    """
    engine = native(model, slots=4, deterministic=False)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        done = asyncio.run(
            asyncio.wait_for(episodes(engine, 300, turns=2, max_tokens=2), timeout=60)
        )
    finally:
        sys.setswitchinterval(interval)
    assert len(done) == 300
    assert sorted(engine._free) == [0, 1, 2, 3]


def test_the_beginnings_that_episodes_share_are_computed_once(model):
    computed_once(native(model, slots=6))


def test_forty_rounds_of_joining_and_leaving(model):
    engine = native(model, slots=2)
    for round_ in range(40):
        asyncio.run(episodes(engine, 1 + round_ % 4, turns=2, max_tokens=3))
    assert sorted(engine._free) == [0, 1]
    assert not engine._slots


@pytest.mark.parametrize("deterministic", [True, False])
def test_idle_episodes_leave_their_slots_to_others(model, deterministic):
    """Two slots, five episodes that are all begun before any of them goes on: nobody waits for
    ever, and nobody notices.
    """

    async def scenario(slots):
        engine = native(model, slots=slots, deterministic=deterministic)
        sessions = [Session(str(n)) for n in range(5)]
        said = [[] for _ in sessions]
        for turn in range(3):
            for n, session in enumerate(sessions):
                ids = [5 + n, 6, 7, *said[n], 9]
                sampling = Sampling(max_tokens=4, stop_ids=(STOP,), seed=10 * turn + n)
                generation = await asyncio.wait_for(engine.generate(ids, sampling, session), 20)
                said[n] += [9, *generation.ids]
        return said, engine.computed_tokens

    crowded, computed = asyncio.run(scenario(2))
    roomy, fewest = asyncio.run(scenario(5))
    assert crowded == roomy
    assert computed > fewest  # what the others had computed was thrown away


def test_new_weights_make_the_engine_forget(model):
    engine = native(model)

    async def scenario():
        session = Session("x")
        ids = [5, 6, 7]
        sampling = Sampling(max_tokens=4, stop_ids=(STOP,), temperature=0.0)
        first = await engine.generate(ids, sampling, session)
        with torch.no_grad():
            model.lm_head.weight.mul_(-1)  # tied: the embeddings change too
        await engine.sync_weights(version=1)
        longer = [*ids, *first.ids, 8]
        second = await engine.generate(longer, sampling, session)
        hidden = hidden_states(model, torch.tensor([longer]), torch.arange(len(longer))[None])
        expected = model.lm_head(hidden)[0, -1].argmax().item()
        with torch.no_grad():
            model.lm_head.weight.mul_(-1)
        return first, second, expected

    first, second, expected = asyncio.run(scenario())
    assert (first.version, second.version) == (0, 1)
    assert second.ids[0] == expected


@pytest.mark.parametrize("deterministic", [True, False])
def test_replies_in_the_making_are_completed_before_the_weights_change(model, deterministic):
    """Two slots, six callers: two have their replies when `load` is called, and the others wait for
    the new weights.
    """
    engine = native(model, slots=2, deterministic=deterministic)

    async def scenario():
        sampling = Sampling(max_tokens=30)
        sessions = [Session(str(n)) for n in range(6)]
        replies = [
            asyncio.create_task(engine.generate([5, n + 2], sampling, sessions[n]))
            for n in range(6)
        ]
        while not engine._running:
            await asyncio.sleep(0)
        await engine.sync_weights(version=1)
        in_between = [reply.done() for reply in replies]
        for reply, session in zip(replies, sessions, strict=True):
            reply.add_done_callback(lambda _, session=session: engine.release(session))
        for session in sessions[:2]:
            engine.release(session)
        return in_between, [(await reply).version for reply in replies]

    in_between, versions = asyncio.run(asyncio.wait_for(scenario(), timeout=30))
    assert in_between == [True] * 2 + [False] * 4
    assert versions == [0] * 2 + [1] * 4


def test_an_engine_with_weights_of_its_own_changes_them_at_the_hand_over_only(model):
    learners = copy.deepcopy(model)
    engine = TorchEngineSettings(slots=4).build(learners, 1024, overlaps_updates=True)
    before = asyncio.run(episode(engine, 0)).segments
    with torch.no_grad():
        learners.lm_head.weight.mul_(-1)
    assert asyncio.run(episode(engine, 0)).segments == before
    asyncio.run(engine.sync_weights(version=1))
    assert (
        asyncio.run(episode(engine, 0)).segments
        == asyncio.run(episode(native(learners), 0)).segments
        != before
    )


def test_a_context_that_is_too_long_is_an_error(model):
    with pytest.raises(ValueError, match="exceed the context of 1024"):
        asyncio.run(native(model).generate([2] * 1020, Sampling(max_tokens=10), Session("x")))


def test_a_model_that_fails_fails_every_waiting_episode(model):
    engine = native(model)

    async def scenario():
        calls = [
            engine.generate(ids, Sampling(max_tokens=2), Session("x")) for ids in ([5], [9999], [6])
        ]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=20)

    assert [type(outcome) for outcome in asyncio.run(scenario())] == [EngineFailed] * 3


def test_sampling_follows_the_distribution():
    # logits of probabilities .1 .2 .7: uniform numbers 0.05, 0.15, 0.29, 0.31, 0.99 fall on 0, 1,
    # 1, 2, 2
    logits = torch.tensor([0.1, 0.2, 0.7]).log().expand(5, 3)
    uniform = torch.tensor([0.05, 0.15, 0.29, 0.31, 0.99])
    tokens, logp = draw(logits, uniform, [Sampling()] * 5)
    assert tokens.tolist() == [0, 1, 1, 2, 2]
    assert logp.exp().tolist() == pytest.approx([0.1, 0.2, 0.2, 0.7, 0.7])


@pytest.mark.parametrize("vocabulary", [77, 256, 257, 5000])
def test_a_token_is_drawn_by_the_cumulative_distribution_whatever_its_block(vocabulary):
    torch.manual_seed(0)
    logits_BV = torch.randn(64, vocabulary) * 3
    uniform_B = torch.rand(64, dtype=torch.float64)
    tokens_B, logp_B = draw(logits_BV, uniform_B, [Sampling(temperature=0.7)] * 64)
    probability_BV = (logits_BV.double() / 0.7).softmax(-1)
    upper_BV = probability_BV.cumsum(-1)
    expected_B = (upper_BV <= uniform_B[:, None]).sum(-1)
    assert tokens_B.tolist() == expected_B.tolist()
    expected_logp_B = probability_BV.gather(-1, tokens_B[:, None])[:, 0].log()
    torch.testing.assert_close(logp_B.double(), expected_logp_B, atol=2e-6, rtol=0)


def test_the_ends_of_a_large_vocabulary_can_be_drawn_and_nothing_beyond():
    logits_BV = torch.full((3, 1000), -torch.inf)
    logits_BV[:, [0, 999]] = 0.0
    uniform_B = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    tokens_B, _ = draw(logits_BV, uniform_B, [Sampling()] * 3)
    assert tokens_B.tolist() == [0, 999, 999]


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(4, 5)
    tokens, _ = draw(logits, torch.tensor([0.0, 0.5, 0.999, 1.0 - 1e-9]), [Sampling()] * 4)
    assert tokens.tolist() == [1, 3, 3, 3]


def test_top_k_and_top_p_cut_the_tail_but_log_probs_stay_the_policys():
    logits = torch.tensor([[0.1, 0.2, 0.7]]).log()
    # top-k 2 keeps .2 and .7 of .9: a uniform number of 0.2 is below .2/.9 = .222
    tokens, logp = draw(logits, torch.tensor([0.2]), [Sampling(top_k=2)])
    assert (tokens.item(), logp.exp().item()) == (1, pytest.approx(0.2))
    # top-p 0.65 keeps the first token whose mass reaches it: .7 alone
    tokens, _ = draw(logits, torch.tensor([0.01]), [Sampling(top_p=0.65)])
    assert tokens.item() == 2


def test_noise_belongs_to_the_reply():
    sampling = Sampling(seed=5, max_tokens=10)
    assert noise(sampling) == noise(sampling)
    assert noise(replace(sampling, max_tokens=4)) == noise(sampling)[:4]
    assert noise(replace(sampling, seed=6)) != noise(sampling)
