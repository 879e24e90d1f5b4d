"""Choose the form and the layouts of attention over prompts with sharded tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from graphgen.config.option_words import CP_AUTO, CP_FORMS
from graphgen.errors import GraphgenError
from graphgen.ir import (
    HELD_ROLES,
    PROMPT_PHASES,
    Function,
    Module,
    Op,
    Sharding,
    TensorType,
    Value,
    sharding,
    tensor,
)
from graphgen.ir.dtype import f32
from graphgen.ir.sharding import Axes
from graphgen.passes.attention.tile_costs import TOKENS, AttentionShape
from graphgen.passes.attention.window_slots import windowed
from graphgen.passes.sharding.layout_rules import Annotation, resharded
from graphgen.passes.sharding.logical_axes import HEADS, KV_HEADS, SEQUENCE, ModelAxes
from graphgen.passes.sharding.mesh import Mesh, fits
from graphgen.passes.sharding.op_factors import nominal_bytes
from graphgen.passes.sharding.rank_axes import CP, DP, TP, RankAxes
from graphgen.passes.sharding.reshard_ops import LOCAL, bytes_sent, local_bytes
from graphgen.passes.sharding.reshard_planner import ReshardPlanner
from graphgen.passes.sharding.ring_layout import in_order, is_balanced
from graphgen.passes.sharding.strategies import op_work
from graphgen.passes.weights.derived import PreparedValues
from graphgen.targets import find_target, target_names

_, GATHER, ALL_TO_ALL, RING = CP_FORMS
# The form that pass ``window-prompts`` writes.
WINDOWS = "windows"


def leaves_out_masked(target: str) -> bool:
    """True if programs for a target leave out what masks forbid: the CPU's do, while they run."""
    return not (target in target_names() and find_target(target).is_accelerator)


@dataclass(frozen=True, slots=True)
class PromptForm:
    """One way to let the queries of a rank's tokens attend all keys.

    Attributes:
        name: of :data:`~graphgen.config.compile_config.CP_FORMS`, or :data:`WINDOWS`.
        pins: the layouts of operands and results of attention.
        sent: bytes that each rank sends.
        collectives: how many send them.
        cost: what a rank waits for and computes, in bytes that it could send meanwhile.
        exchange: of this, what a ring costs before it begins.
        block: bytes that each rank of a ring sends at once.
        balanced: whether the tokens are in the balanced order.
    """

    name: str
    pins: tuple[tuple[Value, Sharding], ...]
    sent: int
    collectives: int
    cost: int = 0
    exchange: int = 0
    block: int = 0
    balanced: bool = False

    @property
    def text(self) -> str:
        """The form and its cost."""
        many = "collective" if self.collectives == 1 else "collectives"
        order = ", tokens balanced" if self.balanced else ""
        return f"{self.name} ({self.sent:,} bytes a rank in {self.collectives} {many}{order})"


