"""Follow layouts through a program of one rank: parts, unfinished sums, values that are the same.

After the partitioner no value states its sharding. The parts are those of the caches and of the
prepared weights; ops carry them on by their factors, and collectives end them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.exec.weights import weight_programs
from graphgen.ir import RANK, Function, Module, Op, Sharding, Value, replicated
from graphgen.ir.sharding import Axes
from graphgen.ops import Trait, has_trait
from graphgen.ops.control import CONTROL
from graphgen.ops.external import gives_rank
from graphgen.ops.factors import DimFactors, Factors
from graphgen.passes.inspect.layouts.reshaped import BY_RANK, Layout, layout_of, reshaped
from graphgen.passes.sharding.spec.mesh import mesh_of
from graphgen.passes.sharding.spec.op_factors import factors_of


def rank_layouts(module: Module, function: Function) -> dict[Value, Layout]:
    """The layout of each value of a program of one rank.

    Args:
        module: has the mesh, the interface and the weight programs.
        function: without calls.
    """
    prepared: dict[str, Layout] = {}
    for program in weight_programs(module):
        given = {value: prepared.get(value.name or "", _whole(value)) for value in program.args}
        found = _Follower(module).follow(program, given)
        prepared |= {name: found[value] for name, value in program.outputs}
    arguments: dict[Value, Layout] = {}
    for value in function.args:
        name = value.name or ""
        row = module.interface.get(name)
        layout = _whole(value) if row is None or row.sharding is None else row.sharding
        arguments[value] = prepared.get(name, layout)
    return _Follower(module).follow(function, arguments)


def _whole(value: Value) -> Layout:
    return BY_RANK if value.name == RANK else replicated(value.type.rank)


@dataclass(slots=True)
class _Follower:
    """Follows layouts from the arguments of one function.

    Attributes:
        module: has the mesh.
        found: layouts so far.
        origins: reshapes that a layout comes from, whose axes could be of a dimension of size 1.
        inner: those reshapes of which it was seen that they are.
    """

    module: Module
    found: dict[Value, Layout] = field(default_factory=dict[Value, Layout])
    origins: dict[Value, Op] = field(default_factory=dict[Value, Op])
    inner: set[Op] = field(default_factory=set[Op])

    def follow(self, function: Function, given: Mapping[Value, Layout]) -> dict[Value, Layout]:
        """The layouts of the arguments that fit their types, and of all that follows from them.

        Operands of one op that contradict each other say how an ambiguous reshape is meant.
        """
        known = -1
        while known < len(self.inner):
            known = len(self.inner)
            self.found = {value: _fitting(value, layout) for value, layout in given.items()}
            self.origins = {}
            for op in function.block:
                for value, layout in zip(op.results, self.after(op), strict=True):
                    self.found[value] = _fitting(value, layout)
        return self.found

    def after(self, op: Op) -> list[Layout]:
        """The layouts of the results of an op."""
        before = [self.found[value] for value in op.operands]
        if has_trait(op, Trait.COLLECTIVE):
            return [_exchanged(self.module, op, before[0])]
        if op.name == "dynamic_slice":
            return [_cut(self.module, op, before)]
        known = [layout for layout in before if layout is not None]
        lost: list[Layout] = [BY_RANK for _ in op.results]
        if len(known) < len(before) or gives_rank(op):
            return lost
        if all(layout.replicated for layout in known):
            return [replicated(value.type.rank) for value in op.results]
        made = lost if op.name in CONTROL else self.carried(op, known)
        origins = [self.origins[value] for value in op.operands if value in self.origins]
        if made[0] is BY_RANK:
            self.inner.update(origins)
        elif origins and op.results[0] not in self.origins:
            self.origins.update(dict.fromkeys(op.results, origins[0]))
        return made

    def carried(self, op: Op, before: Sequence[Sharding]) -> list[Layout]:
        """The layouts of an op of which some operand is a part or a sum not yet taken."""
        if op.name == "reshape":
            layouts = reshaped(op, before[0])
            if len(layouts) > 1:
                self.origins[op.results[0]] = op
            return [layouts[-1 if op in self.inner else 0]]
        if op.name == "take" and len(before) == 2:
            return [_taken(op, before)]
        if has_trait(op, Trait.ALIGNED):
            return [_aligned(op, before)]
        factors = factors_of(op)
        return _through(op, factors, before) if factors else [BY_RANK for _ in op.results]


def _fitting(value: Value, layout: Layout) -> Layout:
    return layout if layout is not None and len(layout.dims) == value.type.rank else BY_RANK


def _aligned(op: Op, before: Sequence[Sharding]) -> Layout:
    """Dimension by dimension the axes of the operands of this rank."""
    shaped = [layout for layout in before if len(layout.dims) == op.results[0].type.rank]
    if any(layout.partial for layout in before):
        same = all(layout.partial == shaped[0].partial for layout in shaped)
        return shaped[0] if same and len(shaped) == len(before) else BY_RANK
    cuts = [{axes for axes in each if axes} for each in zip(*[x.dims for x in shaped], strict=True)]
    if any(len(choices) > 1 for choices in cuts):
        return BY_RANK
    return layout_of([next(iter(choices), ()) for choices in cuts])


def _through(op: Op, factors: Factors, before: Sequence[Sharding]) -> list[Layout]:
    """The layouts that follow from the factors that the dimensions of an op share."""
    lost: list[Layout] = [BY_RANK for _ in op.results]
    cuts: dict[int, Axes] = {}
    for layout, dims in zip(before, factors.operands, strict=True):
        for axes, parts in zip(layout.dims, dims, strict=True):
            outer = _outermost(parts)
            if axes and (outer is None or cuts.setdefault(outer, axes) != axes):
                return lost
    sums = _unfinished(factors, before, cuts)
    if sums is None:
        return lost
    kind, partial = sums
    held = {_outermost(parts) for value in factors.results for parts in value}
    if any(factor not in held and factor not in factors.reduction for factor in cuts):
        return lost
    after: list[Layout] = []
    for value in factors.results:
        outer = [_outermost(parts) for parts in value]
        dims = [cuts.get(factor, ()) if factor is not None else () for factor in outer]
        after.append(layout_of(dims, partial, kind))
    return after


def _outermost(parts: DimFactors) -> int | None:
    """The factor whose cut is one of the whole dimension; ``None`` if the dimension has none."""
    return parts[0] if parts else None


def _unfinished(
    factors: Factors, before: Sequence[Sharding], cuts: Mapping[int, Axes]
) -> tuple[str, Axes] | None:
    """Kind and axes of the combination that a result still needs; ``None`` if it is not a sum."""
    owing = frozenset(index for index, layout in enumerate(before) if layout.partial)
    kinds = {before[index].kind for index in owing}
    axes = {axis for index in owing for axis in before[index].partial}
    if owing and (owing not in factors.linear_in or kinds != {"add"}):
        return None
    for factor, cut in cuts.items():
        if factor in factors.reduction:
            kinds.add(factors.reduction[factor])
            axes.update(cut)
    if len(kinds) > 1:
        return None
    return next(iter(kinds), "add"), tuple(sorted(axes))


def _cut(module: Module, op: Op, before: Sequence[Layout]) -> Layout:
    """A part of each rank's own place: the dimension is cut by the axes of that many ranks."""
    layout, *places = before
    if layout is None or layout.partial:
        return BY_RANK
    dims = list(layout.dims)
    for dim, place in enumerate(places):
        if place is None:
            whole, part = op.operands[0].type.shape[dim], op.results[0].type.shape[dim]
            axes = _axes_of_size(module, whole, part)
            if axes is None or dims[dim]:
                return BY_RANK
            dims[dim] = axes
    return layout_of(dims)


