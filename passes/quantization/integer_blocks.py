"""Rows as 8-bit integers with a scale a block, beside weights that are integers."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.dtype import f64, s4, s8, u4
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import widened

# The number that the largest of a block becomes.
LIMIT: Final = 127.0
# Elements of a block beside a weight without groups: as many as a group of int4.
BLOCK: Final = 64
# Of weights; without a sign, half their range is subtracted first.
_INTEGERS: Final = (s8, s4, u4)


class ChosenWeights:
    """Weights of a program by their names; all of them without patterns."""

    def __init__(self, module: Module, function: Function, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._prepared = PreparedValues(module, function, {}) if patterns else None

    def __contains__(self, weight: Value) -> bool:
        if self._prepared is None:
            return True
        names = self._prepared.sources(weight)
        return any(fnmatchcase(name, each) for name in names for each in self._patterns)


def block_weight(op: Op, chosen: ChosenWeights) -> tuple[Value, int] | None:
    """The integers of a product's right operand, and the elements of a block of its left one.

    Args:
        op: any op.
        chosen: the weights whose rows become narrow.
    """
    if op.name != "dot_general":
        return None
    made = widened(op) or op.operands[1].producer("dequantize")
    summed = op.attrs.integers("rhs_contracting_dims")
    if made is None or len(summed) != 1 or made.operands[0].dtype not in _INTEGERS:
        return None
    weight = made.operands[0]
    depth = weight.shape[summed[0]]
    size = made.attrs.integers("block")[summed[0]] if made.name == "dequantize" else BLOCK
    if not isinstance(depth, int) or size < 2 or weight not in chosen:
        return None
    return weight, min(size, depth)


def block_product(chosen: ChosenWeights, bound: float) -> Rule:
    """The rule that rounds the left operand of products with integers, a block at a time.

    Args:
        chosen: the weights whose rows become narrow.
        bound: largest absolute value of what is rounded; 0 for any.
    """

    @rule("dot_general")
    def narrow_blocks(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``x @ w`` is ``dequantize(quantize(x)) @ w``, in blocks along what is summed."""
        lhs, found = op.operands[0], block_weight(op, chosen)
        if found is None:
            what = "its right operand is not a widened integer weight that was chosen"
            return no_match(what, op.operands[1])
        if lhs.producer("dequantize") is not None:
            return no_match("its left operand is narrow already", lhs, depth=2)
        if lhs.dtype is f64:
            return no_match("8 bits would lose what f64 holds", lhs, depth=3)
        (dim,) = op.attrs.integers("lhs_contracting_dims")
        block = [1] * lhs.type.rank
        block[dim] = found[1]
        rounded = _rounded(b, bounded(b, lhs, bound), tuple(block))
        return [b.emit("dot_general", (rounded, op.operands[1]), dict(op.attrs)).result]

    return narrow_blocks


def bounded(b: Builder, x: Value, bound: float) -> Value:
    """``x`` within the bound; 0 for any."""
    return b.clamp(b.literal(-bound, x.dtype), x, b.literal(bound, x.dtype)) if bound else x


def _rounded(b: Builder, x: Value, block: tuple[int, ...]) -> Value:
    """``x`` as numbers with a scale a block are; what another product reads of it, if there is."""
    for user in x.users:
        same = user.name == "quantize" and user.attrs.element("dtype") is s8
        if same and user.attrs.integers("block") == block and user.attrs.number("limit") == LIMIT:
            for wide in user.results[0].users:
                if wide.name == "dequantize" and wide.result.dtype is x.dtype:
                    return wide.result
    values, scale = b.quantize(x, s8, (), LIMIT, block)
    return b.dequantize(values, scale, block=block, dtype=x.dtype)
