"""How each op carries a sharding from its operands to its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.ir import Op, Sharding, TensorType, replicated, sharding
from graphgen.ops.bits import COUNTS, LOGIC, SHIFTS
from graphgen.ops.elementwise import BINARY, UNARY_FLOAT, UNARY_SIGNED

# Gives the sharding of each result. A sum over a split dimension is returned as partial.
Carry = Callable[[Op, Sequence[Sharding], "Sizes"], Sequence[Sharding]]
Sizes = dict[str, int]


class CarryError(Exception):
    """The op has no form for these shardings."""


def carry(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """The shardings of the results of ``op``.

    Args:
        op: the op, with logical types.
        operands: the operands' shardings, none partial.
        sizes: mesh axis sizes.

    Raises:
        CarryError: saying what does not fit.
    """
    if all(layout.replicated for layout in operands):
        return [replicated(result.type.rank) for result in op.results]
    rule = CARRY.get(op.name)
    if rule is None:
        raise CarryError(f"{op.name} has no sharding rule for {[s.text for s in operands]}")
    return rule(op, operands, sizes)


def _elementwise(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    first = operands[0]
    if any(layout is not first for layout in operands):
        raise CarryError(f"operands lie differently: {[s.text for s in operands]}")
    if len(first.dims) != op.result.type.rank:
        raise CarryError(f"{op.operands[0].type.text} becomes {op.result.type.text}")
    return [first]


def _clamp(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """Scalar bounds are whole on every rank; others lie like the operand."""
    pairs = zip(op.operands, operands, strict=True)
    return _elementwise(op, [s for v, s in pairs if v.shape or v is op.operands[1]], sizes)


def _dot_general(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    lhs, rhs = (layout.dims for layout in operands)
    batch = _paired(op, "batch", operands)
    contracted = _paired(op, "contracting", operands)
    free: list[str | None] = []
    for side, dims in (("lhs", lhs), ("rhs", rhs)):
        used = {*op.attrs.integers(f"{side}_batch_dims")}
        used |= {*op.attrs.integers(f"{side}_contracting_dims")}
        free += [axis for i, axis in enumerate(dims) if i not in used]
    axes = [axis for axis in (*batch, *free, *contracted) if axis]
    if len(set(axes)) < len(axes):
        raise CarryError(f"{axes} would split the result more than once")
    return [sharding([*batch, *free], [axis for axis in contracted if axis])]


def _paired(op: Op, kind: str, operands: Sequence[Sharding]) -> list[str | None]:
    """The axes of the batch or contracting dims, which must be the same on both sides."""
    left = [operands[0].dims[i] for i in op.attrs.integers(f"lhs_{kind}_dims")]
    right = [operands[1].dims[i] for i in op.attrs.integers(f"rhs_{kind}_dims")]
    if left != right:
        raise CarryError(f"{kind} dims lie differently: {left} and {right}")
    return left


def _reshape(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    return [reshaped(op.operands[0].type, op.result.type, operands[0], sizes)]


def reshaped(old: TensorType, new: TensorType, layout: Sharding, sizes: Sizes) -> Sharding:
    """A split dimension may become the outermost of the dimensions it is split into, or back."""
    out: list[str | None] = [None] * new.rank
    for index, axis in enumerate(layout.dims):
        if axis is None:
            continue
        before = tensor_size(old, index)
        target = next((j for j in range(new.rank) if tensor_size(new, j) == before), None)
        while target is not None and target < new.rank - 1 and new.shape[target] == 1:
            target += 1
        size = new.shape[target] if target is not None else 1
        if target is None or not isinstance(size, int) or size % sizes[axis]:
            raise CarryError(f"{old.text}{layout.text} cannot become {new.text}")
        out[target] = axis
    return sharding(out)


def tensor_size(type_: TensorType, end: int) -> object:
    """Number of elements of the dimensions before ``end``."""
    total: object = 1
    for dim in type_.shape[:end]:
        total = dim if total == 1 else total * dim  # pyright: ignore[reportOperatorIssue]
    return total


def _broadcast(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    out: list[str | None] = [None] * op.result.type.rank
    for axis, target in zip(operands[0].dims, op.attrs.integers("dimensions"), strict=True):
        out[target] = axis
    return [sharding(out)]


def _transpose(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    return [sharding([operands[0].dims[i] for i in op.attrs.integers("permutation")])]


def _take(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """Blocks are taken out of the whole dimension; the others may be split."""
    axis = op.attrs.integer("dimension")
    if operands[0].dims[axis] or not operands[1].replicated:
        raise CarryError(f"take along dimension {axis} needs it whole, it lies {operands[0].text}")
    return [operands[0]]


def _norm(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """Rows may be split; what is normalized, and its weights, must be whole."""
    first, *weights = operands
    if first.dims[-1] is not None or not all(layout.replicated for layout in weights):
        raise CarryError(f"what {op.name} normalizes lies {[s.text for s in operands]}")
    return [first]


def _heads(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """Ops over [.., .., heads, D] where each head is its own: the head dimension may be split.

    Operands of four dimensions must agree; the others (tables, masks, positions) must be whole.
    """
    axis = operands[0].dims[2]
    for value, layout in zip(op.operands, operands, strict=True):
        wanted = sharding((None, None, axis, None)) if value.type.rank == 4 else None
        if layout is not (wanted or replicated(value.type.rank)):
            raise CarryError(f"{op.name}: %{value.name} lies {layout.text}")
    return [operands[0]]


def _attention(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """As :func:`_heads`; the slopes lie like the query heads."""
    slopes = operands[4:5]
    if any(layout is not sharding((operands[0].dims[2],)) for layout in slopes):
        raise CarryError(f"the heads lie {operands[0].text} and their slopes {slopes[0].text}")
    return _heads(op, [*operands[:4], *[replicated(1) for _ in slopes], *operands[5:]], sizes)


ELEMENTWISE = (
    *UNARY_FLOAT,
    *UNARY_SIGNED,
    *BINARY,
    *LOGIC,
    *SHIFTS,
    *COUNTS,
    "not",
    "atan2",
    "is_finite",
    "reduce_precision",
    "negate",
    "convert",
    "bitcast_convert",
    "compare",
    "select",
    "silu",
    "gelu",
)
CARRY: dict[str, Carry] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "clamp": _clamp,
    "dot_general": _dot_general,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "take": _take,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "rope": _heads,
    "kv_update": _heads,
    "cache_read": _heads,
    "attention": _attention,
}


def carry_whole(op: Op, operands: Sequence[Sharding], sizes: Sizes) -> Sequence[Sharding]:
    """How what every rank makes of whole weights is best cut: as the weights are, where that works.

    Args:
        op: the op, computed on whole operands.
        operands: how the rest of the program wants the operands to lie.
        sizes: mesh axis sizes.
    """
    rule = _CARRY_WHOLE.get(op.name)
    if rule is not None:
        return rule(op, operands, sizes)
    try:
        return [sharding(layout.dims) for layout in carry(op, operands, sizes)]
    except CarryError:
        # Every rank makes all of it, and may as well use all of it.
        return [replicated(result.type.rank) for result in op.results]


def _kept(op: Op, operands: Sequence[Sharding]) -> Sharding:
    """A fact found along a split dimension is known to all ranks."""
    over = op.attrs.integers("dimensions")
    return sharding([axis for dim, axis in enumerate(operands[0].dims) if dim not in over])


_CARRY_WHOLE: dict[str, Carry] = {
    "reduce": lambda op, operands, sizes: [_kept(op, operands)],
    "quantize": lambda op, operands, sizes: [operands[0], _kept(op, operands)],
    # What is taken lies as it would have lain untaken.
    "take": lambda op, operands, sizes: [operands[0]],
}
