"""Attention over KV cache slots in C++, against attention written out in float64."""

import math

import pytest
import torch

from palestra.engines.torch import ragged
from palestra.engines.torch.ragged import ragged_attention

CPU = torch.device("cpu")


def attention(dtype=torch.float32):
    function = ragged_attention(dtype, CPU)
    if function is None:
        pytest.skip("needs a C++ compiler")
    return function


def expected(query, keys, values, slots, lengths, scale):
    group = query.shape[1] // keys.shape[1]
    out = torch.empty(query.shape, dtype=torch.float64)
    for token, (slot, length) in enumerate(zip(slots.tolist(), lengths.tolist(), strict=True)):
        for head in range(query.shape[1]):
            own_keys = keys[slot, head // group, :length].double()
            own_values = values[slot, head // group, :length].double()
            weights = (own_keys @ query[token, head].double() * scale).softmax(0)
            out[token, head] = weights @ own_values
    return out


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 1e-2)], ids=str
)
@pytest.mark.parametrize(
    ("heads", "key_heads", "dim"), [(4, 4, 32), (9, 3, 64), (4, 1, 128), (6, 2, 40)], ids=str
)
def test_each_token_attends_to_its_own_slot_up_to_its_length(
    dtype, tolerance, heads, key_heads, dim
):
    torch.manual_seed(0)
    keys, values = torch.randn(2, 7, key_heads, 51, dim).to(dtype).unbind()
    query = torch.randn(5, heads, dim).to(dtype)
    slots, lengths = torch.tensor([6, 0, 3, 3, 1]), torch.tensor([50, 1, 17, 18, 33])
    given = (query, keys, values, slots, lengths, dim**-0.5)
    found = attention(dtype)(*given)
    assert found.dtype == dtype
    assert (found.double() - expected(*given)).abs().max() < tolerance


def test_what_lies_behind_the_length_is_never_read():
    torch.manual_seed(0)
    keys, values = torch.randn(2, 2, 1, 9, 32).unbind()
    query, slots, lengths = torch.randn(1, 2, 32), torch.tensor([1]), torch.tensor([4])
    before = attention()(query, keys, values, slots, lengths, 1.0)
    keys[1, :, 4:], values[1, :, 4:] = math.nan, math.inf
    keys[0], values[0] = math.nan, math.nan
    assert torch.equal(attention()(query, keys, values, slots, lengths, 1.0), before)


@pytest.mark.parametrize("size", [1e-4, 1.0, 30.0, 1e4])
def test_scores_of_any_size(size):
    """Large scores overflow a softmax that does not subtract the largest one."""
    torch.manual_seed(0)
    keys, values = torch.randn(2, 1, 1, 40, 64).unbind()
    query = torch.randn(1, 1, 64) * size
    given = (query, keys, values, torch.tensor([0]), torch.tensor([40]), 1.0)
    found = attention()(*given)
    # A score of 1e4 has an error of 1e-3 in float32, and so has its exponential.
    torch.testing.assert_close(found.double(), expected(*given), atol=1e-5 + 1e-6 * size, rtol=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_bit(threads):
    torch.manual_seed(0)
    keys, values = torch.randn(2, 16, 3, 200, 64).unbind()
    query = torch.randn(16, 9, 64)
    given = (query, keys, values, torch.arange(16), torch.arange(16) * 12 + 1, 0.125)
    before = torch.get_num_threads()
    one = attention()(*given)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(attention()(*given), one)
    finally:
        torch.set_num_threads(before)


def test_the_library_is_built_once(tmp_path, monkeypatch):
    attention()  # skips without a compiler
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = ragged.compiler_of()
    built = ragged.built_library(compiler)
    changed = built.stat().st_mtime_ns
    assert ragged.built_library(compiler) == built
    assert [path.name for path in built.parent.iterdir()] == [built.name]
    assert built.stat().st_mtime_ns == changed


def test_without_a_compiler_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ragged.compiler_of() is None


def test_a_compiler_that_fails_is_none(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    assert ragged.load_library(str(broken)) is None


def test_other_kinds_of_cache_have_none():
    assert ragged_attention(torch.float64, CPU) is None
    assert ragged_attention(torch.float32, torch.device("meta")) is None
