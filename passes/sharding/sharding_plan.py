"""Sharding plans: the sharding of every op, from layouts of weights, inputs and states.

Interface rows and values carry annotated layouts; the beam search decides the ops in between,
forward and backward at once. Replicated values are available in any layout at no cost: ops on such
values alone run replicated, or on the part that their users need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import (
    HELD_ROLES,
    PROMPT_PHASES,
    Function,
    Module,
    Op,
    Role,
    Sharding,
    Value,
    replicated,
    sharding,
)
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.beam_search import (
    FREE,
    RIGID,
    OpSharding,
    SearchNode,
    ShardingSearch,
    Targets,
    Transition,
)
from graphgen.passes.sharding.joined_axes import joined_axes
from graphgen.passes.sharding.mesh import Mesh, fits
from graphgen.passes.sharding.op_factors import factors_of
from graphgen.passes.sharding.requested_layout import requested_sharding, row_sharding
from graphgen.passes.sharding.strategies import whole_strategy
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers

_PRODUCTS = ("dot_general", "convolution")


def slot_axes(module: Module) -> Axes:
    """The axes that split the slots of a cache [R,M,...] which a program of the module updates."""
    found: dict[str, None] = {}
    for function in module.programs():
        for op in function.block:
            row = module.interface.get(op.operands[0].name or "") if op.operands else None
            if op.name == "kv_update" and row is not None and row.role is Role.STATE:
                found.update(dict.fromkeys(row.sharding.dims[1] if row.sharding else ()))
    return tuple(found)


def attention_of_parts(function: Function) -> set[Op]:
    """The attention whose keys and values each rank has for its own slots, without a collective.

    Their slots stay divided: it is what splitting a cache along its slots is for. Of the first
    slots of a row some ranks have none, so that these are gathered.
    """
    found: set[Op] = set()
    for op in function.block:
        if op.name == "attention":
            reads = [_read_of(value) for value in op.operands[1:3]]
            if all(read is not None and _may_split(read) for read in reads):
                found.add(op)
    return found


def _read_of(value: Value) -> Op | None:
    """The ``cache_read`` that a value is made of."""
    work, seen = [value], {value}
    while work:
        op = work.pop(0).op
        if op is not None and op.name == "cache_read":
            return op
        fresh = [v for v in (op.operands if op is not None else ()) if v not in seen]
        seen.update(fresh)
        work += fresh
    return None


def _may_split(read: Op) -> bool:
    factors = factors_of(read)
    return factors is not None and bool(factors.slots)


def ops_around_attention(prepared: Mapping[Function, PreparedValues]) -> set[Op]:
    """The ops from the products before each attention to the one after it, both included.

    Where ranks are factored into groups with key-value heads of their own and members with slots of
    their own, these ops use one of the axes, and all others both together.

    Args:
        prepared: what each program makes of weights.
    """
    found: set[Op] = set()
    for function, made in prepared.items():
        for op in function.block:
            if op.name == "attention":
                found.add(op)
                _sources(op.operands, made, found)
                _users(op.results, made, found)
    return found


def _sources(values: Sequence[Value], made: PreparedValues, found: set[Op]) -> None:
    """Add the ops that the values are made by, back to products with weights."""
    work = list(values)
    while work:
        op = work.pop().op
        if op is None or op in found or made.of_weights(op.results[0]):
            continue
        found.add(op)
        weights = [value for value in op.operands if _of_weights(value, made)]
        # Ops that widen the weight of a product belong to it.
        work += weights if op.name in _PRODUCTS and weights else op.operands


def _users(values: Sequence[Value], made: PreparedValues, found: set[Op]) -> None:
    """Add the ops that read the values, up to products with weights."""
    work = list(values)
    while work:
        for op in work.pop().users:
            if op in found:
                continue
            found.add(op)
            weights = [value for value in op.operands if _of_weights(value, made)]
            _sources(weights, made, found)
            if op.name not in _PRODUCTS or not weights:
                work += op.results


def _of_weights(value: Value, made: PreparedValues) -> bool:
    """True for a weight, and for one that an op of the program enlarges."""
    if made.of_weights(value):
        return True
    op = value.op
    return op is not None and bool(op.operands) and all(_of_weights(v, made) for v in op.operands)


@dataclass(slots=True)
class ShardingPlan:
    """The sharding decisions for one program.

    Attributes:
        choices: per op its sharding; prepared ops, which run replicated, have none.
        pins: values with one layout only.
        outputs: per program output, its layout.
        delivered: per argument of the search, the layouts it is resharded to.
        prepared: ops on weights alone: they run on whole tensors, before the program.
        weights: weights, and values that derive from weights alone.
        gathers: whether ranks may gather a weight where they use it.
        rigid: weights that stay replicated, as a rule for their name demands, or because their
            users need several layouts.
        bound: ops that the search decided, in order.
    """

    choices: dict[Op, OpSharding] = field(default_factory=dict[Op, OpSharding])
    pins: dict[Value, Sharding] = field(default_factory=dict[Value, Sharding])
    outputs: list[Sharding] = field(default_factory=list[Sharding])
    delivered: dict[Value, Targets] = field(default_factory=dict[Value, Targets])
    prepared: set[Op] = field(default_factory=set[Op])
    weights: set[Value] = field(default_factory=set[Value])
    gathers: bool = False
    rigid: set[Value] = field(default_factory=set[Value])
    bound: list[Op] = field(default_factory=list[Op])


def make_plans(
    module: Module, search: ShardingSearch, gather_weights: int = 0
) -> dict[Function, ShardingPlan]:
    """Plan the sharding of every program.

    A weight without annotation is sharded as is cheapest, but stored once: if its users need
    several layouts, the layout of the decode program wins (it runs per token); if decode itself
    needs two, the weight stays replicated.

    Args:
        module: its interface has the layouts of weights, inputs, states and outputs.
        search: over the module's mesh; shared by the programs, as they repeat each other.
        gather_weights: least tokens a row of the programs of prompts that may gather weights where
            they use them; 0 for none.

    Raises:
        GraphgenError: GG0304 for a layout that does not divide.
    """
    numbers: WeightNumbers = {}
    prepared = {f: PreparedValues(module, f, numbers, HELD_ROLES) for f in module.programs()}
    slots, around, divided = slot_axes(module), frozenset[Op](), frozenset[Op]()
    if slots:
        around = ops_around_attention(prepared)
        divided = {op for function in prepared for op in attention_of_parts(function)}
    joined = joined_axes(module, prepared, search.mesh, around)
    search.limit(slots, around, divided, joined)
    plans: dict[Function, ShardingPlan] = {}
    decided: dict[int, Sharding] = {}
    while len(plans) < len(prepared):
        for function, made in prepared.items():
            if function not in plans:
                gathers = _gathers(function, gather_weights)
                plans[function] = _make_plan(module, function, search, made, decided, gathers)
        _resolve_conflicts(plans, prepared, decided)
    return {function: plans[function] for function in prepared}


def _gathers(function: Function, least: int) -> bool:
    """True if a program may gather weights: it reads prompts of at least ``least`` tokens."""
    tokens = function.dims.get("S")
    return (
        least > 0
        and function.phase in PROMPT_PHASES
        and isinstance(tokens, int)
        and tokens >= least
    )


def _resolve_conflicts(
    plans: dict[Function, ShardingPlan],
    prepared: Mapping[Function, PreparedValues],
    decided: dict[int, Sharding],
) -> None:
    """Decide weights with conflicting layouts; drop the plans that this changes."""
    wanted = {f: _weight_shardings(plan, prepared[f]) for f, plan in plans.items()}
    every: dict[int, set[Sharding]] = {}
    for layouts in wanted.values():
        for number, found in layouts.items():
            every.setdefault(number, set()).update(found)
    first = sorted(plans, key=lambda function: function.phase != "decode")
    for number in [n for n, layouts in every.items() if len(layouts) > 1 and n not in decided]:
        mind = next(wanted[function][number] for function in first if number in wanted[function])
        whole = replicated(len(next(iter(mind)).dims))
        decided[number] = next(iter(mind)) if len(mind) == 1 else whole
    for function, layouts in wanted.items():
        if any(decided.get(n, next(iter(w))) not in w or len(w) > 1 for n, w in layouts.items()):
            del plans[function]


def _make_plan(
    module: Module,
    function: Function,
    search: ShardingSearch,
    prepared: PreparedValues,
    decided: Mapping[int, Sharding],
    gathers: bool,
) -> ShardingPlan:
    plan = ShardingPlan(gathers=gathers)
    plan.prepared = {op for op in function.block if prepared.of_weights(op.results[0])}
    _pin_arguments(module, function, plan)
    _propagate_through_prepared(function, plan, search.mesh)
    for op in function.block:
        if op not in plan.prepared:
            _pin_results(op, plan, search.mesh)
    outside = (*function.args, *[value for op in plan.prepared for value in op.results])
    plan.weights = {value for value in outside if prepared.of_weights(value)}
    for value in outside:
        layout = decided.get(prepared.number(value)) if value in prepared else None
        if layout is not None and layout.replicated:
            plan.rigid.add(value)
        elif layout is not None:
            plan.pins[value] = layout
    plan.rigid |= _asked_whole(module, function, plan)
    plan.outputs = [row_sharding(module.interface[name]) for name, _ in function.outputs]
    _ProgramSearch(function, search, plan).run()
    _divide_free_ops(function, search, plan)
    return plan


def _weight_shardings(plan: ShardingPlan, prepared: PreparedValues) -> dict[int, set[Sharding]]:
    """The layouts that users need, per weight without annotation; vectors may be stored twice."""
    found: dict[int, set[Sharding]] = {}
    for op, choice in plan.choices.items():
        for value, layout in zip(op.operands, choice.strategy.in_shardings, strict=True):
            if value.type.rank > 1 and value not in plan.pins and prepared.of_weights(value):
                found.setdefault(prepared.number(value), set()).add(layout)
    return found


def _pin_arguments(module: Module, function: Function, plan: ShardingPlan) -> None:
    for value in function.args:
        layout = requested_sharding(module, value)
        if value.name in module.interface and not layout.replicated:
            plan.pins[value] = layout


def _asked_whole(module: Module, function: Function, plan: ShardingPlan) -> set[Value]:
    """Weights that are to be whole, and what is made of such weights alone."""
    found: set[Value] = set()
    for value in function.args:
        row = module.interface.get(value.name or "")
        if row is not None and row.role in HELD_ROLES:
            asked = value.sharding or row.sharding
            found.update([value] if asked is not None and asked.replicated else [])
    for op in function.block:
        read = [value for value in op.operands if value in plan.weights]
        if op in plan.prepared and read and found.issuperset(read):
            found.update(value for value in op.results if value not in plan.pins)
    return found


def _pin_results(op: Op, plan: ShardingPlan, mesh: Mesh) -> None:
    for value in op.results:
        if value.sharding is not None:
            check_fits(value, value.sharding, mesh)
            plan.pins[value] = value.sharding


def check_fits(value: Value, layout: Sharding, mesh: Mesh) -> None:
    """Require that an annotated layout exists on the mesh and divides (GG0304)."""
    name = f"%{value.name or (value.op.name if value.op else '?')}"
    where = repr(value.op.loc) if value.op else ""
    unknown = [axis for axis in (*layout.axes, *layout.partial) if axis not in mesh.axes]
    if unknown:
        raise GraphgenError("GG0304", f"{name}: the mesh has no axis '{unknown[0]}'", where=where)
    if layout.partial:
        raise GraphgenError(
            "GG0304",
            f"{name} cannot lie {layout.text}, a sum not yet taken",
            where=where,
        )
    if len(layout.dims) != value.type.rank or not fits(mesh, value.type, layout):
        raise GraphgenError(
            "GG0304",
            f"{name} {value.type.text} does not divide as {layout.text}",
            where=where,
        )


def _propagate_through_prepared(function: Function, plan: ShardingPlan, mesh: Mesh) -> None:
    """Propagate weight layouts through prepared ops."""
    for op in function.block:
        if op not in plan.prepared:
            continue
        for value, found in zip(op.results, propagated(op, plan, mesh), strict=True):
            layout = value.sharding or found
            if not layout.replicated:
                check_fits(value, layout, mesh)
                plan.pins[value] = layout


def propagated(op: Op, plan: ShardingPlan, mesh: Mesh) -> Sequence[Sharding]:
    """Propagate the layouts of operands to the results through the op's factors."""
    factors = factors_of(op)
    whole = [replicated(value.type.rank) for value in op.results]
    if factors is None:
        return whole
    axes_of: dict[int, tuple[str, ...]] = {}
    for value, dims in zip(op.operands, factors.operands, strict=True):
        layout = plan.pins.get(value)
        if layout is None:
            continue
        for cut, parts in zip(layout.dims, dims, strict=True):
            if cut and parts and parts[0] not in axes_of:
                axes_of[parts[0]] = cut
    out: list[Sharding] = []
    for value, dims in zip(op.results, factors.results, strict=True):
        used: set[str] = set()
        cuts: list[tuple[str, ...]] = []
        for parts in dims:
            cut = axes_of.get(parts[0], ()) if parts else ()
            cuts.append(() if used.intersection(cut) else cut)
            used.update(cut)
        layout = sharding(cuts)
        out.append(layout if fits(mesh, value.type, layout) else replicated(value.type.rank))
    return out


