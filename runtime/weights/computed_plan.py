"""Compute one tensor of a weight program part by part, so that intermediates stay small.

Unpacking 4-bit numbers widens them eightfold on the way; of a whole tensor that is more than the
file of many a model. A part of the result is computed from the parts of the operands that it needs;
an op without a rule here, such as a sum, is evaluated whole, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from graphgen.eval import NATIVE, RULES, Array, evaluate_values, numpy_dtype
from graphgen.ir import Op, Value
from graphgen.ops.opdef import has_trait
from graphgen.ops.traits import Trait
from graphgen.runtime.weights.copy_plan import NotACopyError, Observer, Shape, reshaped_box

# Elements per part: what is between fits into a core's own cache.
_PART: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a tensor: the index of its first element, and its sizes."""

    start: Shape
    sizes: Shape

    def within(self, whole: Region) -> tuple[slice, ...]:
        """This box as an index into the array of a box that it is in."""
        return tuple(
            slice(at - first, at - first + size)
            for at, size, first in zip(self.start, self.sizes, whole.start, strict=True)
        )

    def joined(self, other: Region | None) -> Region:
        """The smallest box that both are in."""
        if other is None:
            return self
        low = tuple(map(min, self.start, other.start))
        ends = [
            max(a + m, b + n)
            for a, m, b, n in zip(self.start, self.sizes, other.start, other.sizes, strict=True)
        ]
        return Region(low, tuple(end - at for end, at in zip(ends, low, strict=True)))


def whole(dims: Shape) -> Region:
    """All of a tensor."""
    return Region((0,) * len(dims), dims)


@dataclass(frozen=True, slots=True)
class ComputedPlan:
    """A tensor that is computed part by part.

    Attributes:
        value: the tensor, in a function of static shapes.
        given: the function's arguments.
    """

    value: Value
    given: Mapping[Value, Array]

    @property
    def shape(self) -> Shape:
        """The sizes of the tensor."""
        return self.value.type.dims

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Its element type."""
        return numpy_dtype(self.value.dtype)

    def fill(self, target: Array, observe: Observer | None = None) -> None:
        """Compute every part into ``target``; as :meth:`CopyPlan.fill`."""
        known = dict(self.given)
        order = _order(self.value, known)
        with np.errstate(all="ignore"):
            for part in _parts(self.shape):
                while (made := _computed(self.value, part, order, known)) is None:
                    order = _order(self.value, known)
                home = target[(..., *part.within(whole(self.shape)))]
                home[...] = made
                if observe is not None:
                    observe(home)

    def array(self) -> Array:
        """The tensor as an array."""
        filled = np.empty(self.shape, self.dtype)
        self.fill(filled)
        return filled


def _parts(shape: Shape) -> Iterator[Region]:
    """Boxes of about the number of elements of a part, along the first dimensions."""
    axis = 0
    while axis < len(shape) - 1 and prod(shape[axis + 1 :]) > _PART:
        axis += 1
    if not shape or not prod(shape):
        yield whole(shape)
        return
    rows = max(_PART // prod(shape[axis + 1 :]), 1)
    for outer in np.ndindex(*shape[:axis]):
        for at in range(0, shape[axis], rows):
            ones = (1,) * axis
            rest = (0,) * (len(shape) - axis - 1)
            size = min(rows, shape[axis] - at)
            yield Region((*outer, at, *rest), (*ones, size, *shape[axis + 1 :]))


def _order(value: Value, known: dict[Value, Array]) -> list[Op]:
    """The ops that are computed part by part, each after its operands.

    Args:
        value: the result.
        known: the arguments; values that are computed whole are added.
    """
    found: dict[Op, None] = {}
    work = [value]
    while work:
        op = work[-1].op
        if work[-1] in known or op is None or op in found:
            work.pop()
        elif not _in_parts(op):
            known[work[-1]] = evaluate_values(known, [work[-1]])[0]
        elif waiting := [v for v in op.operands if v not in known and v.op not in found]:
            work += waiting
        else:
            found[op] = None
    return [*found]


def _computed(
    value: Value, part: Region, order: Sequence[Op], known: dict[Value, Array]
) -> Array | None:
    """One part of a value; None after an op that has no such part was computed whole."""
    needed: dict[Value, Region] = {value: part}
    boxes: dict[Op, Sequence[Region | None]] = {}
    for op in reversed(order):
        if op.result in needed:
            try:
                boxes[op] = _operand_boxes(op, needed[op.result])
            except NotACopyError:
                known[op.result] = evaluate_values(known, [op.result])[0]
                return None
            for operand, box in zip(op.operands, boxes[op], strict=True):
                if box is not None:
                    needed[operand] = box.joined(needed.get(operand))
    made = {
        given: array[needed[given].within(whole(given.type.dims))]
        for given, array in known.items()
        if given in needed
    }
    for op in order:
        if op in boxes:
            operands = [
                made[operand][box.within(needed[operand])]
                for operand, box in zip(op.operands, boxes[op], strict=True)
                if box is not None
            ]
            made[op.result] = _evaluated(op, operands, needed[op.result])
    return made[value]


def _evaluated(op: Op, operands: Sequence[Array], part: Region) -> Array:
    """A part of an op's result from the parts of its operands."""
    if op.name == "reshape":
        return operands[0].reshape(part.sizes)
    if op.name == "slice":
        return operands[0]
    if op.name == "broadcast_in_dim":
        spread = [1] * len(part.sizes)
        targets = op.attrs.integers("dimensions")
        for size, target in zip(operands[0].shape, targets, strict=True):
            spread[target] = size
        return np.broadcast_to(operands[0].reshape(spread), part.sizes)
    return np.asarray(RULES[op.name](NATIVE, op.attrs, list(operands)))


