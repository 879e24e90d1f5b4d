"""Element types of sums over ranks, attention, softmax and logits: what changes, what stays."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.attention import attention_with
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Function, Module, dtype
from graphgen.lowering.cost.roofline import roofline
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.precision.reduce_dtype import narrowed_sums
from graphgen.passes.spmd.explain_sharding import NARROWED, ExplainSharding
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.targets import accelerator
from graphgen.text import parse
from tests.oracles.layouts import sent

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
KNOBS: Mapping[str, Mapping[str, object]] = {
    "reduce-dtype": {"rpl_reduce_dtype": "bf16", "tp": 2},
    "attention-dtype": {"attention_dtype": "bf16"},
    "softmax-dtype": {"softmax_dtype": "bf16"},
    "cast-logits": {"cast_logits_dtype": "bf16"},
    "router-dtype": {"router_dtype": "bf16"},
}


# A family with a bias of the router's logits.
ROUTED = "gpt-oss-20b"


def mini(kind: str = "f32", shape: str = "llama-3.1-8b", **changes: object) -> Module:
    return build({**known_shape(shape), **changes}, dtype(kind), mini=True)


@pytest.mark.parametrize("name", KNOBS)
def test_a_narrower_type_rounds_and_means_the_same(name: str):
    shape = ROUTED if name == "router-dtype" else "llama-3.1-8b"
    module = mini(shape=shape, tie_word_embeddings=name == "cast-logits")
    passes = default(BUCKETS.updated(KNOBS[name]))
    verdicts = validate(module, passes, make_workload(module))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    (own,) = [verdict for verdict in verdicts if verdict.pass_text.startswith(name)]
    # Numbers of bf16 are a step of 2**-8 apart: what changes nothing was not done.
    assert own.rounding.relative > 2**-12


@pytest.mark.parametrize("name", KNOBS)
def test_the_plain_type_needs_no_pass(name: str):
    plain = {item.name for item in default(BUCKETS.updated({"tp": 2}))}
    assert name not in plain
    assert name in {item.name for item in default(BUCKETS.updated({"tp": 2, **KNOBS[name]}))}


def test_logits_of_routers_are_rounded_once_their_bias_is_added():
    module = build(known_shape(ROUTED), dtype("f32"), mini=True)
    run_pipeline(module, parse_pipeline("canonicalize,router-dtype{dtype=bf16}"))
    choices = [op for op in decode(module).ops if op.name == "top_k"]
    assert choices
    for op in choices:
        logits = op.operands[0].producer("convert")
        assert logits is not None
        sums = logits.operands[0].producer("add")
        assert sums is not None
        assert sums.result.dtype is dtype("bf16")
        assert any(value.producer("dot_general") for value in sums.operands)


def refusals(body: str, text: str) -> list[str]:
    """Why the rules of a pipeline leave the ops of a program of two ranks alone."""
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    module = parse(f"module @m level=sharded mesh=tp:2 {{\n}}\n\nfunc @f {{\n{lines}}}\n")
    run_pipeline(module, parse_pipeline(text), journal=(journal := Journal()))
    assert not journal.applications
    return [miss.why.reason for miss in journal.misses]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("arg %x : f32[4]\n%y = all_reduce(%x) kind=add", "its addends are not sums of products"),
        ("arg %x : f32[4]\n%y = all_reduce(%x) kind=maximum", "it is not a sum"),
        (
            "arg %x : f16[4]\n%y = all_reduce(%x) kind=add",
            "its addends are f16, no wider than bf16",
        ),
        (
            "arg %x : s32[4]\n%y = all_reduce(%x) kind=add",
            "its addends are s32, no wider than bf16",
        ),
    ],
)
def test_other_sums_over_ranks_stay(body: str, reason: str):
    kind = body.partition(" : ")[2].partition("\n")[0]
    text = f"arg %rank : s32[1]\n{body} replica_groups=[[0,1]] : {kind}\nreturn y = %y"
    assert refusals(text, "reduce-dtype{dtype=bf16}") == [reason]


def test_the_sum_of_a_divided_table_stays():
    module = mini()
    run_pipeline(module, default(BUCKETS.updated(KNOBS["reduce-dtype"])))
    kinds = [op.result.dtype.name for op in decode(module).ops if op.name == "all_reduce"]
    # Two sums a layer, and the embeddings of the tokens.
    assert sorted(kinds) == ["bf16"] * 4 + ["f32"]


def decode(module: Module) -> Function:
    return next(f for f in module.programs() if f.phase == "decode")


def quantized(scheme: str, reduce: str, tp: int = 2) -> tuple[Module, list[Pass]]:
    given = {"tp": tp, "rpl_reduce_dtype": reduce, "quantization": f"quantize-weights{{{scheme}}}"}
    return mini(), default(BUCKETS.updated(given))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("scheme", ["", "scheme=per_tensor_symmetric", "dtype=f8e5m2"])
def test_products_of_8_bits_are_scaled_before_a_sum_in_f16(scheme: str):
    """Sums of int8 or f8 numbers alone overflow f16, which ends at 65504."""
    module, passes = quantized(scheme, "f16")
    verdicts = validate(module, passes, make_workload(module))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, passes)
    sums = [op for op in decode(module).ops if op.name == "all_reduce"]
    assert sorted(op.result.dtype.name for op in sums) == ["f16"] * 4 + ["f32"]
    for op in sums:
        made = op.operands[0].producer("convert")
        if op.result.dtype is dtype("f16"):
            assert made is not None
            assert made.operands[0].producer("multiply") is not None


def test_sums_of_wide_types_are_scaled_after_them():
    module, passes = quantized("", "bf16")
    run_pipeline(module, passes)
    narrowed = [op for op in decode(module).ops if op.result.dtype is dtype("bf16")]
    assert narrowed
    assert not [op for op in narrowed if op.operands[0].producer("multiply")]


SCALED_SUM = """\
module @m level=sharded mesh=tp:2 {
  input %h : f32[1,3]
  weight %w : s8[4,3]
  weight %s : f32[4]
  output %y : f32[1,4]
}

