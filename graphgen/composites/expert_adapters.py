"""Low-rank terms of the matrices of experts, for tokens that have an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from graphgen.build import Builder
from graphgen.ir import Dim, Value
from graphgen.ir.dtype import f32

# The low-rank term of a product, from the inputs of the product.
Term = Callable[[Value], Value]


@dataclass(frozen=True, slots=True)
class ExpertAdapters:
    """The adapters of tokens that experts compute.

    Attributes:
        mask: f32 [...,L], 1 for the slot of each token, else 0.
        matrices: a and b of gate, up and down: [L,E,r,H], [L,E,I,r] twice, [L,E,r,I], [L,E,H,r];
            without E where one expert computes all tokens.
    """

    mask: Value
    matrices: Sequence[Value]

    def of_all(self, b: Builder, at: int) -> tuple[Term, Term, Term]:
        """Terms f32 of gate, up and down for every expert.

        Inputs are [T,in], or have their experts in dimension ``at``, as what is returned for gate
        and up has; that for down is [E,T,H].
        """

        def first(place: int) -> Term:
            def term(x: Value) -> Value:
                made = self._of_experts(b, x, place, at if x.type.rank == 3 else None)
                return b.transpose(made, [1, 0, 2]) if at else made

            return term

        return first(0), first(2), lambda x: self._of_experts(b, x, 4, at)

    def of_one(self, b: Builder) -> tuple[Term, Term, Term]:
        """Terms f32 [T,out] of gate, up and down for tokens [T,in] of one expert."""
        gate, up, down = (partial(self._of_expert, b, place) for place in (0, 2, 4))
        return gate, up, down

    def _of_experts(self, b: Builder, x: Value, place: int, at: int | None) -> Value:
        """``b (mask a x)`` f32 [E,T,out] of x [T,in], or with its experts in dimension ``at``."""
        lora_a, lora_b = self.matrices[place : place + 2]
        batch: tuple[list[int], list[int]] = ([], []) if at is None else ([at], [1])
        low = b.dot_general(x, lora_a, ([x.type.rank - 1], [3]), batch, f32)
        # [T,L,E,r], or [E,T,L,r].
        experts, slots = (2, 1) if at is None else (0, 2)
        own = list(range(slots + 1))[-self.mask.type.rank :]
        chosen = low * b.broadcast_in_dim(self.mask, low.shape, own)
        sides = [slots, 3], [0, 3]
        return b.dot_general(b.convert(chosen, x.dtype), lora_b, sides, ([experts], [1]), f32)

    def _of_expert(self, b: Builder, place: int, x: Value) -> Value:
        lora_a, lora_b = self.matrices[place : place + 2]
        low = b.dot_general(x, lora_a, ([1], [2]), dtype=f32)
        chosen = low * b.broadcast_in_dim(self.mask, low.shape, [0, 1])
        return b.dot_general(b.convert(chosen, x.dtype), lora_b, ([1, 2], [0, 2]), dtype=f32)


def slot_mask(b: Builder, slots: Value, count: Dim) -> Value:
    """f32 [...,L] of ``slots`` s32 [...]: 1 for the slot of each token, else 0."""
    shape = (*slots.shape, count)
    own = b.broadcast_in_dim(slots, shape, list(range(slots.type.rank)))
    return b.convert(b.compare(own, b.iota(own.dtype, shape, slots.type.rank), "EQ"), f32)
