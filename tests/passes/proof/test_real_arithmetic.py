"""The level of a proof: equal to the last bit, in real arithmetic, or neither."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import MEANING, evaluate
from graphgen.ir import DType, Function, Module, Value, dtype, tensor
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import prove_equal, prove_values

PROVED, REAL, UNDECIDED = Status.PROVED, Status.REAL, Status.UNDECIDED
F32, BF16, F16, F64, F8 = (dtype(name) for name in ("f32", "bf16", "f16", "f64", "f8e5m2"))
S8, S16, S32, S64 = (dtype(name) for name in ("s8", "s16", "s32", "s64"))
Both = Callable[[Builder, Value, Value], tuple[Value, Value]]


def in_type(b: Builder, name: str, kind: DType, *operands: Value) -> Value:
    """An elementwise op in another type, converted back."""
    made = b.op(name, *[b.convert(x, kind) for x in operands])
    return b.convert(made, operands[0].dtype)


def dots(b: Builder, x: Value, y: Value, *kinds: DType) -> Value:
    """A product of matrices of the first type, in the second, converted to f32 by the others."""
    first, *rest = kinds
    made = b.dot_general(b.convert(x, first), b.convert(y, first), ([1], [1]), dtype=rest[0])
    for kind in rest[1:]:
        made = b.convert(made, kind)
    return made


def sums(b: Builder, x: Value, kind: DType) -> Value:
    return b.convert(b.reduce(b.convert(x, kind), [1], "add"), F32)


def counted(b: Builder, kind: DType, size: int, end: DType) -> Value:
    return b.convert(b.iota(kind, [size], 0), end)


def places(b: Builder, x: Value, y: Value) -> Value:
    """The sums of the columns at which ``x`` is below the rows of ``y``, as whole numbers."""
    columns = b.convert(b.iota(S32, [1, x.shape[1]], 1), F32)
    below = b.convert(b.compare(x, y, "LT"), F32)
    made = b.dot_general(columns, below, ([1], [1]), dtype=F32)
    return b.convert(b.convert(made, S32), F32)


def softmax(b: Builder, x: Value, kind: DType) -> Value:
    x = b.convert(x, kind)
    top = b.broadcast_in_dim(b.reduce(x, [1], "maximum"), x.shape, [0])
    shifted = b.exponential(b.subtract(x, top))
    total = b.broadcast_in_dim(b.reduce(shifted, [1], "add"), x.shape, [0])
    return b.convert(b.divide(shifted, total), F32)


def through(b: Builder, x: Value, *kinds: DType) -> Value:
    for kind in kinds:
        x = b.convert(x, kind)
    return x


def joined(b: Builder, x: Value, y: Value, kind: DType) -> tuple[Value, Value]:
    """A conversion of joined and of single parts."""
    later = b.convert(b.concatenate([x, y], 0), kind)
    return later, b.concatenate([b.convert(x, kind), b.convert(y, kind)], 0)


def chosen(b: Builder, x: Value, y: Value, kind: DType) -> tuple[Value, Value]:
    """A choice by numbers of a type."""
    narrow = b.compare(b.convert(x, kind), b.convert(y, kind), "LT")
    return b.select(b.compare(x, y, "LT"), x, y), b.select(narrow, x, y)


SIBLINGS: dict[str, tuple[Status, Both]] = {
    "dot kept in f16": (
        UNDECIDED,
        lambda b, x, y: (dots(b, x, y, F16, F32), dots(b, x, y, F16, F16, F32)),
    ),
    "dot kept in bf16": (
        REAL,
        lambda b, x, y: (dots(b, x, y, BF16, F32), dots(b, x, y, BF16, BF16, F32)),
    ),
    "dot of bf16": (REAL, lambda b, x, y: (dots(b, x, y, F32, F32), dots(b, x, y, BF16, F32))),
    "dot of f16": (UNDECIDED, lambda b, x, y: (dots(b, x, y, F32, F32), dots(b, x, y, F16, F32))),
    "dot of bf16 and its copy in f32": (
        REAL,
        lambda b, x, y: (
            dots(b, x, y, BF16, F32),
            dots(b, through(b, x, BF16, F32), through(b, y, BF16, F32), F32, F32),
        ),
    ),
    "dot to f16 at once": (
        REAL,
        lambda b, x, y: (dots(b, x, y, F16, F32, F16), dots(b, x, y, F16, F16)),
    ),
    "the same dot": (PROVED, lambda b, x, y: (dots(b, x, y, BF16, F32), dots(b, x, y, BF16, F32))),
    "dot of swapped factors": (
        REAL,
        lambda b, x, y: (dots(b, x, y, F32, F32), b.transpose(dots(b, y, x, F32, F32), [1, 0])),
    ),
    "whole numbers by a dot": (PROVED, lambda b, x, y: (places(b, x, y), places(b, x, y))),
    "sum in bf16": (REAL, lambda b, x, y: (sums(b, x, F32), sums(b, x, BF16))),
    "sum in f16": (UNDECIDED, lambda b, x, y: (sums(b, x, F32), sums(b, x, F16))),
    "sum in f64": (UNDECIDED, lambda b, x, y: (sums(b, x, F32), sums(b, x, F64))),
    "sum of a transpose": (
        REAL,
        lambda b, x, y: (b.reduce(x, [1], "add"), b.reduce(b.transpose(x, [1, 0]), [0], "add")),
    ),
    "largest of a transpose": (
        REAL,
        lambda b, x, y: (
            b.reduce(x, [1], "maximum"),
            b.reduce(b.transpose(x, [1, 0]), [0], "maximum"),
        ),
    ),
    "another order of a sum": (
        REAL,
        lambda b, x, y: (b.add(b.add(x, y), y), b.add(x, b.add(y, y))),
    ),
    "another order of a product": (
        REAL,
        lambda b, x, y: (b.multiply(b.multiply(x, y), x), b.multiply(y, b.multiply(x, x))),
    ),
    "swapped summands": (PROVED, lambda b, x, y: (b.add(x, y), b.add(y, x))),
    "the largest of swapped operands": (
        REAL,
        lambda b, x, y: (b.maximum(x, y), b.maximum(y, x)),
    ),
    "the largest in f64": (
        PROVED,
        lambda b, x, y: (b.maximum(x, y), in_type(b, "maximum", F64, x, y)),
    ),
    "product in f16": (
        UNDECIDED,
        lambda b, x, y: (b.multiply(x, y), in_type(b, "multiply", F16, x, y)),
    ),
    "product in bf16": (
        REAL,
        lambda b, x, y: (b.multiply(x, y), in_type(b, "multiply", BF16, x, y)),
    ),
    "chain in f8": (
        UNDECIDED,
        lambda b, x, y: (
            b.add(x, b.multiply(x, y)),
            through(
                b, b.add(through(b, x, F8), b.multiply(through(b, x, F8), through(b, y, F8))), F32
            ),
        ),
    ),
    "exp in f16": (
        UNDECIDED,
        lambda b, x, y: (b.exponential(x), in_type(b, "exponential", F16, x)),
    ),
    "exp in bf16": (REAL, lambda b, x, y: (b.exponential(x), in_type(b, "exponential", BF16, x))),
    "exp of f16 in f32": (
        REAL,
        lambda b, x, y: (
            b.exponential(through(b, x, F16)),
            through(b, b.exponential(through(b, x, F16, F32)), F16),
        ),
    ),
    "softmax in bf16": (REAL, lambda b, x, y: (softmax(b, x, F32), softmax(b, x, BF16))),
    "softmax in f16": (UNDECIDED, lambda b, x, y: (softmax(b, x, F32), softmax(b, x, F16))),
    "f32 by bf16": (REAL, lambda b, x, y: (x, through(b, x, BF16, F32))),
    "f32 by f16": (UNDECIDED, lambda b, x, y: (x, through(b, x, F16, F32))),
    "f32 by f64": (PROVED, lambda b, x, y: (x, through(b, x, F64, F32))),
    "f64 by f32": (
        UNDECIDED,
        lambda b, x, y: (
            through(b, x, F64),
            through(b, b.multiply(through(b, x, F64), through(b, y, F64)), F32, F64),
        ),
    ),
    "f16 by bf16": (REAL, lambda b, x, y: (through(b, x, F16), through(b, x, BF16, F16))),
    "twice to bf16": (
        PROVED,
        lambda b, x, y: (through(b, x, BF16, F32), through(b, x, BF16, F32, BF16, F32)),
    ),
    "to s32 by bf16": (UNDECIDED, lambda b, x, y: (through(b, x, S32), through(b, x, BF16, S32))),
    "to s32 by f64": (PROVED, lambda b, x, y: (through(b, x, S32), through(b, x, F64, S32))),
    "s32 by f32": (UNDECIDED, lambda b, x, y: (through(b, x, S32), through(b, x, S32, F32, S32))),
    "s32 by f64": (PROVED, lambda b, x, y: (through(b, x, S32), through(b, x, S32, F64, S32))),
    "s16 by f32": (PROVED, lambda b, x, y: (through(b, x, S16), through(b, x, S16, F32, S16))),
    "s16 by bf16": (UNDECIDED, lambda b, x, y: (through(b, x, S16), through(b, x, S16, BF16, S16))),
    "s64 by s32": (UNDECIDED, lambda b, x, y: (through(b, x, S64), through(b, x, S64, S32, S64))),
    "s32 by s64": (PROVED, lambda b, x, y: (through(b, x, S32), through(b, x, S32, S64, S32))),
    "sum of s8 in s32": (
        UNDECIDED,
        lambda b, x, y: (
            through(b, b.reduce(through(b, x, S8), [1], "add"), S32),
            b.reduce(through(b, x, S8, S32), [1], "add"),
        ),
    ),
    "compare in bf16": (
        UNDECIDED,
        lambda b, x, y: (
            b.compare(x, y, "LT"),
            b.compare(through(b, x, BF16), through(b, y, BF16), "LT"),
        ),
    ),
    "compare of bf16 in f32": (
        PROVED,
        lambda b, x, y: (
            b.compare(through(b, x, BF16), through(b, y, BF16), "LT"),
            b.compare(through(b, x, BF16, F32), through(b, y, BF16, F32), "LT"),
        ),
    ),
    "choice by bf16": (UNDECIDED, lambda b, x, y: chosen(b, x, y, BF16)),
    "floor in bf16": (
        UNDECIDED,
        lambda b, x, y: (b.unary("floor", x), in_type(b, "floor", BF16, x)),
    ),
    "joined in f16": (PROVED, lambda b, x, y: joined(b, x, y, F16)),
    "count in f16": (
        REAL,
        lambda b, x, y: (counted(b, F32, 4096, F32), counted(b, F16, 4096, F32)),
    ),
    "count beyond f16": (
        UNDECIDED,
        lambda b, x, y: (counted(b, F32, 70000, F32), counted(b, F16, 70000, F32)),
    ),
    "short count in bf16": (
        PROVED,
        lambda b, x, y: (counted(b, F32, 257, F32), counted(b, BF16, 257, F32)),
    ),
    "whole numbers by bf16": (
        UNDECIDED,
        lambda b, x, y: (counted(b, S32, 300, S32), counted(b, BF16, 300, S32)),
    ),
    "short whole numbers by bf16": (
        PROVED,
        lambda b, x, y: (counted(b, S32, 257, S32), counted(b, BF16, 257, S32)),
    ),
    "factor in bf16": (
        REAL,
        lambda b, x, y: (
            b.multiply(x, b.full(0.1, x.type)),
            b.multiply(x, through(b, b.full(0.1, x.type), BF16, F32)),
        ),
    ),
    "factor in f16": (
        REAL,
        lambda b, x, y: (
            b.multiply(x, b.full(0.1, x.type)),
            b.multiply(x, through(b, b.full(0.1, x.type), F16, F32)),
        ),
    ),
    "factor beyond f16": (
        UNDECIDED,
        lambda b, x, y: (
            b.multiply(x, b.full(1e5, x.type)),
            b.multiply(x, through(b, b.full(1e5, x.type), F16, F32)),
        ),
    ),
    "factor of f16": (
        PROVED,
        lambda b, x, y: (
            b.multiply(x, b.full(0.5, x.type)),
            b.multiply(x, through(b, b.full(0.5, x.type), F16, F32)),
        ),
    ),
}


def pair_of(both: Both) -> tuple[Function, Value, Value]:
    function = Module("m").add(Function("f"))
    args = [function.block.add_arg(tensor(F32, [4, 4]), f"x{n}") for n in range(2)]
    return function, *both(Builder(function), *args)


@pytest.mark.parametrize("name", SIBLINGS)
def test_the_level_of_a_proof(name: str):
    wanted, both = SIBLINGS[name]
    function, left, right = pair_of(both)
    assert left.type is right.type
    assert prove_values(function, [(left, right)]) is wanted
    assert prove_values(function, [(right, left)]) is wanted


@pytest.mark.parametrize("name", [name for name, (level, _) in SIBLINGS.items() if level is REAL])
def test_what_is_equal_in_real_arithmetic_means_the_same(name: str):
    function, left, right = pair_of(SIBLINGS[name][1])
    function.outputs = [("a", left), ("b", right)]
    rng = np.random.default_rng(3)
    given = {f"x{n}": rng.normal(0, 3, (4, 4)).astype(np.float32) for n in range(2)}
    found = evaluate(function, given, MEANING)
    np.testing.assert_allclose(found["a"], found["b"], 1e-12)


def test_numbers_that_z3_chooses_between_differ():
    """A choice by an integer between two numbers; a zero has a sign."""
    function = Module("m").add(Function("f"))
    x = function.block.add_arg(tensor(S32, [4]), "x")
    b = Builder(function)
    one, zero, minus = (b.full(number, tensor(F32, [4])) for number in (1.0, 0.0, -0.0))
    less = b.compare(x, b.full(3, x.type), "LT")
    at_most = b.compare(x, b.full(2, x.type), "LE")
    sides: list[Function] = []
    for value in (
        b.select(less, one, zero),
        b.select(at_most, one, zero),
        b.select(less, one, minus),
    ):
        side = Function("f")
        side.block, side.outputs = function.block, [("y", value)]
        sides.append(side)
    assert prove_equal(sides[0], sides[1]).status is PROVED
    found = prove_equal(sides[0], sides[2])
    assert found.status is Status.REFUTED
    assert [element.argument for element in found.elements] == ["x"]


def test_a_complex_number_is_compared_whole():
    function = Module("m").add(Function("f"))
    x = function.block.add_arg(tensor(dtype("c64"), [4]), "x")
    b = Builder(function)
    two, again, other = (b.full(number, x.type) for number in (2.0, 2.0, 3.0))
    assert prove_values(function, [(b.multiply(x, two), b.multiply(again, x))]) is PROVED
    assert prove_values(function, [(b.multiply(x, two), b.multiply(x, other))]) is UNDECIDED


def test_the_op_whose_rounding_differs_is_named_with_its_line():
    function = Module("m").add(Function("f"))
    x = function.block.add_arg(tensor(F32, [4]), "x")
    sides: list[Function] = []
    for kind in (F32, BF16):
        side = Module("m").add(Function("f"))
        b = Builder(side)
        x = side.block.add_arg(tensor(F32, [4]), "x")
        scaled = in_type(b, "multiply", kind, x, x)
        side.outputs = [("z", b.negate(x)), ("y", b.exponential(b.negate(scaled)))]
        sides.append(side)
    found = prove_equal(sides[0], sides[1])
    assert (found.status, found.output) == (REAL, "y")
    assert found.rounding.startswith("multiply, ")
    assert "test_real_arithmetic.py:" in found.rounding
    assert str(found) == f"equal in real arithmetic: y; rounding differs at {found.rounding}"