func @f phase=main {
  arg %h : f32[1,3]
  arg %w : s8[4,3]
  arg %s : f32[4]
  arg %rank : s32[1]
  %wide = convert(%w) dtype=f32 : f32[4,3]
  %0 = dot_general(%h, %wide) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[1,4]
  %1 = all_reduce(%0) kind=add replica_groups=[[0,1]] : f32[1,4]
  %scales = broadcast_in_dim(%s) shape=[1,4] dimensions=[1] : f32[1,4]
  %y = multiply(%1, %scales) : f32[1,4]
  return y = %y
}
"""
PER_RANK = """\
  %r = convert(%rank) dtype=f32 : f32[1]
  %own = broadcast_in_dim(%r) shape=[4] dimensions=[0] : f32[4]
  %scales = broadcast_in_dim(%own) shape=[1,4] dimensions=[1] : f32[1,4]
"""
SPREAD = "  %scales = broadcast_in_dim(%s) shape=[1,4] dimensions=[1] : f32[1,4]\n"


@pytest.mark.parametrize(
    ("right", "other", "moves"),
    [
        ("", "", True),
        # Each rank has another scale, or the sum is read without it.
        (SPREAD, PER_RANK, False),
        ("multiply(%1, %scales)", "multiply(%1, %1)", False),
        ("return y = %y", "return y = %1", False),
        ("weight %s", "input %s", False),
    ],
)
def test_a_scale_moves_only_where_it_is_that_of_all_ranks(right: str, other: str, moves: bool):
    module = parse(SCALED_SUM.replace(right, other) if right else SCALED_SUM)
    told = [op.name for op in narrowed_sums(module, module.function("f"), dtype("f16"))]
    run_pipeline(module, parse_pipeline("reduce-dtype{dtype=f16}"))
    sums = [op for op in module.function("f").ops if op.name == "all_reduce"]
    assert [op.result.dtype.name for op in sums] == ["f16" if moves else "f32"]
    assert told == (["all_reduce"] if moves else [])


def test_half_of_the_bytes_cross_the_links():
    def compiled(reduce: str) -> Module:
        module = mini(vocab_size=256)
        options = {"tp": 4, "target": "inf2", "rpl_reduce_dtype": reduce}
        run_pipeline(module, default(BUCKETS.updated(options)))
        return module

    wide, narrow = compiled("f32"), compiled("bf16")
    # Four sums of f32 [3,64], each twice for three quarters of it, on four ranks; half is saved.
    sums = 4 * (3 * 64 * 4) * 2 * 3
    assert sent(wide, decode(wide), 0) - sent(narrow, decode(narrow), 0) == sums // 2
    # `graphgen cost` counts what chips of two cores send each other.
    links = [roofline(m, decode(m), accelerator("inf2")).total.link_bytes for m in (wide, narrow)]
    assert 0 < links[1] < links[0]


def test_peers_s17_a_narrowed_sum_has_one_type_and_is_cast_back():
    """transformers-neuronx adds in one type what it sends in another, and leaves the result so."""
    module = mini()
    run_pipeline(module, default(BUCKETS.updated({"tp": 2, "rpl_reduce_dtype": "bf16"})))
    sums = [op for f in module.programs() for op in f.ops if op.name == "all_reduce"]
    narrow = [op for op in sums if op.result.dtype is dtype("bf16")]
    assert len(narrow) == 2 * 2 * len(list(module.programs()))
    assert all(op.operands[0].dtype is op.result.dtype for op in sums)
    for op in narrow:
        assert {(user.name, user.result.dtype.name) for user in op.result.users} == {
            ("convert", "f32")
        }


def test_the_sharding_report_says_so_and_tells_every_byte():
    module = mini()
    watcher = ExplainSharding()
    passes = "canonicalize,specialize{batch=[2],context=[8],tokens=[8]},shard{tp=2},pad-to-mesh"
    text = f"{passes},partition,reduce-dtype{{dtype=bf16}}"
    run_pipeline(module, parse_pipeline(text), instruments=[watcher])
    narrowed = [item for item in watcher.shown() if item.decided == NARROWED]
    assert {item.sharding for item in narrowed} == {"f32 -> bf16"}
    row = next(item for item in narrowed if "decode" in item.function)
    assert (row.at, row.sent) == ("all_reduce model.layers.0.self_attn.o_proj", -256)
    assert row.why == "row-parallel sum, 256 bytes in bf16 instead of 512"
    for function in module.programs():
        told = sum(item.sent for item in watcher.shown() if item.function == function.name)
        assert told == sent(module, function, 0) // 2 > 0


def test_logits_are_gathered_in_the_narrow_type():
    module = mini(vocab_size=256)
    run_pipeline(module, default(BUCKETS.updated({"tp": 2, **KNOBS["cast-logits"]})))
    gathers = [op for op in decode(module).ops if op.name == "all_gather"]
    assert [op.result.dtype.name for op in gathers] == ["bf16"]
    logits = decode(module).outputs.get("logits")
    assert logits is not None
    assert logits.dtype.name == "f32"


def test_masked_slots_weigh_nothing_in_a_narrow_softmax():
    """The lowest f32 would be -inf as bf16, and a row without slots no number at all."""
    module = parse(
        "module @m level=canonical {\n}\n\nfunc @f {\n  arg %q : bf16[1,1,1,2]\n"
        "  arg %k : bf16[1,2,1,2]\n  arg %v : bf16[1,2,1,2]\n  arg %m : pred[1,1,2]\n"
        "  %o = attention(%q, %k, %v, %m) scale=1.0 : bf16[1,1,1,2]\n  return o = %o\n}\n"
    )
    function = module.function("f")
    op = next(iter(function.ops))
    with Builder(function, before=op) as b:
        made = attention_with(b, op.operands, op.attrs, dtype("bf16"))
    function.replace_uses(op.result, made)
    given = {name: np.ones((1, n, 1, 2), ml_dtypes.bfloat16) for name, n in (("q", 1), ("k", 2))}
    given["v"] = np.array([1, 2, 3, 4], ml_dtypes.bfloat16).reshape(1, 2, 1, 2)
    for mask, wanted in (([True, False], [1, 2]), ([False, False], [2, 3])):
        out = function.evaluate({**given, "m": np.array(mask).reshape(1, 1, 2)})["o"]
        np.testing.assert_array_equal(np.asarray(out, np.float32).ravel(), wanted)


def test_f16_does_not_take_sums_that_are_scaled_behind_them():
    text = """
module @m level=sharded mesh=tp:2 {
}

func @f {
  arg %rank : s32[1]
  arg %x : f16[1,4]
  arg %w : s8[8,4]
  %0 = convert(%w) dtype=f16 : f16[8,4]
  %1 = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[1,8]
  %y = all_reduce(%1) kind=add replica_groups=[[0,1]] : f32[1,8]
  return y = %y
}
"""
    for name, narrowed in (("f16", False), ("bf16", True)):
        module = parse(text)
        run_pipeline(module, parse_pipeline(f"reduce-dtype{{dtype={name}}}"))
        sums = [op for op in module.function("f").ops if op.name == "all_reduce"]
        assert [op.result.dtype.name == name for op in sums] == [narrowed]
