"""Weights that do not divide over the ranks: zeros are added, and no number changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.eval import NATIVE, evaluate, evaluate_ranks
from graphgen.exec.session import Runner
from graphgen.ir import WEIGHTS_RANK, Function, Module, Value, sharding
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32, s32
from graphgen.models import build, known_shape, read_model_config
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.core.fuel import Fuel
from graphgen.passes.core.journal import Journal
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import GROUP, PER_CHANNEL, PER_TENSOR
from graphgen.passes.quantization.stored_readings import ReadQuantized
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles.gqa import specialized_model

FAMILIES = [
    *("llama-3.1-8b", "mistral-7b", "qwen2-7b", "gemma-3-1b", "gpt2", "opt-125m"),
    *("gpt-j-6b", "gpt-neox-20b", "bloom-560m"),
]
BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
RANKS = "heads{{tp={tp}}},shard{{tp={tp}}},pad-to-mesh,partition"


def mini(name: str, **changes: object) -> Module:
    return build({**known_shape(name), **changes}, f32, mini=True)


@pytest.mark.parametrize("tp", [3, 5])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.one_in(19)
def test_every_family_on_ranks_that_divide_nothing(name: str, tp: int):
    """257 tokens, and intermediate sizes that are powers of two: all is padded, pass by pass."""
    module = mini(name)
    verdicts = validate(module, default(replace(BUCKETS, tp=tp)), make_workload(module))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.one_in(2)
def test_padding_costs_no_collective(name: str):
    """As many sums as where everything divides, and what leaves is brought together once."""
    counts: list[Counter[str]] = []
    # 510 divides over both, as the minis' other sizes do over two.
    for tp, vocab in ((3, 257), (2, 510)):
        module = mini(name)
        if vocab != 257:
            sizes = read_model_config(known_shape(name)).mini().to_hf()
            module = build({**sizes, "vocab_size": vocab}, f32)
        run_pipeline(module, default(replace(BUCKETS, tp=tp)))
        (decode, *_) = [f for f in module.programs() if f.phase == "decode"]
        collectives = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter")
        counts.append(Counter(op.name for op in decode.ops if op.name in collectives))
    assert counts[0] == counts[1]
    assert counts[0]["all_gather"] == 1


@pytest.mark.parametrize("scheme", [PER_CHANNEL, PER_TENSOR])
@pytest.mark.parametrize("tp", [2, 3])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2"])
@pytest.mark.one_in(10)
def test_quantized_weights_are_padded_after_their_scales_are_known(name: str, tp: int, scheme: str):
    module = mini(name)
    passes = default(
        replace(BUCKETS, tp=tp, quantization=str(QuantizeWeights(scheme=scheme, skip=())))
    )
    for seed in range(2):
        verdicts = validate(module, passes, make_workload(module, seed))
        assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []
    run_pipeline(module, passes)
    (decode, *_) = [f for f in module.programs() if f.phase == "decode"]
    # A table that is read row by row as well, as a tied one is, keeps its type.
    kind = "f32" if name == "gpt2" else "s8"
    sizes = [
        value.shape[0] for value in decode.args if value.shape and value.type.dtype.name == kind
    ]
    assert -(-257 // tp) in sizes


@pytest.mark.parametrize(
    ("inputs", "group", "tp", "part", "block"),
    [
        # Bits of a row and rank: 64 numbers of 4 and 2 scales of 32 are 320, 48 and 3 scales 288;
        # shares of 43 would have a scale a number.
        (128, 32, 3, 48, 16),
        # 192 and 3 scales are 864, 176 and 11 scales 1056.
        (512, 64, 3, 192, 64),
        # Equal shares that end between groups, and inside of one: nothing is padded.
        (128, 32, 4, 32, 32),
        (64, 32, 4, 16, 16),
    ],
)
def test_ranks_have_the_parts_of_groups_that_take_the_fewest_bytes(
    inputs: int, group: int, tp: int, part: int, block: int
):
    module = Module("m", mesh={"tp": tp})
    function = module.add(Function("f", phase="decode"))
    with Builder(function, module) as b:
        x = b.input("x", f32, (3, 8))
        up, down = b.weight("up", f32, (inputs, 8)), b.weight("down", f32, (8, inputs))
        b.output("y", b.dot(b.silu(b.dot(x, up)), down))
    for name, text in (("up", ("tp", None)), ("down", (None, "tp"))):
        module.interface[name] = replace(module.interface[name], sharding=sharding(text))
    narrow = QuantizeWeights("int4", GROUP, ("up",), group)
    passes = [narrow, *parse_pipeline("pad-to-mesh,partition")]
    verdicts = validate(module, passes, make_workload(module, seed=5))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, passes)
    function = module.function("f")
    (wide,) = [op for op in function.block if op.name == "dequantize"]
    assert wide.operands[0].type.dims == (8, part)
    assert wide.attrs.integers("block") == (1, block)
    assert wide.operands[1].type.dims == (8, part // block)
    assert [op.result.shape for op in function.block if op.name == "silu"] == [(3, part)]


@pytest.mark.parametrize("tp", [3, 5])
@pytest.mark.parametrize("scheme", ["int4", "pack-quantized", "gptq", "awq"])
@pytest.mark.one_in(10)
def test_weights_in_groups_lie_over_ranks_that_do_not_divide_them(scheme: str, tp: int):
    """Heads, groups and intermediate sizes; also zero points, where a zero is not the number 0."""
    module = mini("qwen2-7b")
    if scheme == "int4":
        stored: list[Pass] = [QuantizeWeights("int4", GROUP, (), 32)]
    else:
        element = "s4" if scheme == "pack-quantized" else "u4"
        stored = [ReadQuantized(scheme, element, (1, 32), True, modules=("*_proj",))]
    run_pipeline(module, [*parse_pipeline("canonicalize"), *stored])
    verdicts = validate(module, default(replace(BUCKETS, tp=tp)), make_workload(module, 2))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


@pytest.mark.parametrize("kernels", ["off", "on"])
@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize(
    "scheme",
    [
        QuantizeWeights(),
        QuantizeWeights("f8e4m3", PER_TENSOR),
        QuantizeWeights("f8e5m2"),
        QuantizeWeights("int4", GROUP, group_size=32),
    ],
    ids=str,
)
@pytest.mark.one_in(19)
def test_padded_heads_of_every_scheme(scheme: QuantizeWeights, tp: int, kernels: str):
    """SmolLM2's 9 heads of queries and 3 of keys, fused, with tokens chosen in the programs."""
    sizes = read_model_config(known_shape("smollm2-135m")).mini().to_hf()
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 16}
    module = build({**sizes, **heads, "hidden_size": 144, "num_hidden_layers": 1}, f32)
    chosen = replace(BUCKETS, tp=tp, kernels=kernels, sampling="on-device-sampling")
    passes = default(replace(chosen, quantization=str(scheme)))
    verdicts = validate(module, passes, make_workload(module))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


