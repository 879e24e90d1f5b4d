"""Costs of the forms of a mixture of experts: bytes, operations, and seconds on a target.

A form computes n blocks of B rows with the M elements of an expert's matrices each::

    seconds = n M element_s + 2 n max(B, rows) M / flops + n block_s + (N - n) empty_s + layout_s

``all`` has n = E blocks of all T tokens, ``selective`` T K of one, ``capacity`` E of C and
``blockwise`` N of B. On the CPU, where blocks without tokens are left out, n is the number of those
with tokens if all experts are chosen as often; on an accelerator it is N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from graphgen.ir import DType, Op
from graphgen.ops.experts import expert_operands
from graphgen.passes.experts.token_blocks import block_count
from graphgen.report.units import number, size
from graphgen.targets import Target, Throughput, throughput

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
        adapters: elements of the matrices of all adapters of an expert.
    """

    tokens: int
    chosen: int
    experts: int
    inner: int
    width: int
    bytes: int
    capacity: int
    adapters: int = 0

    @staticmethod
    def of(op: Op) -> MixtureSizes:
        """The sizes of an op, which are fixed."""
        x, indices, gate = op.operands[0].type, op.operands[1].type, op.operands[3].type
        *tokens, width = x.dims
        rows = prod(tokens)
        experts, inner, _ = gate.dims
        limit = min(rows, op.attrs.integer("capacity") or rows)
        widened = op.operands[3].producer("dequantize")
        stored = gate if widened is None else widened.operands[0].type
        each = max(1, stored.dtype.bits // 8)
        low_rank = expert_operands(op.operands)[1][1:]
        adapters = sum(prod(value.type.dims) for value in low_rank) // experts
        return MixtureSizes(rows, indices.dims[-1], experts, inner, width, each, limit, adapters)

    @property
    def pairs(self) -> int:
        """P, tokens times experts of a token."""
        return self.tokens * self.chosen

    @property
    def matrices(self) -> int:
        """Elements of the three matrices of an expert, and of its adapters."""
        return 3 * self.inner * self.width + self.adapters

    @property
    def used(self) -> float:
        """Experts that have a token, if all are chosen as often: ``E (1 - (1 - 1/E)^P)``."""
        return self.experts * (1 - (1 - 1 / self.experts) ** self.pairs)

    def blocks(self, block: int) -> int:
        """N blocks of B places: see :func:`block_count`."""
        return block_count(self.pairs, self.experts, block)

    def live(self, block: int) -> float:
        """Blocks that have tokens, if the last one of each expert is half full."""
        filled = self.pairs / block + self.used * (block - 1) / (2 * block)
        return min(self.blocks(block), max(self.used, filled))


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
        work = f"{size(round(self.read))}, {number(round(self.flops))} operations"
        blocks = f"{self.blocks:.4g} blocks of {self.block}, " if self.form != "all" else ""
        return f"{self.form} {self.seconds * 1e3:.3g} ms ({blocks}{work})"


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput of a target.

    Attributes:
        every: of every expert at once, with weights in place.
        blocks: of blocks, each with the weights of its expert.
        loops: whether blocks are computed in a loop that leaves out those without tokens.
        rows: the least rows of a product; fewer cost as many.
        block_s, empty_s: seconds of a block beside its products, and of one that is left out.
        layout_s: seconds to sort tokens.
    """

    every: Throughput
    blocks: Throughput
    loops: bool = False
    rows: int = 1
    block_s: float = 0.0
    empty_s: float = 0.0
    layout_s: float = 0.0


# A least-squares fit of the relative error over 140 measurements on two AVX2 cores, which others
# shared: 64, 8 and 16 experts of 98304 to 786432 elements, 1 to 512 tokens, blocks of 4 to 128, as
# ``benchmarks/experts.py`` measures. Half of them are within 30 %, 9 in 10 within 45 %.
# ``every`` is that of :mod:`graphgen.targets.throughput`.
_CPU_WIDE_BLOCKS, _CPU_NARROW_BLOCKS = Throughput(0.45e-9, 49e9), Throughput(0.35e-9, 34e9)


def rates_of(target: Target, element: DType, stored: int) -> Rates:
    """The rates of a target.

    Args:
        target: an accelerator reads weights once at the bandwidth of its memory; those that are
            gathered are read, written, and read again.
        element: type of the products.
        stored: bytes of an element of a weight.
    """
    every = throughput(target, element.name, element.bits, stored)
    if not target.is_accelerator:
        if element.bits <= 16:
            return Rates(every, _CPU_NARROW_BLOCKS, True, 8, 23e-6, 1e-6, 30e-6)
        return Rates(every, _CPU_WIDE_BLOCKS, True, 1, 10e-6, 1e-6, 30e-6)
    return Rates(every, replace(every, element_s=3 * every.element_s))


def form_costs(sizes: MixtureSizes, rates: Rates, blocks: Sequence[int]) -> list[FormCost]:
    """The cost of each form, ``blockwise`` with the best of some sizes of blocks.

    Args:
        sizes: of the mixture.
        rates: of the target.
        blocks: sizes of blocks to choose from.
    """
    every = _cost(sizes, rates.every, "all", sizes.tokens, sizes.experts, 0.0)
    sorted_ = [
        _blocks(sizes, rates, "blockwise", block, sizes.live(block), sizes.blocks(block))
        for block in blocks
    ]
    return [
        every,
        _blocks(sizes, rates, "selective", 1, sizes.pairs, sizes.pairs),
        _blocks(sizes, rates, "capacity", sizes.capacity, sizes.used, sizes.experts),
        min(sorted_, key=lambda cost: cost.seconds),
    ]


def _blocks(
    sizes: MixtureSizes, rates: Rates, form: str, block: int, live: float, count: int
) -> FormCost:
    """The cost of ``count`` blocks, of which ``live`` have tokens."""
    done = live if rates.loops else count
    own = done * rates.block_s + (count - done) * rates.empty_s
    own += rates.layout_s if form != "selective" else 0.0
    rate = rates.blocks
    if form == "capacity" and not rates.loops:
        rate = rates.every
    return _cost(sizes, rate, form, block, done, own, max(block, rates.rows))


def _cost(
    sizes: MixtureSizes,
    rate: Throughput,
    form: str,
    block: int,
    blocks: float,
    own: float,
    rows: int = 0,
) -> FormCost:
    """``elements * element_s + 2 * rows * elements / flops + own``, of the elements of blocks."""
    elements = blocks * sizes.matrices
    flops = 2 * (rows or block) * elements
    seconds = rate.seconds(elements, flops) + own
    return FormCost(form, block, blocks, elements * sizes.bytes, flops, seconds)
