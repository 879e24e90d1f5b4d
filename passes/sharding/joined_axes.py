"""Mesh axes that all ops but mixtures of experts use as one: factors of the same ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from graphgen.ir import Function, Module, Op, Role, Sharding
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.mesh import Mesh
from graphgen.passes.sharding.requested_layout import requested_sharding
from graphgen.passes.sharding.strategies import Strategy
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import only_enlarges


def joined_axes(
    module: Module,
    prepared: Mapping[Function, PreparedValues],
    mesh: Mesh,
    around: Set[Op] = frozenset(),
) -> Axes:
    """The axes of a mesh that layouts use only together; none if an op needs a part of them.

    With ``experts:ep`` and everything else over ``ep*tp``, only mixtures divide over one of the
    axes: other ops are searched as over one axis, in a fraction of the time.

    Args:
        module: has the annotated layouts.
        prepared: what each of its programs makes of weights.
        mesh: the ranks.
        around: more ops that may use one of the axes.
    """
    axes = tuple(axis for axis, size in mesh.axes.items() if size > 1)
    if len(axes) < 2:
        return ()
    used = False
    for layout, apart in _layouts(module, prepared, around):
        if not apart and not _together(layout, axes):
            return ()
        used = used or (not apart and bool(layout.axes))
    return axes if used else ()


def _layouts(
    module: Module, prepared: Mapping[Function, PreparedValues], around: Set[Op]
) -> Iterator[tuple[Sharding, bool]]:
    """Annotated layouts, each with True where its reader may use the axes apart."""
    for function, made in prepared.items():
        for name, _ in function.outputs:
            if (layout := module.interface[name].sharding) is not None:
                # The layout of an updated cache is that of the cache.
                yield layout, bool(around) and module.interface[name].role is Role.STATE
        for op in function.block:
            if made.of_weights(op.results[0]):
                continue
            for value in op.operands:
                layout = requested_sharding(module, value)
                if not layout.replicated:
                    yield layout, op in around or splits_apart(op)


def splits_apart(op: Op) -> bool:
    """True for mixtures of experts, and for what widens their weights."""
    if op.name == "experts":
        return True
    return only_enlarges(op) and any(map(splits_apart, op.results[0].users))


def uses_together(strategy: Strategy, axes: Axes) -> bool:
    """True if a strategy uses all of the axes for the same factor, or none."""
    layouts = (*strategy.in_shardings, *strategy.out_shardings)
    return all(_together(layout, axes) for layout in layouts)


def _together(layout: Sharding, axes: Axes) -> bool:
    cuts = all(cut == axes for cut in layout.dims if cut)
    return cuts and (not layout.partial or set(layout.partial) == set(axes))
