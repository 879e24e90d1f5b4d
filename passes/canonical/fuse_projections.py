"""Projections of one value become one product with the weights side by side: QKV, gate and up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Dim, DType, Function, Loc, Module, Op, Value, attrs_of, loc
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.canonical.slice_algebra import join
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers
from graphgen.passes.weights.materialization import only_enlarges, weight_of, widened
from graphgen.passes.weights.per_channel_epilogue import EpilogueStep, steps_behind
from graphgen.passes.weights.scale_blocks import BlockScaled


def weight_parts(dot: Op) -> tuple[Value, ...]:
    """The right operand of a product as it is stored: numbers, their scales and zero points."""
    made = _dequantized(dot)
    return (weight_of(dot),) if made is None else made.operands


def weight_key(dot: Op) -> tuple[object, ...]:
    """Key that must be equal for weights to be joined: types, and the blocks of the depth."""
    made = _dequantized(dot)
    types = tuple([part.dtype for part in weight_parts(dot)])
    if made is None:
        return types
    axes = dot.attrs.integers("rhs_contracting_dims")
    return (*types, *[made.attrs.integers("block")[axis] for axis in axes])


def join_weights(b: Builder, dots: Sequence[Op], axis: int) -> Value:
    """The right operands of products, which have equal keys, along the axis of their outputs."""
    made = [op for dot in dots if (op := _dequantized(dot)) is not None]
    if not made:
        joined = join(b, [weight_of(dot) for dot in dots], axis)
        return b.convert(joined, dots[0].operands[1].dtype)
    # A scale of several outputs is repeated for each of them.
    scaled = [BlockScaled.of(op).finer(b, axis, 1) for op in made]
    values = join(b, [each.values for each in scaled], axis)
    facts = [join(b, parts, axis) for parts in zip(*[each.facts for each in scaled], strict=True)]
    return BlockScaled(values, tuple(facts), scaled[0].block).emit(b, made[0])


def widening(dot: Op) -> Op | None:
    """The op that computes the right operand of a product from stored values, if there is one."""
    return _dequantized(dot) or widened(dot)


def _dequantized(dot: Op) -> Op | None:
    """The op that gives each number its scale, unless its result is what is stored."""
    made = dot.operands[1].producer("dequantize")
    return made if made is not None and only_enlarges(made) else None


@register
@dataclass(frozen=True)
class FuseProjections(Pass):
    """Fuse products of one value with several weights into one product, followed by slices.

    Biases and per-channel scales directly after the products are fused with them if all
    siblings have them; else they stay after the slices. Products of 16-bit floats of which
    only some are rounded to 16 bits are fused in f32, in which all are summed, and rounded after;
    their successors stay after the slices. The joined weight is IR like any
    other, and ``lift-weights`` moves it out: so this runs before it, and after ``partition``, which
    gives each rank its parts side by side. A weight that is read elsewhere too, such as a tied
    embedding, is left alone, and so is one that some program of the module could not fuse alike: a
    weight is kept in one form.

    Options:
        min_siblings: fewest products that are worth fusing.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %q : f32[6,4]
          weight %k : f32[3,4]
          output %y : f32[2,6]
          output %z : f32[2,3]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %q : f32[6,4]
          arg %k : f32[3,4]
          %a = dot_general(%x, %q) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[2,6]
          %b = dot_general(%x, %k) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[2,3]
          return y = %a
          return z = %b
        }

    Result:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %q : f32[6,4]
          weight %k : f32[3,4]
          output %y : f32[2,6]
          output %z : f32[2,3]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %q : f32[6,4]
          arg %k : f32[3,4]
          %0 = concatenate(%q, %k) dimension=0 : f32[9,4]
          %1 = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[2,9]
          %a = slice(%1) start_indices=[0,0] limit_indices=[2,6] : f32[2,6]
          %b = slice(%1) start_indices=[0,6] limit_indices=[2,9] : f32[2,3]
          return y = %a
          return z = %b
        }
    """

    name: ClassVar[str] = "fuse-projections"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("partitioned", "raw-weights")
    # A matrix library may sum a wider product in another order, which 16-bit floats then magnify.
    rounding: ClassVar[float] = 2e-2
    min_siblings: int = 2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Plan every program, keep what all programs agree on, then rewrite."""
        if self.min_siblings < 2:
            raise GraphgenError(
                "GG0302", f"fuse-projections: min_siblings={self.min_siblings} must be at least 2"
            )
        numbers: WeightNumbers = {}
        plans = [
            _FusionPlan(PreparedValues(module, function, numbers), self.min_siblings)
            for function in module.programs()
        ]
        _keep_agreed(plans)
        for plan in plans:
            rewriter.apply_rules(plan.function, (fusing(plan, rewriter),))
            for group in plan.groups:
                for sibling in group.siblings:
                    _erase_replaced(plan.function, sibling, rewriter)


