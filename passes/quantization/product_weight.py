"""The weight of a product, or the stack of matrices of which the program chooses some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import AttrValue, Op, Value
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import weight_of


@dataclass(frozen=True, slots=True)
class ProductWeight:
    """The right operand of a ``dot_general`` as it is stored, and the roles of its dimensions.

    A matrix is what a product sums over and the last of its outputs: the dimensions before, as
    that of experts, number matrices. They are batch dimensions, further outputs, or those by which
    ``gather`` or ``take`` choose.

    Attributes:
        value: made of weights alone.
        lookup: the op that chooses matrices of ``value`` as the program runs; ``None`` for all.
        contracted: dimensions of ``value`` that are summed.
        output: the dimension of ``value`` that is the last one of the product.
        places: the dimension of the right operand that each dimension of ``value`` is, -1 for one
            by which matrices are chosen.
    """

    value: Value
    lookup: Op | None
    contracted: tuple[int, ...]
    output: int
    places: tuple[int, ...]

    @property
    def matrix(self) -> tuple[int, ...]:
        """The dimensions of one matrix in ``value``."""
        return tuple(sorted((*self.contracted, self.output)))

    def read(self, b: Builder, part: Value, dropped: Sequence[int] = ()) -> Value:
        """The numbers or scales that the product reads: those of the chosen matrices.

        Args:
            b: builds before the product.
            part: with the dimensions of ``value``, of any size but along those that are chosen by.
            dropped: dimensions of ``value`` that ``part`` does not have.
        """
        if self.lookup is None:
            return part

        def kept(dim: int) -> int:
            return dim - sum(other < dim for other in dropped)

        operands = (part, *self.lookup.operands[1:])
        attrs: dict[str, AttrValue] = dict(self.lookup.attrs)
        if self.lookup.name == "take":
            attrs["dimension"] = kept(self.lookup.attrs.integer("dimension"))
        else:
            chosen = self.lookup.attrs.integers("start_index_map")
            collapsed = tuple(map(kept, self.lookup.attrs.integers("collapsed_slice_dims")))
            gone = [self.places[dim] for dim in dropped]
            offsets = [at for at in self.lookup.attrs.integers("offset_dims") if at not in gone]
            attrs |= {
                "offset_dims": tuple([at - sum(g < at for g in gone) for at in offsets]),
                "collapsed_slice_dims": collapsed,
                "start_index_map": tuple(map(kept, chosen)),
                "slice_sizes": tuple(
                    [1 if dim in collapsed else size for dim, size in enumerate(part.shape)]
                ),
            }
        return b.emit(self.lookup.name, operands, attrs).result

    def blocks(self, block: Sequence[int]) -> tuple[int, ...]:
        """Blocks of ``value`` as those of the right operand; what chooses has blocks of one."""
        if self.lookup is None:
            return tuple(block)
        found = dict(zip(self.places, block, strict=True))
        return tuple([found.get(dim, 1) for dim in range(self.lookup.result.type.rank)])

    def spread(self, b: Builder, scale: Value, dot: Op, dropped: Sequence[int]) -> Value:
        """Scales, as :meth:`read` gives them, for each element of a product.

        Args:
            b: builds after the product.
            scale: one for each of the dimensions that are not ``dropped``.
            dot: the product, or one of the same operands.
            dropped: dimensions of ``value`` that share a scale.
        """
        dims, found = range(dot.operands[1].type.rank), product_dims(dot)
        gone = [self.places[dim] for dim in dropped]
        places = [found[dim] for dim in dims if dim not in gone]
        order = sorted(range(len(places)), key=places.__getitem__)
        if order != list(range(len(places))):
            scale = b.transpose(scale, order)
        return b.broadcast_in_dim(scale, dot.result.shape, sorted(places))


def product_dims(dot: Op) -> dict[int, int]:
    """The dimension of a product for each of its right operand that is not summed."""
    batch, contracted = _paired(dot)
    rank = dot.result.type.rank
    kept = [dim for dim in range(dot.operands[1].type.rank) if dim not in contracted]
    outputs = [dim for dim in kept if dim not in batch]
    # A product has its batch first, then what the left operand adds, then the outputs.
    found = {dim: at for at, dim in enumerate(batch)}
    return found | {dim: rank - len(outputs) + at for at, dim in enumerate(outputs)}


def product_weight(dot: Op, is_weight: Callable[[Value], bool]) -> ProductWeight | str:
    """The weight of a product, or why it has no matrices.

    Args:
        dot: a ``dot_general``.
        is_weight: true for values made of weights alone.
    """
    rhs = weight_of(dot)
    batch, contracted = _paired(dot)
    outputs = [dim for dim in range(rhs.type.rank) if dim not in (*batch, *contracted)]
    if not outputs or not contracted:
        return "the weight has no matrices: it needs an input and an output dimension"
    lookup = None if is_weight(rhs) else lookup_of(rhs)
    if lookup is None:
        return ProductWeight(rhs, None, contracted, outputs[-1], tuple(range(rhs.type.rank)))
    places = _places(lookup)
    if any(dim not in places for dim in (*contracted, outputs[-1])):
        return "the numbers of the chosen rows are dimensions of the product"
    stored = [places.index(dim) for dim in contracted]
    return ProductWeight(
        lookup.operands[0], lookup, tuple(stored), places.index(outputs[-1]), places
    )


def _paired(dot: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batch and the summed dimensions of the right operand."""
    return dot.attrs.integers("rhs_batch_dims"), dot.attrs.integers("rhs_contracting_dims")


def chosen_matrices(value: Value, prepared: PreparedValues) -> Value:
    """The weight of which ``value`` is some matrices, chosen as the program runs; else itself."""
    lookup = None if prepared.of_weights(value) else lookup_of(value)
    return value if lookup is None else lookup.operands[0]


def lookup_of(value: Value) -> Op | None:
    """The op that chooses whole matrices of a stack."""
    made = value.producer("gather") or value.producer("take")
    if made is None or made.name == "take":
        return made if made is None or made.attrs.integer("block") == 1 else None
    stack, chosen = made.operands[0], made.attrs.integers("start_index_map")
    whole = all(
        size == wanted
        for dim, (size, wanted) in enumerate(
            zip(made.attrs.dims("slice_sizes"), stack.shape, strict=True)
        )
        if dim not in chosen
    )
    return made if whole and made.attrs.integers("collapsed_slice_dims") == chosen else None


def _places(lookup: Op) -> tuple[int, ...]:
    """Map dimensions of a stack to dimensions of the selected part; -1 for the indexed one."""
    rank = lookup.operands[0].type.rank
    if lookup.name == "take":
        chosen = lookup.attrs.integer("dimension")
        return tuple([-1 if dim == chosen else dim for dim in range(rank)])
    collapsed = lookup.attrs.integers("collapsed_slice_dims")
    offsets = iter(lookup.attrs.integers("offset_dims"))
    return tuple([-1 if dim in collapsed else next(offsets) for dim in range(rank)])
