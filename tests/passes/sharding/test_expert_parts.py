"""Parts of ``experts``: what ranks compute of one op adds up to it."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import MEANING, Array, evaluate, evaluate_ranks, rank_index
from graphgen.ir import AttrValue, Function, Op, Sharding, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.sharding.mesh import Mesh, local_shape
from graphgen.passes.sharding.strategies import Strategy, strategies
from graphgen.passes.spmd.spmd_ops import EmitContext, emit_part

GRID = Mesh({"ep": 2, "tp": 2})
TOKENS, EXPERTS, CHOSEN, WIDTH, INNER = 6, 4, 2, 3, 4
SHAPES = [
    *((TOKENS, WIDTH), (TOKENS, CHOSEN), (TOKENS, CHOSEN)),
    *((EXPERTS, INNER, WIDTH), (EXPERTS, INNER, WIDTH), (EXPERTS, WIDTH, INNER)),
    *((EXPERTS, INNER), (EXPERTS, INNER), (EXPERTS, WIDTH)),
]


def mixture(attrs: dict[str, AttrValue], *, biases: bool) -> tuple[Function, Op]:
    """A function of one op."""
    function = Function("f")
    with Builder(function) as b:
        types = [
            tensor(s32 if index == 1 else f32, shape)
            for index, shape in enumerate(SHAPES if biases else SHAPES[:6])
        ]
        args = [function.block.add_arg(type_, f"a{i}") for i, type_ in enumerate(types)]
        op = b.emit("experts", args, {"dtype": f32, **attrs})
    function.outputs = [("y", op.result)]
    return function, op


def arrays(function: Function, seed: int) -> dict[str, Array]:
    """Random operands; each token has different experts, and sometimes one fewer."""
    random = np.random.default_rng(seed)
    every = np.tile(np.arange(EXPERTS + 1, dtype=np.int32), (TOKENS, 1))
    made = {
        arg.name or "": random.standard_normal([int(str(d)) for d in arg.type.shape])
        for arg in function.args
    }
    return {**made, "a1": random.permuted(every, axis=1)[:, :CHOSEN]}


def part_of(x: Array, layout: Sharding, rank: int) -> Array:
    """The part of a rank; axes go with the rank's digits, the last the fastest."""
    place = dict(zip(GRID.axes, np.unravel_index(rank, tuple(GRID.axes.values())), strict=True))
    for dim, axes in enumerate(layout.dims):
        for axis in axes:
            x = np.split(x, GRID.axes[axis], dim)[place[axis]]
    return x


def cut(op: Op, experts: str, inner: str) -> Strategy:
    """The strategy with experts and inner features over these axes and whole tokens."""
    (found,) = [
        way
        for way in strategies(op, GRID)
        if way.in_shardings[3].text == f"{{{experts},{inner},-}}"
        and not way.in_shardings[0].axes
        and not way.out_shardings[0].axes
    ]
    return found


CUTS = [("ep", "tp"), ("tp", "ep"), ("ep", "-"), ("-", "tp"), ("ep*tp", "-"), ("-", "ep*tp")]


@pytest.mark.parametrize(("experts", "inner"), CUTS)
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("capacity", [0, 2])
def test_parts_add_up(experts: str, inner: str, biases: bool, capacity: int):
    function, op = mixture({"capacity": capacity}, biases=biases)
    way, given = cut(op, experts, inner), arrays(function, seed=capacity)
    part = Function("part")
    rank = part.block.add_arg(tensor(s32, (1,)), "rank")
    parts = [
        part.block.add_arg(tensor(v.dtype, local_shape(GRID, v.type, layout)), v.name or "")
        for v, layout in zip(op.operands, way.in_shardings, strict=True)
    ]
    shapes = [local_shape(GRID, op.result.type, way.out_shardings[0])]
    results = emit_part(EmitContext(Builder(part), GRID, rank), op, parts, way, shapes)
    part.outputs = [("y", results[0])]
    layouts = dict(zip(given, way.in_shardings, strict=True))
    per_rank = [
        {"rank": rank_index(r), **{n: part_of(x, layouts[n], r) for n, x in given.items()}}
        for r in range(4)
    ]
    outs = evaluate_ranks(part, per_rank, MEANING)
    # Over an axis that cuts nothing, ranks have the same.
    copies = 4 // GRID.size(way.out_shardings[0].partial)
    total = sum(out["y"] for out in outs) / copies
    np.testing.assert_allclose(total, evaluate(function, given, MEANING)["y"], rtol=1e-9)


def test_all_cuts_are_tried():
    _, op = mixture({}, biases=True)
    tried = {f"{{{experts},{inner},-}}" for experts, inner in CUTS}
    found = {way.in_shardings[3].text for way in strategies(op, GRID)}
    orders = {"{tp*ep,-,-}", "{-,tp*ep,-}", "{tp,-,-}", "{-,ep,-}", "{-,-,-}"}
    assert found == tried | orders
