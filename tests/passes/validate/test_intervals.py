"""Interval analysis holds every value that is computed, its signs of zero and NaN included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import NATIVE, Array, evaluate_ranks
from graphgen.ir import Function, Value, dtype, tensor
from graphgen.passes.validate.edge_values import Words, edges_of
from graphgen.passes.validate.intervals import Interval, Intervals, every_number
from graphgen.passes.validate.window_samples import folded

SIZE = 64
FLOATS, INTEGERS = ("f32", "bf16", "f16"), ("s32", "s8", "u8", "u32")
Make = Callable[[Builder, np.random.Generator, Value, Value], Value]


def of_both(name: str) -> Make:
    return lambda b, rng, x, y: b.binary(name, x, y)


def of_one(name: str) -> Make:
    return lambda b, rng, x, y: b.op(name, x)


BOTH = {name: of_both(name) for name in ("add", "subtract", "multiply", "maximum", "minimum")}
BOTH |= {
    "select": lambda b, rng, x, y: b.select(b.compare(x, y, "LT"), x, y),
    "clamp": lambda b, rng, x, y: b.clamp(b.full(2, x.type), x, b.full(5, x.type)),
    "clamp-to-zero": lambda b, rng, x, y: b.clamp(b.full(0, x.type), x, b.full(1, x.type)),
    "concatenate": lambda b, rng, x, y: b.slice_dim(b.concatenate([x, y], 0), 0, 32, 32 + SIZE),
    "reverse": lambda b, rng, x, y: b.reverse(x, [0]),
    "maximum-of-all": lambda b, rng, x, y: b.broadcast_in_dim(
        b.reduce(x, [0], "maximum"), [SIZE], []
    ),
    "constant": lambda b, rng, x, y: b.full(int(rng.integers(0, 4)), x.type),
}
UNARY = ("negate", "abs", "sign", "exponential", "logistic", "tanh", "sqrt", "rsqrt", "cosine")
OF_FLOATS = {name: of_one(name) for name in UNARY}
OF_FLOATS |= {
    "square": lambda b, rng, x, y: b.binary("multiply", x, x),
    "small": lambda b, rng, x, y: b.binary("multiply", x, b.full(1e-7, x.type)),
    "sum": lambda b, rng, x, y: b.broadcast_in_dim(b.reduce(x, [0], "add"), [SIZE], []),
    "through-bf16": lambda b, rng, x, y: b.convert(b.convert(x, dtype("bf16")), x.dtype),
    "through-f16": lambda b, rng, x, y: b.convert(b.convert(x, dtype("f16")), x.dtype),
    "through-s32": lambda b, rng, x, y: b.convert(b.convert(x, dtype("s32")), x.dtype),
}
OF_INTEGERS: dict[str, Make] = {
    "remainder": lambda b, rng, x, y: b.binary("remainder", x, b.full(7, x.type)),
    "divide": lambda b, rng, x, y: b.binary("divide", x, b.full(3, x.type)),
    "and": lambda b, rng, x, y: b.binary("and", x, y),
    "shift": lambda b, rng, x, y: b.binary("shift_right_logical", x, b.full(2, x.type)),
    "shift-signed": lambda b, rng, x, y: b.binary("shift_right_arithmetic", x, b.full(1, x.type)),
    "through-s8": lambda b, rng, x, y: b.convert(b.convert(x, dtype("s8")), x.dtype),
}


def drawn(kind: str, seed: int) -> tuple[Function, dict[str, Interval], dict[str, Array]]:
    """A function of two arguments, their intervals, and edges in these intervals."""
    rng = np.random.default_rng([seed, 5])
    made, element = Function("f"), dtype(kind)
    every = every_number(element)
    ends = [every, Interval(0, 6), Interval(-0.0 if element.is_float else 0, 2), Interval(-4, 3)]
    known: dict[str, Interval] = {}
    given: dict[str, Array] = {}
    for name in ("x", "z"):
        made.block.add_arg(tensor(element, (SIZE,)), name)
        known[name] = ends[int(rng.integers(0, len(ends)))].meet(every)
        edges = edges_of(tensor(element, (SIZE,)), Words((), ()), known[name])
        given[name] = rng.choice(edges, SIZE).astype(edges.dtype)
    table = BOTH | (OF_FLOATS if element.is_float else OF_INTEGERS)
    values = list(made.args)
    with Builder(made) as b:
        for _ in range(8):
            x, y = (values[int(rng.integers(0, len(values)))] for _ in range(2))
            values.append(table[str(rng.choice(sorted(table)))](b, rng, x, y))
    made.outputs = [(str(n), value) for n, value in enumerate(values)]
    return made, known, given


def outside(array: Array, found: Interval) -> Sequence[object]:
    """The elements that an interval does not hold."""
    if array.dtype.kind in "biu":
        wide = array.astype(object)
        return [x for x in wide.tolist() if not found.low <= x <= found.high]
    wide = array.astype(np.float64)
    out: list[object] = [x for x in wide.tolist() if x == x and not found.low <= x <= found.high]
    if not found.nan and np.isnan(wide).any():
        out.append("NaN")
    if found.low == 0 and math.copysign(1, found.low) > 0:
        out += ["-0" for x in wide.tolist() if x == 0 and math.copysign(1, x) < 0]
    return out


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS])
def test_every_value_is_in_its_interval(kind: str):
    for seed in range(60):
        made, known, given = drawn(kind, seed)
        with np.errstate(all="ignore"):
            results = evaluate_ranks(made, [given], NATIVE)[0]
        analysis = Intervals(known, {})
        for name, value in made.outputs:
            found = analysis.of(value)
            assert outside(np.asarray(results[name]), found) == [], (seed, value, found)


def test_most_ranges_are_known():
    # An analysis that knows nothing would hold every value, too.
    narrower = 0
    for seed in range(60):
        made, known, _ = drawn("s32", seed)
        analysis = Intervals(known, {})
        every = every_number(dtype("s32"))
        narrower += sum(analysis.of(value) != every for _, value in made.outputs)
    assert narrower > 200


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS])
def test_numbers_are_moved_into_an_interval(kind: str):
    made, known, given = drawn(kind, 3)
    (x, _) = made.args
    for limit in (Interval(0, 6).meet(every_number(x.dtype)), known["x"]):
        assert outside(folded(given["x"], limit, x), limit) == []
