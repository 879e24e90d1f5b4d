"""Ops that run other functions of the module: calls, loops, and choices between functions.

The functions are not entry programs and stand before those that run them, so nothing runs itself.
That their types agree with those of the op is for the verifier, who knows the module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from graphgen.ir import Attrs, AttrValue, Op, TensorType, Value, attrs_of
from graphgen.ir.dtype import pred, s32
from graphgen.ops.attr_types import INTEGER, INTEGERS, NAMES, STRING, TEXT
from graphgen.ops.external import RESULTS, stated
from graphgen.ops.map_reduce import SCALAR, scalar_signature
from graphgen.ops.opdef import OPS, attr, define, require
from graphgen.ops.traits import Trait

# Attributes that name functions, in the order that `callees` gives.
NAMING: Final = ("to_apply", "condition", "body", "branches")
# The trip count of a loop without a known one.
UNKNOWN_TRIPS: Final = -1


def callees(op: Op) -> tuple[str, ...]:
    """The functions of the module that an op runs, in order; empty for nearly all ops."""
    if op.name not in CONTROL:
        return ()
    names: tuple[str, ...] = ()
    for key in NAMING:
        if key in op.attrs:
            names += op.attrs.names(key) if key == "branches" else (op.attrs.text(key),)
    return names


def kernel_of(op: Op) -> str:
    """The kernel that a call names, whose meaning its function is; empty for other ops."""
    return op.attrs.text("kernel") if op.name == "call" else ""


def renamed(op: Op, names: Mapping[str, str]) -> Attrs:
    """The attributes of an op with new names of the functions it runs; others keep theirs."""
    if op.name not in CONTROL:
        return op.attrs
    changed: dict[str, AttrValue] = {}
    for key in NAMING:
        if key == "branches" and key in op.attrs:
            changed[key] = tuple([names.get(name, name) for name in callees(op)])
        elif key in op.attrs:
            changed[key] = names.get(op.attrs.text(key), op.attrs.text(key))
    return attrs_of({**op.attrs, **changed})


def branch_operands(op: Op) -> list[tuple[Value, ...]]:
    """The operands of each branch of a ``conditional``."""
    rest = list(op.operands[1:])
    return [tuple([rest.pop(0) for _ in range(count)]) for count in op.attrs.integers("takes")]


def chosen_branch(which: bool | int, count: int) -> int:
    """The branch of ``count`` that is run: true is the first of two, an unknown number the last."""
    if isinstance(which, bool):
        return 0 if which else 1
    return which if 0 <= which < count else count - 1


def _words(attrs: Attrs, *keys: str) -> None:
    for key in keys:
        require(bool(attrs.text(key)), f"{key} needs the name of a function")


@define(
    "call",
    "*operands",
    attr("to_apply", TEXT),
    RESULTS,
    attr("kernel", STRING, ""),
    attr("config", STRING, ""),
    traits=(Trait.CONTROL,),
)
def _call(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The outputs of another function of the module, given its arguments in order.

    The function is not a program and stands before those that call it; its types are those of
    the operands and of the results. A call with a ``kernel`` may be computed by the custom call of
    that name instead, whose settings are ``config``, a JSON object; the function is its meaning.

    Example:
        %y = call(%x) to_apply=layers results=[f32[B,4]] : f32[B,4]
    """
    _words(attrs, "to_apply")
    return stated(attrs)


@define(
    "while",
    "*state",
    attr("condition", TEXT),
    attr("body", TEXT),
    attr("trip_count", INTEGER, UNKNOWN_TRIPS),
    traits=(Trait.CONTROL,),
)
def _while(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The final state of a loop: ``state = body(state)`` while ``condition(state)``.

    Both are functions of the module that take the state; the body returns the next one, the
    condition one ``pred[]``. A value that the loop only reads is part of the state too; the body
    returns it unchanged. ``trip_count`` is how often the body runs where the loop states it, else
    -1.

    Example:
        %n, %y = while(%i, %x) condition=below body=step : s32[], f32[B,4]
    """
    _words(attrs, "condition", "body")
    require(bool(types), "has no state")
    require(attrs.integer("trip_count") >= UNKNOWN_TRIPS, "trip_count is negative")
    return tuple(types)


@define(
    "conditional",
    "which *operands",
    attr("branches", NAMES),
    attr("takes", INTEGERS),
    RESULTS,
    traits=(Trait.CONTROL,),
)
def _conditional(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The outputs of one of several functions of the module.

    ``which`` is a ``pred[]``: the first of two branches if it is true, else the second; or an
    ``s32[]``: the branch of that number, the last one if there is none. The operands are those of
    the first branch, then those of the second: ``takes`` says how many each has.

    Example:
        %y = conditional(%p, %x, %z) branches=[less,more] takes=[1,1] results=[f32[B,4]] : f32[B,4]
    """
    which, branches, takes = types[0], attrs.names("branches"), attrs.integers("takes")
    legal = which.rank == 0 and which.dtype in (pred, s32)
    require(legal, f"chooses by pred[] or s32[], not {which.text}", 0)
    require(bool(branches) and all(branches), "needs the names of its branches")
    two = which.dtype is s32 or len(branches) == 2
    require(two, f"a pred[] chooses between two branches, not {len(branches)}")
    require(len(takes) == len(branches), f"says what {len(takes)} of {len(branches)} branches take")
    given = len(types) - 1
    fits = min(takes) >= 0 and sum(takes) == given
    require(fits, f"its branches take {sum(takes)} operands, it has {given}")
    return stated(attrs)


CONTROL: Final = frozenset(
    [name for name, definition in OPS.items() if definition.has(Trait.CONTROL)]
)

__all__ = [
    "CONTROL",
    "NAMING",
    "SCALAR",
    "UNKNOWN_TRIPS",
    "branch_operands",
    "callees",
    "chosen_branch",
    "renamed",
    "scalar_signature",
]
