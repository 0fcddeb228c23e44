"""Triton kernels of the native engine: attention over cache slots, and sampling. Importing this needs Triton.

Keys and values lie in slots, [slots, heads, tokens, dim], as `SlotCache` has them. Everything that changes from call to call is read
from tensors, so that a captured graph can be replayed.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634


@triton.jit
def _attend_one(
    query, keys, values, rows, lengths, out, peaks, totals, scale, row_stride, head_stride, split_tokens,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One new token of each row against a stretch of its slot: the query heads of a key head together, softmax in base 2."""
    request, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    length = tl.load(lengths + request)
    start = split * split_tokens
    end = tl.minimum(start + split_tokens, length)
    group, dim = tl.arange(0, GROUP_BLOCK), tl.arange(0, DIM)
    place = query + (request * KV_HEADS + head) * GROUP * DIM + group[:, None] * DIM + dim[None, :]
    q = tl.load(place, mask=group[:, None] < GROUP, other=0.0)
    base = tl.load(rows + request).to(tl.int64) * row_stride + head * head_stride
    peak = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    acc = tl.zeros([GROUP_BLOCK, DIM], tl.float32)
    for first in range(start, end, BLOCK):
        token = first + tl.arange(0, BLOCK)
        inside = token[:, None] < end
        k = tl.load(keys + base + token[:, None] * DIM + dim[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        scores = tl.where(token[None, :] < end, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weight = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(peak - higher)
        v = tl.load(values + base + token[:, None] * DIM + dim[None, :], mask=inside, other=0.0)
        total = total * fade + tl.sum(weight, 1)
        acc = acc * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        peak = higher
    part = ((request * KV_HEADS + head) * splits + split) * GROUP_BLOCK + group
    tl.store(out + part[:, None] * DIM + dim[None, :], acc)
    tl.store(peaks + part, peak)
    tl.store(totals + part, total)


@triton.jit
def _join_splits(
    parts, peaks, totals, out,
    GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, DIM: tl.constexpr, SPLITS: tl.constexpr, SPLITS_BLOCK: tl.constexpr,
):  # fmt: skip
    """The stretches of a slot as one: softmax is a weighted mean, and each stretch brought its weight along."""
    request, head = tl.program_id(0), tl.program_id(1)
    kv_heads = tl.num_programs(1) // GROUP
    split, dim = tl.arange(0, SPLITS_BLOCK), tl.arange(0, DIM)
    part = ((request * kv_heads + head // GROUP) * SPLITS + split) * GROUP_BLOCK + head % GROUP
    peak = tl.load(peaks + part, mask=split < SPLITS, other=float("-inf"))
    weight = tl.exp2(peak - tl.max(peak, 0))
    total = tl.sum(weight * tl.load(totals + part, mask=split < SPLITS, other=0.0), 0)
    acc = tl.load(parts + part[:, None] * DIM + dim[None, :], mask=split[:, None] < SPLITS, other=0.0)
    mean = tl.sum(acc * weight[:, None], 0) / total
    tl.store(out + (request * tl.num_programs(1) + head) * DIM + dim, mean.to(out.dtype.element_ty))


@triton.jit
def _attend_new(
    query, keys, values, block_slot, block_first, block_count, block_position, out, scale, row_stride, head_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK_NEW: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A few new tokens of one slot against all that it holds, up to themselves. Blocks without tokens rest."""
    block, head = tl.program_id(0), tl.program_id(1)
    count = tl.load(block_count + block)
    if count > 0:
        slot, first, position = tl.load(block_slot + block), tl.load(block_first + block), tl.load(block_position + block)
        new, dim = tl.arange(0, BLOCK_NEW), tl.arange(0, DIM)
        place = ((first + new)[:, None] * HEADS + head) * DIM + dim[None, :]
        q = tl.load(query + place, mask=new[:, None] < count, other=0.0)
        base = slot.to(tl.int64) * row_stride + (head // GROUP) * head_stride
        peak = tl.full([BLOCK_NEW], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_NEW], tl.float32)
        acc = tl.zeros([BLOCK_NEW, DIM], tl.float32)
        end = position + count
        for start in range(0, end, BLOCK):
            token = start + tl.arange(0, BLOCK)
            inside = token[:, None] < end
            k = tl.load(keys + base + token[:, None] * DIM + dim[None, :], mask=inside, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            scores = tl.where(token[None, :] <= (position + new)[:, None], scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            weight = tl.exp2(scores - higher[:, None])
            fade = tl.exp2(peak - higher)
            v = tl.load(values + base + token[:, None] * DIM + dim[None, :], mask=inside, other=0.0)
            total = total * fade + tl.sum(weight, 1)
            acc = acc * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
            peak = higher
        tl.store(out + place, (acc / total[:, None]).to(out.dtype.element_ty), mask=new[:, None] < count)


@triton.jit
def _draw_part(
    logits, seeds, counts, sharpness, noise, best, best_at, best_logit, peaks, totals, words, part_words,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of a stretch of the vocabulary: the word that wins with Gumbel noise added, and the sum of all weights."""
    row, part = tl.program_id(0), tl.program_id(1)
    seed, count = tl.load(seeds + row), tl.load(counts + row)
    sharp, loud = tl.load(sharpness + row), tl.load(noise + row)
    lane = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    top_at = tl.zeros([BLOCK], tl.int32)
    top_logit = tl.full([BLOCK], float("-inf"), tl.float32)
    peak = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(part * part_words, (part + 1) * part_words, BLOCK):
        word = first + lane
        inside = (word < (part + 1) * part_words) & (word < words)
        logit = tl.load(logits + row.to(tl.int64) * words + word, mask=inside, other=float("-inf")).to(tl.float32) * sharp
        uniform = tl.rand(seed, count * words + word)
        score = logit + loud * -tl.log(-tl.log(uniform))
        score = tl.where(inside & (score == score), score, float("-inf"))
        wins = score > top
        top_at = tl.where(wins, word, top_at)
        top_logit = tl.where(wins, logit, top_logit)
        top = tl.where(wins, score, top)
        higher = tl.maximum(peak, tl.where(inside, logit, -1e30))
        total = total * tl.exp(peak - higher) + tl.where(inside, tl.exp(logit - higher), 0.0)
        peak = higher
    place = row * PARTS + part
    winner = tl.argmax(top, 0)
    highest = tl.max(peak, 0)
    tl.store(best + place, tl.max(top, 0))
    tl.store(best_at + place, tl.sum(tl.where(lane == winner, top_at, 0), 0))
    tl.store(best_logit + place, tl.sum(tl.where(lane == winner, top_logit, 0.0), 0))
    tl.store(peaks + place, highest)
    tl.store(totals + place, tl.sum(total * tl.exp(peak - highest), 0))


BLOCK_NEW = 32
"""New tokens of one slot that are computed together."""
SPLIT_TOKENS = 512
"""Tokens of a slot that one program reads when a single token is new."""
PARTS = 8
"""Stretches of the vocabulary that are searched apart."""


def _precision(query: Tensor) -> str:
    """Full precision for float32: what is not rounded on the way in must not be rounded here."""
    return "ieee" if query.dtype == torch.float32 else "tf32"


def attend_one(query_BHD: Tensor, keys: Tensor, values: Tensor, rows_B: Tensor, lengths_B: Tensor, *, scale: float) -> Tensor:
    """Attention of one new token per row; its own key and value are in the cache already."""
    requests, heads, dim = query_BHD.shape
    kv_heads, tokens = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    group_block, splits = max(16, triton.next_power_of_2(group)), triton.cdiv(tokens, SPLIT_TOKENS)
    like: dict[str, Any] = {"device": query_BHD.device, "dtype": torch.float32}
    parts = torch.empty(requests, kv_heads, splits, group_block, dim, **like)
    peaks, totals = (torch.empty(requests, kv_heads, splits, group_block, **like) for _ in range(2))
    query_BHD = query_BHD.contiguous()
    _attend_one[(requests, kv_heads, splits)](
        query_BHD, keys, values, rows_B, lengths_B, parts, peaks, totals, scale * LOG2_E, keys.stride(0), keys.stride(1), SPLIT_TOKENS,
        KV_HEADS=kv_heads, GROUP=group, GROUP_BLOCK=group_block, DIM=dim, BLOCK=64, PRECISION=_precision(query_BHD),
    )  # fmt: skip
    out = torch.empty_like(query_BHD)
    _join_splits[(requests, heads)](
        parts, peaks, totals, out,
        GROUP=group, GROUP_BLOCK=group_block, DIM=dim, SPLITS=splits, SPLITS_BLOCK=triton.next_power_of_2(splits),
    )  # fmt: skip
    return out


def attend_new(query_THD: Tensor, keys: Tensor, values: Tensor, blocks: tuple[Tensor, Tensor, Tensor, Tensor], *, scale: float) -> Tensor:
    """Attention of new tokens laid end to end. `blocks`: the slot, first token, count and position of each stretch of `BLOCK_NEW`."""
    query_THD = query_THD.contiguous()
    heads, dim = query_THD.shape[1:]
    out = torch.zeros_like(query_THD)
    _attend_new[(len(blocks[0]), heads)](
        query_THD, keys, values, *blocks, out, scale * LOG2_E, keys.stride(0), keys.stride(1),
        HEADS=heads, GROUP=heads // keys.shape[1], DIM=dim, BLOCK_NEW=BLOCK_NEW, BLOCK=64, PRECISION=_precision(query_THD),
    )  # fmt: skip
    return out


def draw(logits_BV: Tensor, seeds_B: Tensor, counts_B: Tensor, sharpness_B: Tensor, noise_B: Tensor) -> tuple[Tensor, Tensor]:
    """A word for each row and its log-prob, in one reading of the logits (arXiv:1411.0030: the largest of logit plus Gumbel noise).

    The noise of a word is a function of the row's seed, of how many tokens its reply has, and of the word: it belongs to an episode
    and not to a batch. `sharpness` is 1 / temperature; `noise` is 0 for rows that take the likeliest word.
    """
    rows, words = logits_BV.shape
    floats: dict[str, Any] = {"device": logits_BV.device, "dtype": torch.float32}
    best, best_logit, peaks, totals = (torch.empty(rows, PARTS, **floats) for _ in range(4))
    best_at = torch.empty(rows, PARTS, device=logits_BV.device, dtype=torch.int32)
    _draw_part[(rows, PARTS)](
        logits_BV.contiguous(), seeds_B, counts_B, sharpness_B, noise_B, best, best_at, best_logit, peaks, totals,
        words, triton.cdiv(words, PARTS), PARTS=PARTS, BLOCK=1024,
    )  # fmt: skip
    winner = best.argmax(1, keepdim=True)
    log_total = (peaks + totals.log()).logsumexp(1)
    return best_at.gather(1, winner)[:, 0].long(), best_logit.gather(1, winner)[:, 0] - log_total
