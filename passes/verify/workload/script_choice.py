"""Choice of the script: the short one where passes compute on floats alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from graphgen.ir import Op, TensorType
from graphgen.ops import Trait, has_trait
from graphgen.passes.core.journal import Journal, Rewrite

# The calls that a module is taken through: a few; those of adversarial situations; or whichever of
# the two shows what the passes touch.
Script = Literal["short", "adversarial", "auto"]

# Ops on parts of arrays, which may be states, whatever their element type; and control flow.
_PARTS = (Trait.ALIGNED, Trait.PARTIAL_READ, Trait.CONTROL)


def choose_script(journal: Journal) -> Literal["short", "adversarial"]:
    """Choose a script that exposes possible faults of a pipeline's rewrites.

    The short one, if no rewrite of a program touches integers or predicates (token ids, positions,
    lengths, row ids, masks, indices), parts of arrays, control flow, or copies a program whole. The
    remaining rewrites compute on floats, elementwise, in reductions and in products, and any call
    shows their faults; programs of weights are run before the first call.
    """
    touched = any(_touches_places(rewrite) for rewrite in journal.applications)
    return "adversarial" if touched or journal.copies else "short"


def _touches_places(rewrite: Rewrite) -> bool:
    if rewrite.function.startswith("weights."):
        return False
    return any(_of_places(op, types) for op, types in rewrite.touched)


def _of_places(op: Op, types: Iterable[TensorType]) -> bool:
    """True for an op on places in arrays, or on values that name places."""
    return (
        op.name == "sort"
        or any(has_trait(op, trait) for trait in _PARTS)
        or any(not type_.dtype.is_float for type_ in types)
    )
