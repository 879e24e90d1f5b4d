"""Heads are laid out: by rules, into weights and states, and what cannot be is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.exec.session import Runner
from graphgen.ir import RANK, DType, Function, Module, Op, Role, Value
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16, f32, pred, s8, s32
from graphgen.models import build
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.gqa.fold_gather import FOLD_RULES
from graphgen.passes.gqa.head_strategies import Heads, head_map
from graphgen.passes.gqa.sink_gather import SINK_RULES
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_module
from tests.oracles.gqa import grouped_model, specialized_model

LAYER = "model.layers.0.self_attn"


def laid_out(module: Module, options: str) -> Module:
    run_pipeline(module, parse_pipeline(f"heads{{{options}}}"))
    return module


def takes_of(module: Module) -> list[Op]:
    return [op for function in module.programs() for op in function.ops if op.name == "take"]


def same(module: Module, options: str) -> Module:
    """The module with its heads laid out, which means the same as without."""
    script = make_workload(module)
    before = Runner(module, script).outcomes()
    after = laid_out(clone_module(module), options)
    difference = compare(before, Runner(after, script).outcomes())
    assert difference.relative <= 1e-12, difference
    return after


def test_only_weights_are_taken_from_and_the_cache_keeps_what_is_laid_out():
    module = same(grouped_model(9, 3, bias=True, layers=2), "tp=4")
    for op in takes_of(module):
        assert op.operands[0].op is None
        assert module.interface[op.operands[0].name or ""].role is Role.WEIGHT
    taken = {op.operands[0].name or "": op.result.type.text for op in takes_of(module)}
    assert {key.removeprefix(LAYER): text for key, text in taken.items() if LAYER in key} == {
        ".q_proj.weight": "f32[24,8]",
        ".q_proj.bias": "f32[24]",
        ".k_proj.weight": "f32[8,8]",
        ".k_proj.bias": "f32[8]",
        ".v_proj.weight": "f32[8,8]",
        ".v_proj.bias": "f32[8]",
        ".o_proj.weight": "f32[8,24]",
    }
    for row in module.entries(Role.STATE):
        assert (row.logical.text, row.physical.text) == ("f32[R,M,3,2]", "f32[R,M,4,2]")
    # Each op once: no second update of a cache, no program twice as long.
    counts = [[op.name for op in f.ops].count("kv_update") for f in module.programs()]
    assert counts == [4, 4]


def test_heads_that_divide_stay_as_they_are():
    module = grouped_model(8, 4)
    text = print_module(module)
    reports = run_pipeline(module, parse_pipeline("heads{tp=4}"))
    assert (reports[0].applications, reports[0].remarks) == (0, ())
    assert print_module(module) == text


def test_it_says_what_it_chose_and_why_once():
    module = grouped_model(9, 3, layers=2)
    (report,) = run_pipeline(module, parse_pipeline("heads{tp=8}"))
    assert report.remarks == (head_map(Heads(8, 9, 3)).why,)


def test_a_state_is_packed_and_unpacked_by_functions_of_the_module():
    # Two copies of each of three heads, and two of zeros.
    module = laid_out(specialized_model(9, 3), "tp=8")
    rows = module.entries(Role.STATE)
    assert len({row.pack for row in rows}) == 1
    row = rows[0]
    whole = np.arange(np.prod(row.logical.dims), dtype=np.float32).reshape(row.logical.dims)
    part = evaluate(module.function(row.pack), {"whole": whole, RANK: np.zeros(1, np.int32)})[
        "part"
    ]
    expected = np.stack([whole[:, :, head] for head in (0, 0, 1, 1, 2, 2)], 2)
    np.testing.assert_array_equal(part[:, :, :6], expected)
    assert not part[:, :, 6:].any()
    back = evaluate(module.function(row.unpack), {"parts": part[None]})["whole"]
    np.testing.assert_array_equal(back, whole)


def test_text_keeps_a_module_whose_heads_are_laid_out():
    module = laid_out(grouped_model(9, 3), "tp=8")
    verify(parse(print_module(module)))
    assert print_module(parse(print_module(module))) == print_module(module)


def test_heads_may_be_laid_out_before_or_after_buckets_are_bound():
    found: list[list[str]] = []
    for order in ("heads{tp=4},specialize,dce", "specialize,heads{tp=4},dce"):
        module = grouped_model(9, 3)
        run_pipeline(module, parse_pipeline(order))
        found.append(sorted(op.result.type.text for op in takes_of(module)))
        found[-1] += sorted(op.name for f in module.programs() for op in f.ops)
        found[-1] += [row.physical.text for row in module.entries(Role.STATE)]
    assert found[0] == found[1]


# Rules, one at a time. Attention of 3 query heads and 1 key-value head of size 2, which two ranks
# hold as 4 and 2; x is [2,3,5].
B, S, E, H, K, D = 2, 3, 5, 3, 1, 2
SHAPE = (B, S, H, D)


class Body:
    """A program around one attention."""

    def __init__(self) -> None:
        self.module = Module("m", "canonical")
        self.function = self.module.add(Function("f", "decode"))
        self.b = Builder(self.function, self.module)
        self.x = self.b.input("x", f32, (B, S, E))
        self.count = 0

    def weight(self, *shape: int, dtype: DType = f32) -> Value:
        self.count += 1
        return self.b.weight(f"w{self.count}", dtype, shape)

    def spread(self, *dims: int, dtype: DType = f32) -> Value:
        """A weight of these dimensions of [B,S,H,D], everywhere else the same."""
        weight = self.weight(*[SHAPE[dim] for dim in dims], dtype=dtype)
        return self.b.broadcast_in_dim(weight, SHAPE, dims)

    @property
    def flat(self) -> Value:
        """[B,S,H*D] of a projection."""
        return self.b.dot(self.x, self.weight(H * D, E))

    @property
    def q(self) -> Value:
        """[B,S,H,D] of a projection."""
        return self.b.reshape(self.flat, SHAPE)

    def attention(self, q: Value, *more: Value) -> Value:
        """[B,S,H,D] of queries and keys and values of their own."""
        mask = self.b.input("mask", pred, (B, S, S))
        k = self.b.reshape(self.b.dot(self.x, self.weight(K * D, E)), (B, S, K, D))
        return self.b.op("attention", q, k, k, mask, *more, scale=0.5)

    def summed(self, out: Value) -> Value:
        """[B,S,E]: a projection of all heads."""
        return self.b.dot(self.b.reshape(out, (B, S, H * D)), self.weight(E, H * D))

    def done(self, value: Value) -> Module:
        self.b.output("y", value)
        return self.module


def cached(body: Body) -> Value:
    """Queries that go through a cache, of all things."""
    b = body.b
    cache = b.state("cache", f32, (B, S, H, D))
    ids, at = b.input("ids", s32, (B,)), b.input("at", s32, (B, S))
    updated = b.kv_update(cache, body.q, ids, at)
    b.set_state(cache, updated)
    return b.cache_read(updated, ids, S)


def dequantized(body: Body) -> Value:
    """Numbers with a scale and a zero point for four rows, where a head has two."""
    values = body.weight(H * D, E, dtype=s8)
    facts = [body.weight(2, 3), body.weight(2, 3, dtype=s8)]
    weight = body.b.dequantize(values, *facts, block=(4, 2), dtype=f32)
    # One scale for all, and one for each row.
    once = body.b.dequantize(values, body.weight(1, E), block=(6, 1), dtype=f32)
    rows = body.b.dequantize(values, body.weight(6, 1), block=(1, 8), dtype=f32)
    return body.b.reshape(body.b.dot(body.x, weight + once * rows), SHAPE)


def dequantized_behind(body: Body, value: Value) -> Value:
    narrow = body.b.convert(value, s8)
    zero = body.weight(1, 1, H, 1, dtype=s8)
    block = (B, S, 1, D)
    once = body.b.dequantize(narrow, body.weight(1, 1, 1, 1), block=(B, S, H, D), dtype=f32)
    return once + body.b.dequantize(narrow, body.weight(1, 1, H, 1), zero, block=block, dtype=f32)


def turned(body: Body) -> Value:
    cos, sin = [body.b.input(name, f32, (B, S, D // 2)) for name in ("cos", "sin")]
    return body.b.rope(body.q, cos, sin)


def sliced(body: Body) -> Value:
    """The second third of a fused projection: the slice begins with a block."""
    fused = body.b.dot(body.x, body.weight(3 * H * D, E))
    return body.b.reshape(body.b.slice_dim(fused, 2, H * D, 2 * H * D), SHAPE)


def interleaved(body: Body) -> Value:
    """A fused weight head by head, as BLOOM has it: [H,3,D] in rows."""
    weight = body.b.reshape(body.weight(H * 3 * D, E), (H, 3, D, E))
    rows = body.b.reshape(body.b.slice_dim(weight, 1, 1, 2), (H * D, E))
    return body.b.reshape(body.b.dot(body.x, rows), SHAPE)


def by_rows(body: Body, value: Value) -> Value:
    """What is left of a value with a scale a token and head."""
    rows = body.b.op("quantize_rows", value, element=s8, limit=127.0)
    return body.b.op("dequantize_rows", rows, element=s8, dtype=f32)


SMOOTH = (
    *("exponential_minus_one", "log_plus_one", "sqrt", "cbrt", "erf", "sign"),
    *("tanh", "tan", "ceil", "floor"),
)


def unary_before(name: str, body: Body) -> Value:
    return body.b.unary(name, body.b.unary("abs", body.q))


def unary_behind(name: str, body: Body, value: Value) -> Value:
    return body.b.unary(name, body.b.unary("abs", value))


# What makes queries, by the op that is in the way.
BEFORE: dict[str, Callable[[Body], Value]] = {
    "add": lambda t: t.q + t.q,
    "subtract": lambda t: t.q - t.spread(2, 3) - t.spread(3),
    "multiply": lambda t: t.q * t.spread(2) * 0.5 * t.spread(3),
    "maximum": lambda t: t.b.binary("maximum", t.q, t.q),
    "minimum": lambda t: t.b.binary("minimum", t.q, t.q),
    "divide": lambda t: t.q / t.spread(3),
    "and": lambda t: t.b.select(
        t.b.binary("and", t.spread(2, dtype=pred), t.spread(2, 3, dtype=pred)), t.q, t.q
    ),
    "compare": lambda t: t.b.select(t.b.compare(t.q, t.q, "LT"), t.q, t.q),
    "select": lambda t: t.b.select(t.spread(3, dtype=pred), t.q, t.q),
    "exponential": lambda t: t.b.unary("exponential", t.q),
    "logistic": lambda t: t.b.unary("logistic", t.q),
    "cosine": lambda t: t.b.unary("cosine", t.q),
    "convert": lambda t: t.b.convert(t.b.convert(t.q, bf16), f32),
    "reduce_precision": lambda t: t.b.reduce_precision(t.q, 8, 7),
    "bitcast_convert": lambda t: t.b.bitcast_convert(t.b.bitcast_convert(t.q, s32), f32),
    "negate": lambda t: -t.q,
    "abs": lambda t: t.b.unary("abs", t.q),
    "silu": lambda t: t.b.silu(t.q),
    "dequantize": dequantized,
    "quantize_rows": lambda t: by_rows(t, t.q),
    "dequantize_rows": lambda t: by_rows(t, t.q),
    "a constant a head below": lambda t: (
        t.q / t.b.broadcast_in_dim(t.b.literal([1.0, 2.0, 3.0], f32), SHAPE, [2])
    ),
    "gelu": lambda t: t.b.gelu(t.q, "tanh"),
    "complex": lambda t: t.b.op("real", t.b.op("complex", t.q, t.spread(3))),
    "real": lambda t: t.b.op("real", t.b.op("complex", t.spread(2, 3), t.q)) + t.q,
    "imag": lambda t: t.b.op("imag", t.b.op("complex", t.spread(3), t.q)),
    "clamp": lambda t: t.b.op("clamp", t.b.literal(-1, f32), t.q, t.b.literal(0.5, f32)),
    **{name: partial(unary_before, name) for name in SMOOTH},
    "sine": lambda t: t.b.unary("sine", t.q),
    "round_nearest_even": lambda t: t.b.unary("round_nearest_even", t.q),
    "broadcast_in_dim": lambda t: t.q + t.spread(2, 3),
    "reshape": lambda t: t.b.reshape(t.flat + t.flat, SHAPE),
    "transpose": lambda t: t.b.transpose(
        t.b.transpose(t.q, [2, 0, 3, 1]) + t.weight(H, B, D, S), [1, 3, 0, 2]
    ),
    "slice": sliced,
    "concatenate": lambda t: t.b.concatenate(
        [t.b.slice_dim(t.q, 3, 1, 2), t.b.slice_dim(t.q, 3, 0, 1)], 3
    ),
    "reduce": lambda t: t.b.reduce(
        t.b.reshape(t.b.dot(t.x, t.weight(H * 2 * D, E)), (B, S, H, 2, D)), [3], "add"
    ),
    "dot_general": lambda t: t.b.dot(t.q, t.weight(D, D)),
    "rms_norm": lambda t: t.b.rms_norm(t.q, t.weight(D), 1e-5),
    "all heads": lambda t: t.b.reshape(t.b.rms_norm(t.flat, t.weight(H * D), 1e-5), SHAPE),
    "layer_norm": lambda t: t.b.op("layer_norm", t.q, t.weight(D), t.weight(D), epsilon=1e-5),
    "rope": turned,
    "kv_update": cached,
    "cache_read": cached,
    "embedding": lambda t: t.b.reshape(
        t.b.embedding(t.weight(6, H * D), t.b.input("ids", s32, (B, S))), SHAPE
    ),
    "constant": lambda t: t.q + t.b.broadcast_in_dim(t.b.literal([1.0, 2.0, 3.0], f32), SHAPE, [2]),
    "interleaved": interleaved,
}


def test_every_rule_is_tried():
    more = {"interleaved", "all heads", "a constant a head below"}
    assert set(BEFORE) - more == set(SINK_RULES)
    assert set(BEHIND) == set(FOLD_RULES)


@pytest.mark.parametrize("name", BEFORE)
def test_takes_move_before(name: str):
    body = Body()
    with body.b:
        module = body.done(body.summed(body.attention(BEFORE[name](body))))
    after = same(module, "tp=2")
    assert of_weights_alone(after)
    assert attention_of(after).result.shape == (B, S, 4, D)


def bound(body: Body) -> Value:
    """A number per head, [H,S,S]."""
    return body.b.broadcast_in_dim(body.weight(H), (H, S, S), [0])


def test_takes_of_a_bias_and_of_sinks_move_into_their_weights():
    body = Body()
    b = body.b
    with b:
        distances = b.input("distances", s32, (S, S))
        table = b.transpose(b.embedding(body.weight(6, H), distances), [2, 0, 1])
        bias = b.broadcast_in_dim(table, (B, H, S, S), [1, 2, 3])
        near = b.compare(table, bound(body), "LT")
        mask = b.broadcast_in_dim(near, (B, H, S, S), [1, 2, 3])
        k = b.reshape(b.dot(body.x, body.weight(K * D, E)), (B, S, K, D))
        out = b.attention(body.q, k, k, mask, 0.5, bias, body.weight(H), softcap=3.0)
        module = body.done(body.summed(out))
    after = same(module, "tp=2")
    assert of_weights_alone(after)
    types = [value.type.text for value in attention_of(after).operands[3:]]
    assert types == [f"pred[{B},4,{S},{S}]", f"f32[{B},4,{S},{S}]", "f32[4]"]


def of_weights_alone(module: Module) -> bool:
    """Whether takes are from weights, and from nothing a call brings."""
    prepared = PreparedValues(module, module.function("f"), {})
    return all(
        prepared.of_weights(op.operands[0]) or op.operands[0].producer("constant")
        for op in takes_of(module)
    )


def attention_of(module: Module) -> Op:
    (found,) = [op for op in module.function("f").ops if op.name == "attention"]
    return found


# What reads attention's heads, and in the end sums over them, by the op that is in the way.
BEHIND: dict[str, Callable[[Body, Value], Value]] = {
    "add": lambda t, v: v + t.q,
    "subtract": lambda t, v: t.spread(2) - v,
    "multiply": lambda t, v: t.b.silu(t.q) * v * 0.5,
    "maximum": lambda t, v: t.b.binary("maximum", v, v),
    "minimum": lambda t, v: t.b.binary("minimum", v, t.spread(2, 3)),
    "divide": lambda t, v: v / t.spread(3),
    "and": lambda t, v: t.b.select(
        t.b.binary("and", t.b.compare(v, v, "LT"), t.spread(3, dtype=pred)), v, v
    ),
    "compare": lambda t, v: t.b.select(t.b.compare(v, t.q, "LT"), v, v),
    "select": lambda t, v: t.b.select(t.spread(2, dtype=pred), v, t.q),
    "exponential": lambda t, v: t.b.unary("exponential", v),
    "logistic": lambda t, v: t.b.unary("logistic", v),
    "cosine": lambda t, v: t.b.unary("cosine", v),
    "gelu": lambda t, v: t.b.gelu(v, "none"),
    "complex": lambda t, v: t.b.op("real", t.b.op("complex", v, t.spread(3))),
    "real": lambda t, v: t.b.op("real", t.b.op("complex", t.q, v)) + v,
    "imag": lambda t, v: t.b.op("imag", t.b.op("complex", t.spread(2), v)),
    "clamp": lambda t, v: t.b.op("clamp", t.b.literal(-1, f32), v, t.b.literal(0.5, f32)),
    **{name: partial(unary_behind, name) for name in SMOOTH},
    "sine": lambda t, v: t.b.unary("sine", v),
    "round_nearest_even": lambda t, v: t.b.unary("round_nearest_even", v),
    "convert": lambda t, v: t.b.convert(t.b.convert(v, bf16), f32),
    "reduce_precision": lambda t, v: t.b.reduce_precision(v, 8, 7),
    "bitcast_convert": lambda t, v: t.b.bitcast_convert(t.b.bitcast_convert(v, s32), f32),
    "negate": lambda t, v: -v,
    "abs": lambda t, v: t.b.unary("abs", v),
    "silu": lambda t, v: t.b.silu(v),
    "dequantize": dequantized_behind,
    "quantize_rows": by_rows,
    "dequantize_rows": by_rows,
    "reshape": lambda t, v: t.b.reshape(t.b.reshape(v, (B, S, H * D)) + t.flat, SHAPE),
    "transpose": lambda t, v: t.b.transpose(t.b.transpose(v, [2, 0, 1, 3]), [1, 2, 0, 3]),
    "dot_general": lambda t, v: t.b.dot(v, t.weight(D, D)),
}


@pytest.mark.parametrize("name", BEHIND)
def test_takes_move_behind(name: str):
    body = Body()
    with body.b:
        module = body.done(body.summed(BEHIND[name](body, body.attention(body.q))))
    after = same(module, "tp=2")
    assert of_weights_alone(after)
    assert attention_of(after).result.shape == (B, S, 4, D)


NORM = "layer_norm is over all heads, not over each"
STOPS: dict[str, tuple[Callable[[Body], Value], str]] = {
    "a norm over all heads": (
        lambda t: t.summed(
            t.attention(
                t.b.reshape(
                    t.b.op("layer_norm", t.flat, t.weight(H * D), t.weight(H * D), epsilon=1e-5),
                    SHAPE,
                )
            )
        ),
        f"layer_norm: {NORM}",
    ),
    "a norm over all heads, behind": (
        lambda t: t.b.dot(
            t.b.rms_norm(t.b.reshape(t.attention(t.q), (B, S, H * D)), t.weight(H * D), 1e-5),
            t.weight(E, H * D),
        ),
        "rms_norm: rms_norm is not known to keep heads apart",
    ),
    "what is not a number for a zero head": (
        lambda t: t.summed(t.attention(t.b.unary("rsqrt", t.q))),
        "rsqrt: rsqrt is not known to keep heads apart",
    ),
    "a quotient": (
        lambda t: t.summed(t.attention(t.q / t.q)),
        "divide: zero heads would be divided by zero",
    ),
    "a quotient, behind": (
        lambda t: t.summed(t.attention(t.q) / t.q),
        "divide: zero heads would be divided by zero",
    ),
    "heads that are joined": (
        lambda t: t.summed(
            t.attention(
                t.b.concatenate([t.b.slice_dim(t.q, 2, 0, 1), t.b.slice_dim(t.q, 2, 1, 3)], 2)
            )
        ),
        "concatenate: heads are joined one after the other",
    ),
    "heads in the middle of features": (
        lambda t: t.summed(
            t.attention(t.b.reshape(t.b.slice_dim(t.b.dot(t.x, t.weight(9, E)), 2, 1, 7), SHAPE))
        ),
        "slice: the slice does not begin with a block",
    ),
    "an extreme over heads": (
        lambda t: t.b.reduce(t.attention(t.q), [2, 3], "maximum"),
        "reduce: reduce is not known to keep heads apart",
    ),
    "heads that are an output": (
        lambda t: t.attention(t.q),
        "take: the heads leave the program",
    ),
    "an input": (
        lambda t: t.summed(t.attention(t.b.input("heads", f32, SHAPE))),
        "take: it takes from an argument",
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_what_is_in_the_way_is_named(name: str):
    make, what = STOPS[name]
    body = Body()
    with body.b:
        module = body.done(make(body))
    with pytest.raises(GraphgenError) as caught:
        laid_out(module, "tp=2")
    assert caught.value.code == "GG0304"
    assert caught.value.what == f"heads: the heads cannot be laid out past {what}"
    assert "tests/passes/gqa/test_gather_heads.py" in caught.value.where


def quantized(t: Body, weight: Value, x: Value) -> Value:
    """A product with int8 weights and a scale for each output feature."""
    values, scale = t.b.emit(
        "quantize", (weight,), {"dtype": s8, "dimensions": (1,), "limit": 127.0}
    ).results
    product = t.b.dot(x, t.b.convert(values, f32))
    return product * t.b.broadcast_in_dim(scale, product.shape, [product.type.rank - 1])


def test_quantized_weights_and_their_scales_are_taken_from():
    body = Body()
    with body.b:
        q = body.b.reshape(quantized(body, body.weight(H * D, E), body.x), SHAPE)
        out = body.b.reshape(body.attention(q), (B, S, H * D))
        module = body.done(quantized(body, body.weight(E, H * D), out))
    after = same(module, "tp=2")
    assert of_weights_alone(after)
    made = [op.operands[0].producer("quantize") for op in takes_of(after)]
    # Values and scales of the queries, values alone of the output: its scales are not by heads.
    assert sum(op is not None for op in made) == 3


FAMILIES: dict[str, dict[str, object]] = {
    "fused side by side": {
        "model_type": "gpt2", "n_embd": 12, "n_head": 6, "n_layer": 1, "vocab_size": 11,
        "n_positions": 64,
    },
    "fused head by head, with linear biases": {
        "model_type": "bloom", "hidden_size": 12, "n_head": 6, "n_layer": 1, "vocab_size": 11,
        "layer_norm_epsilon": 1e-5,
    },
    "normalized queries and keys": {
        "model_type": "qwen3", "hidden_size": 12, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 2, "vocab_size": 11,
        "max_position_embeddings": 64,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str):
    module = build(FAMILIES[name], f32)
    run_pipeline(module, parse_pipeline("canonicalize,unfuse-projections"))
    after = same(module, "tp=4")
    for function in after.programs():
        prepared = PreparedValues(after, function, {})
        for op in function.ops:
            if op.name == "take":
                source = op.operands[0]
                assert prepared.of_weights(source) or source.producer("constant"), op
            if op.name == "attention":
                assert [value.shape[2] for value in op.operands[:2]] == [
                    8,
                    4 if "norm" in name else 8,
                ]
                assert all(slopes.shape == (8,) for slopes in op.operands[4:5])
    heads = {row.physical.shape[2] for row in after.entries(Role.STATE)}
    assert heads == {4 if "norm" in name else 8}


def test_rows_are_divided_by_another_pass():
    module = grouped_model(8, 2)
    text = print_module(module)
    assert print_module(laid_out(module, "tp=4,strategy=SHARD_OVER_BATCH")) == text


def test_gathering_nothing_is_sharding_over_heads():
    module = grouped_model(8, 4)
    text = print_module(module)
    assert print_module(laid_out(module, "tp=4,strategy=ALL_GATHER_HEADS")) == text
