"""Attention of prompts whose tokens lie over ranks: which form it takes, and its layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from graphgen.compile_config import CP_AUTO, CP_FORMS
from graphgen.errors import GraphgenError
from graphgen.ir import PROMPT_PHASES, Function, Module, Op, Sharding, Value, sharding
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.layout_rules import Annotation, resharded
from graphgen.passes.sharding.reshard.reshard_ops import LOCAL, bytes_sent
from graphgen.passes.sharding.reshard.reshard_planner import ReshardPlanner
from graphgen.passes.sharding.spec.logical_axes import HEADS, KV_HEADS, SEQUENCE, ModelAxes
from graphgen.passes.sharding.spec.mesh import Mesh, fits
from graphgen.passes.sharding.spec.rank_axes import CP, DP, TP, RankAxes
from graphgen.passes.weights.derived import PreparedValues

_, GATHER, ALL_TO_ALL = CP_FORMS


@dataclass(frozen=True, slots=True)
class PromptForm:
    """One way to let the queries of a rank's tokens attend all keys.

    Attributes:
        name: of :data:`~graphgen.compile_config.CP_FORMS`.
        pins: the layouts of operands and results of attention.
        sent: bytes that each rank sends.
        collectives: how many send them.
    """

    name: str
    pins: tuple[tuple[Value, Sharding], ...]
    sent: int
    collectives: int

    @property
    def text(self) -> str:
        """The form and its cost."""
        return f"{self.name} ({self.sent:,} bytes a rank in {self.collectives} collectives)"


@dataclass(slots=True)
class PromptAttention:
    """Chooses a form for each attention of prompts.

    ``gather``: each rank has queries of its tokens, and gathers keys and values of all (NxD
    Inference). ``all-to-all``: queries of all tokens, for the heads or the rows whose keys a rank
    caches: tokens are exchanged for heads before attention and back after it (Ulysses, arXiv
    2309.14509). ``auto`` takes the one that sends less, where a collective counts as ``latency``
    bytes.

    Attributes:
        module: not changed.
        axes: of the module.
        ranks: the factors of its ranks.
        form: of :data:`~graphgen.compile_config.CP_FORMS`.
        latency: bytes that a collective counts as.
    """

    module: Module
    axes: ModelAxes
    ranks: RankAxes
    form: str = CP_AUTO
    latency: int = 1 << 23
    planner: ReshardPlanner = field(init=False)

    def __post_init__(self) -> None:
        self.planner = ReshardPlanner(Mesh(self.ranks.mesh), self.latency)

    @property
    def tokens(self) -> Axes:
        """The mesh axes of the tokens of a prompt."""
        return tuple([axis for axis in (CP, DP) if axis in self.ranks.mesh])

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
        prepared = PreparedValues(self.module, function, {})
        for op in function.block:
            if op.name != "dot_general" or prepared.of_weights(op.result):
                continue
            layout: Sharding | None = None
            names = [self.axes.of(op.result, dim) for dim in range(op.result.type.rank)]
            if not any(SEQUENCE in found for found in names):
                continue
            for dim, found in enumerate(names):
                if found & {HEADS, KV_HEADS}:
                    layout = resharded(layout, len(names), dim, (TP,))
                elif SEQUENCE in found:
                    layout = resharded(layout, len(names), dim, self.tokens)
            if layout is not None and TP in layout.axes and self._fits(op.result, layout):
                rule = f"cp: a rank has the heads of its tokens, {layout.text}"
                yield Annotation(op.result, function, layout, (rule,))

    def _attention(self, function: Function, op: Op) -> Iterator[Annotation]:
        found = self.forms(op)
        if not found:
            return
        chosen = min(found, key=lambda way: way.sent + way.collectives * self.latency)
        if self.form != CP_AUTO:
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
            chosen = named[0]
        others = "; ".join([way.text for way in found if way is not chosen])
        rule = f"cp: {chosen.text}" + (f", not {others}" if others else "")
        for value, layout in chosen.pins:
            yield Annotation(value, function, layout, (rule,))

    def forms(self, op: Op) -> Sequence[PromptForm]:
        """The forms that one attention can take; none if its tokens do not divide."""
        query, key, value = op.operands[:3]
        made = op.result
        heads = tuple([axis for axis in self.ranks.mesh if axis != DP])
        own = sharding([(), self.tokens, (TP,), ()])
        held = sharding([(DP,) if self.ranks.rows > 1 else (), (), heads, ()])
        whole = sharding([(), (), (TP,), ()])
        if not (self._fits(query, own) and self._fits(key, whole)):
            return ()
        source = self._source(key, held)
        moves = [(key, source, whole), (value, source, whole)]
        pins = [(query, own), (key, whole), (value, whole), (made, own)]
        found = [self._form(GATHER, pins, moves)]
        if self._fits(query, held) and self._fits(key, held) and source is held:
            pins = [(query, held), (made, held)]
            found.append(self._form(ALL_TO_ALL, pins, [(query, own, held), (made, held, own)]))
        return found

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
        moves: Sequence[tuple[Value, Sharding, Sharding]],
    ) -> PromptForm:
        sent = count = 0
        for value, source, target in moves:
            route = self.planner.find(value.type, source, target)
            assert route is not None, f"{source.text} cannot become {target.text}"
            steps = [step for step in route.steps if step.kind not in LOCAL]
            sent += sum([bytes_sent(self.planner.mesh, value.type, step) for step in steps])
            count += len(steps)
        return PromptForm(name, tuple(pins), sent // self.planner.mesh.ranks, count)

    def _fits(self, value: Value, layout: Sharding) -> bool:
        return fits(self.planner.mesh, value.type, layout)

    def _why_not(self, op: Op) -> str:
        rows = op.operands[0].shape[0]
        return (
            f"{rows} rows do not divide over {self.ranks.rows} groups"
            if self.ranks.rows > 1
            else "its heads do not divide over all ranks"
        )