@dataclass(slots=True)
class PromptAttention:
    """Chooses a form for each attention of prompts.

    ``gather``: each rank has queries of its tokens, and gathers keys and values of all (NxD
    Inference). ``all-to-all``: queries of all tokens, for the heads or the rows whose keys a rank
    caches: tokens are exchanged for heads before attention and back after it (Ulysses, arXiv
    2309.14509). ``ring``: queries, keys and values of a rank's tokens, and blocks of keys and
    values that go from rank to rank during the products (arXiv 2310.01889). ``auto`` takes the one
    that costs less. A collective counts as ``latency`` bytes beside those it sends, ``memory``
    bytes of a rank's own work as one; what a ring sends during products costs only what exceeds
    them.

    Attributes:
        module: not changed.
        axes: of the module.
        ranks: the factors of its ranks.
        form: of :data:`~graphgen.config.compile_config.CP_FORMS`.
        latency: bytes that a collective counts as.
        memory: bytes of its own memory that count as one that a rank sends.
        skips: whether programs leave out tiles that masks forbid.
    """

    module: Module
    axes: ModelAxes
    ranks: RankAxes
    form: str = CP_AUTO
    latency: int = 1 << 23
    memory: int = 4
    skips: bool = True
    planner: ReshardPlanner = field(init=False)

    def __post_init__(self) -> None:
        self.planner = ReshardPlanner(Mesh(self.ranks.mesh), self.latency)

    @property
    def tokens(self) -> Axes:
        """The mesh axes of the tokens of a prompt."""
        return tuple([axis for axis in (CP, DP) if axis in self.ranks.mesh])

    @property
    def heads(self) -> Axes:
        """The mesh axes of heads beside ranks that have the tokens of a prompt."""
        return (TP,) if TP in self.ranks.mesh else ()

    @property
    def held(self) -> Sharding:
        """The layout of keys and values that are read of a cache."""
        heads = tuple([axis for axis in self.ranks.mesh if axis != DP])
        return sharding([(DP,) if self.ranks.rows > 1 else (), (), heads, ()])

    @property
    def blocks(self) -> Sharding:
        """The layout of attention whose rows are blocks of tokens."""
        return sharding([self.tokens, (), self.heads, ()])

    def annotations(self) -> Iterator[Annotation]:
        """Layouts of projections and of attention, in all programs of prompts."""
        for function in self.module.programs():
            if function.phase in PROMPT_PHASES:
                yield from self._projections(function)
                for op in function.block:
                    if op.name == "attention":
                        yield from self._attention(function, op)

    def _projections(self, function: Function) -> Iterator[Annotation]:
        """Products with weights of heads: each rank has those of its tokens."""
        prepared = PreparedValues(self.module, function, {}, HELD_ROLES)
        for op in function.block:
            if op.name != "dot_general" or prepared.of_weights(op.result):
                continue
            layout: Sharding | None = None
            names = [self.axes.of(op.result, dim) for dim in range(op.result.type.rank)]
            if not any(SEQUENCE in found for found in names):
                continue
            of_heads = False
            for dim, found in enumerate(names):
                if found & {HEADS, KV_HEADS}:
                    layout, of_heads = resharded(layout, len(names), dim, self.heads), True
                elif SEQUENCE in found:
                    layout = resharded(layout, len(names), dim, self.tokens)
            if layout is not None and of_heads and self._fits(op.result, layout):
                rule = f"cp: a rank has the heads of its tokens, {layout.text}"
                yield Annotation(op.result, function, layout, (rule,))

    @property
    def ring_ranks(self) -> int:
        """The ranks of a ring."""
        return self.planner.mesh.size(self.tokens)

    def of_windows(self, op: Op, blocks: int, count: int) -> PromptForm:
        """The form of an attention whose blocks of tokens have ``count`` slots each.

        Keys and values are exchanged as ``all-to-all`` does queries.
        """
        (rows, slots, heads, width), value = op.operands[1].type.dims, op.operands[2].type
        both = tensor(value.dtype, (blocks * rows, count, heads, width + value.dims[3]))
        work = self._work(op) if self.skips else self._every_product(op) * count // slots
        return self._form(WINDOWS, (), [(both, self.held, self.blocks)], work)

    def _attention(self, function: Function, op: Op) -> Iterator[Annotation]:
        if SEQUENCE in self.axes.of(op.operands[0], 0):
            # Blocks of tokens are rows, with keys of their own.
            for value in (*op.operands[:3], op.result):
                if self._fits(value, self.blocks):
                    rule = "cp: a rank has the slots of its windows"
                    yield Annotation(value, function, self.blocks, (rule,), fixed=True)
            return
        found = self.forms(op)
        if not found:
            return
        chosen = self.chosen(op, found)
        others = "; ".join([way.text for way in found if way is not chosen])
        rule = f"cp: {chosen.text}" + (f", not {others}" if others else "")
        for value, layout in chosen.pins:
            yield Annotation(value, function, layout, (rule,), fixed=True)

    def chosen(self, op: Op, found: Sequence[PromptForm]) -> PromptForm:
        """The form that an option names, else the cheapest (GG0304 for one that cannot serve)."""
        if self.form == CP_AUTO:
            return min(found, key=lambda way: (not way.balanced, way.cost))
        named = [way for way in found if way.name == self.form]
        if not named:
            has = ", ".join(way.name for way in found)
            raise GraphgenError(
                "GG0304",
                f"shard: cp_form={self.form} cannot serve attention {op.operands[0].type.text}"
                f" over {op.operands[1].type.text}: {self._why_not(op)}",
                where=repr(op.loc),
                help=f"these can: {has}",
            )
        return named[0]

    def forms(self, op: Op) -> Sequence[PromptForm]:
        """The forms that one attention can take; none if its tokens do not divide."""
        query, key, value = op.operands[:3]
        made = op.result
        own, held = sharding([(), self.tokens, self.heads, ()]), self.held
        whole = sharding([(), (), self.heads, ()])
        if not (self._fits(query, own) and self._fits(key, whole)):
            return ()
        source = self._source(key, held)
        work = self._work(op)
        moves = [(x.type, source, whole) for x in (key, value)]
        pins = [(query, own), (key, whole), (value, whole), (made, own)]
        found = [self._form(GATHER, pins, moves, work)]
        if self._fits(query, held) and self._fits(key, held) and source is held:
            pins = [(query, held), (made, held)]
            moves = [(query.type, own, held), (made.type, held, own)]
            # Tiles may leave out what the masks of a rank with all tokens forbid.
            half = self.skips and AttentionShape.of(op, prompt=True).causal
            found.append(self._form(ALL_TO_ALL, pins, moves, work // 2 if half else work))
        ring = self._ring(op, own, source)
        return [*found, ring] if ring is not None else found

    def _ring(self, op: Op, own: Sharding, source: Sharding) -> PromptForm | None:
        """Keys of some slots on each rank, passed on; ``None`` if slots do not divide."""
        key, value = op.operands[1:3]
        if not (self._fits(key, own) and self._fits(value, own)):
            return None
        pins = [(x, own) for x in (*op.operands[:3], op.result)]
        first = self._form(RING, pins, [(x.type, source, own) for x in (key, value)], 0)
        block = sum([local_bytes(self.planner.mesh, x.type, own) for x in (key, value)])
        hops = self.ring_ranks - 1
        sent, count = first.sent + hops * block, first.collectives + hops
        ring = replace(first, sent=sent, collectives=count, exchange=first.cost, block=block)
        return self.with_order(op, ring, balanced=is_balanced(op, self.ring_ranks))

    def with_order(self, op: Op, ring: PromptForm, *, balanced: bool) -> PromptForm:
        """A ring with its cost, with tokens in the balanced order or in their own.

        Masks allow half of the products then, and keys and values are copied into that order. The
        result of each block is combined in f32 with that of those before: two are read, and one is
        written.
        """
        each, hops = self._work(op) // self.ring_ranks, self.ring_ranks - 1
        part = nominal_bytes(tensor(f32, op.result.shape)) // self.planner.mesh.ranks // self.memory
        copied = 2 * ring.block // self.memory if balanced else 0
        each = each // 2 if balanced else each
        waits = max(each + 3 * part, ring.block + self.latency)
        cost = ring.exchange + copied + each + hops * waits
        return replace(ring, cost=cost, balanced=balanced)

    def _work(self, op: Op) -> int:
        """The work of a rank in bytes that it could send; tiles leave out what windows forbid."""
        found, work = windowed(op, in_order), self._every_product(op)
        if found is None:
            return work
        return work * found.count(min(TOKENS, op.operands[0].type.dims[1])) // found.slots

    def _every_product(self, op: Op) -> int:
        """The work of a rank with all that masks forbid."""
        return op_work(op) // self.planner.mesh.ranks // self.memory

    def _source(self, key: Value, held: Sharding) -> Sharding:
        """The layout of keys read of a cache: rows of other ranks are a sum that has one addend."""
        read = key.producer("cache_read")
        indexed = read is not None and read.attrs.text("rows") == "any"
        if self.ranks.rows > 1 and indexed:
            return sharding([(), *held.dims[1:]], (DP,))
        return held

    def _form(
        self,
        name: str,
        pins: Sequence[tuple[Value, Sharding]],
        moves: Sequence[tuple[TensorType, Sharding, Sharding]],
        work: int,
    ) -> PromptForm:
        sent = count = 0
        for kind, source, target in moves:
            route = self.planner.find(kind, source, target)
            assert route is not None, f"{source.text} cannot become {target.text}"
            steps = [step for step in route.steps if step.kind not in LOCAL]
            sent += sum([bytes_sent(self.planner.mesh, kind, step) for step in steps])
            count += len(steps)
        each = sent // self.planner.mesh.ranks
        return PromptForm(name, tuple(pins), each, count, each + count * self.latency + work)

    def _fits(self, value: Value, layout: Sharding) -> bool:
        return fits(self.planner.mesh, value.type, layout)

    def _why_not(self, op: Op) -> str:
        if self.form == RING:
            return f"its slots do not divide over {self.ring_ranks} ranks"
        rows = op.operands[0].shape[0]
        return (
            f"{rows} rows do not divide over {self.ranks.rows} groups"
            if self.ranks.rows > 1
            else "its heads do not divide over all ranks"
        )
