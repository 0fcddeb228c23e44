"""Digests of weights: any change shows, and an engine's own layout does not."""

import pytest
import torch

from palestra.engines import fingerprint as module
from palestra.engines.fingerprint import GOLDEN, differences, fingerprint
from palestra.engines.vllm.weight_layout import as_learners


def digest(weight):
    return fingerprint([("weight", weight)])["weight"]


def test_arithmetic():
    # one word: 1.0 in float64 is 0x3FF0000000000000; its place's multiplier is (1 * GOLDEN) | 1 =
    # GOLDEN, as GOLDEN is odd
    expected = 0x3FF0000000000000 * GOLDEN % 2**64
    assert digest(torch.tensor([1.0], dtype=torch.float64)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 48), (97, 3), (5,), (1,)])
def test_any_single_bit_shows(dtype, shape):
    torch.manual_seed(0)
    weight = torch.randn(shape).to(dtype)
    before = digest(weight)
    assert digest(weight.clone()) == before
    bits = weight.view(torch.int16 if dtype == torch.bfloat16 else torch.int32).flatten()
    for place in {0, bits.numel() // 2, bits.numel() - 1}:
        for bit in (0, 9, 15):
            bits[place] ^= 1 << bit if bit < 15 else -(2**15)
            assert digest(weight) != before
            bits[place] ^= 1 << bit if bit < 15 else -(2**15)
    assert digest(weight) == before


def test_exchanged_rows_show():
    weight = torch.randn(8, 16)
    assert digest(weight) != digest(weight[[1, 0, *range(2, 8)]])


def test_pieces_have_an_order(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    weight = torch.randn(3, 8)
    assert digest(weight) != digest(weight.flip(0))


def test_a_slice_that_begins_within_a_word_is_digested_like_its_copy():
    weight = torch.randn(10, 3)
    assert digest(weight[1:4]) == digest(weight[1:4].clone())


def test_an_engines_layout_does_not_matter():
    ours = {
        "model.embed_tokens.weight": torch.randn(97, 8),
        "model.layers.0.self_attn.q_proj.weight": torch.randn(8, 8),
        "model.layers.0.self_attn.k_proj.weight": torch.randn(4, 8),
        "model.layers.0.self_attn.v_proj.weight": torch.randn(4, 8),
        "model.layers.0.self_attn.q_proj.bias": torch.randn(8),
        "model.layers.0.self_attn.k_proj.bias": torch.randn(4),
        "model.layers.0.self_attn.v_proj.bias": torch.randn(4),
        "lm_head.weight": torch.randn(97, 8),
    }
    attention = "model.layers.0.self_attn"
    theirs = {
        "model.embed_tokens.weight": torch.cat(
            [ours["model.embed_tokens.weight"], torch.zeros(31, 8)]
        ),
        **{
            f"{attention}.qkv_proj.{kind}": torch.cat(
                [ours[f"{attention}.{part}_proj.{kind}"] for part in "qkv"]
            )
            for kind in ("weight", "bias")
        },
        "lm_head.weight": ours["lm_head.weight"],
    }
    shapes = {name: weight.shape for name, weight in ours.items()}
    expected = fingerprint(ours.items())

    def wrong():
        shards = ((name, [weight]) for name, weight in theirs.items())
        return differences(
            expected,
            fingerprint(as_learners(shards, {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}, shapes)),
        )

    assert wrong() == []
    theirs[f"{attention}.qkv_proj.weight"][9, 0] += 1e-6  # row 9 is the second of k_proj
    assert wrong() == [f"{attention}.k_proj.weight differs"]
    theirs[f"{attention}.qkv_proj.weight"] = torch.empty(0)  # packed away
    lost = [f"{attention}.{part}_proj.weight is missing" for part in "qkv"]
    assert wrong() == [*lost, f"{attention}.qkv_proj.weight is unknown to the learner"]