def _in_parts(op: Op) -> bool:
    """True if a part of the result needs no more than parts of the operands."""
    if op.name == "slice" and any(step != 1 for step in op.attrs.integers("strides")):
        return False
    pointwise = has_trait(op, Trait.ELEMENTWISE) and len(op.results) == 1 and op.name in RULES
    return op.name in _BOXES or (pointwise and bool(op.operands))


def _operand_boxes(op: Op, part: Region) -> Sequence[Region | None]:
    """The box of each operand that a box of the result needs; None for one that it does not.

    Raises:
        NotACopyError: if it is not a box.
    """
    rule = _BOXES.get(op.name)
    if rule is not None:
        return rule(op, part)
    return [part if operand.type.rank else whole(()) for operand in op.operands]


def _reshape(op: Op, part: Region) -> Sequence[Region]:
    of, to = op.result.type.dims, op.operands[0].type.dims
    return [Region(*reshaped_box(part.start, part.sizes, of, to))]


def _transpose(op: Op, part: Region) -> Sequence[Region]:
    places = [op.attrs.integers("permutation").index(axis) for axis in range(len(part.sizes))]
    start, sizes = (tuple(each[place] for place in places) for each in (part.start, part.sizes))
    return [Region(start, sizes)]


def _broadcast(op: Op, part: Region) -> Sequence[Region]:
    kept = [
        (0, 1) if size == 1 else (part.start[target], part.sizes[target])
        for size, target in zip(
            op.operands[0].type.dims, op.attrs.integers("dimensions"), strict=True
        )
    ]
    return [Region(tuple(at for at, _ in kept), tuple(size for _, size in kept))]


def _slice(op: Op, part: Region) -> Sequence[Region]:
    first = op.attrs.integers("start_indices")
    return [Region(tuple(a + b for a, b in zip(part.start, first, strict=True)), part.sizes)]


def _concatenate(op: Op, part: Region) -> Sequence[Region | None]:
    axis, before = op.attrs.integer("dimension"), 0
    found: list[Region | None] = []
    for operand in op.operands:
        size = operand.type.dims[axis]
        low = max(part.start[axis] - before, 0)
        high = min(part.start[axis] + part.sizes[axis] - before, size)
        start, sizes = [*part.start], [*part.sizes]
        start[axis], sizes[axis] = low, high - low
        found.append(Region(tuple(start), tuple(sizes)) if low < high else None)
        before += size
    return found


def _bitcast(op: Op, part: Region) -> Sequence[Region]:
    """A number of fewer or more bits is several along a last dimension, which is whole."""
    dims, rank = op.operands[0].type.dims, len(part.sizes)
    if len(dims) == rank:
        return [part]
    if len(dims) > rank:
        return [Region((*part.start, 0), (*part.sizes, dims[-1]))]
    if part.sizes[-1] != op.result.type.dims[-1]:
        raise NotACopyError
    return [Region(part.start[:-1], part.sizes[:-1])]


_BOXES: Mapping[str, Callable[[Op, Region], Sequence[Region | None]]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "concatenate": _concatenate,
    "bitcast_convert": _bitcast,
}
