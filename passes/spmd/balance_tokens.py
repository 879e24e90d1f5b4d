"""Order the tokens of prompts so that the ranks of a ring do equal work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import BALANCE_AUTO, BALANCE_OFF, BALANCE_ON, CP_AUTO, CP_FORMS
from graphgen.errors import GraphgenError
from graphgen.ir import PROMPT_PHASES, Function, Literal, Module, Op, Role, Value
from graphgen.ir.dtype import f32, s32
from graphgen.ops import OPS, Trait
from graphgen.passes.attention.tile_operands import SlotRange, cuts_of, operand_cuts
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.sharding.logical_axes import SEQUENCE, ModelAxes, model_axes
from graphgen.passes.sharding.op_factors import factors_of
from graphgen.passes.sharding.prompt_attention import (
    RING,
    PromptAttention,
    PromptForm,
    leaves_out_masked,
)
from graphgen.passes.sharding.rank_axes import RankAxes
from graphgen.passes.sharding.ring_layout import balanced_order
from graphgen.targets import target_names

# Ops that know where a token is by its position, not by its place.
_BY_POSITION = ("attention", "attention_mask", "key_distance", "kv_update", "last_token")


@dataclass(frozen=True, slots=True)
class BalancedTokens:
    """One program, whose tokens and slots are to be in the order of :func:`balanced_order`.

    Attributes:
        module: of the program.
        function: the program.
        axes: of the module.
        ranks: of the ring.
    """

    module: Module
    function: Function
    axes: ModelAxes
    ranks: int
    _slots: dict[tuple[Value, int], Value] = field(default_factory=dict[tuple[Value, int], Value])

    def why_not(self, attentions: list[Op]) -> NoMatch | None:
        """Why tokens cannot be in another order; ``None`` if they can.

        Args:
            attentions: those of the program.
        """
        for op in attentions:
            mask = op.operands[3]
            made = mask.producer("attention_mask")
            if made is None:
                return no_match("its mask is not made of positions", mask)
            if made.operands[1].producer("key_positions") is None:
                return no_match("slots of a rolled cache are in no order of positions", mask)
            for what, value in zip(("tokens", "slots"), op.operands[:2], strict=False):
                count = value.type.dims[1]
                if count % (2 * self.ranks):
                    parts = 2 * self.ranks
                    return no_match(f"{count} {what} are not {parts} blocks of as many", value)
        for op in self.function.block:
            if op.name == "experts" and op.attrs.integer("capacity"):
                return no_match(
                    "experts with a capacity take the tokens that come first", op.result
                )
            if op.name not in _BY_POSITION and self._ordered(op):
                return no_match(f"{op.name} depends on the order of tokens", op.result)
        return None

    def _ordered(self, op: Op) -> bool:
        """True if an op over tokens gives another result for tokens in another order."""
        if not any(self._tokens(value) for value in (*op.operands, *op.results)):
            return False
        if op.name == "iota":
            return op.attrs.integer("dimension") in self._tokens(op.result)
        if op.name == "constant":
            return len(set(op.attrs.literal("value").values())) > 1
        factors = factors_of(op)
        if factors is None:
            return True
        for value, dims in zip(op.operands, factors.operands, strict=True):
            for dim in self._tokens(value):
                parts = dims[dim] if dims else ()
                whole = len(parts) != 1 or parts[0] in factors.need_replication
                if whole and value.shape[dim] != 1:
                    return True
        return False

    def _tokens(self, value: Value) -> list[int]:
        """The dimensions of a value that are of tokens."""
        return [dim for dim in range(value.type.rank) if SEQUENCE in self.axes.of(value, dim)]

    def run(self, attentions: list[Op], rewriter: Rewriter) -> None:
        """Deal out tokens where they come in, gather them where they go out."""
        for value, dim in list(self._arguments()):
            readers = list(value.users)
            first = self.function.block.first
            assert first is not None
            dealt = self._take(rewriter.before(self.function, first), value, dim)
            for op in readers:
                op.set_operands(tuple([dealt if x is value else x for x in op.operands]))
        for op in attentions:
            self._slots_of(op, rewriter)
        self._outputs()
        rewriter.note(self.function, "balance-tokens")

    def _arguments(self) -> Iterator[tuple[Value, int]]:
        """Inputs with tokens."""
        for value in self.function.args:
            row = self.module.interface.get(value.name or "")
            if row is not None and row.role is Role.INPUT:
                yield from [(value, dim) for dim in self._tokens(value)]

    def _take(self, b: Builder, value: Value, dim: int, *, back: bool = False) -> Value:
        """The blocks of a dimension in the balanced order, or those in this order as they were."""
        order = list(balanced_order(self.ranks))
        if back:
            order = [order.index(block) for block in range(len(order))]
        size = value.shape[dim]
        assert isinstance(size, int)
        numbers = b.op("constant", value=Literal.of(s32, order))
        return b.take(value, numbers, dim, size // len(order))

    def _slots_of(self, op: Op, rewriter: Rewriter) -> None:
        """Let one attention read slots in the balanced order."""
        b = rewriter.before(self.function, op)
        operands = [
            self._by_slots(b, value, cut)
            for value, cut in zip(op.operands, cuts_of(op), strict=True)
        ]
        op.set_operands(tuple(operands))

    def _by_slots(self, b: Builder, value: Value, cut: SlotRange) -> Value:
        """A value with its slots in the balanced order."""
        slots = cut.slots
        if slots is None or slots >= value.type.rank:
            return value
        key = value, slots
        if key not in self._slots:
            self._slots[key] = self._made(b, value, SlotRange(cut.tokens, slots))
        return self._slots[key]

    def _made(self, b: Builder, value: Value, cut: SlotRange) -> Value:
        """The same of its operands, where it is made of what has slots, else of itself."""
        op, slots = value.op, cut.slots
        assert slots is not None
        if op is None:
            return self._take(b, value, slots)
        if op.name == "key_distance":
            return self._distance(b, op)
        alike = op.name == "broadcast_in_dim" or OPS[op.name].has(Trait.ELEMENTWISE)
        if op.name != "attention_mask" and not alike:
            return self._take(b, value, slots)
        cuts = operand_cuts(op, cut)
        parts = [self._by_slots(b, x, each) for x, each in zip(op.operands, cuts, strict=True)]
        return b.emit(op.name, parts, dict(op.attrs)).result

    def _distance(self, b: Builder, op: Op) -> Value:
        """Numbers of the slots in the balanced order, minus positions."""
        shape = op.result.shape
        plain = b.iota(s32, (shape[2],), 0)
        numbers = b.broadcast_in_dim(self._take(b, plain, 0), shape, [2])
        positions = b.broadcast_in_dim(op.operands[0], shape, [0, 1])
        return b.convert(b.binary("subtract", numbers, positions), f32)

    def _outputs(self) -> None:
        """Give tokens back in their order."""
        b = Builder(self.function)
        for name, value in list(self.function.outputs):
            if self.module.interface[name].role is Role.OUTPUT:
                for dim in self._tokens(value):
                    whole = self._take(b, value, dim, back=True)
                    self.function.outputs.set(name, whole)


BALANCE = (BALANCE_AUTO, BALANCE_ON, BALANCE_OFF)


@register
@dataclass(frozen=True)
class BalanceTokens(Pass):
    """Deal out the tokens of prompts so that causal masks leave ranks of a ring equal work.

    Of n ranks, rank i has the blocks i and 2n - 1 - i of 2n blocks of tokens, and of slots: each
    block of keys that comes by is allowed for half of its tokens, where otherwise the last rank
    reads every block and the first one its own. Tokens and positions are dealt out where they come
    in, and outputs of all tokens are put in order again. Masks, rotations, the last token and
    caches follow positions.

    Options:
        tp: ranks.
        cp: of them, those that share a prompt.
        dp: groups of ranks with rows of their own.
        cp_form: of ``shard``, which chooses in the same way.
        balance: ``on``, ``off``, or ``auto`` for what costs least; ``on`` is refused for a program
            whose ops depend on the order of tokens.
        target: what the programs will run on; only loops leave out tiles that a mask forbids.

    Given:
        module @m level=canonical {
          input %x : f32[1,4,2,4]
          input %positions : s32[1,4]
          input %lengths : s32[1]
          input %seq_ids : s32[1]
          state %k : f32[1,4,2,4]
          output %y : f32[1,4,2,4]
        }

        func @prefill phase=prefill {
          arg %k : f32[1,4,2,4]
          arg %x : f32[1,4,2,4]
          arg %positions : s32[1,4]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          %p = key_positions(%lengths) attended=4 : s32[1,4]
          %m = attention_mask(%positions, %p) : pred[1,4,4]
          %0 = kv_update(%k, %x, %seq_ids, %positions) : f32[1,4,2,4]
          %1 = cache_read(%0, %seq_ids) attended=4 : f32[1,4,2,4]
          %y = attention(%x, %1, %1, %m) scale=0.5 : f32[1,4,2,4]
          return k = %0
          return y = %y
        }

    Result (``balance-tokens{cp_form=ring,balance=on},cse,dce``):
        module @m level=canonical {
          input %x : f32[1,4,2,4]
          input %positions : s32[1,4]
          input %lengths : s32[1]
          input %seq_ids : s32[1]
          state %k : f32[1,4,2,4]
          output %y : f32[1,4,2,4]
        }

        func @prefill phase=prefill {
          arg %k : f32[1,4,2,4]
          arg %x : f32[1,4,2,4]
          arg %positions : s32[1,4]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          %0 = constant() value=s32[4](0,3,1,2) : s32[4]
          %1 = take(%positions, %0) dimension=1 : s32[1,4]
          %2 = take(%x, %0) dimension=1 : f32[1,4,2,4]
          %p = key_positions(%lengths) attended=4 : s32[1,4]
          %3 = kv_update(%k, %2, %seq_ids, %1) : f32[1,4,2,4]
          %4 = cache_read(%3, %seq_ids) attended=4 : f32[1,4,2,4]
          %5 = take(%4, %0) dimension=1 : f32[1,4,2,4]
          %6 = take(%p, %0) dimension=1 : s32[1,4]
          %7 = attention_mask(%1, %6) : pred[1,4,4]
          %y = attention(%2, %5, %5, %7) scale=0.5 : f32[1,4,2,4]
          %8 = constant() value=s32[4](0,2,3,1) : s32[4]
          %9 = take(%y, %8) dimension=1 : f32[1,4,2,4]
          return k = %3
          return y = %9
        }
    """

    name: ClassVar[str] = "balance-tokens"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "raw-weights")
    # Sums over slots are taken in another order.
    rounding: ClassVar[float] = 2e-2
    tp: int = 2
    cp: int = 2
    dp: int = 1
    cp_form: str = option(words(*CP_FORMS), CP_AUTO)
    balance: str = option(words(*BALANCE), BALANCE_AUTO)
    target: str = option(words(target_names), "cpu")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Choose and rewrite, program by program."""
        if self.cp == 1 or self.balance == BALANCE_OFF or self.cp_form not in (CP_AUTO, RING):
            return
        ranks = RankAxes(self.tp, self.cp, self.dp)
        form = RING if self.balance == BALANCE_ON else self.cp_form
        skips = leaves_out_masked(self.target)
        forms = PromptAttention(module, model_axes(module), ranks, form, skips=skips)
        for function in list(module.programs()):
            if function.phase in PROMPT_PHASES and not rewriter.exhausted:
                self._program(module, function, forms, rewriter)

    def _program(
        self, module: Module, function: Function, forms: PromptAttention, rewriter: Rewriter
    ) -> None:
        every = [op for op in function.block if op.name == "attention"]
        found = {op: forms.forms(op) for op in every}
        if not any(found.values()):
            # Its tokens do not divide: no rank shares them.
            return
        tokens = BalancedTokens(module, function, forms.axes, forms.ring_ranks)
        why = self._why_in_order(tokens, found, forms)
        if why is not None and self.balance == BALANCE_ON:
            raise _refused(function, why, every[0])
        if why is not None:
            rewriter.decline(function, "balance", every[0], why)
        elif not rewriter.declines(function, every[0], "balance"):
            tokens.run(every, rewriter)
            count = forms.ring_ranks
            rewriter.remark(f"@{function.name}: tokens are dealt out to {count} ranks of a ring")

    def _why_in_order(
        self,
        tokens: BalancedTokens,
        found: Mapping[Op, Sequence[PromptForm]],
        forms: PromptAttention,
    ) -> NoMatch | None:
        """Why the tokens of a program stay in order; ``None`` if they are to be dealt out."""
        rings = {op: way for op, ways in found.items() for way in ways if way.name == RING}
        if len(rings) < len(found):
            apart = next(op for op in found if op not in rings)
            return no_match("its slots do not divide over a ring", apart.operands[1])
        why = tokens.why_not(list(found))
        if why is not None or self.balance == BALANCE_ON:
            return why
        if not forms.skips:
            return no_match(f"programs for {self.target} compute what masks forbid, too", depth=2)
        dealt = sum(forms.with_order(op, way, balanced=True).cost for op, way in rings.items())
        plain = sum(forms.chosen(op, ways).cost for op, ways in found.items())
        if dealt >= plain:
            return no_match(f"it costs {dealt:,} bytes a rank, {plain:,} without", depth=3)
        return None


def _refused(function: Function, why: NoMatch, op: Op) -> GraphgenError:
    at = why.at.op if why.at is not None and why.at.op is not None else op
    return GraphgenError(
        "GG0304",
        f"balance-tokens: tokens of @{function.name} need their order: {why.reason}",
        where=repr(at.loc),
        help="leave out balance=on (cp_balance): ranks of a ring have tokens in order then",
    )
