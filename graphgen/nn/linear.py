"""Linear layers and the gated MLP, named as the checkpoint names their tensors."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.nn.activations import activate


def linear(
    b: Builder,
    name: str,
    x: Value,
    features: int,
    *,
    bias: bool = False,
    dtype: DType | None = None,
) -> Value:
    """``x`` [..., K] through the layer ``name``: weight [features, K], bias [features].

    The result is of type ``dtype``, by default that of ``x``; the parameters are of ``x``'s.
    """
    size = x.shape[-1]
    with b.scope(name):
        y = b.dot(x, b.weight("weight", x.dtype, (features, size)), dtype)
        if not bias:
            return y
        return _plus_bias(b, y, b.weight("bias", x.dtype, (features,)))


def conv1d(b: Builder, name: str, x: Value, features: int, *, dtype: DType | None = None) -> Value:
    """``x`` [..., K] through transformers' ``Conv1D`` called ``name``: weight [K, features], bias.

    The result is of type ``dtype``, by default that of ``x``; the parameters are of ``x``'s.
    """
    with b.scope(name):
        weight = b.weight("weight", x.dtype, (x.shape[-1], features))
        y = b.dot_general(x, weight, ([len(x.shape) - 1], [0]), dtype=dtype)
        return _plus_bias(b, y, b.weight("bias", x.dtype, (features,)))


def _plus_bias(b: Builder, y: Value, bias: Value) -> Value:
    return y + b.broadcast_in_dim(b.convert(bias, y.dtype), y.shape, [len(y.shape) - 1])


def embedding_table(b: Builder, name: str, rows: int, width: int, dtype: DType) -> Value:
    """The weight [rows, width] of the embedding ``name``."""
    with b.scope(name):
        return b.weight("weight", dtype, (rows, width))


def embed(b: Builder, name: str, tokens: Value, rows: int, width: int, dtype: DType) -> Value:
    """The embeddings [B,S,width] of tokens s32 [B,S], from the table [rows, width] ``name``.

    ``tokens`` f32 [B,S,width] are embeddings already.
    """
    table = embedding_table(b, name, rows, width, dtype)
    return b.embedding(table, tokens) if len(tokens.shape) == 2 else b.convert(tokens, dtype)


def lm_head(b: Builder, x: Value, vocab_size: int, *, tied: str = "", bias: bool = False) -> Value:
    """Logits f32 [..., vocab_size] of x [..., E].

    Args:
        b: the builder.
        x: hidden states after the last norm.
        vocab_size: V.
        tied: name of the embedding whose weight [V, E] is the head's; empty for ``lm_head``'s own.
        bias: add ``lm_head.bias`` [V].
    """
    size = x.shape[-1]
    assert isinstance(size, int)
    weight = embedding_table(b, tied or "lm_head", vocab_size, size, x.dtype)
    with b.scope("lm_head"):
        y = b.dot(x, weight, f32)
        return _plus_bias(b, y, b.weight("bias", x.dtype, (vocab_size,))) if bias else y


def mlp(
    b: Builder,
    x: Value,
    names: tuple[str, str],
    intermediate: int,
    activation: str,
    *,
    bias: bool = True,
) -> Value:
    """f32 ``down(act(up(x)))`` of x [..., E]; ``names`` are those of up and down.

    The activation is computed in f32 and rounded once to the type of ``x``.
    """
    size = x.shape[-1]
    assert isinstance(size, int)
    hidden = linear(b, names[0], x, intermediate, bias=bias, dtype=f32)
    hidden = b.convert(activate(b, activation, hidden), x.dtype)
    return linear(b, names[1], hidden, size, bias=bias, dtype=f32)


def gated_mlp(
    b: Builder,
    x: Value,
    intermediate: int,
    *,
    activation: str = "silu",
    bias: bool = False,
    dtype: DType | None = None,
    module: str = "mlp",
) -> Value:
    """``down(act(gate(x)) * up(x))`` of x [..., E]; gate and up have ``intermediate`` features.

    ``act(gate) * up`` is computed in f32 and rounded once. The result is of type ``dtype``, by
    default that of ``x``; ``module`` is the scope.
    """
    size = x.shape[-1]
    assert isinstance(size, int)
    with b.scope(module):
        gate = linear(b, "gate_proj", x, intermediate, bias=bias, dtype=f32)
        gate = activate(b, activation, gate)
        up = linear(b, "up_proj", x, intermediate, bias=bias, dtype=f32)
        hidden = b.convert(gate * up, x.dtype)
        return linear(b, "down_proj", hidden, size, bias=bias, dtype=dtype)