class _ProgramSearch:
    """Runs the search over one program and traces the choices back from the cheapest state."""

    def __init__(self, function: Function, search: ShardingSearch, plan: ShardingPlan) -> None:
        self.function = function
        self.search = search
        self.plan = plan
        self.live: list[Value] = []
        # Replicated values are not among these.
        self.bound: set[Value] = {v for v in function.args if self._is_bound(v)}
        self.outputs: dict[Value, list[Sharding]] = {}
        for (_, value), layout in zip(function.outputs, plan.outputs, strict=True):
            self.outputs.setdefault(value, []).append(layout)

    def run(self) -> None:
        """Fill in the choices of all ops with a bound operand."""
        items = self._items()
        last = {
            value: number
            for number, item in enumerate(items)
            if isinstance(item, Op)
            for value in item.operands
        }
        table = self.search.start()
        transitions: list[Transition] = []
        for number, item in enumerate(items):
            if isinstance(item, Op):
                read_later = {v for v in item.operands if last[v] > number}
                node, values = self._op(item, read_later)
            else:
                node, values = self._source(item)
            kept = [place for place, value in enumerate(values) if last.get(value, -1) > number]
            self.live = [values[place] for place in kept]
            live = tuple([(value.type, value in self.plan.weights) for value in self.live])
            transitions.append(self.search.advance(table, node, tuple(kept), live))
            table = transitions[-1].table
        state = min(range(len(table.costs)), key=table.costs.__getitem__)
        for item, transition in zip(reversed(items), reversed(transitions), strict=True):
            state, choice = transition.back[state]
            if isinstance(item, Op):
                self.plan.choices[item] = choice
            else:
                self.plan.delivered[item] = choice.delivered[0]

    def _items(self) -> list[Op | Value]:
        """The ops to decide, each after its operands from outside."""
        items: list[Op | Value] = []
        seen: set[Value] = set()
        for op in self.function.block:
            if self._decides(op):
                self.plan.bound.append(op)
                sources = [v for v in op.operands if v in self.bound and v not in seen]
                items += [*dict.fromkeys(sources), op]
                seen.update(op.operands, op.results)
        outside = [value for value in self.outputs if value in self.bound and value not in seen]
        return items + outside

    def _is_bound(self, value: Value) -> bool:
        pin = self.plan.pins.get(value)
        return pin is not None and not pin.replicated

    def _decides(self, op: Op) -> bool:
        """True if the search decides the op; records which results are bound."""
        prepared = op in self.plan.prepared
        searched = not prepared and any(value in self.bound for value in op.operands)
        self.bound.update(v for v in op.results if searched or self._is_bound(v))
        return searched

    def _source(self, value: Value) -> tuple[SearchNode, list[Value]]:
        """The node of an argument, and the live values including it."""
        outputs = tuple(self.outputs.get(value, ()))
        node = self.search.source(value.type, self.plan.pins[value], outputs)
        return node, [*self.live, value]

    def _op(self, op: Op, read_later: set[Value]) -> tuple[SearchNode, list[Value]]:
        """The node of an op, and the live values including its results."""
        at = {value: place for place, value in enumerate(self.live)}
        rigid = self.plan.rigid
        places = tuple([at.get(v, RIGID if v in rigid else FREE) for v in op.operands])
        pins = tuple([self.plan.pins.get(value) for value in op.results])
        outputs = tuple([tuple(self.outputs.get(value, ())) for value in op.results])
        kept = self.plan.weights if not self.plan.gathers else ()
        weights = tuple([value in kept for value in op.operands])
        last = tuple([v not in read_later and op.operands.count(v) == 1 for v in op.operands])
        node = self.search.node(op, places, pins, outputs, weights, last)
        return node, [*self.live, *op.results]


