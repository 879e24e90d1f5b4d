"""Blocks of a ``dequantize``: made smaller, so that a cut or a gather falls on their edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from graphgen.build import Builder
from graphgen.composites.quantization import spread_blocks
from graphgen.ir import Dim, Op, Value


@dataclass(frozen=True, slots=True)
class BlockScaled:
    """The operands of a ``dequantize``, to be changed together.

    Attributes:
        values: the narrow numbers.
        facts: the scales, and the zero points where it has them.
        block: the sizes of a block.
    """

    values: Value
    facts: tuple[Value, ...]
    block: tuple[int, ...]

    @staticmethod
    def of(op: Op) -> BlockScaled:
        """The operands of ``op``, a ``dequantize``."""
        values, *facts = op.operands
        return BlockScaled(values, tuple(facts), op.attrs.integers("block"))

    def one_for_all(self, dim: int) -> bool:
        """True if one block is all of the dimension."""
        return self.block[dim] > 1 and self.facts[0].shape[dim] == 1

    def even(self, b: Builder) -> BlockScaled:
        """Blocks that divide the values, so that none is short."""
        made = self
        for dim, size in enumerate(self.values.shape):
            each = made.block[dim]
            if each > 1 and not made.one_for_all(dim):
                assert isinstance(size, int)
                made = made.finer(b, dim, gcd(size, each)) if size % each else made
        return made

    def emit(self, b: Builder, op: Op) -> Value:
        """The ``dequantize`` of these operands, otherwise like ``op``."""
        operands = (self.values, *self.facts)
        return b.emit("dequantize", operands, {**op.attrs, "block": self.block}).result

    def finer(self, b: Builder, dim: int, step: int) -> BlockScaled:
        """Blocks along ``dim`` that begin at every multiple of ``step`` at least.

        A scale is repeated for the parts of its block: the numbers stay the same, and as narrow.
        """
        size, each = self.values.shape[dim], self.block[dim]
        if each == 1 or (each == step and not self.one_for_all(dim)):
            return self
        assert isinstance(size, int)
        small = gcd(step, size if self.one_for_all(dim) else gcd(each, size))
        if small == each:
            return self
        spread = [1] * len(self.block)
        spread[dim] = each // small if each % small == 0 else size // small
        shape = list(self.facts[0].shape)
        shape[dim] = size // small
        facts = tuple([_repeated(b, fact, spread, shape) for fact in self.facts])
        block = (*self.block[:dim], small, *self.block[dim + 1 :])
        return replace(self, facts=facts, block=block)


def _repeated(b: Builder, fact: Value, spread: Sequence[int], shape: Sequence[Dim]) -> Value:
    """A fact for parts of its blocks; one that is widened is repeated before."""
    made = fact.producer("convert")
    if made is None or made.operands[0].dtype.bits >= fact.dtype.bits:
        return spread_blocks(b, fact, spread, shape)
    return b.convert(_repeated(b, made.operands[0], spread, shape), fact.dtype)
