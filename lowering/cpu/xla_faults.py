"""Table of faults of XLA on the CPU: clamps around one, names of the others.

Each has a test that shows it in the installed jaxlib: after an upgrade the tests of those that are
gone fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from graphgen.ir import Function, Literal, Module, Op, Value
from graphgen.ir.dtype import highest
from graphgen.lowering.in_place import ops_after

_SLICES = ("dynamic_slice", "dynamic_update_slice")
_VIEWS = ("reshape", "bitcast_convert")


@dataclass(frozen=True, slots=True)
class XlaFault:
    """A fault that a program can meet.

    Attributes:
        what: of it, in words.
        reports: ``owner/repository#number``.
        may_meet: whether an op, with what it reads, can meet it.
    """

    what: str
    reports: tuple[str, ...]
    may_meet: Callable[[Op], bool]


def _is_compared_square(op: Op) -> bool:
    """An integer times itself, compared: XLA takes squares for numbers of at least 0."""
    if op.name != "compare":
        return False
    makers = [value.producer("multiply") for value in op.operands]
    return any(
        maker is not None
        and maker.result.dtype.is_integer
        and maker.operands[0] is maker.operands[1]
        for maker in makers
    )


def _rounds(op: Op) -> bool:
    return op.name in ("ceil", "floor") and op.result.dtype.is_float


def _shifts_in_place(op: Op) -> bool:
    """A reshape of an array that takes a part of itself: XLA writes it where it still reads."""
    if op.name not in _VIEWS:
        return False
    update = op.operands[0].producer("dynamic_update_slice")
    if update is None:
        return False
    part = update.operands[1]
    while part.op is not None and part.op.name in _VIEWS:
        part = part.op.operands[0]
    makers = [part.producer(name) for name in ("slice", "dynamic_slice")]
    return any(maker is not None and maker.operands[0] is update.operands[0] for maker in makers)


FAULTS: Final = (
    XlaFault(
        "a square of integers that overflows is taken for a number of at least 0",
        ("openxla/xla#46628", "openxla/xla#41784"),
        _is_compared_square,
    ),
    XlaFault(
        "a reshaped array that takes a part of itself is written where it is still read",
        ("openxla/xla#49176",),
        _shifts_in_place,
    ),
    XlaFault("ceil and floor of denormal numbers are 0", (), _rounds),
)


def faults_of(module: Module) -> Iterator[tuple[XlaFault, Op]]:
    """The faults that a module can meet, each with the first op that does."""
    ops = [op for function in module.functions.values() for op in function.block]
    for fault in FAULTS:
        found = next((op for op in ops if fault.may_meet(op)), None)
        if found is not None:
            yield fault, found


def clamp_nested_slices(function: Function) -> None:
    """Clamp the starts of slices that read slices, in place.

    XLA adds the starts of both, and so leaves out the clamps in between (jax-ml/jax#40849).
    """
    for op in list(function.block):
        if op.name not in _SLICES:
            continue
        inner = [maker for maker in map(_slice_behind, op.operands[:2]) if maker is not None]
        for each in (op, *inner) if inner else ():
            _clamp(function, each)


def _slice_behind(value: Value) -> Op | None:
    """The slice that a value is, perhaps in another shape."""
    op = value.op
    while op is not None and op.name in _VIEWS:
        op = op.operands[0].op
    return op if op is not None and op.name in _SLICES else None


def _clamp(function: Function, op: Op) -> None:
    first = 1 if op.name == "dynamic_slice" else 2
    whole = op.operands[0].type.dims
    part = op.result.type.dims if first == 1 else op.operands[1].type.dims
    starts = list(op.operands[first:])
    if all(start.producer("constant") or start.producer("clamp") for start in starts):
        return
    last = op
    with ops_after(function, op) as b:
        for place, start in enumerate(starts):
            if start.producer("constant") or start.producer("clamp"):
                continue
            most = min(whole[place] - part[place], int(highest(start.dtype)))
            low, high = (
                b.emit("constant", [], {"value": Literal.of(start.dtype, number)}).result
                for number in (0, most)
            )
            last = b.emit("clamp", [low, start, high])
            starts[place] = last.result
    op.set_operands((*op.operands[:first], *starts))
    # After what it reads now.
    function.block.move_after(op, last)
