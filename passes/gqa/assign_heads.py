"""Assign heads to ranks: gather heads at each attention, then move the gathers into the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.errors import GraphgenError
from graphgen.ir import HELD_ROLES, Entry, Function, Module, Op, Role, TensorType, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.ops.attention import head_dimensions
from graphgen.passes.core import NoMatch, Pass, Rewriter, register
from graphgen.passes.gqa.fold_gather import FOLD_RULES
from graphgen.passes.gqa.gather_rules import gather_rules
from graphgen.passes.gqa.head_gather import GatherEmitter, HeadGather
from graphgen.passes.gqa.head_map import HeadMap
from graphgen.passes.gqa.head_strategies import AUTO, COMPAT, NONE, STRATEGIES, Heads, head_map
from graphgen.passes.gqa.slot_groups import grouped_map, slot_ranks
from graphgen.passes.weights.layout_change import repack


@dataclass(slots=True)
class CacheLayouts:
    """Changes the layout of a state in all programs at once.

    Attributes:
        module: changed in place.
        rewriter: records the rewrites.
        emitters: emits the gathers, per program.
        labels: names of layouts, used in the names of pack functions.
    """

    module: Module
    rewriter: Rewriter
    emitters: Mapping[Function, GatherEmitter]
    labels: dict[HeadGather, str] = field(default_factory=dict[HeadGather, str])

    def assign(self, row: Entry, gather: HeadGather) -> None:
        """Store the state ``row`` gathered."""
        size = row.physical.shape[gather.dim]
        assert isinstance(size, int)
        inverse = gather.inverse(size // gather.block)
        with self.rewriter.joined():
            for function, emitter in self.emitters.items():
                cache = function.arg(row.name)
                if cache is not None:
                    self._program(function, emitter, cache, gather, inverse)

        def pack(b: Builder, part: Value, rank: Value) -> Value:
            return b.take(part, b.literal(list(gather.blocks), s32), gather.dim, gather.block)

        def unpack(b: Builder, parts: Value) -> Value:
            return b.take(
                parts, b.literal(list(inverse.blocks), s32), inverse.dim + 1, inverse.block
            )

        physical = _gathered_type(row.physical, gather)
        repack(self.module, row, physical, self._label(gather), (pack, unpack))
        self.rewriter.note(None, f"lay out {row.name}")

    def _program(
        self,
        function: Function,
        emitter: GatherEmitter,
        cache: Value,
        gather: HeadGather,
        inverse: HeadGather,
    ) -> None:
        """Change the argument and the output; other users gather the model's heads."""
        name, readers, outputs = cache.name or "", list(cache.users), function.outputs
        updated = outputs.get(name)
        assert updated is not None
        cache.type = _gathered_type(cache.type, gather)
        for op in list(readers):
            if op.name == "take" and HeadGather.of(op) == gather:
                self.rewriter.replace(function, op, [cache])
                readers.remove(op)
        emitter.rebind(cache, gather, cache)
        if readers or outputs.returns(cache):
            whole = emitter.emit(cache, inverse)
            emitter.rebind(whole, gather, cache)
            for op in readers:
                op.set_operands(tuple([whole if v is cache else v for v in op.operands]))
            outputs.replace(cache, whole)
        outputs.set(name, cache if updated is cache else emitter.emit(updated, gather))

    def _label(self, gather: HeadGather) -> str:
        """``heads8``; numbered if two layouts have the same number of heads."""
        found = self.labels.get(gather)
        if found is None:
            base = f"heads{len(gather.blocks)}"
            same = sum(label.split(".")[0] == base for label in self.labels.values())
            found = self.labels[gather] = f"{base}.{same + 1}" if same else base
        return found


def _gathered_type(type_: TensorType, gather: HeadGather) -> TensorType:
    shape = list(type_.shape)
    shape[gather.dim] = len(gather.blocks) * gather.block
    return tensor(type_.dtype, shape)


# Operands of attention with key-value heads -> their dimension.
_OF_KEYS = {1: 2, 2: 2}


