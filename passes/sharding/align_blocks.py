"""Choose shares of ranks, and split quantization blocks, so that cuts fall between blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from graphgen.ir import Function, Module, Op, Sharding, Value, sharding
from graphgen.passes.core import Rewriter
from graphgen.passes.sharding.spec.mesh import Mesh
from graphgen.passes.weights.scale_blocks import BlockScaled


@dataclass(frozen=True, slots=True)
class PartSizes:
    """Shares of a dimension, one a rank.

    Attributes:
        chosen: by size and number of parts, where it is more than an equal share.
    """

    chosen: Mapping[tuple[int, int], int]

    @staticmethod
    def of(function: Function, layouts: Mapping[Value, Sharding], mesh: Mesh) -> PartSizes:
        """The parts with which the blocks of scales take the fewest bytes.

        A part that ends inside of a block makes blocks smaller, and scales more; a part of more
        whole blocks has more padding. All values of a size are padded alike, so that products find
        their operands in the same places.
        """
        found: dict[tuple[int, int], list[tuple[BlockScaled, int]]] = {}
        for op in function.block:
            layout = layouts.get(op.operands[0]) if op.name == "dequantize" else None
            scaled = BlockScaled.of(op) if layout is not None else None
            for dim, axes in enumerate(layout.dims if layout is not None and scaled else ()):
                assert scaled is not None
                size, parts = scaled.values.shape[dim], mesh.size(axes)
                if isinstance(size, int) and size % parts and _has_blocks(scaled, dim):
                    found.setdefault((size, parts), []).append((scaled, dim))
        return PartSizes({key: _fewest_bytes(*key, cut) for key, cut in found.items()})

    def part(self, size: int, parts: int) -> int:
        """Elements of a rank, of which the last ones may be padding."""
        return self.chosen.get((size, parts), -(-size // parts))


def _has_blocks(scaled: BlockScaled, dim: int) -> bool:
    """True if padding needs scales of its own, or a cut may fall inside of a block."""
    if scaled.one_for_all(dim):
        # With zero points the number 0 means another value.
        return len(scaled.facts) > 1
    return scaled.block[dim] > 1


def _fewest_bytes(size: int, parts: int, cut: Sequence[tuple[BlockScaled, int]]) -> int:
    least = -(-size // parts)
    steps = {gcd(size, step) for step in range(1, size + 1)}

    def bits(part: int) -> int:
        total = 0
        for scaled, dim in cut:
            block = size if scaled.one_for_all(dim) else scaled.block[dim]
            each = gcd(block, gcd(size, part))
            facts = sum(fact.dtype.bits for fact in scaled.facts)
            total += part * scaled.values.dtype.bits + part // each * facts
        return total

    return min((-(-least // step) * step for step in steps), key=lambda part: (bits(part), part))


def align_blocks(
    module: Module,
    function: Function,
    layouts: Mapping[Value, Sharding],
    mesh: Mesh,
    rewriter: Rewriter,
    sizes: PartSizes,
) -> bool:
    """Let every cut of the numbers of a ``dequantize`` fall between its blocks.

    Args:
        module: the layouts of scales that are cut otherwise are taken from its rows.
        function: changed in place.
        layouts: of weights and what is made of them.
        mesh: the ranks.
        rewriter: of the pass on whose behalf.
        sizes: where the ranks cut.

    Returns:
        True if blocks were made smaller.
    """
    changed = False
    for op in list(function.block):
        layout = layouts.get(op.operands[0]) if op.name == "dequantize" else None
        if layout is not None and not rewriter.exhausted:
            changed = _align(module, function, op, layout, mesh, rewriter, sizes) or changed
    return changed


def _align(
    module: Module,
    function: Function,
    op: Op,
    layout: Sharding,
    mesh: Mesh,
    rewriter: Rewriter,
    sizes: PartSizes,
) -> bool:
    before = scaled = BlockScaled.of(op)
    b = rewriter.before(function, op)
    b.made = list[Op]()
    for dim, axes in enumerate(layout.dims):
        size, block, parts = scaled.values.shape[dim], scaled.block[dim], mesh.size(axes)
        if parts == 1 or block == 1 or scaled.one_for_all(dim) or not isinstance(size, int):
            continue
        part = sizes.part(size, parts)
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
    """Take the layout from a value and what it is converted from, and from the row of a weight."""
    fact.sharding = None
    for operand in fact.op.operands if fact.op is not None else ():
        if operand.shape == fact.shape:
            _lay_whole(module, operand)
    row = module.interface.get(fact.name or "") if fact.op is None else None
    if row is not None:
        module.interface[row.name] = replace(row, sharding=None)
