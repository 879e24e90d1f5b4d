"""The NumPy rule of every simple op against jax.lax, ends and odd sizes included."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from graphgen.errors import GraphgenError
from graphgen.eval import (
    MEANING,
    NATIVE,
    RULES,
    SEVERAL,
    Arithmetic,
    Array,
    evaluate,
    evaluate_ranks,
)
from graphgen.ir import Attrs, Function, Op
from graphgen.text import parse
from tests.oracles import xla_hlo
from tests.oracles.op_samples import BY_OP, Sample, inputs, program
from tests.oracles.sample import difference

Reference = Callable[..., Any]


# NumPy's names, written out apart from graphgen's own table.
# Integers that carry the numbers they were quantized from where nothing is rounded.
NARROW = ("s2", "s4", "s8", "u2", "u4", "u8")
NUMPY_NAMES = {
    "c64": "complex64",
    "pred": "bool", "s4": "int4", "s8": "int8", "s16": "int16", "s32": "int32", "u4": "uint4",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32",
}  # fmt: skip


def jax_dtype(attrs: Attrs) -> Any:
    return np.dtype(NUMPY_NAMES[attrs.element("dtype").name])


def constant(attrs: Attrs) -> Any:
    literal = attrs.literal("value")
    values = literal.complex_values() if literal.dtype.is_complex else literal.values()
    flat = np.array(values).reshape(literal.shape)
    return flat.astype(NUMPY_NAMES[literal.dtype.name])


def last(indices: Any, attrs: Attrs) -> Any:
    """jax wants the index vectors in the last dimension."""
    at = attrs.integer("index_vector_dim")
    return indices[..., None] if at == indices.ndim else np.moveaxis(indices, at, -1)


def from_the_front(starts: Sequence[Any]) -> list[Any]:
    """jax counts a negative start from the end; HLO clamps it."""
    return [lax.max(start, np.zeros((), start.dtype)) for start in starts]


def take(attrs: Attrs, operand: Any, indices: Any) -> Any:
    """Element by element, with a block of zeros in front for what lies outside."""
    axis, block = attrs.integer("dimension"), attrs.integer("block")
    count = operand.shape[axis] // block
    place = lax.select((indices >= 0) & (indices < count), indices + 1, 0 * indices)
    places = jnp.repeat(place, block) * block + jnp.tile(jnp.arange(block), len(indices))
    widths = [(block if dim == axis else 0, 0) for dim in range(operand.ndim)]
    return jnp.take(jnp.pad(operand, widths), places, axis)


def gather(attrs: Attrs, operand: Any, indices: Any) -> Any:
    numbers = lax.GatherDimensionNumbers(
        attrs.integers("offset_dims"),
        attrs.integers("collapsed_slice_dims"),
        attrs.integers("start_index_map"),
    )
    sizes = attrs.integers("slice_sizes")
    return lax.gather(operand, last(indices, attrs), numbers, sizes, mode="clip")


def scatter(attrs: Attrs, operand: Any, indices: Any, updates: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers(
        attrs.integers("update_window_dims"),
        attrs.integers("inserted_window_dims"),
        attrs.integers("scatter_dims_to_operand_dims"),
    )
    kind = attrs.text("kind")
    if kind in ("and", "or", "xor"):
        # jax has no such scatter: one window after the other.
        return bitwise_scatter(attrs, operand, indices, updates)
    write = {
        "assign": lax.scatter,
        "add": lax.scatter_add,
        "multiply": lax.scatter_mul,
        "maximum": lax.scatter_max,
        "minimum": lax.scatter_min,
    }[kind]
    return write(operand, last(indices, attrs), updates, numbers, mode="drop")


def bitwise_scatter(attrs: Attrs, operand: Any, indices: Any, updates: Any) -> Any:
    """Rows only."""
    for row in range(len(updates)):
        both = BITWISE[attrs.text("kind")](operand[indices[row]], updates[row])
        operand = operand.at[indices[row]].set(both)
    return operand


BITWISE = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}


def reduce(attrs: Attrs, x: Any) -> Any:
    kind, dims = attrs.text("kind"), attrs.integers("dimensions")
    if x.dtype == bool:
        ors = {"add": lax.bitwise_or, "maximum": lax.bitwise_or}
        ands = {"multiply": lax.bitwise_and, "minimum": lax.bitwise_and}
        both = {**ors, **ands, **BITWISE}[kind]
        return lax.reduce(x, np.array(both is lax.bitwise_and), both, dims)
    if jnp.iscomplexobj(x):
        start, combine = (0, lax.add) if kind == "add" else (1, lax.mul)
        return lax.reduce(x, np.array(start, x.dtype), combine, dims)
    is_float = jax.numpy.issubdtype(x.dtype, np.floating)
    low = -np.inf if is_float else jax.numpy.iinfo(x.dtype).min
    high = np.inf if is_float else jax.numpy.iinfo(x.dtype).max
    if x.dtype == "float8_e4m3fn":  # it has no infinity
        low, high = jax.numpy.finfo(x.dtype).min, jax.numpy.finfo(x.dtype).max
    start, combine = {
        "add": (0, lax.add),
        "multiply": (1, lax.mul),
        "or": (0, lax.bitwise_or),
        "xor": (0, lax.bitwise_xor),
        "and": (-1, lax.bitwise_and),
        "maximum": (low, lax.max),
        "minimum": (high, lax.min),
    }[kind]
    # Sums of 16-bit floats are taken in f32.
    wide = x.astype(np.float32) if is_float else x
    return lax.reduce(wide, np.array(start).astype(wide.dtype), combine, dims).astype(x.dtype)


def dot_general(attrs: Attrs, lhs: Any, rhs: Any) -> Any:
    contracting = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    batch = attrs.integers("lhs_batch_dims"), attrs.integers("rhs_batch_dims")
    return lax.dot_general(
        lhs, rhs, (contracting, batch), preferred_element_type=jax_dtype(attrs), precision="highest"
    )


def convolution(attrs: Attrs, lhs: Any, rhs: Any) -> Any:
    sides = re.split("_|->", attrs.text("dim_labels"))
    spatial = "".join(sorted(set(sides[0]) - set("bf")))
    orders = [
        tuple([side.index(c) for c in first + spatial])
        for side, first in zip(sides, ("bf", "oi", "bf"), strict=True)
    ]

    def each(key: str, default: int) -> tuple[int, ...]:
        return attrs.integers(key) or (default,) * len(spatial)

    return lax.conv_general_dilated(
        lhs,
        lax.rev(rhs, [orders[1][2 + i] for i, on in enumerate(each("window_reversal", 0)) if on]),
        each("window_strides", 1),
        list(zip(each("low", 0), each("high", 0), strict=True)),
        each("lhs_dilation", 1),
        each("rhs_dilation", 1),
        lax.ConvDimensionNumbers(*orders),
        attrs.integer("feature_group_count"),
        attrs.integer("batch_group_count"),
        preferred_element_type=jax_dtype(attrs),
    )


COMBINE = {
    "add": lax.add,
    "maximum": lax.max,
    "minimum": lax.min,
    "multiply": lax.mul,
    **BITWISE,
}


def reduce_window(attrs: Attrs, x: Any, init: Any) -> Any:
    def each(key: str, default: int) -> tuple[int, ...]:
        return attrs.integers(key) or (default,) * x.ndim

    return windows_by_slices(attrs, x, init, each)


def windows_by_slices(attrs: Attrs, x: Any, init: Any, each: Callable[[str, int], Any]) -> Any:
    """Element by element of the window: a strided slice of what is padded, combined."""
    edges = zip(each("low", 0), each("high", 0), each("base_dilations", 1), strict=True)
    padding = [(low, high, step - 1) for low, high, step in edges]
    held = lax.pad(x, init, padding)
    there = lax.pad(jnp.ones(x.shape, bool), np.array(False), padding)
    sizes, steps = attrs.integers("window_dimensions"), each("window_dilations", 1)
    strides = each("window_strides", 1)
    counts = [
        max(0, (n - ((size - 1) * step + 1)) // stride + 1)
        for n, size, step, stride in zip(held.shape, sizes, steps, strides, strict=True)
    ]
    out = jnp.full(counts, init)
    if 0 in counts:
        return out
    for tap in np.ndindex(*sizes):
        starts = [at * step for at, step in zip(tap, steps, strict=True)]
        limits = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(starts, counts, strides, strict=True)
        ]
        both = COMBINE[attrs.text("kind")](out, lax.slice(held, starts, limits, strides))
        out = jnp.where(lax.slice(there, starts, limits, strides), both, out)
    return out


def select_and_scatter(attrs: Attrs, x: Any, source: Any, init: Any) -> Any:
    """One window after the other, in plain numbers."""
    sizes = attrs.integers("window_dimensions")
    strides = attrs.integers("window_strides") or (1,) * x.ndim
    low = attrs.integers("low") or (0,) * x.ndim
    out = jnp.full(x.shape, init)
    keeps, both = COMPARE[attrs.text("direction")], COMBINE[attrs.text("kind")]
    for place in np.ndindex(*source.shape):
        held, at = x.ravel()[0], jnp.array(-1)
        for tap in np.ndindex(*sizes):
            spot = [p * s + t - b for p, s, t, b in zip(place, strides, tap, low, strict=True)]
            if all(0 <= i < n for i, n in zip(spot, x.shape, strict=True)):
                number = int(np.ravel_multi_index(spot, x.shape))
                new = x[tuple(spot)]
                stays = (at >= 0) & keeps(held, new)
                held, at = jnp.where(stays, held, new), jnp.where(stays, at, number)
        flat = out.ravel()
        out = flat.at[at].set(both(flat[at], source[place])).reshape(out.shape)
    return out


def triangular_solve(attrs: Attrs, a: Any, b: Any) -> Any:
    kind = attrs.text("transpose_a")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=bool(attrs["left_side"]),
        lower=bool(attrs["lower"]),
        transpose_a=kind != "NO_TRANSPOSE",
        conjugate_a=kind == "ADJOINT",
        unit_diagonal=bool(attrs["unit_diagonal"]),
    )


def cholesky(attrs: Attrs, a: Any) -> Any:
    """jax has the lower one, and zeros beside the NaN of a matrix that has none."""

    def turned(x: Any) -> Any:
        return x if attrs["lower"] else jnp.conj(jnp.swapaxes(x, -1, -2))

    found = lax.linalg.cholesky(turned(a), symmetrize_input=False)
    none = jnp.isnan(found).any((-2, -1), keepdims=True)
    return turned(jnp.where(none, jnp.nan, found))


def rng_bit_generator(attrs: Attrs, state: Any) -> Any:
    """XLA's own, by its text: jax has states of two words only."""
    dims = ",".join(map(str, attrs.integers("shape")))
    bits = f"{attrs.element('dtype').name}[{dims}]"
    size = len(state)
    made = f"({state.dtype.name.replace('uint', 'u')}[{size}], {bits})"
    text = (
        f"HloModule m\nENTRY e {{\n  s = u64[{size}] parameter(0)\n  ROOT r = {made} "
        f"rng-bit-generator(s), algorithm={attrs.text('algorithm')}\n}}\n"
    )
    ((_, found),) = xla_hlo.run(xla_hlo.from_text(text), [[np.asarray(state)]])
    return found


