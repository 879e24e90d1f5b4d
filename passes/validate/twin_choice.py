"""Choice of twins: the wide one where a pipeline touches ids, positions, caches or heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from graphgen.ir import Op, TensorType
from graphgen.ops import Trait, has_trait
from graphgen.passes.core.journal import Journal

# A model's small twins: see graphgen.models.twins.
Twin = Literal["mini", "wide"]

# Types of quantized numbers; no ids or positions have them unless a pass narrows those.
_QUANTIZED = frozenset(("s4", "u4", "s8", "u8"))
# A tensor [rows, tokens or slots, heads, size of a head].
_HEADS_RANK = 4


def twins_for(journal: Journal) -> tuple[Twin, ...]:
    """Choose twins that expose possible faults of a pipeline's rewrites.

    The mini always; the wide one as well if a rewrite touches integers other than quantized
    numbers, an op on positions, masks, caches or slices, or a tensor with a dimension of heads, or
    if a program is copied whole. The remaining rewrites compute on floats element by element, and
    large numbers do not affect them.
    """
    touched = any(
        _numbered(op, types) for rewrite in journal.applications for op, types in rewrite.touched
    )
    return ("mini", "wide") if touched or journal.copies else ("mini",)


def _numbered(op: Op, types: Iterable[TensorType]) -> bool:
    return has_trait(op, Trait.POSITIONAL) or any(
        type_.rank >= _HEADS_RANK or not (type_.dtype.is_float or type_.dtype.name in _QUANTIZED)
        for type_ in types
    )
