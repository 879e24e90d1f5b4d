"""Costs of the forms of a mixture of experts: bytes, operations, and seconds on a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Op
from graphgen.passes.experts.token_blocks import block_count
from graphgen.report.units import number, size
from graphgen.targets import Target, accelerator

# Places of a block that are tried.
BLOCKS = (4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class MixtureSizes:
    """The sizes of one op ``experts``.

    Attributes:
        tokens: T.
        chosen: K, experts of a token.
        experts: E, those that are here.
        inner: I, inner features of an expert.
        width: H, features of a token.
        bytes: of an element of a weight as it is stored, at least 1.
        capacity: C, tokens of an expert at most; T without one.
    """

    tokens: int
    chosen: int
    experts: int
    inner: int
    width: int
    bytes: int
    capacity: int

    @staticmethod
    def of(op: Op) -> MixtureSizes:
        """The sizes of an op, which are fixed."""
        x, indices, gate = op.operands[0].type, op.operands[1].type, op.operands[3].type
        *tokens, width = x.dims
        rows = 1
        for dim in tokens:
            rows *= dim
        experts, inner, _ = gate.dims
        limit = min(rows, op.attrs.integer("capacity") or rows)
        widened = op.operands[3].producer("dequantize")
        stored = gate if widened is None else widened.operands[0].type
        each = max(1, stored.dtype.bits // 8)
        return MixtureSizes(rows, indices.dims[-1], experts, inner, width, each, limit)

    @property
    def pairs(self) -> int:
        """P, tokens times experts of a token."""
        return self.tokens * self.chosen

    @property
    def matrices(self) -> int:
        """Elements of the three matrices of an expert."""
        return 3 * self.inner * self.width

    @property
    def used(self) -> float:
        """Experts that have a token, if all are chosen as often: ``E (1 - (1 - 1/E)^P)``."""
        return self.experts * (1 - (1 - 1 / self.experts) ** self.pairs)


@dataclass(frozen=True, slots=True)
class FormCost:
    """The work of one form.

    Attributes:
        form: its name.
        block: places of a block.
        blocks: those that are computed.
        read: bytes of weights.
        flops: operations of the products.
        seconds: of a target.
    """

    form: str
    block: int
    blocks: float
    read: float
    flops: float
    seconds: float

    @property
    def text(self) -> str:
        """The numbers, for people."""
        work = f"{size(round(self.read))}, {number(round(self.flops))}FLOP"
        blocks = f"{self.blocks:.4g} blocks of {self.block}, " if self.form != "all" else ""
        return f"{self.form} {self.seconds * 1e3:.3g} ms ({blocks}{work})"


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput of a target.

    Attributes:
        bandwidth: bytes of memory a second.
        flops: operations of products a second.
        block_s: seconds of a block beside its products.
        loops: whether blocks are computed in a loop that leaves out those without tokens.
        copies: times that the weights of a block are moved.
    """

    bandwidth: float
    flops: float
    block_s: float = 0.0
    loops: bool = False
    copies: int = 3


# Fitted to ``benchmarks/experts.py``.
_CPU = Rates(10e9, 30e9, 20e-6, loops=True, copies=3)


def rates_of(target: Target, element: str) -> Rates:
    """The rates of a target for products of an element type."""
    if not target.is_accelerator:
        return _CPU
    device = accelerator(target.name)
    return Rates(device.hbm_bandwidth, device.flops.get(element, device.vector_flops))


def form_costs(sizes: MixtureSizes, rates: Rates, blocks: Sequence[int]) -> list[FormCost]:
    """The cost of each form, ``blockwise`` with the best of some sizes of blocks.

    Args:
        sizes: of the mixture.
        rates: of the target.
        blocks: sizes of blocks to choose from.
    """
    every = _cost(sizes, rates, "all", sizes.tokens, sizes.experts, 1)
    pairs = _cost(sizes, rates, "selective", 1, sizes.pairs, rates.copies)
    buffers = sizes.used if rates.loops else sizes.experts
    moved = rates.copies if rates.loops else 1
    limited = _cost(sizes, rates, "capacity", sizes.capacity, buffers, moved)
    sorted_ = [
        _cost(sizes, rates, "blockwise", block, _live(sizes, rates, block), rates.copies)
        for block in blocks
    ]
    return [every, pairs, limited, min(sorted_, key=lambda cost: cost.seconds)]


def _cost(
    sizes: MixtureSizes, rates: Rates, form: str, block: int, blocks: float, moved: int
) -> FormCost:
    """``moved * read / bandwidth + flops / rate + seconds of the blocks``."""
    read = blocks * sizes.matrices * sizes.bytes
    flops = 2 * blocks * block * sizes.matrices
    own = blocks * rates.block_s if form != "all" else 0.0
    seconds = moved * read / rates.bandwidth + flops / rates.flops + own
    return FormCost(form, block, blocks, read, flops, seconds)


def _live(sizes: MixtureSizes, rates: Rates, block: int) -> float:
    """Blocks that are computed: all, or those with tokens, the last of an expert half full."""
    count = block_count(sizes.pairs, sizes.experts, block)
    if not rates.loops:
        return count
    filled = sizes.pairs / block + sizes.used * (block - 1) / (2 * block)
    return min(count, max(sizes.used, filled))
