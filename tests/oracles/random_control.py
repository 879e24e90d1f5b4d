"""Loops, choices, reductions and sorts by functions, in random graphs.

Loops and choices turn, swap and negate values; reductions and sorts look for the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from graphgen.build import Builder
from graphgen.ir import AttrValue, Op, TensorType, Value, tensor
from graphgen.ir.dtype import pred, s32
from graphgen.ir.module import Function
from tests.graphgen.eval.test_composites import FLOATS
from tests.oracles.sample import any_array

if TYPE_CHECKING:
    from tests.oracles.random_graphs import Grower

SHAPES = ((), (3,), (2, 3), (0, 2))


def _named(g: Grower, name: str) -> Function:
    """A new function, before the one that runs it."""
    number = sum(known.startswith(name) for known in g.module.functions)
    made = Function(f"{name}{number}")
    last = g.module.functions.pop(g.function.name)
    g.module.add(made)
    g.module.add(last)
    return made


def _changed(g: Grower, b: Builder, x: Value, y: Value, count: Value) -> Value:
    """Something exact of two values of a type and a counter."""
    for _ in range(g.random.randint(1, 3)):
        change = g.random.choice(("negate", "reverse", "swap"))
        if change == "negate":
            x = b.op("negate", x)
        elif change == "reverse" and x.type.rank:
            x = b.op("reverse", x, dimensions=(0,))
        else:
            even = b.op("compare", b.op("and", count, b.literal(1, s32)), b.literal(0, s32),
                        direction="EQ")  # fmt: skip
            which = b.broadcast_in_dim(even, x.shape, ()) if x.type.rank else even
            x, y = b.select(which, x, y), b.select(which, y, x)
    return x


def _operands(g: Grower, name: str, count: int) -> tuple[TensorType, list[Value]]:
    type_ = tensor(g.random.choice([*FLOATS, s32]), g.random.choice(SHAPES))
    kind = type_.dtype.name
    values = [
        g._operand(name, any_array(g.numbers, type_), kind, False)  # pyright: ignore[reportPrivateUsage]
        for _ in range(count)
    ]
    return type_, values


def _scalar(g: Grower, type_: TensorType, value: object) -> Value:
    """A constant, or an argument that is the same on all ranks."""
    if g.random.random() < 0.5:
        return g.b.literal(int(value), type_.dtype)  # pyright: ignore[reportArgumentType]
    return g._argument(type_, np.asarray(value), odd=True)  # pyright: ignore[reportPrivateUsage]


def loop(g: Grower) -> Op:
    """A loop of up to four turns over two values."""
    type_, (x, y) = _operands(g, "while", 2)
    start = _scalar(g, tensor(s32), g.random.randint(0, 4))
    state = (tensor(s32), type_, type_)
    functions = [_named(g, name) for name in ("goes", "turns")]
    for function in functions:
        for index, each in enumerate(state):
            function.block.add_arg(each, f"v{index}")
    goes, turns = functions
    with Builder(goes) as b:
        goes.outputs = [("t", b.op("compare", goes.args[0], b.literal(4, s32), direction="LT"))]
    with Builder(turns) as b:
        count, u, v = turns.args
        made = _changed(g, b, u, v, count)
        outputs = (b.op("add", count, b.literal(1, s32)), v, made)
        turns.outputs = [(f"o{i}", value) for i, value in enumerate(outputs)]
    names: dict[str, AttrValue] = {"condition": goes.name, "body": turns.name}
    return g.b.emit("while", (start, x, y), names)


def choice(g: Grower) -> Op:
    """A choice between two or three branches, by a truth value or a number."""
    count = g.random.choice((2, 3))
    by_flag = count == 2 and g.random.random() < 0.5
    type_, values = _operands(g, "conditional", 2 * count)
    which = _scalar(g, tensor(pred if by_flag else s32), g.random.randint(0, 1))
    branches: list[str] = []
    for _ in range(count):
        branch = _named(g, "branch")
        x, y = (branch.block.add_arg(type_, name) for name in ("x", "y"))
        with Builder(branch) as b:
            branch.outputs = [("z", _changed(g, b, x, y, b.literal(g.random.randint(0, 1), s32)))]
        branches.append(branch.name)
    attrs: dict[str, AttrValue] = {
        "branches": tuple(branches), "takes": (2,) * count, "results": (type_,),
    }  # fmt: skip
    return g.b.emit("conditional", (which, *values), attrs)


def _kept(b: Builder, direction: str, x: Value, y: Value, i: Value, j: Value) -> Value:
    """Test whether x is to be kept rather than y: a number rather than NaN, of two alike the first.

    XLA combines in any order, so the order of elements has to be a total one.
    """
    first = b.compare(i, j, "LT")
    tie = b.op("and", b.compare(x, y, "EQ"), first)
    number = b.op("and", b.compare(y, y, "NE"), b.op("or", b.compare(x, x, "EQ"), first))
    return b.op("or", b.op("or", b.compare(x, y, direction), tie), number)


def _lines(g: Grower, name: str) -> tuple[TensorType, Value]:
    """Something of at least one dimension."""
    type_ = tensor(g.random.choice([*FLOATS, s32]), g.random.choice([s for s in SHAPES if s]))
    return type_, g._operand(name, any_array(g.numbers, type_), type_.dtype.name, False)  # pyright: ignore[reportPrivateUsage]


def extreme(g: Grower) -> Op:
    """The largest or smallest element along some dimensions, and its place."""
    type_, x = _lines(g, "reduce_by")
    dims = [dim for dim in range(type_.rank) if g.random.random() < 0.5] or [0]
    function, places = _extreme_of(g, type_), _places(g, type_)
    start = _scalar(g, tensor(type_.dtype), g.random.randint(-9, 9))
    nowhere = g.b.literal(-1, s32)
    attrs: dict[str, AttrValue] = {"dimensions": tuple(dims), "to_apply": function.name}
    return g.b.emit("reduce_by", (x, places, start, nowhere), attrs)


def _extreme_of(g: Grower, type_: TensorType) -> Function:
    """A function of two elements and their places that keeps the larger, or the smaller."""
    direction = g.random.choice(("GT", "LT"))
    function = _named(g, "keeps")
    scalars = [
        function.block.add_arg(tensor(kind), name)
        for name, kind in zip("xiyj", (type_.dtype, s32) * 2, strict=True)
    ]
    with Builder(function) as b:
        u, i, v, j = scalars
        which = _kept(b, direction, u, v, i, j)
        function.outputs = [("x", b.select(which, u, v)), ("i", b.select(which, i, j))]
    return function


def _places(g: Grower, type_: TensorType) -> Value:
    """The number of each element."""
    counts = g.b.op("iota", dtype=s32, shape=(prod(type_.dims),), dimension=0)
    return g.b.reshape(counts, type_.shape)


def extreme_of_windows(g: Grower) -> Op:
    """The largest or smallest element of each window, and its place."""
    type_, x = _lines(g, "reduce_window_by")
    start = _scalar(g, tensor(type_.dtype), g.random.randint(-9, 9))
    attrs: dict[str, AttrValue] = {
        "window_dimensions": tuple([g.random.randint(1, 2) for _ in type_.shape]),
        "window_strides": tuple([g.random.randint(1, 2) for _ in type_.shape]),
        "low": tuple([g.random.randint(0, 1) for _ in type_.shape]),
        "high": tuple([g.random.randint(1, 2) for _ in type_.shape]),
        "to_apply": _extreme_of(g, type_).name,
    }
    operands = (x, _places(g, type_), start, g.b.literal(-1, s32))
    return g.b.emit("reduce_window_by", operands, attrs)


def extreme_of_rows(g: Grower) -> Op:
    """Rows scattered into others, some of them several times; the larger or smaller stay."""
    type_, x = _lines(g, "scatter_by")
    count = g.random.randint(1, 4)
    rows = tensor(type_.dtype, (count, *type_.shape[1:]))
    given = any_array(g.numbers, rows)
    updates = g._operand("scatter_by", given, rows.dtype.name, False)  # pyright: ignore[reportPrivateUsage]
    at = g.numbers.integers(-1, 3, (count, 1)).astype(np.int32)
    indices = g._argument(tensor(s32, (count, 1)), at, odd=True)  # pyright: ignore[reportPrivateUsage]
    attrs: dict[str, AttrValue] = {
        "update_window_dims": tuple(range(1, type_.rank)),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
        "to_apply": _extreme_of(g, type_).name,
    }
    operands = (x, _places(g, type_), indices, updates, _places(g, rows))
    return g.b.emit("scatter_by", operands, attrs)


def mapped(g: Grower) -> Op:
    """The larger of two elements, or a comparison of them."""
    type_, (x, y) = _operands(g, "map", 2)
    function = _named(g, "each")
    u, v = (function.block.add_arg(tensor(type_.dtype), name) for name in "uv")
    compares = g.random.random() < 0.5
    with Builder(function) as b:
        which = b.compare(u, v, g.random.choice(("GT", "LE")))
        function.outputs = [("z", which if compares else b.select(which, u, v))]
    kind = pred if compares else type_.dtype
    attrs: dict[str, AttrValue] = {"to_apply": function.name, "dtype": kind}
    return g.b.emit("map", (x, y), attrs)


def ordered(g: Grower) -> Op:
    """Lines sorted by one operand, and for equal ones by another or as they stood."""
    type_, key = _lines(g, "sort_by")
    others = [
        g._operand("sort_by", any_array(g.numbers, tensor(kind, type_.shape)), kind.name, False)  # pyright: ignore[reportPrivateUsage]
        for kind in g.random.choices([*FLOATS, s32], k=g.random.randint(0, 2))
    ]
    function = _named(g, "before")
    pairs = [
        [function.block.add_arg(tensor(value.dtype), f"{side}{n}") for side in "xy"]
        for n, value in enumerate([key, *others])
    ]
    with Builder(function) as b:
        (x, y), *more = pairs
        first = b.compare(x, y, g.random.choice(("GT", "LT")))
        if more and g.random.random() < 0.5:
            u, v = more[0]
            tie = b.op("and", b.compare(x, y, "EQ"), b.compare(u, v, "LT"))
            first = b.op("or", first, tie)
        function.outputs = [("t", first)]
    attrs: dict[str, AttrValue] = {
        "dimension": g.random.randrange(type_.rank), "to_apply": function.name,
    }  # fmt: skip
    return g.b.emit("sort_by", (key, *others), attrs)


CONTROLS: dict[str, Callable[[Grower], Op]] = {
    "while": loop,
    "conditional": choice,
    "map": mapped,
    "reduce_by": extreme,
    "reduce_window_by": extreme_of_windows,
    "scatter_by": extreme_of_rows,
    "sort_by": ordered,
}