@register
@dataclass(frozen=True)
class AssignHeads(Pass):
    """Pad and copy the heads of attention so that they divide over ``tp`` ranks.

    A ``take`` of the heads is put before every attention and one of the model's heads after it.
    Rules move them, op by op, into the weights, biases, slopes and sinks they come from, and into
    the output projection; the cache keeps the heads that are laid out. In the end only weights are
    taken from, which ``lift-weights`` moves out. Where the heads divide as they are, nothing
    happens; what cannot be passed, such as a layer norm over all heads, is refused by name.
    For ``ALL_GATHER_HEADS`` the pass ``gather-heads`` follows ``partition``.

    Options:
        tp: ranks.
        strategy: ``auto``, or a strategy's name in NxD Inference or transformers-neuronx.
        compat: ``nxdi`` or ``tnx`` for exactly their layouts.
        flash: ranks that share a key-value head divide its slots, so that no head is there twice;
            ``flash-decoding`` and ``shard`` follow.
        slot_ranks: their number; 0 for the fewest.

    Given:
        module @m level=canonical {
          input %x : f32[1,2,4]
          input %mask : pred[1,2,2]
          weight %q : f32[6,4]
          weight %k : f32[2,4]
          weight %o : f32[4,6]
          output %y : f32[1,2,4]
        }

        func @f phase=decode {
          arg %x : f32[1,2,4]
          arg %mask : pred[1,2,2]
          arg %q : f32[6,4]
          arg %k : f32[2,4]
          arg %o : f32[4,6]
          %0 = dot_general(%x, %q) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2,6]
          %1 = reshape(%0) shape=[1,2,3,2] : f32[1,2,3,2]
          %2 = dot_general(%x, %k) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2,2]
          %3 = reshape(%2) shape=[1,2,1,2] : f32[1,2,1,2]
          %4 = attention(%1, %3, %3, %mask) scale=0.5 : f32[1,2,3,2]
          %5 = reshape(%4) shape=[1,2,6] : f32[1,2,6]
          %y = dot_general(%5, %o) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2,4]
          return y = %y
        }

    Result (``heads{tp=2}``):
        module @m level=canonical {
          input %x : f32[1,2,4]
          input %mask : pred[1,2,2]
          weight %q : f32[6,4]
          weight %k : f32[2,4]
          weight %o : f32[4,6]
          output %y : f32[1,2,4]
        }

        func @f phase=decode {
          arg %x : f32[1,2,4]
          arg %mask : pred[1,2,2]
          arg %q : f32[6,4]
          arg %k : f32[2,4]
          arg %o : f32[4,6]
          %0 = constant() value=s32[4](0,1,2,-1) : s32[4]
          %1 = constant() value=s32[2](0,0) : s32[2]
          %2 = take(%o, %0) dimension=1 block=2 : f32[4,8]
          %3 = take(%k, %1) dimension=0 block=2 : f32[4,4]
          %4 = take(%q, %0) dimension=0 block=2 : f32[8,4]
          %5 = dot_general(%x, %4) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2,8]
          %6 = reshape(%5) shape=[1,2,4,2] : f32[1,2,4,2]
          %7 = dot_general(%x, %3) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2,4]
          %8 = reshape(%7) shape=[1,2,2,2] : f32[1,2,2,2]
          %9 = attention(%6, %8, %8, %mask) scale=0.5 : f32[1,2,4,2]
          %10 = reshape(%9) shape=[1,2,8] : f32[1,2,8]
          %y = dot_general(%10, %2) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,2,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "heads"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    # The sum over the heads has zeros more, and may be taken in another order.
    rounding: ClassVar[float] = 2e-2
    tp: int = 2
    strategy: str = option(words(*STRATEGIES), AUTO)
    compat: str = option(words(*COMPAT), NONE)
    flash: bool = False
    slot_ranks: int = 0

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Assign the heads of every attention, then move the gathers to a fixpoint."""
        layout = _Assignment(module, rewriter)
        slots = slot_ranks(module, self.tp, self.slot_ranks) if self.flash else 1
        if self.flash and slots == 1:
            rewriter.remark("flash decoding: each key-value head is on one rank without it")
        for function in layout.emitters:
            for op in list(function.block):
                if op.name == "attention" and not rewriter.exhausted:
                    found = self._map(op, slots)
                    if found.over == "rows":
                        # shard{by_rows=true} divides the rows; the heads stay.
                        rewriter.remark(found.why)
                    else:
                        layout.attention(function, op, found)
        layout.run_to_fixpoint()

    def _map(self, op: Op, slots: int) -> HeadMap:
        q, k = op.operands[0].shape, op.operands[1].shape
        heads, kv_heads, size = q[2], k[2], q[3]
        assert isinstance(heads, int)
        assert isinstance(kv_heads, int)
        assert isinstance(size, int)
        if slots > 1:
            return grouped_map(self.tp, slots, heads, kv_heads)
        batch = q[0] if isinstance(q[0], int) else 0
        sizes = Heads(self.tp, heads, kv_heads, size, batch)
        return head_map(sizes, self.strategy, self.compat)