def _divide_free_ops(function: Function, search: ShardingSearch, plan: ShardingPlan) -> None:
    """Shard ops on replicated values as their users need, if all need the same layout."""
    wants: dict[Value, set[Sharding]] = {}
    for (_, value), layout in zip(function.outputs, plan.outputs, strict=True):
        wants.setdefault(value, set()).add(layout)
    for value, layout in plan.pins.items():
        wants[value] = {layout}
    for op in reversed(function.block):
        if op in plan.prepared:
            for value in op.operands:
                wants.setdefault(value, set()).add(replicated(value.type.rank))
            continue
        choice = plan.choices.get(op)
        if choice is None:
            choice = plan.choices[op] = _free_choice(op, search, wants, plan.rigid)
        for value, layout in zip(op.operands, choice.strategy.in_shardings, strict=True):
            if value not in plan.pins:
                wants.setdefault(value, set()).add(layout)


def _free_choice(
    op: Op, search: ShardingSearch, wants: dict[Value, set[Sharding]], rigid: set[Value]
) -> OpSharding:
    """The strategy with the least work and the needed layouts; else replicated."""
    best = whole_strategy(op)
    fitting = [
        strategy
        for strategy in search.strategies(op)
        if not strategy.collectives
        and not any(layout.partial for layout in strategy.in_shardings)
        and all(
            layout.replicated or value not in rigid
            for value, layout in zip(op.operands, strategy.in_shardings, strict=True)
        )
        and all(
            wants.get(value, {layout}) == {layout}
            for value, layout in zip(op.results, strategy.out_shardings, strict=True)
        )
    ]
    best = min(fitting, key=lambda strategy: strategy.work, default=best)
    acquired = tuple((layout,) for layout in best.in_shardings)
    return OpSharding(best, acquired, ((),) * len(op.results))
