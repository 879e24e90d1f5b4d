"""NumPy rules of composite ops.

Written from the op's documentation and not from its decomposition, so that comparing the two checks
both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array, ends, numpy_dtype
from graphgen.eval.elementwise import erf, logistic
from graphgen.eval.registry import composite_rule, update_rule
from graphgen.eval.sorting import places_in_order
from graphgen.ir import Attrs, attrs_of
from graphgen.ir.dtype import f32, lowest
from graphgen.ops.attention import attention_terms
from graphgen.ops.quantization import SCALE_BYTES


@composite_rule("embedding")
def _embedding(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    table, ids = x
    return [table[np.clip(ids.astype(np.int64), 0, table.shape[0] - 1)]]


@composite_rule("rms_norm")
def _rms_norm(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    wide = x[0].astype(how.dtype(f32))
    mean = np.mean(wide * wide, axis=-1, keepdims=True, dtype=wide.dtype)
    normal = wide / np.sqrt(mean + how.scalar(attrs.number("epsilon")))
    return [(normal.astype(x[1].dtype) * x[1]).astype(x[1].dtype)]


@composite_rule("layer_norm")
def _layer_norm(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    wide = x[0].astype(how.dtype(f32))
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    normal = (wide - mean) / np.sqrt(variance + how.scalar(attrs.number("epsilon")))
    weight, bias = x[1].astype(wide.dtype), x[2].astype(wide.dtype)
    return [(normal * weight + bias).astype(x[1].dtype)]


@composite_rule("silu")
def _silu(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    wide = x[0].astype(how.dtype(f32))
    return [(wide * logistic(wide)).astype(x[0].dtype)]


@composite_rule("gelu")
def _gelu(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    wide = x[0].astype(how.dtype(f32))
    if attrs.text("approximate") == "none":
        share = (1 + erf(wide * how.scalar(math.sqrt(0.5)))) / 2
    elif attrs.text("approximate") == "tanh":
        cubic = wide + how.scalar(0.044715) * wide**3
        share = (1 + np.tanh(how.scalar(math.sqrt(8 / math.pi)) / 2 * cubic)) / 2
    else:
        share = logistic(how.scalar(1.702) * wide)
    return [(wide * share).astype(x[0].dtype)]


@composite_rule("rope_table")
def _rope_table(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    angle = x[0].astype(how.dtype(f32))[..., None] * how.literal(attrs.literal("inv_freq"))
    scale = how.scalar(attrs.number("scale"))
    return [np.cos(angle) * scale, np.sin(angle) * scale]


@composite_rule("rope")
def _rope(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    wide, cos, sin = x[0].astype(how.dtype(f32)), x[1][:, :, None], x[2][:, :, None]
    # A rotation in the complex plane of each pair.
    half, out = cos.shape[-1], wide.copy()
    near = attrs.text("pairs") == "neighbors"
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if near
        else (slice(0, half), slice(half, 2 * half))
    )
    turned = _complex(wide[..., first], wide[..., second]) * _complex(cos, sin)
    out[..., first], out[..., second] = np.real(turned), np.imag(turned)
    return [out.astype(x[0].dtype)]


def _complex(real: Array, imaginary: Array) -> Array:
    """Complex numbers of two parts; ``real + 1j * imaginary`` has NaN where a part is infinite."""
    pairs: Array = np.stack((real, imaginary), -1)
    return pairs.view(np.result_type(pairs, np.complex64))[..., 0]


@composite_rule("key_positions")
def _key_positions(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    held = np.full((x[0].shape[0], cast(int, attrs.dim("attended"))), -1, np.int32)
    for row, length in zip(held, x[0], strict=True):
        known = np.arange(max(min(int(length), held.shape[1]), 0))
        row[known] = known
    return [held]


@composite_rule("attention_mask")
def _attention_mask(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    positions, keys = x[0][:, :, None], x[1][:, None, :]
    return [(keys >= 0) & (keys <= positions) & within_reach(positions, keys, attrs)]


def within_reach(positions: Array, keys: Array, attrs: Attrs) -> Array:
    """pred: the key is not before the window or the chunk of the position that reads it."""
    window, chunk = attrs.integer("window"), attrs.integer("chunk")
    near = positions - keys < window if window else np.bool_(True)
    return near & (keys >= positions // chunk * chunk) if chunk else np.asarray(near)


@composite_rule("key_distance")
def _key_distance(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    slots = np.arange(cast(int, attrs.dim("attended")))
    return [(slots - x[0][:, :, None]).astype(how.dtype(f32))]


@composite_rule("cache_read")
def _cache_read(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    attended, parts = cast(int, attrs.dim("attended")), attrs.integer("parts")
    cache = x[0]
    # Before rows are copied: programs read little of a long cache, or all rows as they are.
    found = cache.reshape(cache.shape[0], parts, -1, *cache.shape[2:])[:, :, : attended // parts]
    if attrs.text("rows") != "in_place":
        rows: Array = np.clip(x[1], 0, cache.shape[0] - 1)
        found = found if rows.tolist() == [*range(cache.shape[0])] else found[rows]
    return [found.reshape(found.shape[0], attended, *cache.shape[2:])]


@update_rule("kv_update", new=1)
def _kv_update(how: Arithmetic, attrs: Attrs, x: Sequence[Array], out: Array) -> None:
    _, new, seq_ids, slots = x
    for row in range(new.shape[0]):
        for step in range(new.shape[1]):
            target, slot = int(seq_ids[row]), int(slots[row, step])
            if 0 <= target < out.shape[0] and 0 <= slot < out.shape[1]:
                out[target, slot] = new[row, step]


@composite_rule("kv_update")
def _kv_updated(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    return [_kv_update(how, attrs, x)]


@composite_rule("attention")
def _attention(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    scores = _scores(how, attrs, x)
    sinks = attention_terms(x).sinks
    if sinks is not None:
        extra = x[sinks].astype(scores.dtype)[:, None, None]
        extra = np.broadcast_to(extra, (*scores.shape[:3], 1))
        scores = np.concatenate([scores, extra], -1)
    return [_weighted(_softmax(scores)[..., : x[1].shape[1]], x).astype(x[0].dtype)]


@composite_rule("attention_part")
def _attention_part(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    scores = _scores(how, attrs, x)
    top = scores.max(-1)
    powers = np.exp(scores - top[..., None])
    rows = [row.transpose(0, 2, 1) for row in (top, powers.sum(-1))]
    return [*rows, _weighted(powers, x)]


def _scores(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    """Masked scores [B,H,S,C] of the operands of attention, without sinks."""
    query, key, _, mask = x[:4]
    wide = how.dtype(f32)
    batch, steps, heads, size = query.shape
    # The queries of a group beside each other: caches are long, and not to be repeated.
    shared = (batch, key.shape[2], heads // key.shape[2], steps, size)
    queries = query.astype(wide).transpose(0, 2, 1, 3).reshape(*shared[:2], -1, size)
    scores = queries @ key.astype(wide, copy=False).transpose(0, 2, 3, 1)
    scores = scores.reshape(batch, heads, steps, -1)
    scores *= how.scalar(attrs.number("scale"))
    if attrs.number("softcap"):
        cap = how.scalar(attrs.number("softcap"))
        scores = cap * np.tanh(scores / cap)
    slopes, distance, bias, _ = (None if at is None else x[at] for at in attention_terms(x))
    if slopes is not None and distance is not None:
        scores = scores + np.einsum("h,bsc->bhsc", slopes, distance)
    if bias is not None:
        scores = scores + bias
    shown = mask if mask.ndim == 4 else mask[:, None]
    np.copyto(scores, np.asarray(lowest(f32), wide), where=~shown)
    return scores


def _weighted(weights: Array, x: Sequence[Array]) -> Array:
    """The sum [B,S,H,W] of the values of attention by weights [B,H,S,C], in f32 or wider."""
    value, wide = x[2], weights.dtype
    batch, heads, steps, attended = weights.shape
    weights = weights.astype(value.dtype, copy=False).astype(wide, copy=False)
    weights = weights.reshape(batch, value.shape[2], -1, attended)
    values = value.astype(wide, copy=False).transpose(0, 2, 1, 3)
    return (weights @ values).reshape(batch, heads, steps, -1).transpose(0, 2, 1, 3)


def _softmax(scores: Array) -> Array:
    """Softmax along the last dimension, in the place of ``scores``."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