@dataclass(slots=True)
class _Assignment:
    """The state of the pass on one module.

    Attributes:
        module: changed in place.
        rewriter: records the rewrites.
        emitters: emits the gathers, per program.
        states: changes the layout of caches.
        refusals: per gather that cannot move, the reason.
    """

    module: Module
    rewriter: Rewriter
    emitters: dict[Function, GatherEmitter] = field(init=False)
    states: CacheLayouts = field(init=False)
    refusals: dict[Op, NoMatch] = field(default_factory=dict[Op, NoMatch])

    def __post_init__(self) -> None:
        self.emitters = {f: GatherEmitter(f, self.rewriter) for f in self.module.programs()}
        self.states = CacheLayouts(self.module, self.rewriter, self.emitters)

    def attention(self, function: Function, op: Op, found: HeadMap) -> None:
        """Replace attention by ``gather_model(attention(gather_assigned(operands)))``."""
        if found.identity:
            return
        self.rewriter.remark(found.why)
        emitter, b = self.emitters[function], self.rewriter.before(function, op)
        emitter.made = b.made = []
        operands = list(op.operands)
        of_heads = ((found.q_map, head_dimensions(operands)), (found.kv_map, _OF_KEYS))
        for heads, dims in of_heads:
            for index, dim in dims.items() if heads != tuple(range(len(heads))) else ():
                operands[index] = emitter.emit(operands[index], HeadGather(heads, dim))
        made = b.emit(op.name, operands, dict(op.attrs)).result
        if made.type is not op.result.type:
            made = emitter.emit(made, HeadGather(found.q_places, 2))
        self.rewriter.replace(function, op, [made], "lay-out-heads", created=b.made)

    def run_to_fixpoint(self) -> None:
        """Apply the gather rules until nothing changes; refuse gathers that remain (GG0304)."""
        waiting: dict[str, HeadGather] = {}
        while not self.rewriter.exhausted:
            for function, emitter in self.emitters.items():
                self.rewriter.apply_rules(function, gather_rules(emitter, self.refusals))
                self.rewriter.erase_unread(function)
            waiting = self._waiting_states()
            if not waiting:
                break
            for name, gather in waiting.items():
                if not self.rewriter.exhausted:
                    self.states.assign(self.module.interface[name], gather)
        if not self.rewriter.exhausted:
            for function in self.emitters:
                self._check(function)

    def _waiting_states(self) -> dict[str, HeadGather]:
        """States that the programs gather assigned heads from: their layout shall change."""
        found: dict[str, HeadGather] = {}
        for function in self.emitters:
            for row in self.module.entries(Role.STATE):
                cache = function.arg(row.name)
                for op in cache.users if cache is not None else ():
                    gather = HeadGather.of(op) if op.name == "take" else None
                    if gather is not None and gather.assigns:
                        found.setdefault(row.name, gather)
        return found

    def _check(self, function: Function) -> None:
        """Require that gathers remain on weights only (GG0304)."""
        prepared = {
            value
            for value in function.args
            if self.module.interface[value.name or ""].role in HELD_ROLES
        }
        for op in function.block:
            if all(value in prepared for value in op.operands):
                prepared.update(op.results)
            elif op.name == "take" and (gather := HeadGather.of(op)) is not None:
                raise self._refusal(op, gather)

    def _refusal(self, take: Op, gather: HeadGather) -> GraphgenError:
        """The error about the op that a remaining gather cannot pass."""
        why = self.refusals.get(take, NoMatch("the heads leave the program"))
        readers = [reader for reader in take.result.users if reader.name not in FOLD_RULES]
        stop = (
            take.operands[0].op
            if gather.assigns
            else next(iter(readers or take.result.users), take)
        )
        stop = stop or take
        if not gather.assigns and readers:
            why = NoMatch(f"{stop.name} is not known to keep heads apart")
        return GraphgenError(
            "GG0304",
            f"heads: the heads cannot be laid out past {stop.name}: {why.reason}",
            where=repr(stop.loc),
            help="ranks that divide the key-value heads need no other layout",
        )
