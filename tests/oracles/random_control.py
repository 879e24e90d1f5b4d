"""Loops and choices in random graphs: what they run turns, swaps and negates values."""

from __future__ import annotations

from collections.abc import Callable
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


CONTROLS: dict[str, Callable[[Grower], Op]] = {"while": loop, "conditional": choice}
