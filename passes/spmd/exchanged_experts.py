"""Tokens to the ranks of their experts and back, by an all-to-all each way.

A rank has t tokens, and for each rank of its group a buffer of m places, the most of its tokens
that can have experts there. Every rank knows the choices of all tokens, so that sender and receiver
agree without a word on which token has which place: those with an expert of the receiver that
is not full, in the order of the sender. An empty place has any token, which chose no expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphgen.build import Builder
from graphgen.composites.drawing import prefix_sums
from graphgen.ir import AttrValue, Literal, Op, Value
from graphgen.ir.dtype import f32, pred, s32
from graphgen.ir.sharding import Axes
from graphgen.passes.experts.expert_choices import choices_within, entries_of, fixed
from graphgen.passes.experts.token_blocks import placed_tokens
from graphgen.passes.sharding.expert_exchange import places
from graphgen.passes.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class ExpertExchange:
    """The exchange of one mixture.

    Attributes:
        b: appends to the per-rank program.
        mesh: the ranks.
        op: the mixture on whole values.
        split: axes that split its tokens, along dimension ``at``.
        held: axes that split its experts, some of ``split``.
        place, owner: the coordinates of this rank along both.
        at: the dimension of the tokens that is split.
    """

    b: Builder
    mesh: Mesh
    op: Op
    split: Axes
    held: Axes
    place: Value
    owner: Value
    at: int

    @property
    def ranks(self) -> int:
        """n, of a group."""
        return self.mesh.size(self.split)

    @property
    def parts(self) -> int:
        """Parts of the experts, each on one rank of a group or on several."""
        return self.mesh.size(self.held)

    @property
    def sizes(self) -> tuple[int, int]:
        """m places and t tokens."""
        return places(self.mesh, self.op, self.split, self.held)

    def experts(
        self,
        x: Value,
        choices: tuple[Value, Value],
        held: Sequence[Value],
        low_rank: Sequence[Value] = (),
    ) -> Sequence[Value]:
        """The results of this rank's tokens.

        Args:
            x: its tokens, [...,H].
            choices: indices s32 [...,K] and weights f32 [...,K] of all tokens.
            held: this rank's part of the experts.
            low_rank: its part of the adapters: the slots s32 [...] of all tokens, and matrices.
        """
        b, (room, tokens) = self.b, self.sizes
        indices = self._kept(choices[0])
        chosen, shares = self._by_source(indices), self._by_source(choices[1])
        reserved = self._places(chosen)
        width = x.shape[-1]
        rows = self._sent(b.reshape(x, (tokens, width)), self._mine(reserved))
        got = self._exchange(rows)
        where = self._of_sources(reserved)
        every = (self.ranks * tokens, fixed(indices.shape[-1]))
        own = self._local(entries_of(b, b.reshape(chosen, every), _first(b, where)), where, held)
        taken = entries_of(b, b.reshape(shares, every), _first(b, where))
        given = b.reshape(got, (self.ranks * room, width))
        attrs: dict[str, AttrValue] = dict(self.op.attrs)
        adapters = self._adapters(low_rank, _first(b, where))
        y = b.emit("experts", [given, own, taken, *held, *adapters], attrs).result
        back = self._exchange(b.reshape(y, (self.ranks, room, y.shape[1])))
        made = self._sum(b.reshape(back, y.shape), self._mine(reserved))
        return [b.reshape(made, (*x.shape[:-1], made.shape[1]))]

    def _adapters(self, low_rank: Sequence[Value], where: Value) -> Sequence[Value]:
        """The operands of adapters for the tokens ``where`` among all."""
        if not low_rank:
            return ()
        b, (slots, *matrices) = self.b, low_rank
        by_source = self._by_source(b.reshape(slots, (*slots.shape, 1)))
        every = b.reshape(by_source, (self.ranks * self.sizes[1],))
        return [entries_of(b, every, where), *matrices]

    def _kept(self, indices: Value) -> Value:
        """The choices s32 [...,K] with -1 where an expert is full, in the order of all tokens."""
        b, shape = self.b, indices.shape
        flat = b.reshape(indices, (prod(map(fixed, shape[:-1])), shape[-1]))
        experts = fixed(self.op.operands[3].shape[0])
        kept = choices_within(b, flat, experts, self.op.attrs.integer("capacity"))
        return b.reshape(b.select(kept, flat, b.full(-1, flat.type)), shape)

    def _by_source(self, x: Value) -> Value:
        """[...,K] of all tokens as [n,t,K], those of each rank in its order."""
        b, at, shape = self.b, self.at, x.shape
        parts = (*shape[:at], self.ranks, fixed(shape[at]) // self.ranks, *shape[at + 1 :])
        order = [at, *[dim for dim in range(len(parts)) if dim != at]]
        moved = b.transpose(b.reshape(x, parts), order)
        return b.reshape(moved, (self.ranks, self.sizes[1], shape[-1]))

    def _places(self, chosen: Value) -> Value:
        """The place s32 [n,P,t] of each token for each part of the experts, -1 for none."""
        b, (ranks, tokens, _) = self.b, map(fixed, chosen.shape)
        own = fixed(self.op.operands[3].shape[0]) // self.parts
        none = b.compare(chosen, b.full(0, chosen.type), "LT")
        part = b.binary("divide", chosen, b.full(own, chosen.type))
        part = b.select(none, b.full(-1, part.type), part)
        goes = b.reduce(b.one_hot(part, self.parts, pred), [2], "or")
        goes = b.transpose(goes, [0, 2, 1])
        flat = b.reshape(b.convert(goes, f32), (ranks * self.parts, tokens))
        before = b.convert(prefix_sums(b, flat, inclusive=False), s32)
        before = b.reshape(before, goes.shape)
        return b.select(goes, before, b.full(-1, before.type))

    def _mine(self, reserved: Value) -> Value:
        """The places s32 [n,t] of this rank's tokens on each rank of its group."""
        b, (_, parts, tokens) = self.b, reserved.shape
        zero = b.full(0, self.place.type)
        own = b.dynamic_slice(reserved, [self.place, zero, zero], (1, parts, tokens))
        own = b.reshape(own, (parts, tokens))
        group = self.mesh.groups(self.split)[0]
        owners = [self.mesh.place(rank, self.held) for rank in group]
        if owners == list(range(self.parts)):
            return own
        return entries_of(b, own, b.op("constant", value=Literal.of(s32, owners)))

    def _sent(self, x: Value, mine: Value) -> Value:
        """The buffers [n,m,H] of this rank."""
        b, (room, tokens) = self.b, self.sizes
        at, kept = self._numbered(mine)
        order = [1, 0]
        numbers = placed_tokens(
            b, b.transpose(at, order), b.transpose(kept, order), self.ranks * room, choices=False
        )
        assert x.shape[0] == tokens
        rows = entries_of(b, x, _first(b, numbers))
        return b.reshape(rows, (self.ranks, room, x.shape[1]))

    def _of_sources(self, reserved: Value) -> Value:
        """The number s32 [n*m], among all tokens by rank, of the one in each place here."""
        b, (ranks, _, tokens) = self.b, map(fixed, reserved.shape)
        zero = b.full(0, self.owner.type)
        here = b.dynamic_slice(reserved, [zero, self.owner, zero], (ranks, 1, tokens))
        at, kept = self._numbered(b.reshape(here, (ranks, tokens)))
        column = (ranks * tokens, 1)
        return placed_tokens(
            b, b.reshape(at, column), b.reshape(kept, column), ranks * self.sizes[0], choices=False
        )

    def _numbered(self, reserved: Value) -> tuple[Value, Value]:
        """Places [n,t] in buffers as numbers in [n*m], and whether there is one."""
        b = self.b
        first = b.iota(s32, reserved.shape, 0) * self.sizes[0]
        kept = b.compare(reserved, b.full(0, reserved.type), "GE")
        return reserved + first, kept

    def _local(self, indices: Value, where: Value, held: Sequence[Value]) -> Value:
        """Choices [n*m,K] by number within this rank's part; none in an empty place."""
        b, shape = self.b, indices.shape
        start = b.binary("multiply", self.owner, b.full(fixed(held[0].shape[0]), self.owner.type))
        local = b.binary("subtract", indices, b.broadcast_in_dim(start, shape, []))
        filled = b.compare(where, b.full(0, where.type), "GE")
        return b.select(b.broadcast_in_dim(filled, shape, [0]), local, b.full(-1, local.type))

    def _exchange(self, rows: Value) -> Value:
        """[n,m,...]: buffer i of every rank goes to the rank at place i."""
        return self.b.all_to_all(rows, self.mesh.groups(self.split), 0, 0)

    def _sum(self, back: Value, mine: Value) -> Value:
        """The results [t,H] of this rank's tokens: the sum of what came back from all ranks."""
        b, (ranks, tokens) = self.b, map(fixed, mine.shape)
        at, kept = self._numbered(mine)
        flat = b.select(kept, at, b.full(0, at.type))
        rows = entries_of(b, back, b.reshape(flat, (ranks * tokens,)))
        wide = b.convert(b.reshape(rows, (ranks, tokens, back.shape[1])), f32)
        there = b.broadcast_in_dim(kept, wide.shape, [0, 1])
        added = b.reduce(b.select(there, wide, b.full(0.0, wide.type)), [0], "add")
        return b.convert(added, back.dtype)


def _first(b: Builder, numbers: Value) -> Value:
    """Numbers to gather by: any for an empty place."""
    return b.binary("maximum", numbers, b.full(0, numbers.type))