@dataclass(slots=True)
class _Sibling:
    """One product and the steps that directly follow it, each the only reader of the one before."""

    dot: Op
    widening: Op | None
    steps: list[EpilogueStep] = field(default_factory=list[EpilogueStep])

    @property
    def end(self) -> Op:
        """The op whose readers will read a slice instead."""
        return self.steps[-1].op if self.steps else self.dot

    @property
    def weights(self) -> list[Value]:
        """The weight, with what it is dequantized by, then every bias and scale."""
        spreads = [step.spread for step in self.steps if step.spread is not None]
        return [*weight_parts(self.dot), *[spread.operands[0] for spread in spreads]]


@dataclass(slots=True)
class _SiblingGroup:
    """Siblings that become one product.

    Attributes:
        siblings: in program order; what they share is put where the first product stands.
        key: the weights by what they are, the same in all programs that fuse alike.
        starts: where each sibling's features start, and where the last one's end.
        fused: the value that holds all of them, once made.
    """

    siblings: list[_Sibling]
    key: tuple[tuple[int, ...], ...]
    starts: list[Dim]
    fused: Value | None = None


def _why_not(op: Op, prepared: PreparedValues) -> NoMatch | None:
    """Why a product cannot be a sibling, ``None`` where it can."""
    lhs, parts = op.operands[0], weight_parts(op)
    rhs = parts[0]
    if op.attrs.integers("lhs_batch_dims"):
        return no_match("it has batch dimensions", lhs)
    if not all(map(prepared.of_weights, parts)):
        return no_match("its right operand is not made of weights alone", rhs, depth=2)
    if lhs in prepared:
        return no_match("its left operand is made of weights itself", lhs, depth=3)
    outputs = rhs.type.rank - len(op.attrs.integers("rhs_contracting_dims"))
    if outputs != 1:
        return no_match(f"the weight has {outputs} output dimensions, not 1", rhs, depth=4)
    widened = rhs is not op.operands[1]
    if any(prepared.readers(part) != 1 or (widened and len(part.users) != 1) for part in parts):
        return no_match("the weight is read elsewhere too, and would be kept twice", rhs, depth=5)
    return None


_SiblingKey = tuple[Value, Attrs, tuple[object, ...]]


def _sibling_key(op: Op) -> _SiblingKey:
    """The key that siblings share; 16-bit products may differ in whether they are rounded."""
    lhs, rhs = op.operands
    attrs = op.attrs
    if _summed_in_f32(rhs.dtype) and op.result.dtype is rhs.dtype:
        attrs = attrs_of({**attrs, "dtype": f32})
    return lhs, attrs, weight_key(op)


def _summed_in_f32(dtype: DType) -> bool:
    """True for types whose products are summed in f32 and rounded to the result type after."""
    return dtype in (bf16, f16)


class _FusionPlan:
    """The groups to fuse in one program, and the reasons for the other products.

    Args:
        prepared: the values of the program that are made of weights alone.
        least: fewest siblings of a group.
    """

    def __init__(self, prepared: PreparedValues, least: int) -> None:
        self.prepared = prepared
        self.function: Function = prepared.function
        self.groups: list[_SiblingGroup] = []
        self.misses: dict[Op, NoMatch] = {}
        self.members: dict[Op, tuple[_SiblingGroup, int]] = {}
        found: dict[_SiblingKey, list[_Sibling]] = {}
        for op in self.function.block:
            if op.name != "dot_general":
                continue
            why = _why_not(op, prepared)
            if why is not None:
                self.misses[op] = why
                continue
            found.setdefault(_sibling_key(op), []).append(_Sibling(op, widening(op)))
        for (value, _, _), siblings in found.items():
            if len(siblings) < least:
                what = f"{len(siblings)} product{'s' if len(siblings) > 1 else ''} of this value"
                why = no_match(
                    f"{what} with a weight, and {least} are worth fusing", value, depth=6
                )
                self.misses.update((sibling.dot, why) for sibling in siblings)
            else:
                self._add(siblings)

    def _add(self, siblings: list[_Sibling]) -> None:
        _add_steps(siblings, self.prepared)
        starts: list[Dim] = [0]
        for sibling in siblings:
            starts.append(starts[-1] + sibling.dot.result.shape[-1])
        number = self.prepared.number
        group = _SiblingGroup(
            siblings, tuple([tuple(map(number, s.weights)) for s in siblings]), starts
        )
        self.groups.append(group)
        for index, sibling in enumerate(siblings):
            self.members[sibling.end] = (group, index)

    def drop(self, group: _SiblingGroup, why: NoMatch) -> None:
        """Leave a group as it is."""
        for sibling in group.siblings:
            self.members.pop(sibling.end, None)
            self.misses[sibling.dot] = why


