"""Laying heads out over ranks: one take at each attention, moved into the weights and the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Role
from graphgen.passes.core import NoMatch, Pass, Rewriter, register
from graphgen.passes.core.options import choice
from graphgen.passes.heads.absorb import ABSORBS
from graphgen.passes.heads.head_map import HeadMap
from graphgen.passes.heads.moves import moves
from graphgen.passes.heads.states import States
from graphgen.passes.heads.strategies import AUTO, COMPAT, NONE, STRATEGIES, Heads, head_map
from graphgen.passes.heads.takes import Move, Takes

# Which operands of attention have heads, in which dimension, and of which kind.
_QUERY, _KEYS = 0, 1
_OPERANDS = {0: (_QUERY, 2), 1: (_KEYS, 2), 2: (_KEYS, 2), 4: (_QUERY, 0)}


@register
@dataclass(frozen=True)
class LayOutHeads(Pass):
    """Pad and copy the heads of attention so that they divide over ``tp`` ranks.

    A ``take`` of the heads is put before every attention and one of the model's heads behind it.
    Rules move them, op by op, into the weights, biases and slopes they come from, and into the
    output projection; the cache keeps the heads that are laid out. In the end only weights are
    taken from, which ``lift-weights`` moves out. Where the heads divide as they are, nothing
    happens; what cannot be passed, such as a norm over all heads, is refused by name. For
    ``ALL_GATHER_HEADS`` the pass ``gather-heads`` goes behind ``partition``.

    Options:
        tp: ranks.
        strategy: ``auto``, or a strategy's name in NxD Inference or transformers-neuronx.
        compat: ``nxdi`` or ``tnx`` for exactly their layouts.

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
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    # The sum over the heads has zeros more, and may be taken in another order.
    rounding: ClassVar[float] = 2e-2
    tp: int = 2
    strategy: str = choice(AUTO, tuple(STRATEGIES))
    compat: str = choice(NONE, tuple(COMPAT))

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lay out every attention, then move the takes as far as they go."""
        layout = _Layout(module, rewriter)
        for function in layout.takes:
            for op in list(function.block):
                if op.name == "attention" and not rewriter.exhausted:
                    found = self._map(op)
                    if found.over == "rows":
                        # Heads stay as they are: shard{by_rows=true} divides the rows.
                        rewriter.remark(found.why)
                    else:
                        layout.attention(function, op, found)
        layout.settle()

    def _map(self, op: Op) -> HeadMap:
        q, k = op.operands[0].shape, op.operands[1].shape
        heads, kv_heads, size = q[2], k[2], q[3]
        assert isinstance(heads, int)
        assert isinstance(kv_heads, int)
        assert isinstance(size, int)
        batch = q[0] if isinstance(q[0], int) else 0
        sizes = Heads(self.tp, heads, kv_heads, size, batch)
        return head_map(sizes, self.strategy, self.compat)


@dataclass(slots=True)
class _Layout:
    """The work on one module.

    Attributes:
        module: changed in place.
        rewriter: on whose behalf.
        takes: those of each program.
        refusals: why a take does not move on.
    """

    module: Module
    rewriter: Rewriter
    takes: dict[Function, Takes] = field(init=False)
    states: States = field(init=False)
    refusals: dict[Op, NoMatch] = field(default_factory=dict[Op, NoMatch])

    def __post_init__(self) -> None:
        self.takes = {f: Takes(f, self.rewriter) for f in self.module.programs()}
        self.states = States(self.module, self.rewriter, self.takes)

    def attention(self, function: Function, op: Op, found: HeadMap) -> None:
        """Attention of the heads that are laid out, and behind it those of the model."""
        if found.identity:
            return
        self.rewriter.remark(found.why)
        takes, b = self.takes[function], self.rewriter.before(function, op)
        takes.made = b.made = []
        operands = list(op.operands)
        for index, (kind, dim) in _OPERANDS.items():
            heads = found.q_map if kind == _QUERY else found.kv_map
            if index < len(operands) and heads != tuple(range(len(heads))):
                operands[index] = takes.take(operands[index], Move(heads, dim))
        made = b.emit(op.name, operands, dict(op.attrs)).result
        if made.type is not op.result.type:
            made = takes.take(made, Move(found.q_places, 2))
        self.rewriter.replace(function, op, [made], "lay-out-heads", created=b.made)

    def settle(self) -> None:
        """Move takes until none moves, and refuse those that are stuck in the middle."""
        waiting: dict[str, Move] = {}
        while not self.rewriter.exhausted:
            for function, takes in self.takes.items():
                self.rewriter.apply_rules(function, moves(takes, self.refusals))
                self._erase_dead(function)
            waiting = self._waiting_states()
            if not waiting:
                break
            for name, move in waiting.items():
                if not self.rewriter.exhausted:
                    self.states.lay_out(self.module.interface[name], move)
        if not self.rewriter.exhausted:
            for function in self.takes:
                self._check(function)

    def _waiting_states(self) -> dict[str, Move]:
        """States that heads are taken from: they should keep them so."""
        found: dict[str, Move] = {}
        for function in self.takes:
            for row in self.module.entries(Role.STATE):
                cache = function.arg(row.name)
                for op in cache.users if cache is not None else ():
                    move = Move.of(op) if op.name == "take" else None
                    if move is not None and move.lays_out:
                        found.setdefault(row.name, move)
        return found

    def _erase_dead(self, function: Function) -> None:
        """What was moved on has left ops that nobody reads, and that would keep takes alive."""
        for op in reversed(function.block):
            if self.rewriter.exhausted:
                return
            if not any(result.users or function.returns(result) for result in op.results):
                self.rewriter.erase(function, op)

    def _check(self, function: Function) -> None:
        """Takes are left on weights only (GG0304)."""
        prepared = {
            value
            for value in function.args
            if self.module.interface[value.name or ""].role is Role.WEIGHT
        }
        for op in function.block:
            if all(value in prepared for value in op.operands):
                prepared.update(op.results)
            elif op.name == "take" and (move := Move.of(op)) is not None:
                raise self._refusal(op, move)

    def _refusal(self, take: Op, move: Move) -> GraphgenError:
        """Which op is in the way of a take that is left, and why."""
        why = self.refusals.get(take, NoMatch("the heads leave the program"))
        readers = [reader for reader in take.result.users if reader.name not in ABSORBS]
        stop = (
            take.operands[0].op if move.lays_out else next(iter(readers or take.result.users), take)
        )
        stop = stop or take
        if not move.lays_out and readers:
            why = NoMatch(f"{stop.name} is not known to keep heads apart")
        return GraphgenError(
            "GG0304",
            f"heads: the heads cannot be laid out past {stop.name}: {why.reason}",
            where=repr(stop.loc),
            help="ranks that divide the key-value heads need no other layout",
        )