def sort(attrs: Attrs, x: Any) -> Any:
    """jax takes zeros of both signs for equal, and every NaN: ordered by their bits here."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        ordered = lax.sort(x, attrs.integer("dimension"))
    else:
        size = x.dtype.itemsize * 8
        bits = lax.bitcast_convert_type(x, f"int{size}")
        turn = np.array(2 ** (size - 1) - 1, bits.dtype)
        keys = lax.sort(jnp.where(bits < 0, bits ^ turn, bits), attrs.integer("dimension"))
        ordered = lax.bitcast_convert_type(jnp.where(keys < 0, keys ^ turn, keys), x.dtype)
    return lax.rev(ordered, [attrs.integer("dimension")]) if attrs["descending"] else ordered


def power(attrs: Attrs, base: Any, exponent: Any) -> Any:
    """jax has whole powers of constants only: multiplied one factor at a time."""
    if jnp.issubdtype(base.dtype, jnp.inexact):
        return lax.pow(base, exponent)
    out = jnp.ones_like(base)
    for step in range(64):
        out = jnp.where(step < exponent, out * base, out)
    odd = jnp.where(exponent % 2 == 1, base, 1)
    return jnp.where(exponent < 0, jnp.where(abs(base) == 1, odd, 0), out)


COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}

REFERENCE: dict[str, Reference] = {
    "exponential": lambda a, x: lax.exp(x),
    "exponential_minus_one": lambda a, x: lax.expm1(x),
    "log": lambda a, x: lax.log(x),
    "log_plus_one": lambda a, x: lax.log1p(x),
    "sqrt": lambda a, x: lax.sqrt(x),
    "cbrt": lambda a, x: lax.cbrt(x),
    "tanh": lambda a, x: lax.tanh(x),
    "tan": lambda a, x: lax.tan(x),
    "erf": lambda a, x: lax.erf(x),
    "ceil": lambda a, x: lax.ceil(x),
    "floor": lambda a, x: lax.floor(x),
    "sign": lambda a, x: lax.sign(x),
    "is_finite": lambda a, x: lax.is_finite(x),
    "round_nearest_afz": lambda a, x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "reduce_precision": lambda a, x: lax.reduce_precision(
        x, a.integer("exponent_bits"), a.integer("mantissa_bits")
    ),
    "power": power,
    "complex": lambda a, x, y: lax.complex(x, y),
    "real": lambda a, x: jnp.real(x),
    "imag": lambda a, x: jnp.imag(x),
    "remainder": lambda a, x, y: lax.rem(x, y),
    "atan2": lambda a, x, y: lax.atan2(x, y),
    "or": lambda a, x, y: lax.bitwise_or(x, y),
    "xor": lambda a, x, y: lax.bitwise_xor(x, y),
    "not": lambda a, x: lax.bitwise_not(x),
    "popcnt": lambda a, x: lax.population_count(x),
    "count_leading_zeros": lambda a, x: lax.clz(x),
    "shift_left": lambda a, x, y: lax.shift_left(x, y),
    "shift_right_logical": lambda a, x, y: lax.shift_right_logical(x, y),
    "shift_right_arithmetic": lambda a, x, y: lax.shift_right_arithmetic(x, y),
    "reverse": lambda a, x: lax.rev(x, a.integers("dimensions")),
    "rsqrt": lambda a, x: lax.rsqrt(x),
    "logistic": lambda a, x: lax.logistic(x),
    "cosine": lambda a, x: lax.cos(x),
    "sine": lambda a, x: lax.sin(x),
    "negate": lambda a, x: lax.neg(x),
    # jax has no abs of 4 bits.
    "abs": lambda a, x: abs(x.astype("int8")).astype("int4") if x.dtype == "int4" else lax.abs(x),
    "round_nearest_even": lambda a, x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "clamp": lambda a, low, x, high: lax.clamp(low, x, high),
    "add": lambda a, x, y: lax.bitwise_or(x, y) if x.dtype == bool else lax.add(x, y),
    "subtract": lambda a, x, y: lax.sub(x, y),
    "multiply": lambda a, x, y: lax.bitwise_and(x, y) if x.dtype == bool else lax.mul(x, y),
    "divide": lambda a, x, y: lax.div(x, y),
    "maximum": lambda a, x, y: lax.bitwise_or(x, y) if x.dtype == bool else lax.max(x, y),
    "minimum": lambda a, x, y: lax.bitwise_and(x, y) if x.dtype == bool else lax.min(x, y),
    "and": lambda a, x, y: lax.bitwise_and(x, y),
    "compare": lambda a, x, y: COMPARE[a.text("direction")](x, y),
    "select": lambda a, p, x, y: lax.select(p, x, y),
    "convert": lambda a, x: lax.convert_element_type(
        x.real if jnp.iscomplexobj(x) and jax_dtype(a).kind != "c" else x, jax_dtype(a)
    ),
    # jax has no readings of bool.
    "bitcast_convert": lambda a, x: (
        x.astype("uint8") if x.dtype == bool else lax.bitcast_convert_type(x, jax_dtype(a))
    ),
    "constant": constant,
    "iota": lambda a: lax.broadcasted_iota(
        jax_dtype(a), a.integers("shape"), a.integer("dimension")
    ),
    "broadcast_in_dim": lambda a, x: lax.broadcast_in_dim(
        x, a.integers("shape"), a.integers("dimensions")
    ),
    "reshape": lambda a, x: lax.reshape(x, a.integers("shape")),
    "transpose": lambda a, x: lax.transpose(x, a.integers("permutation")),
    "slice": lambda a, x: lax.slice(
        x, a.integers("start_indices"), a.integers("limit_indices"), a.integers("strides") or None
    ),
    "concatenate": lambda a, *x: lax.concatenate(x, a.integer("dimension")),
    "pad": lambda a, x, v: lax.pad(
        x,
        v,
        [
            *zip(
                a.integers("low"),
                a.integers("high"),
                a.integers("interior") or (0,) * x.ndim,
                strict=True,
            )
        ],
    ),
    "reduce": reduce,
    "sort": sort,
    "dot_general": dot_general,
    "convolution": convolution,
    "reduce_window": reduce_window,
    "select_and_scatter": select_and_scatter,
    "triangular_solve": triangular_solve,
    "cholesky": cholesky,
    "fft": lambda a, x: lax.fft(x, a.text("fft_type"), a.integers("fft_length")),
    "rng_bit_generator": rng_bit_generator,
    "gather": gather,
    "take": take,
    "scatter": scatter,
    "dynamic_slice": lambda a, x, *at: lax.dynamic_slice(
        x, from_the_front(at), a.integers("slice_sizes")
    ),
    "dynamic_update_slice": lambda a, x, u, *at: lax.dynamic_update_slice(x, u, from_the_front(at)),
}


def test_every_rule_has_a_reference_and_samples():
    assert set(REFERENCE) == {*RULES, *SEVERAL} == set(BY_OP)


def by_jax(samples: Sequence[Sample], ops: Sequence[Op]) -> list[Array]:
    """All samples of an op in one compilation."""
    apply = REFERENCE[ops[0].name]
    if ops[0].name == "rng_bit_generator":
        pairs = zip(ops, samples, strict=True)
        return [np.asarray(apply(op.attrs, *item.arrays())) for op, item in pairs]

    def run(arrays: list[list[Array]]) -> list[Any]:
        return [apply(op.attrs, *given) for op, given in zip(ops, arrays, strict=True)]

    return [np.asarray(out) for out in jax.jit(run)([item.arrays() for item in samples])]


# Differences in the last place, by dtype.
ROUNDING = {
    "c64": 1e-5,
    "f32": 3e-6,
    "bf16": 2**-8,
    "f16": 2**-10,
    "f8e4m3": 2**-3,
    "f8e4m3fn": 2**-3,
    "f8e5m2": 2**-2,
}


# Quick code has no clamp of truth values.
@pytest.mark.usefixtures("optimized_code")
@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.one_in(5)
def test_numpy_agrees_with_jax(name: str):
    samples = BY_OP[name]
    function = program(samples).function("f")
    ours = evaluate(function, inputs(samples))
    theirs = by_jax(samples, list(function.ops))
    pairs = zip(samples, ours.values(), theirs, strict=True)
    found = [difference(item, a, b, ROUNDING) for item, a, b in pairs]
    assert list(filter(None, found)) == []


@pytest.mark.parametrize("name", [n for n in REFERENCE if n != "bitcast_convert"])
def test_meaning_is_double_precision(name: str):
    samples = BY_OP[name]
    function = program(samples).function("f")
    given = inputs(samples)
    native, wide = evaluate(function, given), evaluate(function, given, MEANING)
    for item, key in zip(samples, native, strict=True):
        is_float = item.result.split("[")[0].startswith(("f", "bf"))
        # What is converted to few bits is quantized, and means the number before rounding.
        quantized = (
            name == "convert" and item.types[0][0] in "fb" and item.result.split("[")[0] in NARROW
        )
        wanted = np.dtype(np.float64) if is_float or quantized else native[key].dtype
        wanted = np.dtype(np.complex128) if wanted.kind == "c" else wanted
        assert wide[key].dtype == wanted, item.name
        assert wide[key].shape == native[key].shape, item.name
        if name in ("convert", "constant", "iota") and is_float and "f8e4m3fn" not in item.result:
            # Nothing is rounded: the operand itself, in double precision.
            assert np.all(np.isnan(wide[key]) == np.isnan(native[key].astype(np.float64)))


def test_a_convert_between_floats_means_nothing():
    text = "module @m level=logical {\n}\nfunc @f {\n  arg %x : f32[2]\n"
    text += "  %h = convert(%x) dtype=bf16 : bf16[2]\n  %y = convert(%h) dtype=f32 : f32[2]\n"
    function = parse(text + "  return y = %y\n}\n").function("f")
    x = np.array([1 / 3, 1e-9])
    np.testing.assert_array_equal(evaluate(function, {"x": x}, MEANING)["y"], x)
    native = evaluate(function, {"x": x})["y"]
    assert native.dtype == np.float32
    assert not np.array_equal(native, x.astype(np.float32))


def test_a_float_kept_as_bits_means_the_float():
    # Under MEANING a cache of bits holds the floats themselves, also between two calls.
    text = "module @m level=logical {\n}\nfunc @f {\n  arg %k : u16[2]\n"
    text += "  %y = bitcast_convert(%k) dtype=bf16 : bf16[2]\n  return y = %y\n  return k = %k\n}\n"
    function = parse(text).function("f")
    x = np.array([1 / 3, -2.5])
    out = evaluate(function, {"k": x}, MEANING)
    np.testing.assert_array_equal(out["y"], x)
    np.testing.assert_array_equal(out["k"], x)
    bits = np.array([0.5, -2.0]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(evaluate(function, {"k": bits.view(np.uint16)})["y"], bits)


def one(line: str, *args: str) -> Function:
    arg_lines = "".join(f"  arg {arg}\n" for arg in args)
    text = f"module @m level=sharded {{\n}}\nfunc @f {{\n{arg_lines}  {line}\n  return y = %y\n}}\n"
    return parse(text).function("f")


@pytest.mark.parametrize(
    ("kind", "groups", "wanted"),
    [
        ("add", "[[0,1,2]]", [[7.0, 7.0], [7.0, 7.0], [7.0, 7.0]]),
        ("maximum", "[[0,1,2]]", [[4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]),
        ("minimum", "[[2,0],[1]]", [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]),
        ("add", "[[0],[1,2]]", [[1.0, 1.0], [6.0, 6.0], [6.0, 6.0]]),
    ],
)
def test_all_reduce_combines_within_groups(kind: str, groups: str, wanted: list[list[float]]):
    function = one(
        f"%y = all_reduce(%x) kind={kind} replica_groups={groups} : f32[2]", "%x : f32[2]"
    )
    ranks = [{"x": np.full(2, value, np.float32)} for value in (1.0, 2.0, 4.0)]
    out = evaluate_ranks(function, ranks)
    np.testing.assert_array_equal([o["y"] for o in out], wanted)


# Rank r holds [[10r, 10r+1], [10r+2, 10r+3]]; what ranks 0 and 1 of three have afterwards.
EXCHANGES = {
    "all_gather(%x) dimension=1 replica_groups=[[2,0,1]]": (
        [[20, 21, 0, 1, 10, 11], [22, 23, 2, 3, 12, 13]],
        [[20, 21, 0, 1, 10, 11], [22, 23, 2, 3, 12, 13]],
    ),
    "reduce_scatter(%x) kind=add dimension=0 replica_groups=[[1,0]]": (
        [[14, 16]],
        [[10, 12]],
    ),
    "reduce_scatter(%x) kind=maximum dimension=1 replica_groups=[[0,1]]": (
        [[10], [12]],
        [[11], [13]],
    ),
    "all_to_all(%x) split_dimension=0 concat_dimension=1 replica_groups=[[0,1]]": (
        [[0, 1, 10, 11]],
        [[2, 3, 12, 13]],
    ),
    "all_to_all(%x) split_dimension=1 concat_dimension=1 replica_groups=[[1,0]]": (
        [[11, 1], [13, 3]],
        [[10, 0], [12, 2]],
    ),
    "collective_permute(%x) source_target_pairs=[[1,0]]": (
        [[10, 11], [12, 13]],
        [[0, 0], [0, 0]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("use", EXCHANGES)
def test_what_ranks_hand_each_other(use: str):
    wanted = EXCHANGES[use]
    shape = ",".join(map(str, np.shape(wanted[0])))
    function = one(f"%y = {use} : f32[{shape}]", "%x : f32[2,2]")
    mine = np.arange(4, dtype=np.float32).reshape(2, 2)
    ranks = range(3 if "[[2," in use else 2)
    out = evaluate_ranks(function, [{"x": mine + 10 * rank} for rank in ranks])
    for result, array in zip(out, wanted, strict=False):
        np.testing.assert_array_equal(result["y"], array)


def test_inputs_that_do_not_fit_are_named():
    function = one("%y = negate(%x) : f32[2]", "%x : f32[2]")
    with pytest.raises(GraphgenError) as caught:
        evaluate(function, {})
    assert (caught.value.code, caught.value.what) == ("GG0402", "@f needs the input %x f32[2]")
    with pytest.raises(GraphgenError) as caught:
        evaluate(function, {"x": np.zeros((3,), np.float32)})
    assert (caught.value.code, caught.value.what) == ("GG0402", "@f: input %x is [3], not f32[2]")


def test_an_op_without_a_rule_is_refused():
    function = one("%y = negate(%x) : f32[2]", "%x : f32[2]")
    next(function.ops).name = "hlo.opaque"
    with pytest.raises(GraphgenError, match=r"hlo.opaque has no evaluation rule") as caught:
        evaluate(function, {"x": np.zeros(2, np.float32)})
    assert caught.value.code == "GG0403"


def test_the_probe_sees_every_op():
    function = one("%y = negate(%x) : f32[2]", "%x : f32[2]")
    seen: list[tuple[str, int]] = []
    evaluate_ranks(
        function,
        [{"x": np.ones(2, np.float32)}] * 2,
        probe=lambda op, results: seen.append((op.name, len(results[0]))),
    )
    assert seen == [("negate", 2)]


def test_inputs_are_not_changed():
    function = one(
        "%y = dynamic_update_slice(%x, %u, %i) : f32[3]", "%x : f32[3]", "%u : f32[1]", "%i : s32[]"
    )
    x = np.zeros(3, np.float32)
    given = {"x": x, "u": np.ones(1, np.float32), "i": np.array(1, np.int32)}
    out = evaluate(function, given)["y"]
    np.testing.assert_array_equal(out, [0, 1, 0])
    np.testing.assert_array_equal(x, [0, 0, 0])


@pytest.mark.parametrize("how", [MEANING, NATIVE], ids=["f64", "f32"])
def test_a_power_with_exponent_one_half_is_no_root(how: Arithmetic):
    # C's pow: +0 of -0 and inf of -inf; NumPy takes the root where one exponent is repeated.
    lines = (
        "%h = constant() value=f32[](0.5) : f32[]",
        "%n = broadcast_in_dim(%h) shape=[3] : f32[3]",
        "%y = power(%x, %n) : f32[3]",
    )
    function = one("\n  ".join(lines), "%x : f32[3]")
    found = evaluate(function, {"x": np.array([-np.inf, -0.0, 4.0], np.float32)}, how)["y"]
    assert found.tolist() == [np.inf, 0.0, 2.0]
    assert not np.signbit(found[1])


@pytest.mark.parametrize(("kind", "bits"), [("s8", 8), ("s32", 32), ("u8", 8)])
def test_integer_powers_are_whole_and_wrap(kind: str, bits: int):
    low = 0 if kind[0] == "u" else -3
    pairs = [(base, exponent) for base in range(low, 4) for exponent in range(low, 7)]
    function = one("%y = power(%x, %n) : KIND".replace("KIND", f"{kind}[{len(pairs)}]"),
                   f"%x : {kind}[{len(pairs)}]", f"%n : {kind}[{len(pairs)}]")  # fmt: skip
    numbers = np.dtype({"s8": "int8", "s32": "int32", "u8": "uint8"}[kind])
    x, n = (np.array(side, numbers) for side in zip(*pairs, strict=True))

    def wanted(base: int, exponent: int) -> int:
        if exponent < 0:  # whole numbers have no other inverse
            return base**-exponent if abs(base) == 1 else 0
        wrapped = base**exponent % (1 << bits)
        return wrapped - (1 << bits) if low < 0 and wrapped >> (bits - 1) else wrapped

    found = evaluate(function, {"x": x, "n": n})["y"]
    assert dict(zip(pairs, found.tolist(), strict=True)) == {pair: wanted(*pair) for pair in pairs}