@pytest.mark.parametrize(
    ("scheme", "element"),
    [("pack-quantized", "s4"), ("gptq", "u4"), ("awq", "u4"), ("mxfp4", "f4e2m1fn")],
)
@pytest.mark.one_in(4)
def test_the_last_group_of_a_stored_weight_may_be_short(scheme: str, element: str):
    """Groups of 24 over 64 and 128 inputs end in one of 16 and one of 8."""
    module = mini("llama-3.1-8b")
    zero = scheme != "mxfp4"
    stored = ReadQuantized(scheme, element, (1, 24), zero, modules=("*_proj",))
    run_pipeline(module, [*parse_pipeline("canonicalize"), stored])
    for tp in (1, 2):
        verdicts = validate(module, default(replace(BUCKETS, tp=tp)), make_workload(module, 2))
        assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


@pytest.mark.parametrize(
    ("scheme", "element", "block", "zero"),
    [("fp8", "f8e4m3fn", (32, 32), False), ("gptq", "u4", (1, 16), True)],
)
@pytest.mark.one_in(2)
def test_stored_scales_of_whole_blocks_go_on_past_the_last_row(
    scheme: str, element: str, block: tuple[int, int], zero: bool
):
    """257 rows of logits have 9 blocks of 32, or words of 8: a rank takes none of what is over."""
    module = build({**known_shape("llama-3.1-8b"), "tie_word_embeddings": False}, f32, mini=True)
    stored = ReadQuantized(scheme, element, block, zero, modules=("lm_head",))
    run_pipeline(module, [*parse_pipeline("canonicalize"), stored])
    passes = default(replace(BUCKETS, tp=2))
    verdicts = validate(module, passes, make_workload(module, 2))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