def _add_steps(siblings: Sequence[_Sibling], prepared: PreparedValues) -> None:
    """Give the siblings the biases, scales and conversions that all of them have."""
    if len({sibling.dot.attrs for sibling in siblings}) > 1:
        # Some are rounded before what follows them, some are not.
        return
    # zip ends with the shortest, so a bias that one of them lacks stays after the slices.
    for steps in zip(*[steps_behind(sibling.dot, prepared) for sibling in siblings], strict=False):
        if len({step.kind for step in steps}) > 1:
            break
        for sibling, step in zip(siblings, steps, strict=True):
            sibling.steps.append(step)
    for sibling in siblings:
        while sibling.steps and sibling.steps[-1].spread is None:
            sibling.steps.pop()


def _keep_agreed(plans: Sequence[_FusionPlan]) -> None:
    """Drop every group with a weight that another program of the module uses otherwise."""
    uses: dict[int, tuple[tuple[int, ...], ...]] = {}
    groups: dict[int, list[tuple[_FusionPlan, _SiblingGroup]]] = {}
    work: list[int] = []
    for plan in plans:
        fused: dict[int, tuple[tuple[int, ...], ...]] = {}
        for group in plan.groups:
            for number in chain.from_iterable(group.key):
                fused[number] = group.key
                groups.setdefault(number, []).append((plan, group))
        for number in plan.prepared.read:
            use = fused.get(number, ())
            if uses.setdefault(number, use) != use:
                work.append(number)
    # A group that is dropped leaves all of its weights alone, in every program.
    while work:
        for plan, group in groups.pop(work.pop(), []):
            dot = group.siblings[0].dot
            why = no_match(
                "another program of the module reads these weights otherwise",
                dot.operands[1],
                depth=7,
            )
            plan.drop(group, why)
            work.extend(chain.from_iterable(group.key))


def fusing(plan: _FusionPlan, rewriter: Rewriter) -> Rule:
    """The rule for a plan: replace each sibling by a slice of the fused product."""
    ends = {end.name for end in plan.members}

    @rule(*sorted({"dot_general", *ends}))
    def fuse_siblings(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A product with one weight is a slice of the product with all weights."""
        member = plan.members.get(op)
        if member is None:
            # Not a near miss: by its depth, every other reason is nearer.
            return plan.misses.get(op) or NoMatch(
                "it is not a product, or it fuses with its reader", None
            )
        group, index = member
        if group.fused is None:
            group.fused = _fuse(plan, group, rewriter, b)
        start, limit = group.starts[index : index + 2]
        part = b.slice_dim(group.fused, op.result.type.rank - 1, start, limit)
        return [b.convert(part, op.result.dtype)]

    return fuse_siblings


def _fuse(plan: _FusionPlan, group: _SiblingGroup, rewriter: Rewriter, b: Builder) -> Value:
    """Build the joined product and the steps after it at the first product."""
    dot, siblings = group.siblings[0].dot, group.siblings
    weights = [weight for sibling in siblings for weight in sibling.weights]
    with rewriter.joined():
        plan.prepared.move_before(dot, weights, rewriter)
    here = rewriter.before(plan.function, dot)
    here.made, here.loc = b.made, _shared_loc(siblings, rewriter.pass_name)
    lhs, rhs = dot.operands
    contracted = dot.attrs.integers("rhs_contracting_dims")
    (axis,) = [i for i in range(rhs.type.rank) if i not in contracted]
    joined = join_weights(here, [sibling.dot for sibling in siblings], axis)
    one_type = len({sibling.dot.attrs for sibling in siblings}) == 1
    attrs = dot.attrs if one_type else {**dot.attrs, "dtype": f32}
    operands = (lhs, joined)
    fused = here.emit("dot_general", operands, dict(attrs)).result
    for index, step in enumerate(siblings[0].steps):
        operands = [fused]
        spreads = [s for sibling in siblings if (s := sibling.steps[index].spread) is not None]
        if spreads:
            vector = join(here, [sibling.steps[index].vector(here) for sibling in siblings], 0)
            rank = fused.type.rank
            spread = here.broadcast_in_dim(vector, fused.shape, [rank - 1])
            operands.insert(1 - step.side, spread)
        fused = here.emit(step.op.name, operands, dict(step.op.attrs)).result
    return fused


def _shared_loc(siblings: Sequence[_Sibling], pass_name: str) -> Loc:
    """The first sibling's line, in the innermost scope that holds all siblings."""
    first = siblings[0].dot.loc
    shared: list[str] = []
    for parts in zip(*[sibling.dot.loc.scope.split(".") for sibling in siblings], strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return loc(first.file, first.line, ".".join(shared), first.via).through(pass_name)


def _erase_replaced(function: Function, sibling: _Sibling, rewriter: Rewriter) -> None:
    """Take away what a replaced sibling was made of, or its weights would still be read."""
    if sibling.end.block is not None:
        return
    ops = [sibling.dot, *[step.op for step in sibling.steps]]
    spread = [step.spread for step in sibling.steps if step.spread is not None]
    spread += [sibling.widening] if sibling.widening is not None else []
    for op in [*reversed(ops), *spread]:
        if op.block is not None and not rewriter.exhausted:
            rewriter.erase(function, op)
