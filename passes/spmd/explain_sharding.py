"""Explain the sharding of each value: its rule, the op it follows from, resharding costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Function, Module, Op, Role, Value, dtype, replicated
from graphgen.json_value import Json
from graphgen.ops.factors import Factors
from graphgen.passes.core import Rewriter
from graphgen.passes.core.instrument import PassInstrument, PipelineStep
from graphgen.passes.precision.reduce_dtype import ReduceDtype, narrowed_sums
from graphgen.passes.sharding.collective_cost import sent
from graphgen.passes.sharding.expert_exchange import all_to_all_bytes, exchanged_axes, places
from graphgen.passes.sharding.op_factors import factors_of
from graphgen.passes.sharding.requested_layout import row_sharding
from graphgen.passes.sharding.reshard_ops import ALL_GATHER, LOCAL, bytes_sent
from graphgen.passes.sharding.shard import Shard
from graphgen.passes.sharding.sharding_plan import make_plans
from graphgen.passes.sharding.strategies import Strategy
from graphgen.passes.spmd.partition import Partition
from graphgen.passes.spmd.partitioner import Partitioner, Resharding
from graphgen.report.table import Table
from graphgen.text.printer import value_names

_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")
RULE, STATED, FOLLOWS, READERS, WHOLE, MOVED = (
    "rule",
    "stated",
    "follows",
    "readers",
    "whole",
    "moved",
)
NARROWED = "narrowed"


@dataclass(frozen=True, slots=True)
class ShardingReason:
    """The sharding of one value and its reason, or one resharding.

    Attributes:
        function: the program.
        value: its name, such as ``%3``.
        at: the op that defines it, or the role of an argument, with the module scope.
        type: of the whole value.
        sharding: its layout; of a resharding, source and target.
        decided: ``rule`` (of the pass shard), ``stated`` (by the module), ``follows`` (from the
            operands or other results of the op), ``readers`` (every rank could have it whole, but
            all its readers take a part), ``whole``, ``moved`` (a conflict), or ``narrowed`` (a sum
            that is sent in a narrower type than the one it was planned in).
        why: the rule, the dimensions that go together, or who reads the value and by which steps.
        sent: bytes that each rank sends; of ``narrowed`` what is added to what was planned, which
            is below 0.
    """

    function: str
    value: str
    at: str
    type: str
    sharding: str
    decided: str
    why: str
    sent: int = 0


@dataclass(slots=True)
class ExplainSharding(PassInstrument):
    """Records the layouts that ``shard`` annotates and that ``partition`` plans.

    Attributes:
        reasons: in the order of the programs; empty until a partition is about to run.
    """

    reasons: list[ShardingReason] = field(default_factory=list[ShardingReason])
    _rules: dict[str | Value, str] = field(default_factory=dict[str | Value, str])

    def before(self, step: PipelineStep) -> None:
        """Note the rules, or make the plans that partition is about to make."""
        if isinstance(step.item, Shard):
            for item in step.item.annotations(step.module):
                self._rules[item.place] = ", ".join(item.rules)
        if isinstance(step.item, Partition):
            self.reasons = explain(step.module, step.item, self._rules)
        if isinstance(step.item, ReduceDtype):
            self.reasons += narrowed(step.module, dtype(step.item.dtype))

    def shown(self) -> list[ShardingReason]:
        """The reasons (GG0705 where nothing was partitioned)."""
        if not self.reasons:
            raise GraphgenError(
                "GG0705",
                "nothing was partitioned, so no value has a sharding to explain",
                help="let the pipeline have shard{tp=N},partition",
            )
        return self.reasons


def explain(
    module: Module, partition: Partition, rules: Mapping[str | Value, str]
) -> list[ShardingReason]:
    """Why every value of a module will lie as it does, before it is partitioned.

    Args:
        module: not changed.
        partition: the pass, with its options.
        rules: those that decided, by row of the interface or by value.

    Raises:
        GraphgenError: GG0304 for a layout that cannot be.
    """
    search = partition.search(module)
    out: list[ShardingReason] = []
    for function, plan in make_plans(module, search, partition.gather_weights).items():
        made = Function(function.name, phase=function.phase, dims=function.dims)
        tracer = _Tracer(
            module, function, made, Rewriter("partition"), plan, search.planner, rules=rules
        )
        tracer.run()
        tracer.read_moves("the interface")
        out += tracer.reasons
    return out


def narrowed(module: Module, element: DType) -> list[ShardingReason]:
    """The sums of a partitioned module that ``reduce-dtype`` is about to narrow to ``element``."""
    out: list[ShardingReason] = []
    for function in module.programs():
        names = value_names(function)
        for op in narrowed_sums(module, function, element):
            value = op.operands[0]
            planned = sent(op) // module.ranks
            now = planned * element.bits // value.dtype.bits
            out.append(
                ShardingReason(
                    function.name,
                    names[value],
                    f"{op.name} {op.loc.scope}".strip(),
                    value.type.text,
                    f"{value.dtype} -> {element}",
                    NARROWED,
                    f"row-parallel sum, {now:,} bytes in {element} instead of {planned:,}",
                    now - planned,
                )
            )
    return out


@dataclass(slots=True)
class _Tracer(Partitioner):
    """Partitions a program, and says at each op what is done and why."""

    rules: Mapping[str | Value, str] = field(default_factory=dict[str | Value, str])
    reasons: list[ShardingReason] = field(default_factory=list[ShardingReason])
    _names: dict[Value, str] = field(default_factory=dict[Value, str])

    def argument(self, value: Value) -> None:
        """A row of the interface."""
        Partitioner.argument(self, value)
        row = self.module.interface[value.name or ""]
        layout = self.plan.pins.get(value, row_sharding(row))
        rule = self.rules.get(value) or self.rules.get(row.name)
        if rule is not None:
            self.reason(value, layout.text, RULE, rule)
        elif row.sharding is not None:
            self.reason(value, layout.text, STATED, "by the module")
        elif layout.replicated:
            self.wanted(value)
        else:
            self.reason(value, layout.text, READERS, "as the decode program wants it")

    def wanted(self, value: Value) -> None:
        """The layouts in which readers take a value without an annotation."""
        found: dict[str, str] = {}
        for op in value.users:
            choice = self.plan.choices.get(op)
            if choice is not None:
                for operand, layout in zip(op.operands, choice.strategy.in_shardings, strict=True):
                    if operand is value and not layout.replicated:
                        found.setdefault(layout.text, op.name)
        for text, name in found.items():
            self.reason(value, text, READERS, f"{name} reads a part")
        if not found:
            self.reason(value, replicated(value.type.rank).text, WHOLE, "no op reads a part")

    def prepare(self, op: Op) -> None:
        """Values computed from weights."""
        Partitioner.prepare(self, op)
        for value in op.results:
            pin = self.plan.pins.get(value)
            if value in self.rules:
                self.reason(
                    value, (pin or replicated(value.type.rank)).text, RULE, self.rules[value]
                )
            elif pin is not None:
                self.reason(value, pin.text, FOLLOWS, f"from its weights, through {op.name}")
            else:
                self.wanted(value)

    def op(self, op: Op) -> None:
        """An op as it is divided."""
        Partitioner.op(self, op)
        strategy = self.plan.choices[op].strategy
        self.read_moves(op.name)
        for value, layout in zip(op.results, strategy.out_shardings, strict=True):
            pin = self.plan.pins.get(value)
            if pin is not None:
                by = (RULE, self.rules[value]) if value in self.rules else (STATED, "by the module")
                self.reason(value, pin.text, *by)
            elif strategy.whole:
                self.reason(value, layout.text, WHOLE, "every rank does all of it")
            else:
                decided = FOLLOWS if op in self.plan.bound else READERS
                # Bytes of a special form are counted once, at the first result.
                sent = strategy.sent // self.mesh.ranks if value.index == 0 else 0
                self.reason(value, layout.text, decided, self.together(op, strategy), sent)

    def together(self, op: Op, strategy: Strategy) -> str:
        """The dimensions of an op that one axis cuts, or the exchange of its tokens."""
        split = exchanged_axes(op, strategy)
        if split:
            room, tokens = places(self.mesh, op, split, strategy.in_shardings[3].dims[0])
            return (
                f"{'*'.join(split)}: tokens go to the ranks of their experts by all-to-all, room "
                f"for {room} of {tokens} on each"
            )
        factors = factors_of(op)
        assert factors is not None
        texts = [
            f"{'*'.join(axes)} over {' = '.join(self.places(op, factors, factor))}"
            + (f", {factors.reduction[factor]} pending" if factor in factors.reduction else "")
            for factor, axes in strategy.cuts.items()
        ]
        owed = sorted({axis for layout in strategy.in_shardings for axis in layout.partial})
        return "; ".join([*texts, *[f"the sum over {axis} is passed on" for axis in owed]])

    def places(self, op: Op, factors: Factors, factor: int) -> Iterator[str]:
        """Dimensions of operands and results that are a factor."""
        names = [self.name(value) for value in op.operands]
        values = list(zip(names, factors.operands, strict=True))
        values += [("result", dims) for dims in factors.results]
        for name, dims in values:
            for dim, parts in enumerate(dims):
                if factor in parts:
                    yield f"{name}[{dim}]"

    def read_moves(self, reader: str) -> None:
        """Operands resharded for this reader."""
        for item in self.reshardings:
            steps = [step for step in item.steps if step.kind not in LOCAL]
            if steps:
                self.move(item, ", ".join(step.kind for step in steps), reader)
        self.reshardings.clear()

    def move(self, item: Resharding, kinds: str, reader: str) -> None:
        """One value, and the collectives it takes."""
        sent = sum(bytes_sent(self.mesh, item.value.type, step) for step in item.steps)
        text = f"{item.start.text} -> {item.target.text}"
        why = f"{kinds} for {reader}{self.exchange(item)}"
        self.reason(item.value, text, MOVED, why, sent // self.mesh.ranks)

    def exchange(self, item: Resharding) -> str:
        """The bytes of an all-to-all in the place of an all-gather of tokens for experts."""
        gathered = tuple(
            axis for step in item.steps if step.kind == ALL_GATHER for axis in step.axes
        )
        mixtures = [op for op in item.value.users if op.name == "experts" and gathered]
        if not mixtures or mixtures[0].operands[0] is not item.value:
            return ""
        held = self.plan.choices[mixtures[0]].strategy.in_shardings[3].dims[0]
        sent = all_to_all_bytes(self.mesh, mixtures[0], gathered, held)
        return f"; all-to-all to experts would send {sent:,}"

    def reason(self, value: Value, sharding: str, decided: str, why: str, sent: int = 0) -> None:
        """One line."""
        op = value.op
        if op is None:
            row = self.module.interface.get(value.name or "")
            at = row.role.value if row else Role.INPUT.value
        else:
            at = f"{op.name} {op.loc.scope}".strip()
        self.reasons.append(
            ShardingReason(
                self.source.name,
                self.name(value),
                at,
                value.type.text,
                sharding,
                decided,
                why,
                sent,
            )
        )

    def name(self, value: Value) -> str:
        """Unique in the program."""
        if not self._names:
            self._names.update(value_names(self.source))
        return self._names[value]


def grouped(reasons: Sequence[ShardingReason]) -> list[tuple[ShardingReason, int]]:
    """Reasons that are alike but for the layer, and how many there are of each."""
    found: dict[tuple[str, ...], list[ShardingReason]] = {}
    for item in reasons:
        named = item.value if not item.value[1:].isdigit() else ""
        why = re.sub(r"%\d+", "%", _LAYER.sub("N", item.why))
        key = (
            *(item.function, _LAYER.sub("N", named), _LAYER.sub("N", f"{item.at}.")),
            *(item.type, item.sharding, item.decided, why),
        )
        found.setdefault(key, []).append(item)
    return [(items[0], len(items)) for items in found.values()]


def sharding_json(watcher: ExplainSharding) -> list[Json]:
    """One object per value."""
    return [asdict(reason) for reason in watcher.shown()]


def sharding_table(watcher: ExplainSharding) -> Table:
    """One row per value; values that differ in the number of their layer only share a row."""
    rows = [
        [
            f"@{item.function}",
            item.value,
            item.at,
            f"{item.type} {item.sharding}",
            f"{item.decided}: {item.why}",
            f"{item.sent:,}" if item.sent else "",
            str(count),
        ]
        for item, count in grouped(watcher.shown())
    ]
    headers = ["program", "value", "made by", "layout", "decided by", "bytes sent", "times"]
    return Table(headers, rows)
