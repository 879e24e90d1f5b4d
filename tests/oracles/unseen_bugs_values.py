"""Wrong rewrites that only extreme numbers show: the last id, ties, large scores, zeros, NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphgen.build import Builder
from graphgen.eval import Array
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f16, f32
from tests.oracles.planted_bugs import (
    ATTENTION_0,
    ATTENTION_1,
    LAYER_0,
    LAYER_1,
    Bug,
    Rewrite,
    changed,
    kind_is,
    only,
    rebuild,
)
from tests.oracles.unseen_bugs import Scene, Unseen, at_most, dims, number, prompts, steps

CHANNELS = "canonicalize,quantize-weights"
TARGET = "specialize{batch=[2],context=[8],tokens=[8,16]},legalize"
GREEDY = "canonicalize,on-device-sampling"
DRAWN = "canonicalize,on-device-sampling{do_sample=true,global_topk=8}"
STEP, PROMPT = dims(2, 1, 16, 2, 16), dims(2, 8, 8, 2, 16)


def times(factor: float) -> Callable[[Array], Array]:
    """A weight of another size."""
    return lambda weight: weight * np.float32(factor)


def same_rows(weight: Array) -> Array:
    """[V,E] with pairs of equal rows, so that every logit is tied."""
    return np.repeat(weight[::2], 2, axis=0)[: len(weight)]


def dead_rows(weight: Array) -> Array:
    """[N,K] with output channels of zeros."""
    made = weight.copy()
    made[3:5] = 0.0
    return made


def step(tokens: Sequence[int] = (9, 21), **weights: Callable[[Array], Array]) -> Scene:
    """Two rows of one token; ``__`` in a name is a dot."""
    changes = {name.replace("__", "."): change for name, change in weights.items()}
    return Scene(STEP, steps(9, 4), [[token] for token in tokens], weights=changes)


def prompt(**weights: Callable[[Array], Array]) -> Scene:
    """Two prompts."""
    changes = {name.replace("__", "."): change for name, change in weights.items()}
    return Scene(PROMPT, prompts(8, 8, 5), weights=changes)


def draw(*params: tuple[float, float, float]) -> dict[str, list[list[float]] | list[float]]:
    """Sampling inputs: top_k, top_p and temperature of each row."""
    return {"sampling_params": [list(row) for row in params], "random": [0.7, 0.9]}


def of_scores(op: Op) -> bool:
    """Of [B,K,S,G,C], with the largest score of each row."""
    return op.result.type.rank == 5 and op.operands[0].producer("select") is not None


def largest_score(op: Op) -> bool:
    """The largest of masked scores."""
    return kind_is("maximum")(op) and op.operands[0].producer("select") is not None


def from_zero(op: Op, b: Builder) -> Sequence[Value]:
    """A maximum that begins with 0 instead of the lowest number."""
    return [b.binary("maximum", rebuild(op, b)[0], 0.0)]


def masked_at(bound: float) -> Rewrite:
    """Masked scores are this number instead of the lowest."""
    return changed(2, lambda value, b: b.full(bound, value.type))


def by_powers(op: Op, b: Builder) -> Sequence[Value]:
    """``x * exp(x) / (1 + exp(x))``."""
    (x,) = op.operands
    power = b.exponential(x)
    return [b.divide(x * power, power + 1.0)]


def squares_in_f16(op: Op, b: Builder) -> Sequence[Value]:
    """The squares in f16; their mean and the rest in f32."""
    x, weight = op.operands
    last = len(x.shape) - 1
    squares = b.convert(b.convert(x * x, f16), f32)
    mean = b.reduce(squares, [last], "add") * (1.0 / number(x.shape[-1]))
    scale = b.unary("rsqrt", mean + op.attrs.number("epsilon"))
    rows = b.broadcast_in_dim(scale, x.shape, list(range(last)))
    normal = b.convert(b.convert(x, f32) * rows, weight.dtype)
    return [normal * b.broadcast_in_dim(weight, x.shape, [last])]


def two_means(op: Op, b: Builder) -> Sequence[Value]:
    """The variance as the mean of squares less the square of the mean."""
    x, weight, bias = op.operands
    last = len(x.shape) - 1
    share, kept = 1.0 / number(x.shape[-1]), list(range(last))
    mean = b.reduce(x, [last], "add") * share
    variance = b.op("subtract", b.reduce(x * x, [last], "add") * share, mean * mean)
    scale = b.unary("rsqrt", variance + op.attrs.number("epsilon"))
    centered = b.op("subtract", x, b.broadcast_in_dim(mean, x.shape, kept))
    normal = centered * b.broadcast_in_dim(scale, x.shape, kept)
    factor, offset = (b.broadcast_in_dim(v, x.shape, [last]) for v in (weight, bias))
    return [normal * factor + offset]


def scale_at_least(bound: float) -> Rewrite:
    """Steps of a weight no smaller than a bound; with 0, none is kept from being 0."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        (weight,) = op.operands
        shared = op.attrs.integers("dimensions")
        largest = b.reduce(b.abs(weight), shared, "maximum")
        scale = b.binary("maximum", largest / op.attrs.number("limit"), bound)
        kept = [dim for dim in range(weight.type.rank) if dim not in shared]
        multiples = weight / b.broadcast_in_dim(scale, weight.shape, kept)
        return [b.convert(b.round_nearest_even(multiples), op.attrs.element("dtype")), scale]

    return wrong


