"""The native engine in graphs. On a machine without CUDA these run in Triton's interpreter: TRITON_INTERPRET=1, with Triton installed."""

import asyncio
import os
from importlib.util import find_spec

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from palestra.batch import pack
from palestra.engines.base import Session
from palestra.engines.native import EngineFailed, NativeSettings
from palestra.learn.logprobs import predict
from palestra.model import new_model
from palestra.types import Sampling
from tests.contract.test_engines import STOP, episodes

CAN_RUN = find_spec("triton") is not None and (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not CAN_RUN, reason="needs CUDA, or Triton with TRITON_INTERPRET=1")]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def model():
    return new_model(vocabulary=97, width=64, layers=2, heads=4, context=1024, stop_id=1, seed=3, device=DEVICE)


def graphed(model, slots=4, **settings):
    return NativeSettings(slots=slots, graphs=True, **settings).build(model, 256)


def played(engine, count=5, turns=3, **settings):
    return asyncio.run(episodes(engine, count, turns=turns, max_tokens=6, **settings))


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "tokens"), [(6, 2, 32, 1100), (9, 3, 64, 70), (4, 4, 16, 33), (12, 2, 128, 600)])
def test_attention_of_one_token_over_slots(heads, kv_heads, dim, tokens):
    from palestra.engines.kernels import attend_one

    rng = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(7, kv_heads, tokens, dim, generator=rng).to(DEVICE) for _ in range(2))
    rows, lengths = torch.tensor([5, 0, 3]), torch.tensor([tokens, 1, tokens // 2])
    query = torch.randn(3, heads, dim, generator=rng).to(DEVICE)
    found = attend_one(query, keys, values, rows.to(DEVICE), lengths.to(DEVICE), scale=dim**-0.5)
    for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        k, v = (x[row, :, :length].repeat_interleave(heads // kv_heads, 0) for x in (keys, values))
        assert torch.allclose(found[i], scaled_dot_product_attention(query[i][:, None], k, v)[:, 0], atol=1e-4)


def test_greedy_replies_are_those_of_the_plain_engine(model):
    alone = NativeSettings(slots=4, graphs=False).build(model, 1024)
    plain, fast = (played(engine, temperature=0.0) for engine in (alone, graphed(model)))
    assert [t.segments[0].ids for t in fast] == [t.segments[0].ids for t in plain]
    for one, other in zip(plain, fast, strict=True):
        assert one.segments[0].logprobs == pytest.approx(other.segments[0].logprobs, abs=1e-4)


def test_log_probs_equal_the_learners(model):
    trajectories = played(graphed(model, slots=3), turns=4)
    batch = pack([trajectories]).to(DEVICE)
    with torch.no_grad():
        assert (predict(model, batch, 1.0).logp_C - batch.sampled_logp_C).abs().max() < 1e-4


def test_noise_belongs_to_an_episode_and_not_to_its_company(model):
    one, other = (played(graphed(model, slots=slots, chunk=chunk)) for slots, chunk in ((2, 1), (8, 3)))
    assert [t.segments[0].ids for t in one] == [t.segments[0].ids for t in other]


def test_the_beginnings_that_episodes_share_are_computed_once(model):
    """Two tasks with the same instructions, two episodes each: what follows is as if each had computed everything itself."""

    async def episode(engine, number):
        session = Session(str(number), None)
        ids = [*range(5, 75), *([80 + number % 2] * 6)]
        first = await engine.generate(ids, Sampling(temperature=0.0, max_tokens=4, stop_ids=(STOP,)), session)
        ids = [*ids, *first.ids, 9, 10 + number]
        second = await engine.generate(ids, Sampling(temperature=0.0, max_tokens=4, stop_ids=(STOP,)), session)
        engine.release(session)
        return first.ids, second.ids, [*first.logprobs, *second.logprobs]

    async def all_of(engine):
        return await asyncio.gather(*(episode(engine, number) for number in range(4)))

    plain, sharing = NativeSettings(slots=4, graphs=False).build(model, 1024), graphed(model)
    expected, found = asyncio.run(all_of(plain)), asyncio.run(all_of(sharing))
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[2] == pytest.approx(other[2], abs=1e-4)
    assert sharing.computed_tokens < plain.computed_tokens - 3 * 64


def test_tokens_are_drawn_by_their_probabilities():
    from palestra.engines.kernels import draw

    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -2.0]], device=DEVICE).expand(2000, 5).contiguous()
    ones = torch.ones(2000, device=DEVICE)
    tokens, logprobs = draw(logits, torch.arange(2000, device=DEVICE), torch.zeros(2000, dtype=torch.long, device=DEVICE), ones / 2, ones)
    expected = (logits[0] / 2).softmax(-1)
    shares = torch.bincount(tokens, minlength=5) / 2000
    assert (shares - expected).abs().max() < 4 * (0.25 / 2000) ** 0.5
    assert torch.allclose(logprobs, expected.log()[tokens], atol=1e-5)


def test_the_engine_samples_with_the_weights_as_they_are(model):
    engine = graphed(model)
    before = played(engine, temperature=0.0)
    last = model.base_model.layers[-1].mlp.down_proj.weight
    with torch.no_grad():
        last.mul_(-8)
    asyncio.run(engine.load(1))
    after = played(engine, temperature=0.0)
    with torch.no_grad():
        last.div_(-8)
    assert [t.segments[0].ids for t in after] != [t.segments[0].ids for t in before]


def test_nothing_is_kept_for_a_backward_pass(model):
    engine = graphed(model)
    seen = []
    hook = model.base_model.layers[0].register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    played(engine, count=2, turns=2)
    hook.remove()
    assert seen
    assert not any(seen)


def test_what_graphs_cannot_do_is_refused(model):
    async def ask(**settings):
        await graphed(model).generate([3, 4], Sampling(max_tokens=2, stop_ids=(STOP,), **settings), None)

    with pytest.raises(ValueError, match="graphs = false"):
        asyncio.run(ask(top_k=3))


def test_a_failure_reaches_those_who_wait(model):
    engine = graphed(model)
    engine.runner.prefill = None  # not callable: whatever breaks in there
    with pytest.raises(EngineFailed, match="not callable"):
        asyncio.run(engine.generate([3, 4], Sampling(max_tokens=2, stop_ids=(STOP,)), None))


@pytest.mark.skipif(DEVICE.type != "cuda", reason="bfloat16 needs the real thing")
def test_rounded_weights_stay_close_to_the_learner():
    model = new_model(vocabulary=4096, width=256, layers=4, heads=4, context=1024, stop_id=1, seed=3, device=DEVICE).to(torch.bfloat16)
    batch = pack([played(graphed(model, slots=16), count=32, turns=6)]).to(DEVICE)
    with torch.no_grad():
        difference = predict(model, batch, 1.0).logp_C - batch.sampled_logp_C
    assert (difference.exp() - 1 - difference).mean() < 1e-3
