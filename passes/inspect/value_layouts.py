"""The layout of each value over the ranks, as far as the module states or implies it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.exec.weights import weight_programs
from graphgen.ir import RANK, Attrs, Function, Module, Op, Sharding, Value, replicated, sharding
from graphgen.ir.sharding import Axes
from graphgen.ops import Trait, has_trait
from graphgen.ops.control import CONTROL
from graphgen.ops.external import gives_rank
from graphgen.ops.factors import DimFactors, Factors
from graphgen.passes.sharding.mesh import mesh_of
from graphgen.passes.sharding.op_factors import factors_of, nominal
from graphgen.passes.sharding.sharding_plan import make_plans
from graphgen.passes.spmd.partition import Partition

# The layout of a value that differs from rank to rank in another way than by its parts.
BY_RANK = None
Layout = Sharding | None


def layout_of(dims: Sequence[Axes], partial: Sequence[str] = (), kind: str = "add") -> Layout:
    """A layout, if no axis is used twice."""
    axes = [*itertools.chain.from_iterable(dims), *partial]
    return sharding(dims, partial, kind) if len(set(axes)) == len(axes) else BY_RANK


def reshaped(op: Op, layout: Sharding) -> list[Layout]:
    """The layouts that the result of a reshape can have; two where the shapes leave it open.

    Args:
        op: a reshape; symbols have a nominal size.
        layout: of its operand.
    """
    before = [nominal(size) for size in op.operands[0].type.shape]
    after = [nominal(size) for size in op.results[0].type.shape]
    if math.prod(before) != math.prod(after):
        return [BY_RANK]
    outer: list[Axes] = [() for _ in after]
    inner: list[Axes] = [() for _ in after]
    for ours, theirs in _blocks(before, after):
        cut = [dim for dim in ours if layout.dims[dim]]
        if not cut:
            continue
        leading = [dim for dim in ours if before[dim] == 1 and dim < cut[0]]
        if len(cut) > 1 or not theirs or any(before[d] != 1 for d in ours if d < cut[0]):
            return [BY_RANK]
        axes = layout.dims[cut[0]]
        if len(ours) == len(theirs):
            places = [theirs[len(leading)]] * 2
        else:
            first = next((dim for dim in theirs if after[dim] != 1), theirs[-1])
            places = [first, max(first - 1, theirs[0])]
        outer[places[0]], inner[places[1]] = axes, axes
    made = [layout_of(dims, layout.partial, layout.kind) for dims in (outer, inner)]
    return made if made[0] != made[1] else made[:1]


def _blocks(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions of equal size on both sides; a 1 goes with what follows."""
    ours, theirs = list(range(len(before))), list(range(len(after)))
    while ours or theirs:
        left, right = _until_larger(ours, before), _until_larger(theirs, after)
        while (a := math.prod(before[d] for d in left)) != (
            b := math.prod(after[d] for d in right)
        ):
            side, rest, grown = (ours, before, left) if a < b else (theirs, after, right)
            grown += _until_larger(side[len(grown) :], rest)
        ours, theirs = ours[len(left) :], theirs[len(right) :]
        yield left, right


def _until_larger(dims: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The dimensions up to the first that is not 1; all, if the rest are."""
    for count, dim in enumerate(dims, 1):
        if sizes[dim] != 1:
            return list(dims[:count])
    return list(dims)


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


# Levels of a module whose programs are those of one rank.
_PER_RANK = ("sharded", "target")
# Annotations of instructions read from HLO, where Shardy's attributes are frontend attributes.
_SHARDING, _ATTRIBUTES = "hlo.sharding", "hlo.frontend_attributes"
_SHARDY = re.compile(r"xla\.sdy\.sharding=")
_ON_MESH = re.compile(r"<@[\w.]+, \[((?:\{[^{}]*\}(?:, )?)*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")


def value_layouts(module: Module, function: Function) -> dict[Value, str]:
    """The sharding of each value that has one, as text.

    Layouts stated in the file take precedence. A program of ours has its layouts before the
    partitioner from the partitioner's plan, and after it from what each rank reads: ``by rank`` is
    a value that differs in another way than by its parts, such as a row of a table that the rank
    has or has not.

    Args:
        module: has the interface and the mesh.
        function: without calls.
    """
    found = {value: text for value, text in _annotated(function) if text}
    ours = "format" not in module.meta and module.ranks > 1
    if ours and function.phase and module.level in _PER_RANK:
        for value, layout in rank_layouts(module, function).items():
            found.setdefault(value, layout.text if layout is not None else "by rank")
    for value in function.args:
        row = module.interface.get(value.name or "")
        if row is not None and row.sharding is not None:
            found.setdefault(value, row.sharding.text)
    if ours and module.level not in _PER_RANK and found:
        for value, text in _planned(module, function):
            found.setdefault(value, text)
    return found


def _planned(module: Module, function: Function) -> Iterator[tuple[Value, str]]:
    """The layouts that the partitioner would choose; none where it would refuse."""
    try:
        plan = make_plans(module, Partition().search(module)).get(function)
    except GraphgenError:
        return
    if plan is None:
        return
    for value, layout in plan.pins.items():
        yield value, layout.text
    for op, choice in plan.choices.items():
        for value, layout in zip(op.results, choice.strategy.out_shardings, strict=True):
            yield value, layout.text


def _annotated(function: Function) -> Iterator[tuple[Value, str]]:
    """Annotations of our passes, else those of the file that the function was read from."""
    for value in function.args:
        yield value, _text(value, 0, 1, value.annotations)
    for op in function.block:
        for index, value in enumerate(op.results):
            yield value, _text(value, index, len(op.results), op.annotations)


def _text(value: Value, index: int, count: int, annotations: Attrs) -> str:
    if value.sharding is not None:
        return value.sharding.text
    attributes = str(annotations.get(_ATTRIBUTES, "")) if annotations else ""
    if _SHARDY.search(attributes):
        layouts = [_axes(dims) for dims in _ON_MESH.findall(attributes.replace('\\"', '"'))]
        if len(layouts) == count:
            return layouts[index]
    whole = str(annotations.get(_SHARDING, "")) if annotations else ""
    members = _members(whole)
    return members[index] if len(members) == count else whole


def _axes(dims: str) -> str:
    """Shardy's ``{"x", "y"}, {}`` in our words: ``{x*y,-}``."""
    axes = [re.sub(r'[" ]', "", dim).replace(",", "*") for dim in _DIMENSION.findall(dims)]
    return "{" + ",".join(axis or "-" for axis in axes) + "}"


def _members(text: str) -> list[str]:
    """The parts of a tuple's sharding ``{{..}, {..}}``; the text itself for another one."""
    if not text.startswith("{{"):
        return [text]
    parts: list[str] = []
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "{" and depth == 2:
            start = at
        elif letter == "}" and depth == 1:
            parts.append(text[start : at + 1])
    return parts