@pytest.mark.slow
def test_exponents_of_experts_that_do_not_divide_are_padded():
    """Powers of two have no zero to pad with: 128 inner features over three ranks."""
    module = build({**known_shape("mixtral-8x7b"), "num_hidden_layers": 1}, f32, mini=True)
    stored = ReadQuantized("mxfp4-experts", "f4e2m1fn", (1, 32), modules=("*.experts.*",))
    run_pipeline(module, [*parse_pipeline("canonicalize"), stored])
    passes = default(replace(BUCKETS, tp=3))
    run_pipeline(module, passes[: [one.name for one in passes].index("shard")])
    rest = parse_pipeline("shard{tp=3},pad-to-mesh,partition")
    verdicts = validate(module, rest, make_workload(module, 2))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


def test_padding_heads_of_one_group_with_a_zero_point_are_zeros():
    """Two heads of 8 features share a group of 16, whose number 0 is not 0."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    sizes = read_model_config(known_shape("llama-3.1-8b")).mini().to_hf()
    module = build({**sizes, **heads, "num_hidden_layers": 1}, f32)
    stored = ReadQuantized("gptq", "u4", (1, 16), zero_points=True, modules=("*o_proj",))
    run_pipeline(module, [*parse_pipeline("canonicalize"), stored])
    config = replace(BUCKETS, tp=4, heads="ALL_GATHER_HEADS")
    verdicts = validate(module, default(config), make_workload(module, 2))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


def one_layer(middle: str, width: int = 10, tp: int = 4) -> Module:
    """Up, something, down, over weights that do not divide."""
    module = Module("m", mesh={"tp": tp})
    function = module.add(Function("f", phase="decode"))
    with Builder(function, module) as b:
        x = b.input("x", f32, (3, 8))
        ids = b.input("ids", s32, (3,))
        up = b.weight("up", f32, (width, 8))
        bias = b.weight("bias", f32, (width,))
        down = b.weight("down", f32, (8, width))
        h = b.dot(x, up) + b.broadcast_in_dim(bias, (3, width), [1])
        b.output("y", b.dot(MIDDLES[middle](b, h), down) + b.embedding(up, ids))
    for name, text in (("up", ("tp", None)), ("bias", ("tp",)), ("down", (None, "tp"))):
        module.interface[name] = replace(module.interface[name], sharding=sharding(text))
    return module


def softmaxed(b: Builder, x: Value) -> Value:
    """Padding would take part in the sum, so it is left out."""
    e = b.unary("exponential", x)
    return e / b.broadcast_in_dim(b.reduce(e, [1], "add"), x.shape, [0])


MIDDLES: Mapping[str, Callable[[Builder, Value], Value]] = {
    "silu": lambda b, x: b.silu(x),
    "gelu": lambda b, x: b.gelu(x, "tanh"),
    "logistic": lambda b, x: b.unary("logistic", x) * 3.0,
    "relu6": lambda b, x: b.op("clamp", b.literal(0, f32), x, b.literal(6, f32)),
    "softmax": softmaxed,
    "log": lambda b, x: b.unary("log", b.unary("abs", x)),
    "selected": lambda b, x: b.select(b.compare(x, -x, "GT"), x, x * 0.5),
}


@pytest.mark.parametrize("tp", [2, 3, 4, 7, 64])
@pytest.mark.parametrize("middle", MIDDLES)
def test_what_stands_between_reads_the_padding_or_does_without(middle: str, tp: int):
    module = one_layer(middle, tp=tp)
    verdicts = validate(module, parse_pipeline("pad-to-mesh,partition"), make_workload(module))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []
    run_pipeline(module, parse_pipeline("pad-to-mesh"))
    names = [op.name for op in module.function("f").ops]
    assert ("slice" in names) == (middle in ("softmax", "log") and bool(10 % tp))
    assert "take" not in names


@pytest.mark.parametrize("given", ["x", "half(x)"])
def test_matrices_of_a_batch_are_padded_with_what_they_multiply(given: str):
    """One product has a padded weight, the other operand none; then both are padded."""
    text = """
    module @m level=canonical mesh=tp:3 {
      input %x : f32[4,2,8]
      weight %half : f32[4,1,1] sharding={tp,-,-}
      weight %up : f32[4,8,5] sharding={tp,-,-}
      output %y : f32[4,2,5]
    }

    func @f phase=decode {
      arg %x : f32[4,2,8]
      arg %half : f32[4,1,1]
      arg %up : f32[4,8,5]
      %row = reshape(%half) shape=[4] : f32[4]
      %wide = broadcast_in_dim(%row) shape=[4,2,8] dimensions=[0] : f32[4,2,8]
      %h = multiply(%x, %wide) : f32[4,2,8]
      %y = dot_general(LEFT, %up) lhs_contracting_dims=[2] rhs_contracting_dims=[1] \
lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[4,2,5]
      return y = %y
    }
    """
    module = parse(dedent(text).replace("LEFT", "%x" if given == "x" else "%h"))
    verdicts = validate(module, parse_pipeline("pad-to-mesh,partition"), make_workload(module))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, parse_pipeline("pad-to-mesh,partition"))
    (product,) = (op for op in module.function("f").block if op.name == "dot_general")
    assert product.result.shape == (2, 2, 5)


def test_a_row_beyond_the_table_is_the_table_s_last():
    module = one_layer("silu")
    padded = clone_module(module)
    run_pipeline(padded, parse_pipeline("pad-to-mesh"))
    rng = np.random.default_rng(0)
    given = {
        value.name or "": rng.standard_normal(value.type.dims).astype(np.float32)
        for value in module.function("f").args
    }
    # 10 and 11 are rows of zeros in the padded table.
    for ids in ([-1, 9, 10], [11, 12, 1000]):
        inputs = {**given, "ids": np.array(ids, np.int32)}
        wanted = evaluate(module.function("f"), inputs, NATIVE)["y"]
        np.testing.assert_allclose(
            evaluate(padded.function("f"), inputs, NATIVE)["y"], wanted, rtol=1e-6
        )


def test_where_everything_divides_nothing_happens():
    module = one_layer("silu", width=12)
    journal = Journal()
    run_pipeline(module, parse_pipeline("pad-to-mesh"), journal=journal)
    assert journal.applications == []


def test_ranks_read_their_own_rows_and_the_last_ones_zeros():
    module = one_layer("silu")
    run_pipeline(module, parse_pipeline("pad-to-mesh,partition,lift-weights"))
    up = np.arange(80, dtype=np.float32).reshape(10, 8) + 1
    given = {"up": up, "down": up.T.copy(), "bias": up[:, 0]}
    function = module.function(WEIGHTS_RANK)
    (name,) = [n for n, value in function.outputs if value.shape == (3, 8)]
    parts = [
        evaluate(function, {**given, "rank": np.array([rank], np.int32)})[name] for rank in range(4)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), np.pad(up, [(0, 2), (0, 0)]))


def test_stopped_half_way_the_numbers_stay():
    module = one_layer("gelu")
    script = make_workload(module)
    wanted = Runner(module, script).outcomes()
    total = Journal()
    run_pipeline(clone_module(module), parse_pipeline("pad-to-mesh"), journal=total)
    for fuel in range(len(total.applications)):
        part = clone_module(module)
        run_pipeline(part, parse_pipeline("pad-to-mesh"), fuel=Fuel(fuel))
        assert compare(wanted, Runner(part, script).outcomes()).relative < 1e-9


@pytest.mark.parametrize("row", [(3, 4, 4), (3, 71, 71), (5, 12, 12)], ids=str)
def test_many_heads_that_do_not_divide_lie_over_ranks_of_any_number(row: tuple[int, int, int]):
    """Multi-head models, whose heads and features both need padding."""
    tp, q, kv = row
    module = specialized_model(q, kv)
    script = make_workload(module)
    wanted = Runner(module, script).outcomes()
    run_pipeline(module, parse_pipeline(RANKS.format(tp=tp)))
    assert compare(wanted, Runner(module, script).outcomes()).relative < 1e-9


def test_all_are_brought_together_where_that_sends_less():
    """Twenty bytes of scores a row beside forty of the best ten and their places."""
    module = parse(CHOOSING.format(tp=20, k=10))
    run_pipeline(module, parse_pipeline("pad-to-mesh,partition{latency=0}"))
    gathered = [op.operands[0].shape for op in module.function("f").ops if op.name == "all_gather"]
    assert gathered == [(4, 11)]


CHOOSING = """\
module @m level=canonical mesh=tp:{tp} {{
  input %x : f32[4,3]
  weight %table : f32[203,3] sharding={{tp,-}}
  output %best : f32[4,{k}]
  output %at : s32[4,{k}]
}}

