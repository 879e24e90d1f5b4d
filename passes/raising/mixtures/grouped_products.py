"""Match products of sorted rows with the matrix of the group that each is in.

A group has the rows of one expert. Rows are put in their group's place among zeros, and experts and
features are summed at once, as JAX expands ``lax.ragged_dot`` and as grouped products of PyTorch
are read.
"""

from __future__ import annotations

from graphgen.analysis.pattern.see_through import integer, literal, spread
from graphgen.ir import Value
from graphgen.passes.raising.mixtures.axes import Axis, Followed, SortedAxis
from graphgen.passes.raising.mixtures.followed_axes import Product, beneath
from graphgen.passes.raising.mixtures.index_functions import (
    leaf_of,
    linear_leaf,
    matrix_of,
    numbers_at,
)


def grouped_rows(product: Product) -> tuple[Followed, Followed, Axis, Followed] | None:
    """The rows, the stack, its axis of experts, and the expert of each row before the sort."""
    for placed, stack in product.either() if len(product.summed) == 2 else ():
        placed = beneath(placed)
        op = placed.value.producer("select")
        rows = [axis for axis in placed.axes if isinstance(axis, SortedAxis)]
        if op is None or len(rows) != 1 or literal(op.operands[2]) != 0:
            continue
        x = beneath(Followed(op.operands[1], placed.dims))
        experts = [axis for axis in product.summed if axis not in x.axes]
        if len(experts) != 1 or len(stack.axes) != 3:
            continue
        if _in_groups(Followed(op.operands[0], placed.dims), rows[0], experts[0]):
            ids = Followed(rows[0].sort.operands[0], (rows[0].axes,))
            return x, beneath(stack), experts[0], ids
    return None


def _in_groups(mask: Followed, rows: SortedAxis, experts: Axis) -> bool:
    """Match ``start[e] <= row < end[e]``, the groups of rows of one expert after the other."""
    mask = beneath(mask)
    op = mask.value.producer("and")
    if op is None:
        return False
    found: dict[str, Value] = {}
    for side in op.operands:
        each = beneath(Followed(side, mask.dims))
        compared = each.value.producer("compare")
        if compared is None:
            return False
        direction = compared.attrs.text("direction")
        left, right = [beneath(Followed(x, each.dims)) for x in compared.operands]
        if direction in ("LE", "GT"):
            left, right, direction = right, left, {"LE": "GE", "GT": "LT"}[direction]
        run = left.value.producer("iota")
        if run is None or left.dims[run.attrs.integer("dimension")] != (rows,):
            return False
        if right.axes != (experts,):
            return False
        found[direction] = right.value
    return found.keys() == {"GE", "LT"} and _are_ends(found["GE"], found["LT"], rows)


def _are_ends(starts: Value, ends: Value, rows: SortedAxis) -> bool:
    """Test whether groups end at the sums of their sizes up to each, and start at those before."""
    import numpy as np

    counts = linear_leaf(ends)
    if counts is None or linear_leaf(starts) is not counts or counts.type.rank != 1:
        return False
    upper, before = matrix_of(ends, counts), matrix_of(starts, counts)
    if upper is None or before is None:
        return False
    ones = np.ones(upper.shape)
    right = np.array_equal(upper, np.tril(ones)) and np.array_equal(before, np.tril(ones, -1))
    return right and _counts_numbers(counts, rows)


def _counts_numbers(counts: Value, rows: SortedAxis) -> bool:
    """Test whether a vector [E] says how often each expert is among the sorted numbers."""
    import numpy as np

    known = (rows.sort.results[0], rows.sort.operands[0])
    (experts,), op = counts.shape, counts.op
    if op is None or not isinstance(experts, int):
        return False
    if op.name == "reduce" and op.attrs.integers("dimensions") == (0,):
        hot = op.operands[0]
        leaf = leaf_of(hot, known)
        if op.attrs.text("kind") != "add" or leaf not in known or hot.type.rank != 2:
            return False
        assert leaf is not None
        made = numbers_at(hot, leaf, experts)
        return made is not None and np.array_equal(made, np.eye(experts))
    if op.name != "scatter" or op.attrs.text("kind") != "add":
        return False
    into, indices, updates = op.operands
    ones = updates.shape == rows.sort.operands[0].shape and integer(spread(updates)[0]) == 1
    if not ones or integer(spread(into)[0]) != 0 or op.attrs.integers("update_window_dims"):
        return False
    leaf = leaf_of(indices, known)
    if leaf not in known:
        return False
    assert leaf is not None
    made = numbers_at(indices, leaf, experts)
    return made is not None and np.array_equal(made.ravel(), np.arange(experts))
