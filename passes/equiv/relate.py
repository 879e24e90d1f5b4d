"""Numeric relations: the values a relation predicts, and arrays that are equal if it holds.

A *reference* value is the whole tensor of the program compared with. The other program has one
array a rank, its *parts*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import NATIVE, Array
from graphgen.ir import Literal, Sharding
from graphgen.ir.sharding import Axes, sharding
from graphgen.passes.core.relation import (
    Chain,
    DontCare,
    Equal,
    Partial,
    Quantized,
    Relation,
    Sharded,
    Take,
)
from graphgen.passes.sharding.mesh import Mesh

Parts = list[Array]


class RankGrid(Mesh):
    """The mesh of the other program, and the scales that relations name.

    Args:
        axes: size of each named axis; ranks are numbered with the last axis running fastest.
        scales: name -> the value that ``quantized`` may name.
    """

    def __init__(
        self, axes: Mapping[str, int], scales: Callable[[str], Array] | None = None
    ) -> None:
        super().__init__(axes)
        self.scales = scales

    def axis(self, name: str) -> Axes:
        """The axis called ``name``; ``@`` is the only one (GG0302 for an unknown one)."""
        if name == "@" and len(self.axes) == 1:
            return tuple(self.axes)
        if name not in self.axes:
            known = ", ".join(self.axes) or "none"
            raise GraphgenError("GG0302", f"no mesh axis '{name}'", help=f"its axes: {known}")
        return (name,)


def apply(relation: Relation, reference: Array, mesh: RankGrid) -> Parts:
    """The parts that stand in ``relation`` to ``reference``.

    Where there are many (of ``partial`` any that sum up) it is one of them. Quantized values are
    not rounded yet: the caller knows the integer type.

    Raises:
        GraphgenError: GG0302 for a relation that does not fit the value or the mesh.
    """
    parts = [reference] * mesh.ranks
    for step in steps(relation):
        parts = _forward(step, parts, mesh)
    return parts


def meet(
    relation: Relation, reference: Array, parts: Sequence[Array], mesh: RankGrid
) -> tuple[Array, Array]:
    """Two arrays that are equal just when ``parts`` stand in ``relation`` to ``reference``.

    Invertible steps (joining, summing, scaling) are undone on the right; the rest is done on the
    left. Elements that do not matter are zero in both. Where ranks differ they are stacked.
    """
    rest = steps(relation)
    right, unseen = list(parts), [np.zeros(part.shape, np.bool_) for part in parts]
    while rest and not isinstance(rest[-1], Take):
        step = rest.pop()
        right = _backward(step, right, mesh)
        unseen = _backward_mask(step, unseen, mesh)
    left, hidden = [reference] * mesh.ranks, [np.zeros(reference.shape, np.bool_)] * mesh.ranks
    for step in rest:
        left = _forward(step, left, mesh)
        hidden = _forward_mask(step, hidden, mesh)
    if [part.shape for part in left] == [part.shape for part in right]:
        masks = [one | other for one, other in zip(hidden, unseen, strict=True)]
        left = [_blank(part, mask) for part, mask in zip(left, masks, strict=True)]
        right = [_blank(part, mask) for part, mask in zip(right, masks, strict=True)]
    return _one(left, right)


def _blank(part: Array, mask: Array) -> Array:
    return np.where(mask, np.zeros((), part.dtype), part) if mask.any() else part


def _one(left: Parts, right: Parts) -> tuple[Array, Array]:
    """The arrays of rank 0 where all ranks have the same, else those of all ranks."""
    same = all(_same(one, left[0]) for one in left) and all(_same(one, right[0]) for one in right)
    if same or len({one.shape for one in (*left, *right)}) > 1:
        return left[0], right[0]
    return np.stack(left), np.stack(right)


def _same(a: Array, b: Array) -> bool:
    return a is b or (a.shape == b.shape and a.tobytes() == b.tobytes())


def steps(relation: Relation) -> list[Relation]:
    """The single relations of a chain, in order."""
    if isinstance(relation, Chain):
        return [step for inner in relation.steps for step in steps(inner)]
    return [relation]


def _forward(step: Relation, parts: Parts, mesh: RankGrid) -> Parts:
    match step:
        case Take():
            return [_take(step, part) for part in parts]
        case Sharded():
            return [_slice(step.layout, part, rank, mesh) for rank, part in enumerate(parts)]
        case Partial():
            owed = sharding(((),) * parts[0].ndim, (step.axis,))
            return [_slice(owed, part, rank, mesh) for rank, part in enumerate(parts)]
        case Quantized():
            return [part / _scale(step, part, mesh) for part in parts]
        case Equal() | DontCare():
            return parts
        case Chain():
            raise AssertionError("a chain is taken apart before")


def _backward(step: Relation, parts: Parts, mesh: RankGrid) -> Parts:
    match step:
        case Sharded():
            return _joined(step.layout, parts, mesh)
        case Partial():
            return _joined(sharding(((),) * parts[0].ndim, (step.axis,)), parts, mesh)
        case Quantized():
            return [part * _scale(step, part, mesh) for part in parts]
        case Equal() | DontCare():
            return parts
        case Take() | Chain():
            raise AssertionError("not undone")


def _forward_mask(step: Relation, masks: Parts, mesh: RankGrid) -> Parts:
    """Mask of don't-care elements after ``step``, given that before it."""
    if isinstance(step, DontCare):
        return [mask | _mask(step, mask.shape) for mask in masks]
    return masks if isinstance(step, Quantized | Partial) else _forward(step, masks, mesh)


