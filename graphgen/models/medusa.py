"""The heads of Medusa (Cai et al. 2024, arXiv 2401.10774): each guesses a later token.

Head i is a chain of residual blocks ``x + silu(linear(x))`` on the hidden state after the last
norm, and a head for the vocabulary of its own, or the model's (as text-generation-inference calls
version 2). At token t head i guesses token t + 2 + i; token t + 1 is the model's. Of a head with n
blocks the tensors are ``medusa_head.<i>.<block>.linear.weight`` and ``.linear.bias``, and
``medusa_head.<i>.<n>.weight``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import f32
from graphgen.nn.linear import linear

# Outputs: best tokens s32 [B,S,H,K] of each head, or logits f32 [B,S,H,V].
MEDUSA_TOKENS, MEDUSA_LOGITS = "medusa_tokens", "medusa_logits"
MEDUSA_SCOPE = "medusa_head"
# Guesses of each head that a tree may use, as in the published implementation.
BEST = 10


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """The heads of a model.

    Attributes:
        heads: H.
        blocks: residual blocks of each.
        own: each has a head for the vocabulary of its own.
        best: K, best tokens that programs return of each; 0 for all logits.
    """

    heads: int
    blocks: int = 1
    own: bool = True
    best: int = BEST


def medusa_guesses(
    b: Builder, shape: MedusaShape, hidden: Value, vocabulary: int, head: Callable[[Value], Value]
) -> Value:
    """The best tokens s32 [B,S,H,K] of the heads, in order, or their logits f32 [B,S,H,V].

    Args:
        b: the builder.
        shape: of the heads.
        hidden: the states [B,S,E] after the last norm.
        vocabulary: V.
        head: the model's own, which heads without one share.
    """
    found: list[Value] = []
    for number in range(shape.heads):
        logits = _head_logits(b, shape, number, hidden, vocabulary, head)
        best = b.top_k(logits, min(shape.best, vocabulary))[1] if shape.best else logits
        found.append(b.reshape(best, (*best.shape[:2], 1, best.shape[2])))
    return found[0] if len(found) == 1 else b.concatenate(found, 2)


def _head_logits(
    b: Builder,
    shape: MedusaShape,
    number: int,
    hidden: Value,
    vocabulary: int,
    head: Callable[[Value], Value],
) -> Value:
    size = hidden.shape[-1]
    assert isinstance(size, int)
    x = hidden
    with b.scope(f"{MEDUSA_SCOPE}.{number}"):
        for block in range(shape.blocks):
            with b.scope(f"{block}"):
                y = linear(b, "linear", x, size, bias=True, dtype=f32)
                x = b.convert(b.convert(x, f32) + b.silu(y), hidden.dtype)
        if shape.own:
            return linear(b, f"{shape.blocks}", x, vocabulary, dtype=f32)
    return head(x)
