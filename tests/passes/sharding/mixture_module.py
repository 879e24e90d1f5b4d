"""A module whose tokens pass a router and the op ``experts``, of sizes that tests choose."""

from __future__ import annotations

import graphgen as gg
from graphgen.ir import AttrValue, Value

F32, S32 = gg.dtype("f32"), gg.dtype("s32")
TOKENS, WIDTH = 6, 8


def mixture_module(
    experts: int = 4,
    inner: int = 12,
    *,
    biases: bool = False,
    stacked: bool = False,
    layers: int = 1,
    element: str = "f32",
    **attrs: AttrValue,
) -> gg.Module:
    """Tokens through mixtures of two out of ``experts``.

    Args:
        experts: of each mixture.
        inner: features of an expert between its products.
        biases: whether experts have them.
        stacked: whether the checkpoint has a tensor an expert, which the program stacks.
        layers: mixtures, each added to what it reads.
        element: type of weights and activations.
        attrs: of the op ``experts``.
    """
    module = gg.Module("mixture", "canonical")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", gg.dtype(element), (TOKENS, WIDTH))
        for layer in range(layers):
            x = x + _mixture(b, x, f"layers.{layer}", (experts, inner), biases, stacked, attrs)
        b.output("y", x)
    gg.verify(module)
    return module


def _mixture(
    b: gg.Builder,
    x: Value,
    name: str,
    sizes: tuple[int, int],
    biases: bool,
    stacked: bool,
    attrs: dict[str, AttrValue],
) -> Value:
    count, inner = sizes
    router = b.weight(f"{name}.router", x.dtype, (count, WIDTH))
    best, at = b.top_k(b.softmax(b.dot(x, router, dtype=F32), 1), 2)
    total = b.broadcast_in_dim(b.reduce(best, [1], "add"), best.shape, [0])

    def stack(last: str, *shape: int) -> Value:
        if not stacked:
            return b.weight(f"{name}.{last}", x.dtype, (count, *shape))
        parts = [
            b.reshape(b.weight(f"{name}.{e}.{last}", x.dtype, shape), (1, *shape))
            for e in range(count)
        ]
        return b.concatenate(parts, 0)

    operands = [x, at, best / total]
    operands += [stack("gate", inner, WIDTH), stack("up", inner, WIDTH)]
    operands.append(stack("down", WIDTH, inner))
    if biases:
        operands += [
            b.weight(f"{name}.{last}_bias", x.dtype, (count, size))
            for last, size in (("gate", inner), ("up", inner), ("down", WIDTH))
        ]
    return b.emit("experts", operands, {"dtype": x.dtype, **attrs}).result