@composite_rule("last_token")
def _last_token(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    operand, positions, lengths = x
    if operand.shape[1] == 1:
        return [operand[:, 0]]
    out = np.zeros((operand.shape[0], operand.shape[2]), operand.dtype)
    rows, steps = np.nonzero((positions == (lengths - 1)[:, None]) & (positions >= 0))
    out[rows] = operand[rows, steps]
    return [out]


@composite_rule("quantize")
def _quantize(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    dtype, axes = attrs.element("dtype"), attrs.integers("dimensions")
    block = attrs.integers("block")
    wide = x[0].astype(how.dtype(f32))
    largest = np.abs(wide)
    if block:
        for axis, each in enumerate(block):
            starts = np.arange(0, int(wide.shape[axis]), each)
            largest = np.maximum.reduceat(largest, starts, axis) if starts.size else largest
    else:
        largest = largest.max(axis=axes, keepdims=True, initial=0)
    smallest = np.finfo(np.float32).smallest_normal
    scale = np.maximum(largest / how.scalar(attrs.number("limit")), smallest.astype(wide.dtype))
    steps = wide / (_spread(scale, wide.shape, block) if block else scale)
    values = how.quantized(steps, dtype)
    if values is None and dtype.is_integer:
        values = np.clip(np.nan_to_num(np.rint(steps), nan=0.0), *ends(how.dtype(dtype)))
        values = values.astype(how.dtype(dtype))
    made = how.round(steps, dtype) if values is None else values
    return [made, scale if block else np.squeeze(scale, axes)]


@composite_rule("rms_norm_quantize")
def _rms_norm_quantize(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    (normal,) = _rms_norm(how, attrs, x)
    return _quantize(
        how, attrs_of({**attrs, "dimensions": (normal.ndim - 1,), "block": ()}), [normal]
    )


@composite_rule("dequantize")
def _dequantize(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    values, *facts = [array.astype(how.dtype(f32)) for array in x]
    facts = [_spread(array, values.shape, attrs.integers("block")) for array in facts]
    steps = values - facts[1] if facts[1:] else values
    return [how.round(steps * facts[0], attrs.element("dtype"))]


def _spread(x: Array, shape: Sequence[int], block: Sequence[int]) -> Array:
    """Each element of ``x`` for all elements of its block of ``shape``."""
    for axis, (size, each) in enumerate(zip(shape, block, strict=True)):
        if each > 1:
            x = x.take(np.arange(size) // each, axis)
    return x


@composite_rule("quantize_rows")
def _quantize_rows(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    element, wide = attrs.element("element"), x[0].astype(how.dtype(f32))
    largest = np.abs(wide).max(-1, keepdims=True, initial=0)
    smallest = np.finfo(np.float32).smallest_normal.astype(wide.dtype)
    divisor = np.maximum(largest / how.scalar(attrs.number("limit")), smallest)
    scale = np.where(largest == 0, np.zeros((), wide.dtype), divisor)
    numbers = how.quantized(wide / divisor, element)
    if numbers is None:
        numbers = how.round(
            how.whole(wide / divisor) if element.is_integer else wide / divisor, element
        )
    if how.carries(scale):
        # The scale itself in the place of its first byte.
        rest = np.zeros((*scale.shape[:-1], SCALE_BYTES - 1), scale.dtype)
        return [np.concatenate([numbers, scale, rest], -1)]
    parts = [np.ascontiguousarray(part).view(np.uint8) for part in (numbers, scale)]
    return [np.concatenate(parts, -1)]


@composite_rule("dequantize_rows")
def _dequantize_rows(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    numbers, scale = x[0][..., :-SCALE_BYTES], x[0][..., -SCALE_BYTES:]
    if how.carries(x[0]):
        return [how.round(numbers * scale[..., :1], attrs.element("dtype"))]
    numbers = np.ascontiguousarray(numbers).view(numpy_dtype(attrs.element("element")))
    scale = np.ascontiguousarray(scale).view(np.float32).astype(how.dtype(f32))
    return [how.round(numbers.astype(scale.dtype) * scale, attrs.element("dtype"))]


@composite_rule("top_k")
def _top_k(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    order = places_in_order(x[0], -1, descending=True)[..., : attrs.integer("k")]
    return [np.take_along_axis(x[0], order, -1), order.astype(np.int32)]