def _backward_mask(step: Relation, masks: Parts, mesh: RankGrid) -> Parts:
    """Mask of don't-care elements before ``step``, given that after it."""
    if isinstance(step, DontCare):
        return [mask | _mask(step, mask.shape) for mask in masks]
    if isinstance(step, Quantized):
        return masks
    return [mask > 0 for mask in _backward(step, masks, mesh)]


def _take(step: Take, whole: Array) -> Array:
    _check_dim(step.dim, whole)
    size = whole.shape[step.dim]
    if any(not -1 <= index < size for index in step.indices):
        raise GraphgenError("GG0302", f"take: the map goes beyond the {size} of dim {step.dim}")
    places = np.asarray([max(index, 0) for index in step.indices], np.int64)
    found = np.take(whole, places, step.dim)
    view = [1] * whole.ndim
    view[step.dim] = len(step.indices)
    kept = np.asarray([index >= 0 for index in step.indices]).reshape(view)
    return np.where(kept, found, np.zeros((), whole.dtype)).astype(whole.dtype)


def _check_dim(dim: int, whole: Array) -> None:
    if not 0 <= dim < whole.ndim:
        raise GraphgenError("GG0302", f"a tensor {list(whole.shape)} has no dimension {dim}")


def _slice(layout: Sharding, whole: Array, rank: int, mesh: RankGrid) -> Array:
    """One rank's part; of a sum, the first rank of the axis holds all."""
    if len(layout.dims) != whole.ndim:
        what = f"the layout {layout.text} is not one of a tensor {list(whole.shape)}"
        raise GraphgenError("GG0302", what)
    for dim, axis in [(dim, axis) for dim, axes in enumerate(layout.dims) for axis in axes]:
        place, count = mesh.place(rank, mesh.axis(axis)), mesh.size(mesh.axis(axis))
        if whole.shape[dim] % count:
            what = f"{whole.shape[dim]} of dim {dim} do not divide over {count} ranks"
            raise GraphgenError("GG0302", what)
        size = whole.shape[dim] // count
        whole = np.take(whole, range(place * size, (place + 1) * size), dim)
    # Of a maximum or a minimum every rank may hold all.
    if layout.kind == "add" and any(mesh.place(rank, mesh.axis(axis)) for axis in layout.partial):
        return np.zeros_like(whole)
    return whole


_COMBINES = {"add": np.sum, "maximum": np.max, "minimum": np.min}


def _joined(layout: Sharding, parts: Parts, mesh: RankGrid) -> Parts:
    """The parts after an all-gather and an all-reduce."""

    def gather(dim: int) -> Callable[[Sequence[Array]], Array]:
        return lambda ours: np.concatenate(list(ours), dim)

    for dim, axes in enumerate(layout.dims):
        for axis in reversed(axes):
            parts = _along(parts, axis, mesh, gather(dim))
    combine = _COMBINES[layout.kind]
    for axis in layout.partial:
        parts = _along(parts, axis, mesh, lambda ours: combine(np.stack(list(ours)), axis=0))
    return parts


def _along(
    parts: Parts, axis: str, mesh: RankGrid, combine: Callable[[Sequence[Array]], Array]
) -> Parts:
    """Per rank, ``combine`` of the parts of all ranks that differ from it on ``axis`` only."""
    out = list(parts)
    for ranks in mesh.groups(mesh.axis(axis)):
        whole = combine([parts[rank] for rank in ranks])
        for rank in ranks:
            out[rank] = whole
    return out


def _scale(step: Quantized, value: Array, mesh: RankGrid) -> Array:
    """The scale, shaped to broadcast against ``value``."""
    scale = _scale_array(step, mesh)
    if scale.ndim != len(step.dims):
        what = f"a scale {list(scale.shape)} needs {scale.ndim} dims, {list(step.dims)} are given"
        raise GraphgenError("GG0302", what)
    view = [1] * value.ndim
    for size, dim in zip(scale.shape, step.dims, strict=True):
        _check_dim(dim, value)
        if size not in (1, value.shape[dim]):
            what = f"a scale of {size} does not fit dim {dim} of a tensor {list(value.shape)}"
            raise GraphgenError("GG0302", what)
        view[dim] = size
    return scale.astype(np.float64).reshape(view)


def _scale_array(step: Quantized, mesh: RankGrid) -> Array:
    if isinstance(step.scale, Literal):
        return NATIVE.literal(step.scale)
    if isinstance(step.scale, str):
        if mesh.scales is None:
            raise GraphgenError("GG0302", f"there is not a value '{step.scale}' to scale with")
        return mesh.scales(step.scale)
    return np.asarray(step.scale)


def _mask(step: DontCare, shape: tuple[int, ...]) -> Array:
    mask = NATIVE.literal(step.mask)
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        what = f"a mask {list(mask.shape)} does not broadcast to {list(shape)}"
        raise GraphgenError("GG0302", what) from error
