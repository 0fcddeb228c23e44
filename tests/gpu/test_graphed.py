"""The native engine in graphs.

On a machine without CUDA these run in Triton's interpreter: TRITON_INTERPRET=1, with Triton
installed.
"""

import asyncio
import os
from importlib.util import find_spec

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from palestra.algos.batch import pack
from palestra.core.types import Sampling
from palestra.engines.base import EngineFailed, Session
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.learner.logprobs import predict
from palestra.models.loading import load_model, prepare_model
from palestra.models.tiny import tiny_model
from tests.support.engines import STOP, computed_once, episodes

CAN_RUN = find_spec("triton") is not None and (
    torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CAN_RUN, reason="needs CUDA, or Triton with TRITON_INTERPRET=1"),
]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def model():
    return tiny_model(
        vocabulary=97, width=64, layers=2, heads=4, context=1024, stop_id=1, seed=3, device=DEVICE
    )


def graphed(model, slots=4, **settings):
    return TorchEngineSettings(slots=slots, graphs=True, **settings).build(model, 256)


def played(engine, count=5, turns=3, **settings):
    return asyncio.run(episodes(engine, count, turns=turns, max_tokens=6, **settings))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "tokens"),
    [(6, 2, 32, 1100), (9, 3, 64, 70), (4, 4, 16, 33), (12, 2, 128, 600)],
)
def test_attention_of_one_token_over_slots(heads, kv_heads, dim, tokens):
    from palestra.engines.torch.kernels import attend_one

    rng = torch.Generator().manual_seed(0)
    keys, values = (
        torch.randn(7, kv_heads, tokens, dim, generator=rng).to(DEVICE) for _ in range(2)
    )
    rows, lengths = torch.tensor([5, 0, 3]), torch.tensor([tokens, 1, tokens // 2])
    query = torch.randn(3, heads, dim, generator=rng).to(DEVICE)
    found = attend_one(query, keys, values, rows.to(DEVICE), lengths.to(DEVICE), scale=dim**-0.5)
    for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        k, v = (x[row, :, :length].repeat_interleave(heads // kv_heads, 0) for x in (keys, values))
        assert torch.allclose(
            found[i], scaled_dot_product_attention(query[i][:, None], k, v)[:, 0], atol=1e-4
        )


def test_greedy_replies_are_those_of_the_plain_engine(model):
    alone = TorchEngineSettings(slots=4, graphs=False).build(model, 1024)
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
    one, other = (
        played(graphed(model, slots=slots, decode_chunk=decode_chunk))
        for slots, decode_chunk in ((2, 1), (8, 3))
    )
    assert [t.segments[0].ids for t in one] == [t.segments[0].ids for t in other]


def test_the_beginnings_that_episodes_share_are_computed_once(model):
    computed_once(graphed(model, slots=6))


def test_tokens_are_drawn_by_their_probabilities():
    from palestra.engines.torch.device_state import SlotState
    from palestra.engines.torch.kernels import draw

    count, rows = 2000, torch.arange(2000, device=DEVICE)
    state = SlotState(count, 3, DEVICE)
    state.seeds[:count], state.sharpness[:], state.limit[:], state.active[:] = rows, 0.5, 2, 1
    logits = (
        torch.tensor([[2.0, 1.0, 0.0, -1.0, -2.0]], device=DEVICE).expand(count, 5).contiguous()
    )
    draw(logits, rows, state)
    tokens, expected = state.reply_ids[:count, 0], (logits[0] / 2).softmax(-1)
    assert (torch.bincount(tokens, minlength=5) / count - expected).abs().max() < 4 * (
        0.25 / count
    ) ** 0.5
    assert torch.allclose(state.reply_logprobs[:count, 0], expected.log()[tokens], atol=1e-5)


def test_a_reply_goes_on_until_its_limit_or_a_stop_token():
    from palestra.engines.torch.device_state import SlotState
    from palestra.engines.torch.kernels import draw

    state = SlotState(4, 8, DEVICE)
    state.noise[:], state.limit[:], state.active[:3] = 0, 2, 1
    state.positions[:3], state.stops[1, 2] = torch.tensor([10, 20, 30], device=DEVICE), 3
    logits = (
        torch.nn.functional.one_hot(torch.tensor([4, 3, 0, 1]), 5).float().to(DEVICE)
    )  # what slots 2, 1, 0 and 3 like best
    rows = torch.tensor([2, 1, 0, 3], device=DEVICE)
    draw(logits, rows, state)
    assert state.active.tolist() == [1, 0, 1, 0, 0]  # slot 1 took its stop token, slot 3 rested
    assert (state.ids[:4].tolist(), state.positions[:4].tolist(), state.produced[:4].tolist()) == (
        [0, 3, 4, 0],
        [11, 21, 31, 0],
        [1, 1, 1, 0],
    )
    draw(logits, rows, state)
    assert state.active.tolist() == [0, 0, 0, 0, 0]
    assert state.reply_ids[:3, :2].tolist() == [[0, 0], [3, 0], [4, 4]]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_few_kernels_compute_what_the_model_does(kind):
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    from palestra.engines.torch.decoder import Few

    if kind == "llama":
        model = tiny_model(
            vocabulary=97,
            width=64,
            layers=2,
            heads=4,
            context=1024,
            stop_id=1,
            seed=3,
            device=DEVICE,
        )
    else:
        make, network = {
            "qwen2": (Qwen2Config, Qwen2ForCausalLM),
            "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        }[kind]
        sizes = {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 96,
        }
        torch.manual_seed(1)
        model = network(
            make(
                vocab_size=97,
                max_position_embeddings=1024,
                **sizes,
                **({"head_dim": 32} if kind == "qwen3" else {}),
            )
        )
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.add_(
                    0.3 * torch.randn_like(weight)
                ) if "norm" in name or "bias" in name else None
        model = prepare_model(model.to(DEVICE))
    plain, few = TorchEngineSettings(slots=4, graphs=False).build(model, 256), graphed(model)
    assert isinstance(few.runner.decoder, Few)
    expected, found = (played(engine, temperature=0.0) for engine in (plain, few))
    assert [t.segments[0].ids for t in found] == [t.segments[0].ids for t in expected]
    for one, other in zip(expected, found, strict=True):
        assert one.segments[0].logprobs == pytest.approx(other.segments[0].logprobs, abs=1e-4)


def test_joined_weights_stay_the_models_own(tmp_path):
    """Two engines on one model, an update, a saved directory: all see the same weights."""
    model = tiny_model(
        vocabulary=97, width=64, layers=1, heads=4, context=256, stop_id=1, seed=3, device=DEVICE
    )
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    first, second = graphed(model), graphed(model)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    query = model.base_model.layers[0].self_attn.q_proj.weight
    with torch.no_grad():
        query.add_(1)
    for engine in (first, second):
        assert torch.equal(engine.runner.decoder.layers[0].joined[0][: len(query)], query)
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path, device=DEVICE, dtype=torch.float32).state_dict()
    assert all(torch.equal(weight, again[name]) for name, weight in model.state_dict().items())


def test_the_engine_samples_with_the_weights_as_they_are(model):
    engine = graphed(model)
    before = played(engine, temperature=0.0)
    last = model.base_model.layers[-1].mlp.down_proj.weight
    with torch.no_grad():
        last.mul_(-8)
    asyncio.run(engine.sync_weights(1))
    after = played(engine, temperature=0.0)
    with torch.no_grad():
        last.div_(-8)
    assert [t.segments[0].ids for t in after] != [t.segments[0].ids for t in before]


def test_nothing_is_kept_for_a_backward_pass(model):
    engine = graphed(model)
    seen = []
    hook = model.base_model.layers[0].self_attn.o_proj.register_forward_hook(
        lambda *_: seen.append(torch.is_grad_enabled())
    )
    played(engine, count=2, turns=2)
    hook.remove()
    assert seen
    assert not any(seen)


def test_what_graphs_cannot_do_is_refused(model):
    async def ask(**settings):
        await graphed(model).generate(
            [3, 4], Sampling(max_tokens=2, stop_ids=(STOP,), **settings), None
        )

    with pytest.raises(ValueError, match="graphs = false"):
        asyncio.run(ask(top_k=3))


def test_a_failure_reaches_those_who_wait(model):
    engine = graphed(model)
    engine.runner.prefill = None  # not callable: whatever breaks in there
    with pytest.raises(EngineFailed, match="not callable"):
        asyncio.run(engine.generate([3, 4], Sampling(max_tokens=2, stop_ids=(STOP,)), Session("x")))


@pytest.mark.skipif(DEVICE.type != "cuda", reason="bfloat16 needs the real thing")
def test_rounded_weights_stay_close_to_the_learner():
    model = tiny_model(
        vocabulary=4096,
        width=256,
        layers=4,
        heads=4,
        context=1024,
        stop_id=1,
        seed=3,
        device=DEVICE,
    ).to(torch.bfloat16)
    batch = pack([played(graphed(model, slots=16), count=32, turns=6)]).to(DEVICE)
    with torch.no_grad():
        difference = predict(model, batch, 1.0).logp_C - batch.sampled_logp_C
    assert (difference.exp() - 1 - difference).mean() < 1e-3
