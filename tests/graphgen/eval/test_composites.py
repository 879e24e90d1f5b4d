"""Composites: what the documentation says, what the NumPy rule does and what the parts make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS, decompose
from graphgen.eval import COMPOSITES, MEANING, NATIVE, Array, evaluate, numpy_dtype
from graphgen.eval.arithmetic import name_of
from graphgen.ir import AttrValue, DType, Function, Literal, Op, TensorType, dtype, symbol, tensor
from graphgen.ir.dtype import bf16, f8e4m3, f8e4m3fn, f8e5m2, f32, s4, s8
from graphgen.ops import OPS
from graphgen.ops.attention import attention_terms
from graphgen.ops.experts import ACTIVATIONS

FLOATS = [f32, bf16, dtype("f16")]
# Errors of one rounding to the type, on values of about one.
ROUNDING = {"f32": 2e-6, "bf16": 2**-7, "f16": 2**-10}


class Case:
    """One use of a composite with arrays for its operands."""

    def __init__(
        self, name: str, types: list[TensorType], attrs: dict[str, AttrValue], arrays: list[Array]
    ) -> None:
        self.function = Function("f")
        args = [self.function.block.add_arg(t, f"a{i}") for i, t in enumerate(types)]
        self.op: Op = Builder(self.function).emit(name, args, attrs)
        self.function.outputs = [(f"r{i}", value) for i, value in enumerate(self.op.results)]
        self.given = {f"a{i}": array for i, array in enumerate(arrays)}

    def whole(self, wide: bool) -> dict[str, Array]:
        return evaluate(self.function, self.given, MEANING if wide else NATIVE)

    def parts(self, wide: bool) -> dict[str, Array]:
        """By the decomposition, which is all simple ops."""
        body = decompose(self.op, DECOMPOSITIONS[self.op.name])
        assert not any(OPS[op.name].composite for op in body.ops)
        return evaluate(body, self.given, MEANING if wide else NATIVE)


def normal(random: np.random.Generator, kind: DType, *shape: int) -> Array:
    return random.standard_normal(shape).astype(numpy_dtype(kind))


class Sizes:
    """Random sizes and numbers for one case."""

    def __init__(self, seed: int, kind: DType) -> None:
        self.random = np.random.default_rng(seed)
        self.kind = kind

    def size(self, low: int = 1, high: int = 5) -> int:
        return int(self.random.integers(low, high + 1))

    def floats(self, *shape: int) -> Array:
        return normal(self.random, self.kind, *shape)

    def integers(self, low: int, high: int, *shape: int) -> Array:
        return self.random.integers(low, high, shape).astype(np.int32)

    def case(self, name: str, attrs: dict[str, AttrValue], *arrays: Array) -> Case:
        types = [tensor(dtype(name_of(array.dtype)), array.shape) for array in arrays]
        return Case(name, types, attrs, list(arrays))


def embedding(s: Sizes) -> Case:
    rows = s.size()
    # Ids outside the table are clamped.
    return s.case("embedding", {}, s.floats(rows, s.size()), s.integers(-2, rows + 2, 2, s.size()))


def rms_norm(s: Sizes) -> Case:
    size = s.size(1, 9)
    x = s.floats(s.size(), s.size(), size)
    # The residual stream may be wider than the weights.
    x = x.astype(np.float32) if s.size(0, 1) else x
    return s.case("rms_norm", {"epsilon": 1e-5}, x, s.floats(size))


def layer_norm(s: Sizes) -> Case:
    size = s.size(1, 9)
    x = s.floats(s.size(), s.size(), size) + np.asarray(3, numpy_dtype(s.kind))
    x = x.astype(np.float32) if s.size(0, 1) else x
    return s.case("layer_norm", {"epsilon": 1e-5}, x, s.floats(size), s.floats(size))


def silu(s: Sizes) -> Case:
    return s.case("silu", {}, s.floats(s.size(), s.size()) * np.asarray(8, numpy_dtype(s.kind)))


def gelu(s: Sizes) -> Case:
    x = s.floats(s.size(), s.size()) * np.asarray(4, numpy_dtype(s.kind))
    return s.case("gelu", {"approximate": ["none", "tanh", "sigmoid"][s.size(0, 2)]}, x)


def rope_table(s: Sizes) -> Case:
    inv_freq = Literal.of(f32, [float(x) for x in s.random.uniform(0.01, 1, s.size())])
    attrs: dict[str, AttrValue] = {"inv_freq": inv_freq, "scale": [1.0, 0.5][s.size(0, 1)]}
    return s.case("rope_table", attrs, s.integers(-1, 30, s.size(), s.size()))


def rope(s: Sizes) -> Case:
    b, t, half = s.size(), s.size(), s.size()
    angle = s.random.uniform(-3, 3, (b, t, half))
    tables = [np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]
    attrs: dict[str, AttrValue] = {"pairs": ["halves", "neighbors"][s.size(0, 1)]}
    # Some heads are longer than what is rotated of them.
    return s.case("rope", attrs, s.floats(b, t, s.size(), 2 * half + s.size(0, 2)), *tables)


def attention_mask(s: Sizes) -> Case:
    b, t = s.size(), s.size()
    positions, keys = s.integers(-1, 8, b, t), s.integers(-2, 9, b, s.size(0, 8))
    return s.case(
        "attention_mask", {"window": s.size(0, 4), "chunk": s.size(0, 4)}, positions, keys
    )


def key_positions(s: Sizes) -> Case:
    return s.case("key_positions", {"attended": s.size(0, 8)}, s.integers(-1, 10, s.size()))


def key_distance(s: Sizes) -> Case:
    attrs: dict[str, AttrValue] = {"attended": s.size(0, 8)}
    return s.case("key_distance", attrs, s.integers(-1, 8, s.size(), s.size()))


def tree(s: Sizes) -> tuple[Array, Array]:
    """Positions [B,S] of trees, with padding after them and idle rows, and slots [B,C]."""
    b, nodes = s.size(), s.size()
    start, count = s.integers(0, 6, b)[:, None], s.integers(0, nodes + 1, b)[:, None]
    depth = np.minimum(np.arange(nodes), s.integers(0, 3, b, nodes))
    positions = np.where(np.arange(nodes) < count, start + depth, -1).astype(np.int32)
    return positions, s.integers(-2, 12, b, s.size(0, 8))


def tree_slots(s: Sizes) -> Case:
    return s.case("tree_slots", {}, tree(s)[0])


def tree_positions(s: Sizes) -> Case:
    return s.case("tree_positions", {}, *tree(s))


def tree_mask(s: Sizes) -> Case:
    positions, slots = tree(s)
    ancestors = s.integers(-1, 2, *positions.shape, positions.shape[1])
    given = (positions, slots, ancestors)
    return s.case("tree_mask", {"window": s.size(0, 4), "chunk": s.size(0, 4)}, *given)


def kv_move(s: Sizes) -> Case:
    rows, slots, b, count = s.size(2, 4), s.size(2, 6), s.size(1, 2), s.size(1, 2)
    ids = [s.random.permutation(rows + 1)[:b].astype(np.int32) for _ in range(2)]
    to = s.random.permutation(slots + 1)[:count].astype(np.int32) - 1
    sources = s.integers(-1, slots + 1, b, count)
    cache = s.floats(rows, slots, 2, 3)
    return s.case("kv_move", {}, cache, ids[0], sources, ids[1], np.tile(to, (b, 1)))


def cache_read(s: Sizes) -> Case:
    rows, slots = s.size(), s.size(2, 6)
    in_place = bool(s.size(0, 1))
    b = rows if in_place else s.size()
    ids = np.arange(b, dtype=np.int32) if in_place else s.integers(0, rows + 1, b)
    parts = s.size(1, 3)
    attrs: dict[str, AttrValue] = {"attended": parts * s.size(1, slots), "parts": parts}
    attrs["rows"] = "in_place" if in_place else "any"
    return s.case("cache_read", attrs, s.floats(rows, parts * slots, 2, 3), ids)


def kv_update(s: Sizes) -> Case:
    rows, slots, t = s.size(2, 4), s.size(3, 6), s.size(1, 3)
    b = s.size(1, rows)
    # Each row once, one of them idle; positions in order, padding before or after them.
    ids = s.random.permutation(rows)[:b].astype(np.int32)
    ids[s.size(0, b - 1)] = rows
    first = s.integers(-1, slots + 1, b)[:, None]
    at = np.where(first < 0, -1, first + np.arange(t)).astype(np.int32)
    return s.case("kv_update", {}, s.floats(rows, slots, 2, 3), s.floats(b, t, 2, 3), ids, at)


def attention(s: Sizes) -> Case:
    b, t, c, kv_heads, group, d, width = (s.size(1, 4) for _ in range(7))
    heads = kv_heads * group
    attrs: dict[str, AttrValue] = {"scale": d**-0.5, "softcap": 0.5 * s.size(0, 1)}
    per_head = (heads,) if s.size(0, 1) else ()
    mask = s.random.random((b, *per_head, t, c)) < 0.6
    mask[0, 0] = False  # a row that may read nothing
    query = s.floats(b, t, heads, d)
    terms: list[Array] = []
    if s.size(0, 1):
        terms.append(s.random.uniform(0, 1, heads))
        terms.append(np.arange(c) - s.integers(0, c, b, t)[:, :, None])
    if s.size(0, 1):
        terms.append(s.random.standard_normal((b, heads, t, c)))
    if s.size(0, 1):
        terms.append(s.random.standard_normal(heads))
    values = s.floats(b, c, kv_heads, d), s.floats(b, c, kv_heads, width)
    narrow = [term.astype(np.float32) for term in terms]
    return s.case("attention", attrs, query, *values, mask, *narrow)


def attention_part(s: Sizes) -> Case:
    whole = attention(s)
    sinks = attention_terms(whole.op.operands).sinks
    given = [array for at, array in enumerate(whole.given.values()) if at != sinks]
    return s.case("attention_part", dict(whole.op.attrs), *given)


def last_token(s: Sizes) -> Case:
    b, t = s.size(), s.size()
    lengths = s.integers(0, t + 2, b)
    left = s.random.random(b) < 0.5
    steps = np.arange(t)
    right_padded = np.where(steps < lengths[:, None], steps, -1)
    left_padded = np.where(steps >= t - lengths[:, None], steps - t + lengths[:, None], -1)
    at = np.where(left[:, None], left_padded, right_padded).astype(np.int32)
    return s.case("last_token", {}, s.floats(b, t, s.size()), at, lengths)


def quantize(s: Sizes) -> Case:
    shape = [s.size() for _ in range(s.size(1, 3))]
    over = tuple(dim for dim in range(len(shape)) if s.size(0, 1))
    element, limit = [(s8, 127.0), (s8, 127.5), (f8e4m3fn, 240.0), (s4, 7.5)][s.size(0, 3)]
    attrs: dict[str, AttrValue] = {"dtype": element, "dimensions": over, "limit": limit}
    if s.size(0, 1):
        block = tuple(s.size(1, 4) for _ in shape)
        attrs = {"dtype": element, "block": block, "limit": limit}
    operand = s.floats(*shape)
    # Zeros in one place in three: now and then a whole channel of them.
    kept = s.random.random(shape) < 2 / 3
    return s.case("quantize", attrs, np.where(kept, operand, np.zeros((), operand.dtype)))


def dequantize(s: Sizes) -> Case:
    shape = [s.size() for _ in range(s.size(1, 3))]
    block = tuple(s.size(1, 4) for _ in shape)
    counts = [-(-size // each) for size, each in zip(shape, block, strict=True)]
    narrow = dtype(["s4", "u4", "s8", "u8", "f8e4m3fn", "f8e5m2", "f4e2m1fn"][s.size(0, 6)])
    values = s.integers(0 if narrow.name[0] == "u" else -6, 7, *shape).astype(numpy_dtype(narrow))
    facts = [s.floats(*counts)]
    if narrow.is_integer and s.size(0, 1):
        facts.append(s.integers(0, 8, *counts).astype(values.dtype))
    return s.case("dequantize", {"block": block, "dtype": s.kind}, values, *facts)


ROWS = [(s8, 127.0), (f8e4m3, 240.0), (f8e5m2, 57344.0)]


def quantize_rows(s: Sizes) -> Case:
    element, limit = ROWS[s.size(0, 2)]
    x = s.floats(*[s.size() for _ in range(s.size(1, 3))])
    # Now and then a row of zeros.
    x = x * (s.random.random((*x.shape[:-1], 1)) < 2 / 3).astype(x.dtype)
    return s.case("quantize_rows", {"element": element, "limit": limit}, x)


def dequantize_rows(s: Sizes) -> Case:
    element, limit = ROWS[s.size(0, 2)]
    x = s.floats(*[s.size() for _ in range(s.size(1, 3))])
    rows = run("quantize_rows", {"element": element, "limit": limit}, x, kind=s.kind)
    return s.case("dequantize_rows", {"element": element, "dtype": s.kind}, rows)


def rms_norm_quantize(s: Sizes) -> Case:
    size = s.size(1, 9)
    narrow, limit = [("s8", 127.0), ("f8e4m3", 240.0), ("f8e4m3fn", 240.0)][s.size(0, 2)]
    attrs: dict[str, AttrValue] = {"epsilon": 1e-5, "dtype": dtype(narrow), "limit": limit}
    return s.case("rms_norm_quantize", attrs, s.floats(s.size(), s.size(), size), s.floats(size))


def top_k(s: Sizes) -> Case:
    size = s.size(0, 7)
    shape = [*[s.size() for _ in range(s.size(0, 2))], size]
    # Few different numbers, so that many are equal.
    x = np.round(s.floats(*shape).astype(np.float32)).astype(numpy_dtype(s.kind))
    return s.case("top_k", {"k": s.size(0, size)}, x + np.zeros((), x.dtype))


def accept(s: Sizes) -> Case:
    b, places, count, draft = s.size(), s.size(2, 5), s.size(1, 5), s.size(1, 4)

    def candidates(rows: int, size: int) -> tuple[Array, Array]:
        ids = s.random.permuted(np.tile(np.arange(7, dtype=np.int32), (b, rows, 1)), axis=-1)
        # Sums of 64th parts are exact, in any order.
        shares = s.integers(0, 3, b, rows, size) * s.integers(1, 9, b, rows, 1)
        shares[..., 0] = np.where(shares.any(-1), shares[..., 0], 1)
        return ids[..., :size], (shares / 64).astype(np.float32)

    ids, target = candidates(places, count)
    draft_ids, drafted = candidates(places - 1, draft)
    proposals = draft_ids[..., 0] if s.size(0, 1) else s.integers(0, 7, b, places - 1)
    limits, random = s.integers(0, places + 2, b), s.integers(0, 64, b, places, 2) / 64
    tokens = proposals.astype(np.int32), limits.astype(np.int32)
    given = *tokens, ids, target, draft_ids, drafted, random.astype(np.float32)
    return s.case("accept", {}, *given)


def experts(s: Sizes) -> Case:
    tokens, e, h, i, out = (s.size(), s.size(1, 3)), s.size(1, 5), s.size(), s.size(), s.size()
    k = s.size(1, e)
    # Of E + 1 numbers, the last is not an expert.
    every = np.tile(np.arange(e + 1, dtype=np.int32), (*tokens, 1))
    indices = s.random.permuted(every, axis=-1)[..., :k]
    shapes = [(e, i, h), (e, i, h), (e, out, i)]
    if s.size(0, 1):
        shapes += [(e, i), (e, i), (e, out)]
    attrs: dict[str, AttrValue] = {
        "activation": ACTIVATIONS[s.size(0, len(ACTIVATIONS) - 1)],
        "glu": ("glu", "swiglu")[s.size(0, 1)],
        "modulate": ("output", "input")[s.size(0, 1)],
        "capacity": s.size(0, 3),
        "dtype": (f32, s.kind)[s.size(0, 1)],
    }
    if s.size(0, 1):
        limits = {"gate_lower": -0.5, "gate_upper": 0.75, "up_lower": -0.25, "up_upper": 0.5}
        attrs |= {**limits, "up_offset": 1.0, "activation_scale": 1.5}
    weights = s.random.uniform(0, 1, (*tokens, k)).astype(np.float32)
    held = [s.floats(*shape) for shape in shapes]
    return s.case("experts", attrs, s.floats(*tokens, h), indices, weights, *held)


CASES: Mapping[str, Callable[[Sizes], Case]] = {
    make.__name__: make
    for make in (
        embedding,
        rms_norm,
        layer_norm,
        silu,
        gelu,
        rope_table,
        rope,
        key_positions,
        attention_mask,
        key_distance,
        cache_read,
        kv_update,
        kv_move,
        tree_slots,
        tree_positions,
        tree_mask,
        attention,
        attention_part,
        last_token,
        quantize,
        rms_norm_quantize,
        dequantize,
        quantize_rows,
        dequantize_rows,
        top_k,
        accept,
        experts,
    )
}


def test_every_composite_is_tried():
    assert set(CASES) == set(COMPOSITES)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_parts_make_the_whole(name: str, kind: DType):
    # A loop, since hypothesis takes longer for a seed than such a case does.
    for seed in range(25):
        _compare_parts(CASES[name](Sizes(seed, kind)), kind)


def _compare_parts(case: Case, kind: DType) -> None:
    whole, parts = case.whole(wide=True), case.parts(wide=True)
    assert list(whole) == list(parts)
    for key, array in whole.items():
        np.testing.assert_allclose(parts[key], array, rtol=1e-9, atol=1e-9, err_msg=key)
    whole, parts = case.whole(wide=False), case.parts(wide=False)
    tolerance = ROUNDING[kind.name]
    for (key, array), result in zip(whole.items(), case.op.results, strict=True):
        assert parts[key].dtype == array.dtype == numpy_dtype(result.dtype)
        ours, theirs = (np.asarray(x).astype(np.float64) for x in (parts[key], array))
        np.testing.assert_allclose(ours, theirs, rtol=4 * tolerance, atol=4 * tolerance)


def test_a_rotation_of_infinite_numbers_is_what_the_formula_says():
    case = CASES["rope"](Sizes(0, f32))
    case.given["a0"][..., 0] = np.inf
    for wide in (True, False):
        whole, parts = case.whole(wide)["r0"], case.parts(wide)["r0"]
        assert np.isinf(whole).any()
        np.testing.assert_array_equal(np.isinf(whole), np.isinf(parts))
        np.testing.assert_array_equal(np.isnan(whole), np.isnan(parts))


EXACT = (
    "embedding",
    "key_positions",
    "attention_mask",
    "cache_read",
    "kv_move",
    "kv_update",
    "last_token",
    "top_k",
    "tree_mask",
    "tree_positions",
    "tree_slots",
)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_moving_rounds_nothing(name: str, kind: DType):
    for seed in range(10):
        case = CASES[name](Sizes(seed, kind))
        for key, array in case.whole(wide=False).items():
            np.testing.assert_array_equal(case.parts(wide=False)[key], array)


def run(name: str, attrs: dict[str, AttrValue], *arrays: Array, kind: DType = f32) -> Array:
    return Sizes(0, kind).case(name, attrs, *arrays).whole(wide=False)["r0"]


def test_silu_against_jax():
    x = np.array([-100.0, -5.0, -0.5, 0.0, 0.5, 5.0, 100.0], np.float32)
    np.testing.assert_allclose(run("silu", {}, x), jax.nn.silu(x), rtol=1e-6, atol=1e-30)


def test_rms_norm_by_hand():
    x = np.array([[3.0, 4.0]], np.float32)
    weight = np.array([1.0, 2.0], np.float32)
    out = run("rms_norm", {"epsilon": 0.0}, x, weight)
    np.testing.assert_allclose(out, [[3 / 12.5**0.5, 2 * 4 / 12.5**0.5]], rtol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_layer_norm_against_torch(kind: str):
    random = np.random.default_rng(6)
    arrays = [random.standard_normal(shape) + 2 for shape in ((5, 33), (33,), (33,))]
    x, weight, bias = (torch.tensor(array).to(getattr(torch, kind)) for array in arrays)
    theirs = torch.nn.functional.layer_norm(x, (33,), weight, bias, 1e-5).float().numpy()
    element = {"float32": f32, "bfloat16": bf16}[kind]
    given = [array.float().numpy().astype(numpy_dtype(element)) for array in (x, weight, bias)]
    ours = run("layer_norm", {"epsilon": 1e-5}, *given, kind=element).astype(np.float32)
    if kind == "float32":
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    else:
        # Rounded once, as theirs is: no more than near-ties differ.
        assert (ours != theirs).mean() < 0.02


def test_rms_norm_rounds_before_the_weight():
    # As transformers does: weight * normal.to(bf16), not (weight * normal).to(bf16).
    random = np.random.default_rng(3)
    x, weight = normal(random, bf16, 64, 33), normal(random, bf16, 33)
    wide = x.astype(np.float32)
    scale = 1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-5))
    wanted = (wide * scale).astype(ml_dtypes.bfloat16) * weight
    ours = run("rms_norm", {"epsilon": 1e-5}, x, weight, kind=bf16)
    different = ours.astype(np.float32) != wanted.astype(np.float32)
    late = (wide * scale * weight.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert different.mean() < 0.01
    assert (late.astype(np.float32) != wanted.astype(np.float32)).mean() > 0.1


def test_rope_turns_halves():
    # transformers: x * cos + rotate_half(x) * sin, with tables repeated over both halves.
    random = np.random.default_rng(4)
    x = normal(random, f32, 2, 3, 2, 8)
    angle = random.uniform(-3, 3, (2, 3, 4)).astype(np.float32)
    cos, sin = (np.tile(f(angle), 2)[:, :, None] for f in (np.cos, np.sin))
    rotated = np.concatenate([-x[..., 4:], x[..., :4]], -1)
    ours = run("rope", {}, x, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(ours, x * cos + rotated * sin, rtol=1e-5, atol=1e-6)


def test_rope_turns_neighbors_and_leaves_the_rest():
    # transformers' GPT-J: x * cos + rotate_every_two(x) * sin, on the first elements of a head.
    random = np.random.default_rng(4)
    x = normal(random, f32, 2, 3, 2, 9)
    angle = random.uniform(-3, 3, (2, 3, 4)).astype(np.float32)
    cos, sin = (np.repeat(f(angle), 2, -1)[:, :, None] for f in (np.cos, np.sin))
    front = x[..., :8]
    rotated = np.stack([-front[..., 1::2], front[..., ::2]], -1).reshape(front.shape)
    ours = run("rope", {"pairs": "neighbors"}, x, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(ours[..., :8], front * cos + rotated * sin, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours[..., 8], x[..., 8])


def test_rope_table_by_hand():
    inv_freq = Literal.of(f32, [1.0, 0.1])
    case = Sizes(0, f32).case(
        "rope_table", {"inv_freq": inv_freq, "scale": 2.0}, np.array([[0, 3]], np.int32)
    )
    out = case.whole(wide=True)
    angle = np.array([[[0, 0], [3, 3 * float(np.float32(0.1))]]])
    np.testing.assert_allclose(out["r0"], 2 * np.cos(angle), rtol=1e-12)
    np.testing.assert_allclose(out["r1"], 2 * np.sin(angle), rtol=1e-12)


def marks(mask: Array) -> list[list[str]]:
    return [["".join(".x"[int(c)] for c in row) for row in rows] for rows in mask]


def rows_of(lengths: Sequence[int], attended: int) -> Array:
    return run("key_positions", {"attended": attended}, np.array(lengths, np.int32))


def test_key_positions_by_hand():
    assert rows_of([2, 9, 0], 3).tolist() == [[0, 1, -1], [0, 1, 2], [-1, -1, -1]]


def test_a_mask_by_hand():
    at = np.array([[-1, 0, 1], [2, 3, -1]], np.int32)
    out = run("attention_mask", {}, at, rows_of([2, 3], 4))
    wanted = [["....", "x...", "xx.."], ["xxx.", "xxx.", "...."]]
    assert marks(out) == wanted


def test_a_window_by_hand():
    at = np.array([[0, 1, 2], [3, 4, -1]], np.int32)
    out = run("attention_mask", {"window": 2}, at, rows_of([5, 5], 5))
    wanted = [["x....", "xx...", ".xx.."], ["..xx.", "...xx", "....."]]
    assert marks(out) == wanted


def test_chunks_by_hand():
    at = np.array([[0, 1, 2], [3, 4, -1], [5, 6, 7]], np.int32)
    out = run("attention_mask", {"chunk": 3}, at, rows_of([3, 5, 8], 8))
    assert marks(out) == [
        ["x.......", "xx......", "xxx....."],
        ["...x....", "...xx...", "........"],
        ["...xxx..", "......x.", "......xx"],
    ]
    out = run("attention_mask", {"chunk": 3, "window": 2}, at, rows_of([3, 5, 8], 8))
    assert marks(out)[2] == ["....xx..", "......x.", "......xx"]


def test_a_ring_by_hand():
    # The first row holds positions 6 4 5 in its three slots, the second one 0, the third none.
    at = np.array([[5, 6], [-1, 0], [-1, -1]], np.int32)
    keys = np.array([[6, 4, 5], [0, -2, -1], [-3, -2, -1]], np.int32)
    out = run("attention_mask", {}, at, keys)
    assert marks(out) == [[".xx", "xxx"], ["...", "x.."], ["...", "..."]]
    out = run("attention_mask", {"window": 2}, at, keys)
    assert marks(out) == [[".xx", "x.x"], ["...", "x.."], ["...", "..."]]


def test_kv_update_never_clamps():
    cache = np.zeros((2, 3, 1, 1), np.float32)
    new = np.arange(1, 9, dtype=np.float32).reshape(4, 2, 1, 1)
    ids = np.array([0, 1, 2, -1], np.int32)
    at = np.array([[1, 2], [2, 3], [0, 1], [0, 1]], np.int32)
    out = run("kv_update", {}, cache, new, ids, at)
    np.testing.assert_array_equal(out[..., 0, 0], [[0, 1, 2], [0, 0, 3]])


def test_last_token_by_hand():
    x = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    at = np.array([[0, 1, 2, -1], [-1, -1, 0, 1], [-1, -1, -1, -1]], np.int32)
    out = run("last_token", {}, x, at, np.array([3, 2, 0], np.int32))
    # Right padding, left padding, and an idle row: its padding is not a token.
    np.testing.assert_array_equal(out[:, 0], [2, 7, 0])


def test_last_token_of_one():
    x = np.array([[[5.0]], [[6.0]]], np.float32)
    out = run("last_token", {}, x, np.array([[3], [-1]], np.int32), np.array([4, 0], np.int32))
    np.testing.assert_array_equal(out[:, 0], [5, 6])


def test_decompositions_keep_symbols():
    b, s = symbol("B"), symbol("S")
    function = Function("f")
    x = function.block.add_arg(tensor(f32, (b, s, 6)), "x")
    weight = function.block.add_arg(tensor(f32, (6,)), "w")
    op = Builder(function).emit("rms_norm", [x, weight], {"epsilon": 1e-5})
    body = decompose(op, DECOMPOSITIONS["rms_norm"])
    assert body.outputs[0][1].type is op.result.type
    assert all(op.loc is other.loc for other in body.ops)


def quantized(x: Array, element: DType, over: tuple[int, ...], limit: float) -> list[Array]:
    attrs: dict[str, AttrValue] = {"dtype": element, "dimensions": over, "limit": limit}
    return list(Sizes(0, f32).case("quantize", attrs, x).whole(wide=False).values())


def test_quantizing_a_tensor_against_torch():
    # torch's symmetric observer: steps of absmax / 127.5, values -128..127.
    x = np.random.default_rng(5).standard_normal((7, 5)).astype(np.float32)
    x[3, 2] = -9.0
    theirs = torch.fake_quantize_per_tensor_affine(torch.tensor(x), 9.0 / 127.5, 0, -128, 127)
    values, scale = quantized(x, s8, (0, 1), 127.5)
    assert scale.shape == ()
    np.testing.assert_allclose(scale, 9.0 / 127.5, rtol=1e-6)
    np.testing.assert_allclose(values * scale, theirs, rtol=1e-6)


def test_one_end_of_the_range_has_a_step_more():
    ends = np.array([-127.5, 1.5, 2.5, 127.5], np.float32)
    values, scale = quantized(ends, s8, (0,), 127.5)
    assert (scale, values.tolist()) == (1.0, [-128, 2, 2, 127])


def test_quantizing_channels_against_torch():
    x = np.random.default_rng(5).standard_normal((7, 5)).astype(np.float32)
    scales = np.abs(x).max(1) / 127
    zeros = torch.zeros(7, dtype=torch.int32)
    theirs = torch.fake_quantize_per_channel_affine(
        torch.tensor(x), torch.tensor(scales), zeros, 0, -128, 127
    )
    values, scale = quantized(x, s8, (1,), 127.0)
    np.testing.assert_allclose(scale, scales, rtol=1e-6)
    np.testing.assert_allclose(values * scale[:, None], theirs, rtol=1e-6)
    assert np.abs(values).max(1).tolist() == [127] * 7


@pytest.mark.parametrize("element", [s8, f8e4m3fn], ids=str)
def test_zeros_quantize_to_zeros(element: DType):
    # Dividing them by a scale of zero would give NaN.
    limit = 127.0 if element is s8 else 240.0
    x = np.array([[0.0, 0.0], [1.0, -2.0]], np.float32)
    values, scale = quantized(x, element, (1,), limit)
    product = values.astype(np.float32) * scale[:, None]
    np.testing.assert_allclose(product, x, atol=0.01)
    assert (product[0] == 0).all()


def test_eight_bit_floats_stay_within_the_limit():
    # The largest value of Neuron's format is 240; OCP's goes to 448.
    x = np.random.default_rng(5).standard_normal((64, 33)).astype(np.float32)
    values, _ = quantized(x, f8e4m3fn, (1,), 240.0)
    assert np.abs(values.astype(np.float32)).max(1).tolist() == [240.0] * 64


@pytest.mark.parametrize(("element", "limit"), ROWS, ids=str)
def test_each_row_has_its_scale_behind_it(element: DType, limit: float):
    x = np.random.default_rng(5).standard_normal((3, 7)).astype(np.float32)
    x[1], x[2] = 0, 1e-20 * x[2]
    rows = run("quantize_rows", {"element": element, "limit": limit}, x)
    numbers, scale = rows[:, :7], np.ascontiguousarray(rows[:, 7:]).view("<f4")[:, 0]
    np.testing.assert_allclose(scale, np.abs(x).max(1) / limit, rtol=1e-6)
    # A row of zeros is as a cache that nothing was written to.
    assert not rows[1].any()
    wide = numbers.view(numpy_dtype(element)).astype(np.float64) * scale[:, None]
    step = {"s8": 1 / 254, "f8e4m3": 1 / 16, "f8e5m2": 1 / 8}[element.name]
    assert (np.abs(wide - x).max(1) <= 1.01 * step * np.abs(x).max(1)).all()
    again = run("dequantize_rows", {"element": element, "dtype": f32}, rows)
    np.testing.assert_allclose(again, wide, rtol=1e-6)


def test_quantization_means_the_numbers_that_were_quantized():
    x = np.random.default_rng(5).standard_normal((7, 5)).astype(np.float32)
    attrs: dict[str, AttrValue] = {"dtype": s8, "dimensions": (0, 1), "limit": 127.5}
    case = Sizes(0, f32).case("quantize", attrs, x)
    for made in (case.whole(wide=True), case.parts(wide=True)):
        np.testing.assert_allclose(made["r0"] * made["r1"], x, rtol=1e-12)
    rounded = case.whole(wide=False)
    assert np.abs(rounded["r0"] * rounded["r1"] - x).max() > 1e-3


def test_values_beyond_their_type_do_not_hide():
    function = Function("f")
    x = function.block.add_arg(tensor(f32, (4,)), "x")
    with Builder(function) as b:
        function.outputs = [("y", b.convert(b.convert(x, s8), f32))]
    given_ = {"x": np.array([0.25, 127.5, 130.0, -200.0], np.float32)}
    assert evaluate(function, given_, MEANING)["y"].tolist() == [0.25, 127.5, 127.5, -128.5]
    assert evaluate(function, given_)["y"].tolist() == [0.0, 127.0, 127.0, -128.0]
