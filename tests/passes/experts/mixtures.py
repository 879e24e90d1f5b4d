"""Modules of one mixture of experts, and choices that are difficult for its forms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphgen.build import Builder
from graphgen.eval import Array
from graphgen.ir import AttrValue, DType, Function, Module
from graphgen.ir.dtype import f32, s32

Attributes = Mapping[str, AttrValue]


def mixture(
    tokens: int,
    chosen: int = 2,
    experts: int = 5,
    attrs: Attributes | None = None,
    *,
    element: DType = f32,
    biases: bool = False,
    inner: int = 4,
    width: int = 6,
    routed: bool = False,
    adapters: int = 0,
) -> Module:
    """A module of one op, with x [T,H]; ``routed`` are the choices of the best of logits [T,E].

    With ``adapters`` of rank 3 the tokens have them in the input ``slots``.
    """
    module = Module("m", "canonical")
    function = module.add(Function("decode", phase="decode"))
    with Builder(function, module=module) as b:
        x = b.input("x", element, (tokens, width))
        if routed:
            logits = b.input("logits", f32, (tokens, experts))
            weights, indices = b.top_k(logits, chosen)
        else:
            indices = b.input("indices", s32, (tokens, chosen))
            weights = b.input("weights", f32, (tokens, chosen))
        shapes = {"gate": (inner, width), "up": (inner, width), "down": (width, inner)}
        given = [b.weight(name, element, (experts, *shape)) for name, shape in shapes.items()]
        if biases:
            given += [
                b.weight(f"{name}_bias", element, (experts, shape[0]))
                for name, shape in shapes.items()
            ]
        if adapters:
            given.append(b.input("slots", s32, (tokens,)))
            for name, (out, into) in shapes.items():
                lead = (adapters, experts)
                given.append(b.weight(f"{name}.lora_A", element, (*lead, 3, into)))
                given.append(b.weight(f"{name}.lora_B", element, (*lead, out, 3)))
        op = b.emit("experts", (x, indices, weights, *given), {"dtype": f32, **(attrs or {})})
        b.output("y", op.result)
    return module


def arrays(module: Module, indices: Array, seed: int = 0) -> dict[str, Array]:
    """Random numbers of the module's arguments, in f64, with these choices."""
    random = np.random.default_rng(seed)
    (function,) = module.programs()
    made = {arg.name or "": random.standard_normal(arg.type.dims) for arg in function.args}
    return {**made, "indices": indices.astype(np.int32)}


def choices(kind: str, tokens: int, chosen: int, experts: int, seed: int = 0) -> Array:
    """Indices [T,K] of a kind; those of a token differ.

    Args:
        kind: ``random``; ``one absent``, an expert that no token has; ``one`` expert that all
            tokens have; ``padding``, where some tokens have -1 and some E alone; ``elsewhere``,
            where many choices are experts of other ranks.
        tokens: T.
        chosen: K.
        experts: E.
        seed: of the choices.
    """
    random = np.random.default_rng(seed)
    low, high = (-experts, 2 * experts) if kind == "elsewhere" else (0, experts)
    every = np.tile(np.arange(low, high), (tokens, 1))
    if kind == "one absent":
        every = every[:, every[0] != experts // 2]
    found = random.permuted(every, axis=1)[:, :chosen]
    if kind == "one":
        found = np.where(found == 1, found[:, :1], found)
        found[:, 0] = 1
    if kind == "padding":
        found[::3] = -1
        found[1::4] = experts
    return found


KINDS = ("random", "one absent", "one", "padding", "elsewhere")