def _axes_of_size(module: Module, whole: object, part: object) -> Axes | None:
    """The only axes of the mesh that cut a dimension into such parts."""
    if not (isinstance(whole, int) and isinstance(part, int)) or not part or whole % part:
        return None
    fitting = [
        axes
        for axes in _axis_sets(module)
        if math.prod(module.mesh[axis] for axis in axes) == whole // part
    ]
    return fitting[0] if len(fitting) == 1 else None


def _taken(op: Op, before: Sequence[Sharding]) -> Layout:
    """Blocks by an index that each rank has a part of: heads that several ranks store."""
    source, index = before
    dims = list(source.dims)
    place = op.attrs.integer("dimension")
    if source.partial or index.partial or (dims[place] and index.dims[0]):
        return BY_RANK
    dims[place] = dims[place] or index.dims[0]
    return layout_of(dims)


def _axis_sets(module: Module) -> Iterator[Axes]:
    axes = [axis for axis, size in module.mesh.items() if size > 1]
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _grouped_axes(module: Module, op: Op) -> Axes | None:
    """The axes along which the ranks of each group differ."""
    mesh = mesh_of(module.mesh)
    groups = {frozenset(group) for group in op.attrs.groups("replica_groups")}
    for axes in _axis_sets(module):
        if {frozenset(group) for group in mesh.groups(axes)} == groups:
            return axes
    return None


def _exchanged(module: Module, op: Op, layout: Layout) -> Layout:
    """The layout after a collective."""
    if op.name == "collective_permute":
        return layout
    axes = _grouped_axes(module, op)
    if axes is None:
        return BY_RANK
    if layout is None:
        return _of_any(module, op, axes)
    dims = [tuple(axis for axis in cut if axis not in axes) for cut in layout.dims]
    partial = [axis for axis in layout.partial if axis not in axes]
    if op.name == "reduce_scatter":
        dims[op.attrs.integer("dimension")] += axes
    elif op.name == "all_to_all":
        if not set(axes) <= set(layout.dims[op.attrs.integer("concat_dimension")]):
            return BY_RANK
        dims[op.attrs.integer("split_dimension")] += axes
    elif op.name == "all_gather":
        gathered = set(layout.dims[op.attrs.integer("dimension")])
        if layout.partial or not set(axes) <= gathered:
            return BY_RANK
    return layout_of(dims, partial, layout.kind)


def _of_any(module: Module, op: Op, axes: Axes) -> Layout:
    """After an exchange of all ranks it does not matter how their values differed."""
    if math.prod(module.mesh[axis] for axis in axes) != module.ranks:
        return BY_RANK
    if op.name in ("all_reduce", "all_gather"):
        return replicated(op.results[0].type.rank)
    if op.name == "reduce_scatter":
        dims: list[Axes] = [() for _ in op.results[0].type.shape]
        dims[op.attrs.integer("dimension")] = axes
        return layout_of(dims)
    return BY_RANK