func @f phase=decode {{
  arg %x : f32[4,3]
  arg %table : f32[203,3]
  %y = dot_general(%x, %table) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[4,203]
  %best, %at = top_k(%y) k={k} : f32[4,{k}], s32[4,{k}]
  return best = %best
  return at = %at
}}
"""


@pytest.mark.parametrize("k", [1, 3, 11])
@pytest.mark.parametrize("tp", [2, 3, 4, 8])
def test_the_largest_are_found_without_bringing_all_together(tp: int, k: int):
    module = parse(CHOOSING.format(tp=tp, k=k))
    whole = clone_module(module).function("f")
    run_pipeline(module, parse_pipeline("pad-to-mesh,partition{latency=0}"))
    function = module.function("f")
    gathered = [op.operands[0].shape for op in function.ops if op.name == "all_gather"]
    assert gathered == [(4, k)] * 2
    rng = np.random.default_rng(tp)
    # Small integers: equal logits everywhere, also all of them, all negative, and none finite.
    table = rng.integers(-1, 2, (203, 3)).astype(np.float32)
    x = np.array([[1, 0, 0], [0, 0, 0], [1, 1, -1], [-1, -1, -1]], np.float32)
    for given in (
        {"x": x, "table": table},
        {"x": x, "table": -np.abs(table) - 1},
        {"x": np.where(x == 1, -np.inf, -1).astype(np.float32), "table": np.abs(table) + 1},
    ):
        wanted = evaluate(whole, given, NATIVE)
        ranks = [{**given, "rank": np.array([rank], np.int32)} for rank in range(tp)]
        for out in evaluate_ranks(function, ranks):
            np.testing.assert_array_equal(out["best"], wanted["best"])
            np.testing.assert_array_equal(out["at"], wanted["at"])


REORDERED = """
module @m level=canonical mesh=tp:2 {
  input %x : f32[2,4]
  input %z : f32[2,4]
  weight %up : f32[5,4] sharding={tp,-}
  output %y : f32[2,5]
}

func @f phase=decode {
  arg %x : f32[2,4]
  arg %z : f32[2,4]
  arg %up : f32[5,4]
  %order = constant() value=s32[2](1,0) : s32[2]
  %taken = take(%x, %order) dimension=0 : f32[2,4]
  %sum = add(%taken, %z) : f32[2,4]
  %y = dot_general(%sum, %up) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,5]
  return y = %y
}
"""


def test_an_order_of_tokens_is_not_moved():
    """A permutation and its inverse would move through the sum from one operand to the other."""
    module = parse(REORDERED)
    run_pipeline(module, parse_pipeline("pad-to-mesh"))
    (function,) = module.programs()
    (added,) = [op for op in function.ops if op.name == "add"]
    assert [value.name for value in added.operands] == ["taken", "z"]
    assert [op.result.shape for op in function.ops if op.name == "dot_general"] == [(2, 6)]
