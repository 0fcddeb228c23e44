"""Triton kernels of the native engine: attention over cache slots, and sampling. Importing this
needs Triton.

Keys and values lie in slots, [slots, heads, tokens, dim], as `SlotCache` has them. Everything that
changes from call to call is read from tensors, so that a captured graph can be replayed.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from palestra.engines.torch.device_state import SlotState

LOG2_E = 1.4426950408889634


@triton.jit
def _attend_one(
    query, keys, values, rows, lengths, out, peaks, totals, scale, row_stride, head_stride,
    split_tokens,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One new token of each row against a stretch of its slot: the query heads of a key head
    together, softmax in base 2.
    """
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
    part = ((request * KV_HEADS + head) * splits + split) * GROUP + group
    is_used = (group < GROUP) & (start < length)  # nobody reads the stretches behind the last token
    tl.store(out + part[:, None] * DIM + dim[None, :], acc, mask=is_used[:, None])
    tl.store(peaks + part, peak, mask=is_used)
    tl.store(totals + part, total, mask=is_used)


@triton.jit
def _join_splits(
    parts, peaks, totals, lengths, out, split_tokens,
    GROUP: tl.constexpr, DIM: tl.constexpr, SPLITS: tl.constexpr, SPLITS_BLOCK: tl.constexpr,
):  # fmt: skip
    """The stretches of a slot as one: softmax is a weighted mean, and each stretch brought its
    weight along.
    """
    request, head = tl.program_id(0), tl.program_id(1)
    kv_heads = tl.num_programs(1) // GROUP
    split, dim = tl.arange(0, SPLITS_BLOCK), tl.arange(0, DIM)
    part = ((request * kv_heads + head // GROUP) * SPLITS + split) * GROUP + head % GROUP
    is_used = split * split_tokens < tl.load(lengths + request)
    peak = tl.load(peaks + part, mask=is_used, other=float("-inf"))
    weight = tl.exp2(peak - tl.max(peak, 0))
    total = tl.sum(weight * tl.load(totals + part, mask=is_used, other=0.0), 0)
    acc = tl.load(parts + part[:, None] * DIM + dim[None, :], mask=is_used[:, None], other=0.0)
    mean = tl.sum(acc * weight[:, None], 0) / total
    tl.store(out + (request * tl.num_programs(1) + head) * DIM + dim, mean.to(out.dtype.element_ty))


@triton.jit
def _attend_new(
    query, keys, values, block_slot, block_first, block_count, block_position, out, scale,
    row_stride, head_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK_NEW: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A few new tokens of one slot against all that it holds, up to themselves.

    Blocks without tokens rest.
    """
    block, head = tl.program_id(0), tl.program_id(1)
    count = tl.load(block_count + block)
    if count > 0:
        slot, first, position = (
            tl.load(block_slot + block),
            tl.load(block_first + block),
            tl.load(block_position + block),
        )
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
        tl.store(
            out + place, (acc / total[:, None]).to(out.dtype.element_ty), mask=new[:, None] < count
        )


@triton.jit
def _draw_part(
    logits, rows, seeds, counts, sharpness, noise, best, best_at, best_logit, peaks, totals, words,
    part_words,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of a stretch of the vocabulary: the word that wins with Gumbel noise added, and the sum of
    all weights.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    slot = tl.load(rows + row)
    seed, count = tl.load(seeds + slot), tl.load(counts + slot)
    sharp, loud = tl.load(sharpness + slot), tl.load(noise + slot)
    lane = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    top_at = tl.zeros([BLOCK], tl.int32)
    top_logit = tl.full([BLOCK], float("-inf"), tl.float32)
    peak = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(part * part_words, (part + 1) * part_words, BLOCK):
        word = first + lane
        inside = (word < (part + 1) * part_words) & (word < words)
        logit = (
            tl.load(logits + row.to(tl.int64) * words + word, mask=inside, other=float("-inf")).to(
                tl.float32
            )
            * sharp
        )
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


@triton.jit
def _note(
    best, best_at, best_logit, peaks, totals, rows, ids, positions, produced, limit, active, stops,
    reply_ids, reply_logprobs, columns,
    PARTS: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    """The winner of all stretches becomes the slot's newest token, where its reply goes on; the
    last column is for those that rest.
    """
    slot = tl.load(rows + tl.program_id(0))
    each = tl.arange(0, PARTS)
    part = tl.program_id(0) * PARTS + each
    is_winner = each == tl.argmax(tl.load(best + part), 0)
    token = tl.sum(tl.where(is_winner, tl.load(best_at + part), 0), 0).to(tl.int64)
    logit = tl.sum(tl.where(is_winner, tl.load(best_logit + part), 0.0), 0)
    peak = tl.load(peaks + part)
    highest = tl.max(peak, 0)
    log_total = highest + tl.log(tl.sum(tl.load(totals + part) * tl.exp(peak - highest), 0))
    goes_on, count = tl.load(active + slot), tl.load(produced + slot)
    place = slot * columns + tl.where(goes_on > 0, count, columns - 1)
    tl.store(reply_ids + place, token)
    tl.store(reply_logprobs + place, logit - log_total)
    stop = tl.load(stops + slot * STOPS + tl.arange(0, STOPS))
    is_last = (tl.sum(tl.where(stop == token, 1, 0), 0) > 0) | (count + 1 >= tl.load(limit + slot))
    tl.store(ids + slot, tl.where(goes_on > 0, token, tl.load(ids + slot)))
    tl.store(positions + slot, tl.load(positions + slot) + goes_on)
    tl.store(produced + slot, count + goes_on)
    tl.store(active + slot, tl.where(is_last, 0, goes_on))


@triton.jit
def _add_norm(
    x, residual, weight, out, eps, IS_FIRST: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """residual + x, kept as the new residual, and its normalization."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < WIDTH
    place = row * WIDTH + column
    value = tl.load(x + place, mask=inside, other=0.0)
    if not IS_FIRST:
        value += tl.load(residual + place, mask=inside, other=0.0)
    tl.store(residual + place, value, mask=inside)
    exact = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(exact * exact, 0) / WIDTH + eps)
    normal = (exact * scale).to(out.dtype.element_ty)
    tl.store(out + place, normal * tl.load(weight + column, mask=inside, other=0.0), mask=inside)


@triton.jit
def _place(
    joined, cosines, sines, positions, rows, write_at, query, keys, values, query_norm, key_norm,
    eps, row_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    """One head of one token: queries and keys are turned by their position, keys and values go to
    the token's slot.
    """
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, HALF)
    source = joined + (token * (HEADS + 2 * KV_HEADS) + head) * 2 * HALF + lane
    low, high = tl.load(source), tl.load(source + HALF)
    slot_place = tl.load(rows + token) * row_stride + tl.load(write_at + token) * 2 * HALF
    if head >= HEADS + KV_HEADS:
        target = values + slot_place + (head - HEADS - KV_HEADS) * head_stride + lane
        tl.store(target, low)
        tl.store(target + HALF, high)
    else:
        kind = low.dtype
        if HAS_NORM:
            weight = query_norm + lane
            if head >= HEADS:
                weight = key_norm + lane
            exact_low, exact_high = low.to(tl.float32), high.to(tl.float32)
            scale = tl.rsqrt(
                (tl.sum(exact_low * exact_low, 0) + tl.sum(exact_high * exact_high, 0)) / (2 * HALF)
                + eps
            )
            low, high = (
                (exact_low * scale).to(kind) * tl.load(weight),
                (exact_high * scale).to(kind) * tl.load(weight + HALF),
            )
        angle = tl.load(positions + token) * HALF + lane
        cosine, sine = tl.load(cosines + angle), tl.load(sines + angle)
        turned_low = (low * cosine).to(kind) - (high * sine).to(kind)
        turned_high = (high * cosine).to(kind) + (low * sine).to(kind)
        if head < HEADS:
            target = query + (token * HEADS + head) * 2 * HALF + lane
            tl.store(target, turned_low)
            tl.store(target + HALF, turned_high)
        else:
            target = keys + slot_place + (head - HEADS) * head_stride + lane
            tl.store(target, turned_low)
            tl.store(target + HALF, turned_high)


@triton.jit
def _gate(joined, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """silu of the first half of a row, times its second half."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    g = tl.load(joined + row * 2 * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(joined + row * 2 * WIDTH + WIDTH + column, mask=inside, other=0.0)
    tl.store(
        out + row * WIDTH + column, (g * tl.sigmoid(g)).to(out.dtype.element_ty) * up, mask=inside
    )


BLOCK_NEW = 32
"""New tokens of one slot that are computed together."""
SPLIT_TOKENS = 512
"""Tokens of a slot that one program reads when a single token is new."""
PARTS = 8
"""Stretches of the vocabulary that are searched apart."""


def _precision(query: Tensor) -> str:
    """Full precision for float32: what is not rounded on the way in must not be rounded here."""
    return "ieee" if query.dtype == torch.float32 else "tf32"


def attend_one(
    query_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    rows_B: Tensor,
    lengths_B: Tensor,
    *,
    scale: float,
) -> Tensor:
    """Attention of one new token per row; its own key and value are in the cache already."""
    requests, heads, dim = query_BHD.shape
    kv_heads, tokens = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    group_block, splits = max(16, triton.next_power_of_2(group)), triton.cdiv(tokens, SPLIT_TOKENS)
    like: dict[str, Any] = {"device": query_BHD.device, "dtype": torch.float32}
    parts = torch.empty(requests, kv_heads, splits, group, dim, **like)
    peaks, totals = (torch.empty(requests, kv_heads, splits, group, **like) for _ in range(2))
    query_BHD = query_BHD.contiguous()
    _attend_one[(requests, kv_heads, splits)](
        query_BHD, keys, values, rows_B, lengths_B, parts, peaks, totals, scale * LOG2_E,
        keys.stride(0), keys.stride(1), SPLIT_TOKENS,
        KV_HEADS=kv_heads, GROUP=group, GROUP_BLOCK=group_block, DIM=dim, BLOCK=64,
        PRECISION=_precision(query_BHD),
    )  # fmt: skip
    out = torch.empty_like(query_BHD)
    _join_splits[(requests, heads)](
        parts, peaks, totals, lengths_B, out, SPLIT_TOKENS,
        GROUP=group, DIM=dim, SPLITS=splits, SPLITS_BLOCK=triton.next_power_of_2(splits),
    )  # fmt: skip
    return out


def attend_new(
    query_THD: Tensor,
    keys: Tensor,
    values: Tensor,
    blocks: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    scale: float,
) -> Tensor:
    """Attention of new tokens laid end to end.

    `blocks`: the slot, first token, count and position of each stretch of `BLOCK_NEW`.
    """
    query_THD = query_THD.contiguous()
    heads, dim = query_THD.shape[1:]
    out = torch.zeros_like(query_THD)
    _attend_new[(len(blocks[0]), heads)](
        query_THD, keys, values, *blocks, out, scale * LOG2_E, keys.stride(0), keys.stride(1),
        HEADS=heads, GROUP=heads // keys.shape[1], DIM=dim, BLOCK_NEW=BLOCK_NEW, BLOCK=64,
        PRECISION=_precision(query_THD),
    )  # fmt: skip
    return out


def draw(logits_BV: Tensor, rows_B: Tensor, state: SlotState) -> None:
    """A word for each row's slot and its log-prob, in one reading of the logits (arXiv:1411.0030:
    the largest of logit plus Gumbel noise).

    The noise of a word is a function of the slot's seed, of how many tokens its reply has, and of
    the word: it belongs to an episode and not to a batch. `sharpness` is 1 / temperature; `noise`
    is 0 for slots that take the likeliest word.
    """
    rows, words = logits_BV.shape
    floats: dict[str, Any] = {"device": logits_BV.device, "dtype": torch.float32}
    best, best_logit, peaks, totals = (torch.empty(rows, PARTS, **floats) for _ in range(4))
    best_at = torch.empty(rows, PARTS, device=logits_BV.device, dtype=torch.int32)
    found = (best, best_at, best_logit, peaks, totals)
    _draw_part[(rows, PARTS)](
        logits_BV.contiguous(), rows_B, state.seeds, state.produced, state.sharpness, state.noise,
        *found,
        words, triton.cdiv(words, PARTS), PARTS=PARTS, BLOCK=1024,
    )  # fmt: skip
    _note[(rows,)](
        *found, rows_B, state.ids, state.positions, state.produced, state.limit, state.active,
        state.stops,
        state.reply_ids, state.reply_logprobs, state.reply_ids.shape[1], PARTS=PARTS,
        STOPS=state.stops.shape[1],
    )  # fmt: skip


def add_norm(
    x_TD: Tensor, residual_TD: Tensor | None, weight_D: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The normalization of residual + x, and that sum, which takes the residual's place."""
    out = torch.empty_like(x_TD)
    tokens, width = x_TD.shape
    sum_TD = torch.empty_like(x_TD) if residual_TD is None else residual_TD
    block = triton.next_power_of_2(width)
    _add_norm[(tokens,)](
        x_TD, sum_TD, weight_D, out, eps, IS_FIRST=residual_TD is None, WIDTH=width, BLOCK=block
    )
    return out, sum_TD


def gate(joined_TF: Tensor) -> Tensor:
    """Of rows that hold what is gated and what is not, side by side."""
    tokens, width = joined_TF.shape[0], joined_TF.shape[1] // 2
    out = torch.empty(tokens, width, device=joined_TF.device, dtype=joined_TF.dtype)
    _gate[(tokens, triton.cdiv(width, 1024))](joined_TF, out, WIDTH=width, BLOCK=1024)
    return out


def place(
    joined_TE: Tensor, turns: tuple[Tensor, Tensor], at: tuple[Tensor, Tensor, Tensor],
    keys: Tensor, values: Tensor, *,
    heads: int, norms: tuple[Tensor, Tensor] | None, eps: float,
) -> Tensor:  # fmt: skip
    """Queries, turned by their position; keys and values go to their slots.

    `at`: position, slot and column of each token.
    """
    tokens, kv_heads, dim = len(joined_TE), keys.shape[1], keys.shape[3]
    query = torch.empty(tokens, heads, dim, device=joined_TE.device, dtype=joined_TE.dtype)
    _place[(tokens, heads + 2 * kv_heads)](
        joined_TE, *turns, *at, query, keys, values, *(norms or (query, query)), eps,
        keys.stride(0), keys.stride(1),
        HEADS=heads, KV_HEADS=kv_heads, HALF=dim // 2, HAS_NORM=norms is not None,
    )  # fmt: skip
    return query