def masked_rows(condition: Callable[[Value, Value, Builder], Value]) -> Rewrite:
    """Zeros for some ids."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        (made,) = rebuild(op, b)
        kept = b.broadcast_in_dim(condition(op.operands[0], op.operands[1], b), made.shape, [0, 1])
        return [b.select(kept, made, b.full(0.0, made.type))]

    return wrong


def not_padding(table: Value, ids: Value, b: Builder) -> Value:
    """Ids other than 0."""
    return b.compare(ids, b.full(0, ids.type), "NE")


def inside(table: Value, ids: Value, b: Builder) -> Value:
    """Ids of the vocabulary, as a product with one-hot rows has them."""
    low = b.compare(ids, b.full(0, ids.type), "GE")
    high = b.compare(ids, b.full(number(table.shape[0]), ids.type), "LT")
    return b.binary("and", low, high)


def ties_to_the_last(op: Op, b: Builder) -> Sequence[Value]:
    """Of equal numbers the last comes first."""
    (x,) = op.operands
    last = len(x.shape) - 1
    values, places = b.top_k(b.reverse(x, [last]), op.attrs.integer("k"))
    size = b.full(number(x.shape[last]) - 1, places.type)
    return [values, b.op("subtract", size, places)]


def positive_part(op: Op, b: Builder) -> Sequence[Value]:
    """``x`` where it is greater than 0, and 0 elsewhere; so NaN becomes 0."""
    x, zero = op.operands
    return [b.select(b.compare(x, zero, "GT"), x, zero)]


def residual_in_f16(op: Op, b: Builder) -> Sequence[Value]:
    """The sum in f16, whose fraction is longer than that of bf16."""
    return [b.convert(b.convert(rebuild(op, b)[0], f16), op.result.dtype)]


def onto_widened(op: Op) -> bool:
    """The first sum onto the stream."""
    made = op.operands[0].producer("convert")
    return made is not None and made.loc.scope == "model"


def of_temperature(op: Op) -> bool:
    """Top-p, or next to nothing where the temperature is 0."""
    return column(op.operands[2]) == 1


def column(value: Value) -> int:
    """The column of the sampling parameters that is spread over candidates; -1 for others."""
    spread = value.producer("broadcast_in_dim")
    flat = spread.operands[0].producer("reshape") if spread else None
    cut = flat.operands[0].producer("slice") if flat else None
    if cut is None or cut.operands[0].name != "sampling_params":
        return -1
    return int(str(cut.attrs.dims("start_indices")[1]))


VALUE_BUGS = (
    Unseen(
        "values",
        Bug(
            "maximum-forgotten",
            "subtract",
            "prefill.b2.s8",
            ATTENTION_0,
            only(0),
            of_scores,
            TARGET,
            budget=1e-5,
        ),
        prompt(layers__0__self_attn__q_proj__weight=times(200)),
    ),
    Unseen(
        "values",
        Bug(
            "maximum-from-0",
            "reduce",
            "decode.b2.c16",
            ATTENTION_1,
            from_zero,
            largest_score,
            TARGET,
            budget=1e-5,
        ),
        Scene(STEP, steps(0, 0), weights={"layers.1.self_attn.q_proj.weight": times(-3000)}),
    ),
    Unseen(
        "values",
        Bug(
            "masked-at-minus-100",
            "select",
            "prefill.b2.s8",
            ATTENTION_1,
            masked_at(-100.0),
            after=TARGET,
        ),
        Scene(PROMPT, prompts(8, 1, 1), weights={"layers.1.self_attn.q_proj.weight": times(3000)}),
    ),
    Unseen(
        "values",
        Bug("silu-by-powers", "silu", "prefill", f"{LAYER_0}.mlp", by_powers, budget=1e-6),
        prompt(layers__0__mlp__gate_proj__weight=times(100)),
    ),
    Unseen(
        "values",
        Bug(
            "squares-in-f16",
            "rms_norm",
            "decode",
            f"{LAYER_1}.input_layernorm",
            squares_in_f16,
            element="f16",
            budget=1e-2,
        ),
        step(embed_tokens__weight=times(2000)),
    ),
    Unseen(
        "values",
        Bug(
            "variance-of-two-means",
            "layer_norm",
            "decode",
            "transformer.h.0.ln_1",
            two_means,
            budget=1e-5,
        ),
        step(wpe__weight=lambda weight: weight + np.float32(300)),
        "gpt2",
    ),
    Unseen(
        "values",
        Bug(
            "scale-of-zeros",
            "quantize",
            "prefill",
            f"{LAYER_0}.mlp.up_proj",
            scale_at_least(0.0),
            after=CHANNELS,
        ),
        prompt(layers__0__mlp__up_proj__weight=dead_rows),
    ),
    Unseen(
        "values",
        Bug(
            "scale-at-least-1e-5",
            "quantize",
            "decode",
            f"{ATTENTION_1}.k_proj",
            scale_at_least(1e-5),
            after=CHANNELS,
        ),
        Scene(
            STEP,
            steps(9, 4),
            filled=False,
            weights={
                "layers.1.self_attn.k_proj.weight": times(1e-4),
                "layers.1.self_attn.k_proj.bias": times(0),
            },
        ),
    ),
    Unseen(
        "values",
        Bug("last-id-clamped", "embedding", "decode", "model", changed(1, at_most(65))),
        step((66, 3)),
    ),
    Unseen(
        "values",
        Bug("id-0-is-padding", "embedding", "decode", "model", masked_rows(not_padding)),
        step((0, 3)),
    ),
    Unseen(
        "values",
        Bug("ids-outside-are-zeros", "embedding", "decode", "model", masked_rows(inside)),
        step((70, 3)),
    ),
    Unseen(
        "values",
        Bug("ties-to-the-last", "top_k", "decode", "lm_head", ties_to_the_last, after=GREEDY),
        step(lm_head__weight=same_rows),
    ),
    Unseen(
        "values",
        Bug("temperature-of-0", "select", "decode", "lm_head", only(2), of_temperature, DRAWN),
        Scene(STEP, steps(9, 4), inputs=draw((0, 1.0, 0.0), (0, 1.0, 0.0))),
    ),
    Unseen(
        "values",
        Bug("nan-is-0", "maximum", "decode", "model.decoder.layers.0", positive_part),
        step(layers__0__fc1__bias=times(np.nan)),
        "opt",
    ),
    Unseen(
        "values",
        Bug(
            "residual-in-f16",
            "add",
            "prefill",
            LAYER_0,
            residual_in_f16,
            onto_widened,
            element="bf16",
            budget=1e-2,
        ),
        prompt(embed_tokens__weight=times(1e6)),
    ),
)
