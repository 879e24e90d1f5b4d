"""Wrong rewrites of quantized weights, planted like those of ``planted``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import graphgen.passes.pipelines  # noqa: F401
from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import bf16, s8
from tests.oracles.planted_bugs import (
    ATTENTION_0,
    ATTENTION_1,
    LAYER_0,
    LAYER_1,
    RANKS,
    Bug,
    attribute,
    changed,
    only,
    operands,
    other_rank,
    plus,
    rebuild,
)

CHANNELS = "canonicalize,quantize-weights"
TENSORS = "canonicalize,quantize-weights{scheme=per_tensor_symmetric}"
SPLIT = f"{CHANNELS},{RANKS}"
FUSED = f"{TENSORS},fuse-projections"
LIFTED = f"{CHANNELS},specialize{{batch=[3],context=[8],tokens=[8,16]}},lift-weights,legalize"


def scaled(op: Op) -> bool:
    """A product times its scale."""
    return op.operands[0].producer("dot_general") is not None


def quantized(scope: str, result: int) -> Callable[[Value, Builder], Value]:
    """The values (0) or the scale (1) of the weight of another layer."""

    def change(value: Value, b: Builder) -> Value:
        ops = [op for op in b.function.block if op.name == "quantize" and op.loc.scope == scope]
        return ops[0].results[result]

    return change


def of_quantize(result: int) -> Callable[[Op], bool]:
    """What is done with the values (0) or with the scale (1) of a weight."""

    def where(op: Op) -> bool:
        made = op.operands[0].producer("quantize")
        return made is not None and op.operands[0].index == result

    return where


def joins_scales(op: Op) -> bool:
    """The scales of tensors, each spread over its channels, side by side."""
    return all(value.producer("broadcast_in_dim") for value in op.operands)


def widens(op: Op) -> bool:
    """The conversion of values to floats."""
    return op.operands[0].dtype is s8


def scaled_twice(op: Op, b: Builder) -> Sequence[Value]:
    """The product, scaled, and scaled again."""
    return [b.op("multiply", rebuild(op, b)[0], op.operands[1])]


def rounded_scale(op: Op, b: Builder) -> Sequence[Value]:
    """The values as they are, and the scale rounded to bf16."""
    values, scale = rebuild(op, b)
    return [values, b.convert(b.convert(scale, bf16), scale.dtype)]


QUANTIZED_BUGS = (
    Bug(
        "scale-of-the-other-axis",
        "quantize",
        "decode",
        f"{ATTENTION_0}.o_proj",
        attribute(dimensions=(0,)),
        after=CHANNELS,
    ),
    Bug(
        "scale-dropped", "multiply", "prefill", f"{LAYER_1}.mlp.up_proj", only(0), scaled, CHANNELS
    ),
    Bug(
        "scale-twice", "multiply", "decode", f"{LAYER_0}.mlp.up_proj", scaled_twice, scaled, TENSORS
    ),
    Bug(
        "scale-of-another",
        "broadcast_in_dim",
        "prefill",
        f"{ATTENTION_1}.v_proj",
        changed(0, quantized(f"{ATTENTION_1}.k_proj", 1)),
        of_quantize(1),
        CHANNELS,
    ),
    Bug(
        "scale-of-another-tensor",
        "broadcast_in_dim",
        "decode",
        f"{LAYER_1}.mlp.up_proj",
        changed(0, quantized(f"{LAYER_1}.mlp.gate_proj", 1)),
        of_quantize(1),
        TENSORS,
    ),
    Bug(
        "values-of-another",
        "convert",
        "decode",
        f"{LAYER_0}.mlp.up_proj",
        changed(0, quantized(f"{LAYER_0}.mlp.gate_proj", 0)),
        widens,
        CHANNELS,
    ),
    # On two ranks.
    Bug(
        "scale-of-rank-0",
        "dynamic_slice",
        "prefill",
        f"{ATTENTION_0}.q_proj",
        other_rank,
        of_quantize(1),
        SPLIT,
    ),
    Bug(
        "values-of-rank-0",
        "dynamic_slice",
        "decode",
        f"{LAYER_1}.mlp.down_proj",
        other_rank,
        of_quantize(0),
        SPLIT,
    ),
    # Where products are fused, scales of tensors become scales of channels.
    Bug(
        "scales-joined-in-another-order",
        "concatenate",
        "decode",
        ATTENTION_0,
        operands(0, 2, 1),
        joins_scales,
        FUSED,
    ),
    # Where weights are prepared.
    Bug(
        "largest-without-abs",
        "abs",
        "weights.global",
        f"{ATTENTION_0}.k_proj",
        only(0),
        after=LIFTED,
    ),
    Bug(
        "multiples-moved",
        "round_nearest_even",
        "weights.global",
        f"{LAYER_0}.mlp.down_proj",
        changed(0, plus(1.0)),
        after=LIFTED,
    ),
    # The meaning is kept; the rounding is not.
    Bug(
        "coarse-steps",
        "quantize",
        "decode",
        f"{LAYER_0}.mlp.gate_proj",
        attribute(limit=15.0),
        after=CHANNELS,
        rounding=True,
        budget=1e-2,
    ),
    Bug(
        "scale-rounded",
        "quantize",
        "prefill",
        f"{LAYER_0}.mlp.gate_proj",
        rounded_scale,
        after=CHANNELS,
        rounding=True,
    ),
)
