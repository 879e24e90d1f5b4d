"""Match low-rank terms that are added to a product.

product -> + term of all columns
product -> + concatenate(terms and zeros)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.clone import Cloner
from graphgen.passes.adapters.low_rank_term import LowRankTerm, gathered, match_term
from graphgen.passes.kernels.packed_weight import LANES, pack_slots, unpack_slots
from graphgen.passes.weights.derived import PreparedValues

# Most terms that the kernel takes.
MOST_TERMS: Final = 8


@dataclass(frozen=True, slots=True)
class AddedTerms:
    """Low-rank terms of a product, for some of its columns each.

    Attributes:
        add: the addition to the product.
        around: the ops that put the terms side by side.
        terms: by their first column.
        x: the values that the terms are of.
    """

    add: Op
    around: list[Op]
    terms: dict[int, LowRankTerm]
    x: Value

    @property
    def ids(self) -> Value:
        """s32 [B], the slots of the rows."""
        (first, *_) = self.terms.values()
        assert first.ids is not None
        return first.ids

    @property
    def ops(self) -> list[Op]:
        """Ops replaced by the kernel, in order, without the ops of the mask."""
        return [*self.inner, *self.around, self.add]

    @property
    def inner(self) -> list[Op]:
        """The products of the terms, and what is between them."""
        found: list[Op] = []
        for term in self.terms.values():
            narrow = [term.narrow] if term.narrow is not None else []
            found += [term.low, term.masked, *narrow, term.op]
        return found

    @property
    def tiles(self) -> str:
        """The tile of columns in which each term starts, as the kernel reads them."""
        return ",".join([str(start // LANES) for start in self.terms])

    def operands(self, b: Builder) -> dict[str, Value]:
        """The slots of the rows, then A [slots, r, in] and the packed B of each term."""
        found = {"ids": self.ids}
        for number, (start, term) in enumerate(self.terms.items()):
            lora_b = term.op.operands[1]
            rows = b.transpose(lora_b, (0, 2, 1)) if term.place == 1 else lora_b
            found[f"a{number}"] = term.low.operands[1]
            found[f"b{number}"] = pack_slots(b, rows, start % LANES)
        return found

    def meaning(self, b: Builder, cloner: Cloner, operands: dict[str, Value]) -> None:
        """Let a body compute the terms of the matrices of each row's slot.

        Args:
            b: appends to the body.
            cloner: maps values of the program to those of the body; ``x`` is there already.
            operands: of :meth:`operands`.
        """
        x, ids = cloner.mapping[self.x], cloner.mapping[self.ids]
        for number, (start, term) in enumerate(self.terms.items()):
            a, packed = [
                b.take(cloner.mapping[operands[f"{name}{number}"]], ids, 0) for name in "ab"
            ]
            columns, rank = term.op.result.type.dims[-1], a.type.dims[1]
            own = a, unpack_slots(b, packed, start % LANES, columns, rank)
            cloner.mapping[term.op.result] = gathered(b, x, own, term)


def match_terms(product: Value, x: Value, prepared: PreparedValues) -> AddedTerms | None:
    """The terms that the only reader of a product adds to it.

    Args:
        product: f32 [..., columns].
        x: its left operand, which has to be that of the terms.
        prepared: says what reads a value.
    """
    add = prepared.only_reader(product)
    if add is None or add.name != "add":
        return None
    first, second = add.operands
    other = second if first is product else first
    join = other.producer("concatenate")
    parts = join.operands if join is not None else (other,)
    around = [op for part in parts for op in zero_ops(part)]
    found = AddedTerms(add, around if join is None else [*around, join], {}, x)
    start = 0
    for part in parts:
        made = part.producer("dot_general")
        term = match_term(made) if made is not None else None
        if isinstance(term, LowRankTerm):
            found.terms[start] = term
        elif not zero_ops(part):
            return None
        start += part.type.dims[-1]
    return found if _fits(found) else None


def _fits(found: AddedTerms) -> bool:
    """True for terms of the product's left operand, in its type, with one input of slots."""
    terms, x = list(found.terms.values()), found.x
    depth = (x.type.rank - 1,)
    return 0 < len(terms) <= MOST_TERMS and all(
        term.low.operands[0] is x
        and term.low.attrs.integers("lhs_contracting_dims") == depth
        and term.ids is not None
        and term.ids is terms[0].ids
        and {term.low.operands[1].dtype, term.op.operands[1].dtype} == {x.dtype}
        for term in terms
    )


def zero_ops(value: Value) -> list[Op]:
    """The constant 0 and its broadcast, if a value is nothing else."""
    spread = value.producer("broadcast_in_dim")
    constant = spread.operands[0].producer("constant") if spread is not None else None
    if spread is None or constant is None or constant.result.shape:
        return []
    return [constant, spread] if list(constant.attrs.literal("value").values()) == [0] else []
