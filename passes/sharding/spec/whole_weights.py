"""Find the weights of products that no sharding rule splits, and remark on them."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Entry, Function, Module, Role, Value
from graphgen.passes.weights.derived import PreparedValues

_PRODUCTS = ("dot_general", "convolution", "experts")
# Ops that read a part of a table of matrices, as of experts.
_LOOKUPS = ("gather", "take", "dynamic_slice")


def whole_weights(module: Module) -> list[Entry]:
    """The weights of products without a layout, largest first.

    A weight counts as split where it, or what a program makes of it, has a layout.
    """
    read: set[str] = set()
    split: set[str] = set()
    for function in module.programs():
        prepared = PreparedValues(module, function, {})
        read |= _multiplied(function, prepared)
        made = [value for op in function.block for value in op.results]
        for value in (*function.args, *made):
            if value.sharding is not None and prepared.of_weights(value):
                split.update(prepared.sources(value))
    rows = [
        row
        for row in module.entries(Role.WEIGHT)
        if row.name in read - split and (row.sharding is None or row.sharding.replicated)
    ]
    return sorted(rows, key=lambda row: -row.logical.nbytes if row.logical.static else 0)


def _multiplied(function: Function, prepared: PreparedValues) -> set[str]:
    """Names of weights of rank 2 and more that products read, or that rows are chosen of."""
    names: set[str] = set()
    for op in function.block:
        operands: Sequence[Value] = op.operands if op.name in _PRODUCTS else ()
        if op.name in _LOOKUPS and op.operands[0].type.rank > 2:
            operands = op.operands[:1]
        for value in operands:
            if value.type.rank > 1 and prepared.of_weights(value):
                names.update(prepared.sources(value))
    return names


def whole_weights_remark(rows: Sequence[Entry], total: int, axis: str) -> str:
    """A remark on weights that every rank holds whole, with a rule that would split the first.

    Empty where they are less than a tenth of all weights, as a router is.
    """
    size = sum(row.logical.nbytes for row in rows if row.logical.static)
    if not rows or 10 * size < total:
        return ""
    first = rows[0]
    names = ", ".join(f"{row.name} {row.logical.text}" for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    layout = ",".join([axis, *["-"] * (first.logical.rank - 1)])
    return (
        f"{100 * size // max(total, 1)} % of the weights are whole on each rank, as the model has "
        f"no axis of theirs alone: {names}{more}; "
        f"rules=[{first.name}:{{{layout}}}] would split one"
    )


def weight_bytes(module: Module) -> int:
    """Bytes of all checkpoint tensors."""
    return sum(row.logical.nbytes for row in module.entries(Role.WEIGHT) if row.logical.static)
