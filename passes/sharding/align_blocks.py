"""Blocks of scales made smaller where ranks cut a weight inside of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from graphgen.ir import Function, Module, Op, Sharding, Value, sharding
from graphgen.passes.core import Rewriter
from graphgen.passes.sharding.spec.mesh import Mesh
from graphgen.passes.weights.scale_blocks import BlockScaled


def align_blocks(
    module: Module,
    function: Function,
    layouts: Mapping[Value, Sharding],
    mesh: Mesh,
    rewriter: Rewriter,
) -> bool:
    """Let every cut of the numbers of a ``dequantize`` fall between its blocks.

    Args:
        module: the layouts of scales that are cut otherwise are taken from its rows.
        function: changed in place.
        layouts: of weights and what is made of them.
        mesh: the ranks.
        rewriter: of the pass on whose behalf.

    Returns:
        True if blocks were made smaller.
    """
    changed = False
    for op in list(function.block):
        layout = layouts.get(op.operands[0]) if op.name == "dequantize" else None
        if layout is not None and not rewriter.exhausted:
            changed = _align(module, function, op, layout, mesh, rewriter) or changed
    return changed


def _align(
    module: Module, function: Function, op: Op, layout: Sharding, mesh: Mesh, rewriter: Rewriter
) -> bool:
    before = scaled = BlockScaled.of(op)
    b = rewriter.before(function, op)
    b.made = list[Op]()
    for dim, axes in enumerate(layout.dims):
        size, block, parts = scaled.values.shape[dim], scaled.block[dim], mesh.size(axes)
        if parts == 1 or block == 1 or scaled.one_for_all(dim) or not isinstance(size, int):
            continue
        part = -(-size // parts)
        if part % block or size % block:
            scaled = scaled.finer(b, dim, gcd(block, part))
    if scaled is before:
        return False
    # The parts of a scale that is repeated are not parts of the scale.
    for fact in before.facts:
        _lay_whole(module, fact)
    for fact in scaled.facts:
        counts = zip(fact.shape, layout.dims, strict=True)
        fact.sharding = sharding([() if count == 1 else axes for count, axes in counts])
    rewriter.replace(function, op, [scaled.emit(b, op)], "align-blocks", created=b.made)
    return True


def _lay_whole(module: Module, fact: Value) -> None:
    """Take the layout from a value, and from the row of the weight that it is."""
    fact.sharding = None
    row = module.interface.get(fact.name or "") if fact.op is None else None
    if row is not None:
        module.interface[row.name] = replace(row, sharding=None)
