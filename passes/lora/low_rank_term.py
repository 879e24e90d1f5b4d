"""Low-rank terms as ``multi-lora`` writes them: two products with a mask of slots in between."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphgen.build import Builder
from graphgen.ir import DType, Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.targets import Target, throughput

MASKED, GATHERED = "masked", "gathered"


@dataclass(frozen=True, slots=True)
class TermSizes:
    """Sizes of one term.

    Attributes:
        rows: R, values with a slot of their own.
        values: T, of all rows.
        slots: L.
        matrices: M, elements of A and B of one slot.
        element: of a matrix.
        bytes: of an element.
    """

    rows: int
    values: int
    slots: int
    matrices: int
    element: DType
    bytes: int

    @property
    def text(self) -> str:
        """For a remark."""
        return f"{self.values} values of {self.rows} rows, {self.slots} adapters"


@dataclass(frozen=True, slots=True)
class TermCost:
    """The cost of one form."""

    form: str
    seconds: float

    @property
    def text(self) -> str:
        """For a remark."""
        return f"{self.form} {self.seconds * 1e6:.1f} us"


@dataclass(frozen=True, slots=True)
class _Rates:
    """Seconds to read a byte; operations a second, and those of a batch of products of one row."""

    byte_s: float
    flops: float
    batched: float


# Two AVX2 cores: XLA computes a batch of products of few rows without its matrix library. Estimates
# from its products with weights.
_FEW = 8
_CPU = _Rates(0.15e-9, 35e9, 4e9)


def term_costs(sizes: TermSizes, target: Target) -> tuple[TermCost, TermCost]:
    """The cost of ``masked`` and of ``gathered`` on a target."""
    rates = _CPU
    if target.is_accelerator:
        every = throughput(target, sizes.element.name, sizes.element.bits, 1)
        rates = _Rates(every.element_s, every.flops, every.flops)
    read = sizes.matrices * sizes.bytes * rates.byte_s
    work = 2 * sizes.values * sizes.matrices
    few = sizes.rows > 1 and sizes.values < _FEW * sizes.rows
    return (
        TermCost(MASKED, sizes.slots * (read + work / rates.flops)),
        TermCost(GATHERED, 3 * sizes.rows * read + work / (rates.batched if few else rates.flops)),
    )


@dataclass(frozen=True, slots=True)
class LowRankTerm:
    """One low-rank term.

    Attributes:
        op: the second product, with B [slots, ...], whose r is in dimension ``place``.
        low: the first product, of the values [..., in] with A [slots, r, in].
        mask: f32 [..., slots], 1 for the slot of each value.
        ids: s32 [B], the slots of the rows; ``None`` where the values are not [B, ...].
        narrow: converts what is multiplied by B; ``None`` where it has its type already.
        place: see ``op``.
    """

    op: Op
    low: Op
    mask: Value
    ids: Value | None
    narrow: Op | None
    place: int

    @property
    def masked(self) -> Op:
        """The multiplication by the mask."""
        op = (self.op if self.narrow is None else self.narrow).operands[0].op
        assert op is not None
        return op

    @property
    def sizes(self) -> TermSizes:
        """For the cost; all are fixed."""
        slots, rank, inputs = self.low.operands[1].type.dims
        outputs = prod(self.op.operands[1].type.dims) // (slots * rank)
        values = prod(self.mask.type.dims[:-1])
        rows = values if self.ids is None else self.ids.type.dims[0]
        dtype = self.low.operands[1].dtype
        matrices = rank * (inputs + outputs)
        return TermSizes(rows, values, slots, matrices, dtype, max(1, dtype.bits // 8))


def match_term(op: Op) -> LowRankTerm | NoMatch:
    """The term whose second product is ``op``."""
    chosen, lora_b = op.operands
    last = chosen.type.rank - 1
    sides = op.attrs.integers("lhs_contracting_dims"), op.attrs.integers("rhs_contracting_dims")
    if sides[0] != (last - 1, last) or len(sides[1]) != 2 or sides[1][0] != 0:
        return NoMatch("it does not sum over slots and low ranks")
    narrow = chosen.producer("convert")
    product = (narrow.operands[0] if narrow is not None else chosen).producer("multiply")
    if product is None or lora_b.type.rank != 3:
        return no_match("its operand is not masked", chosen)
    low, spread = (value.op for value in product.operands)
    if low is None or low.name != "dot_general" or spread is None:
        return no_match("a collective or another op is between its products", chosen, depth=2)
    if spread.name != "broadcast_in_dim" or low.operands[1].type.rank != 3:
        return no_match("its operand is not masked by slots", chosen, depth=3)
    if low.attrs.integers("rhs_contracting_dims") != (2,):
        return no_match("the first product is not with A", low.operands[1], depth=4)
    mask = spread.operands[0]
    return LowRankTerm(op, low, mask, _ids_of(mask, low.operands[0]), narrow, sides[1][1])


def _ids_of(mask: Value, x: Value) -> Value | None:
    """The slots of the rows that a mask is made of, if they are the rows of ``x``."""
    one = mask.producer("convert")
    equal = one.operands[0].producer("compare") if one is not None else None
    spread = equal.operands[0].producer("broadcast_in_dim") if equal is not None else None
    if spread is None or spread.attrs.integers("dimensions") != (0,):
        return None
    ids = spread.operands[0]
    return ids if ids.type.rank == 1 and ids.shape[0] == x.shape[0] else None


def gathered(b: Builder, x: Value, own: tuple[Value, Value], like: LowRankTerm) -> Value:
    """Two products with matrices of each row.

    Args:
        b: appends the ops.
        x: the values, [B, ..., in].
        own: of the rows, A [B, r, in] and B [B, r, out].
        like: has the types.
    """
    last = x.type.rank - 1
    low = b.dot_general(x, own[0], ([last], [2]), ([0], [0]), dtype=like.low.result.dtype)
    chosen = narrowed(b, like, low)
    sides = [chosen.type.rank - 1], [1]
    return b.dot_general(chosen, own[1], sides, ([0], [0]), dtype=like.op.result.dtype)


def turned(b: Builder, term: LowRankTerm) -> Value:
    """B as [slots, r, out], which all programs read."""
    lora_b = term.op.operands[1]
    return lora_b if term.place == 1 else b.transpose(lora_b, (0, 2, 1))


def narrowed(b: Builder, term: LowRankTerm, low: Value) -> Value:
    """The products with A in the type of B."""
    return low if term.narrow is None else b.convert(low, term.narrow.result.dtype)
