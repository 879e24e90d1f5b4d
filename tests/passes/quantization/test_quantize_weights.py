"""Quantized weights: what is quantized, how, why the rest is not, and that ranks agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Module, Role, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.passes.canonical.fuse_projections import FuseProjections
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.relation import EQUAL, Quantized
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import (
    DTYPES,
    GROUP,
    PER_CHANNEL,
    PER_TENSOR,
    SCHEMES,
    limit,
)
from graphgen.passes.validate import validate
from graphgen.passes.weights.lift import LiftWeights
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_function
from tests.oracles.planted_bugs import model
from tests.passes.canonical.test_fuse_projections import DOT, QKV, RETURN, THREE, dot, program

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


def quantized(
    module: Module, dtype: str = "int8", scheme: str = PER_CHANNEL, journal: Journal | None = None
) -> list[str]:
    """The lines of @f after the pass; every number is compared on the way."""
    item = QuantizeWeights(dtype, scheme)
    assert all(verdict.ok for verdict in validate(module, [item], make_workload(module)))
    run_pipeline(module, [item], journal=journal)
    lines = print_function(module.function("f"), locs=False).splitlines()
    return [line.strip() for line in lines if line.strip().startswith("%")]


def reason(module: Module) -> str:
    """Why the one product of @f keeps its weight."""
    quantized(module, journal=(journal := Journal()))
    assert not journal.applications
    miss = journal.nearest("quantize-product")
    assert miss is not None
    return miss.why.reason


ONE = {"w": "f32[6,4]"}


def test_a_tensor_has_one_scale():
    assert quantized(program(ONE, dot("a", "w", 6), "return a = %a"), scheme=PER_TENSOR) == [
        "%w.quantized, %w.scale = quantize(%w) dtype=s8 dimensions=[0,1] limit=127.5 "
        ": s8[6,4], f32[]",
        "%0 = convert(%w.quantized) dtype=f32 : f32[6,4]",
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,6]",
        "%2 = broadcast_in_dim(%w.scale) shape=[2,6] : f32[2,6]",
        "%a = multiply(%1, %2) : f32[2,6]",
    ]


def test_each_channel_has_one_wherever_it_lies():
    lines = quantized(program({"w": "f32[4,6]"}, f"{KN} : f32[2,6]", "return a = %a"))
    assert "dimensions=[0] limit=127.0 : s8[4,6], f32[6]" in lines[0]
    assert lines[3] == "%2 = broadcast_in_dim(%w.scale) shape=[2,6] dimensions=[1] : f32[2,6]"


@pytest.mark.parametrize(
    ("element", "scheme", "wanted"),
    [
        ("int8", PER_TENSOR, "s8 limit=127.5"),
        ("int8", PER_CHANNEL, "s8 limit=127.0"),
        ("f8e4m3", PER_TENSOR, "f8e4m3fn limit=240.0"),
        ("f8e4m3", PER_CHANNEL, "f8e4m3fn limit=240.0"),
        ("f8e5m2", PER_CHANNEL, "f8e5m2 limit=57344.0"),
    ],
)
def test_scales_are_those_of_nxd_inference(element: str, scheme: str, wanted: str):
    lines = quantized(program(ONE, dot("a", "w", 6), "return a = %a"), dtype=element, scheme=scheme)
    kind, most = wanted.split()
    assert f"dtype={kind} " in lines[0]
    assert f" {most} " in lines[0]
    assert limit(element, scheme) == float(most.partition("=")[2])


def test_a_scaled_product_is_rounded_once():
    # Summed in f32, scaled in f32, and then rounded, where the product gave 16 bits.
    module = parse(
        "module @m level=canonical {\n  input %x : bf16[2,4]\n  weight %w : bf16[6,4]\n"
        "  output %y : bf16[2,6]\n}\n\nfunc @f phase=decode {\n  arg %x : bf16[2,4]\n"
        "  arg %w : bf16[6,4]\n  %y = dot_general(%x, %w) lhs_contracting_dims=[1] "
        "rhs_contracting_dims=[1] dtype=bf16 : bf16[2,6]\n  return y = %y\n}\n"
    )
    kinds = [line.rpartition(" : ")[2] for line in quantized(module)]
    assert kinds[1:] == ["bf16[6,4]", "f32[2,6]", "f32[2,6]", "f32[2,6]", "bf16[2,6]"]


KN = "%a = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32"
FOUR_BITS = QuantizeWeights("int4", GROUP, group_size=2)


def lines_in_groups(module: Module, item: QuantizeWeights = FOUR_BITS) -> list[str]:
    """The lines of @f with weights in groups; every number is compared on the way."""
    assert all(verdict.ok for verdict in validate(module, [item], make_workload(module)))
    run_pipeline(module, [item])
    lines = print_function(module.function("f"), locs=False).splitlines()
    return [line.strip() for line in lines if line.strip().startswith("%")]


def test_groups_of_inputs_are_widened_where_they_are_read():
    assert lines_in_groups(program(ONE, dot("a", "w", 6), "return a = %a")) == [
        "%w.quantized, %w.scale = quantize(%w) dtype=s4 limit=7.5 block=[1,2] : s4[6,4], f32[6,2]",
        "%0 = dequantize(%w.quantized, %w.scale) block=[1,2] dtype=f32 : f32[6,4]",
        f"%a = dot_general(%x, %0) {DOT} : f32[2,6]",
    ]


def test_groups_lie_along_the_inputs_of_a_weight_in_out():
    lines = lines_in_groups(program({"w": "f32[4,6]"}, f"{KN} : f32[2,6]", "return a = %a"))
    assert "block=[2,1] : s4[4,6], f32[2,6]" in lines[0]
    assert "block=[2,1] dtype=f32 : f32[4,6]" in lines[1]


def test_the_last_group_may_be_short():
    # Four inputs in groups of 3 and 1: its scale is found so, and repeated for blocks that fit.
    item = QuantizeWeights("int4", GROUP, group_size=3)
    module = program(ONE, dot("a", "w", 6), "return a = %a")
    lines = lines_in_groups(module, item)
    assert "block=[1,3] : s4[6,4], f32[6,2]" in lines[0]
    assert "block=[1,1] dtype=f32" in lines[-2]
    run_pipeline(module, [LiftWeights()])
    weight = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)
    made = evaluate(module.function(WEIGHTS_GLOBAL), {"w": weight})
    groups = np.abs(weight[:, :3]).max(1), np.abs(weight[:, 3])
    scale = np.stack([groups[0]] * 3 + [groups[1]], 1) / np.float32(7.5)
    wanted = np.clip(np.rint(weight / scale), -8, 7) * scale
    # A block of one element is kept as it is meant, which is no larger than its scale.
    (array,) = made.values()
    np.testing.assert_allclose(array, wanted, rtol=1e-6)


def test_a_group_is_no_longer_than_its_row():
    lines = lines_in_groups(
        program(ONE, dot("a", "w", 6), "return a = %a"), QuantizeWeights("int4", GROUP)
    )
    assert "block=[1,4] : s4[6,4], f32[6,1]" in lines[0]


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [16, pytest.param(24, marks=pytest.mark.slow)])
def test_every_pass_keeps_what_groups_mean(size: int, tp: int):
    # 24 does not divide 64 or 128 inputs, and falls inside of the heads and of the ranks' parts.
    quantization = str(QuantizeWeights("int4", GROUP, (), size))
    module = model()
    passes = default(replace(BUCKETS, tp=tp, quantization=quantization))
    verdicts = validate(module, passes, make_workload(module, 1))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []
    assert any(v.rounding.relative > 1e-3 for v in verdicts if "quantize" in v.pass_text)


# ---- what stays, and why -------------------------------------------------------------------------

NEAR_MISSES: dict[str, Callable[[], Module]] = {
    "a product of two activations": lambda: program(
        {},
        "%n = negate(%x) : f32[2,4]",
        f"%a = dot_general(%x, %n) {DOT} : f32[2,2]",
        "return a = %a",
    ),
    "a product of weights alone": lambda: program(
        QKV, f"%p = dot_general(%q, %k) {DOT} : f32[6,3]", "return p = %p"
    ),
    "a weight that is an 8-bit one": lambda: program(
        {"w": "s8[6,4]"}, "%f = convert(%w) dtype=f32 : f32[6,4]", dot("a", "f", 6), "return a = %a"
    ),
    "a weight of integers": lambda: program(
        {"w": "s32[6,4]"},
        "%i = convert(%x) dtype=s32 : s32[2,4]",
        "%a = dot_general(%i, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=s32 "
        ": s32[2,6]",
        "return a = %a",
    ),
    "a weight of floats of 8 bits": lambda: program(
        {"w": "f8e5m2[6,4]"},
        "%i = convert(%x) dtype=f8e5m2 : f8e5m2[2,4]",
        f"%a = dot_general(%i, %w) {DOT} : f32[2,6]",
        "return a = %a",
    ),
    "no output dimension": lambda: program(
        {"w": "f32[2,4]"},
        "%a = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] "
        "lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32 : f32[2]",
        "return a = %a",
    ),
    "a head that keeps its type": lambda: program(
        {"lm_head.weight": "f32[6,4]"}, dot("a", "lm_head.weight", 6), "return a = %a"
    ),
    "a table that is also an embedding": lambda: program(
        ONE,
        "%i = convert(%x) dtype=s32 : s32[2,4]",
        "%e = embedding(%w, %i) : f32[2,4,4]",
        dot("a", "w", 6),
        "return a = %a",
        "return e = %e",
    ),
    "a weight that another program adds": lambda: program(
        {"w": "f32[2,4]"},
        dot("a", "w", 2),
        "return a = %a",
        others=["%b = add(%x, %w) : f32[2,4]", "return b = %b"],
    ),
}


def test_what_stays_says_why(golden: Callable[[str, str], None]):
    shown = [f"## {name}\n{reason(make())}" for name, make in NEAR_MISSES.items()]
    golden("passes/quantize_near_misses.txt", "\n\n".join(shown))


def names_left(module: Module, text: str) -> set[str]:
    """Weights that are products' and no 8-bit numbers, after a pipeline."""
    run_pipeline(module, parse_pipeline(text))
    left: set[str] = set()
    for op in module.function("decode").ops:
        if op.name == "dot_general" and op.operands[1].op is None:
            left.add(op.operands[1].name or "")
    return left


def mini(**changes: object) -> Module:
    return build({**known_shape("llama-3.1-8b"), **changes}, dtype("bf16"), mini=True)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_skipped_weights_keep_their_type_under_every_scheme(scheme: str):
    # In NxD Inference modules_to_not_convert is ignored for tensors with one scale.
    attention = "skip=[self_attn,lm_head]"
    left = names_left(mini(), f"quantize-weights{{scheme={scheme},{attention}}}")
    assert {name.rpartition(".weight")[0].split(".")[-1] for name in left} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "lm_head"),
    }


def test_a_skip_is_whole_parts_of_a_name():
    # layers.1 is not layers.10; the last part may be left out, and a part may be a pattern.
    assert names_left(mini(), "quantize-weights") == {"lm_head.weight"}
    left = names_left(mini(), "quantize-weights{skip=[layers.1.mlp]}")
    assert left == {f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    left = names_left(mini(), "quantize-weights{skip=[layers.*.mlp.down_proj.weight]}")
    assert left == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in (0, 1)}
    assert names_left(mini(), "quantize-weights{skip=[]}") == set()


def test_a_tied_embedding_stays_whatever_is_skipped():
    tied = mini(tie_word_embeddings=True)
    assert names_left(tied, "quantize-weights{skip=[]}") == {"model.embed_tokens.weight"}


def test_a_copy_for_the_product_of_a_tied_embedding():
    tied = mini(tie_word_embeddings=True)
    config = replace(BUCKETS, quantization="quantize-weights{copies=true}")
    verdicts = validate(tied, default(config), make_workload(tied, seed=2))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    assert names_left(tied, "quantize-weights{copies=true}") == set()
    run_pipeline(tied, parse_pipeline("lift-weights"))
    # The lookup reads it as it was.
    table = tied.function("decode").arg("model.embed_tokens.weight")
    assert table is not None
    assert "dot_general" not in {op.name for op in table.users}


def test_mistakes_are_named(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for text in (
        "dtype=int2",
        "dtype=int4",
        "scheme=per_channel",
        "skip=[lm_heads]",
        "skip=[layers.1.ml]",
    ):
        with pytest.raises(GraphgenError) as caught:
            run_pipeline(mini(), parse_pipeline(f"quantize-weights{{{text}}}"))
        shown.append(f"## {text}\n{caught.value}")
    golden("passes/quantize_errors.txt", "\n\n".join(shown))
    with pytest.raises(GraphgenError, match="unknown dtype 'int2'"):
        run_pipeline(mini(), [QuantizeWeights(dtype="int2")])


def test_an_embedding_alone_needs_no_skip():
    # The default skip finds nothing in a model without a head of its own.
    run_pipeline(mini(tie_word_embeddings=True), [QuantizeWeights()])


# ---- what is recorded ----------------------------------------------------------------------------


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_recorded_relation_holds(scheme: str, element: str):
    module = program(QKV, *THREE, *RETURN)
    journal = Journal()
    run_pipeline(module, [QuantizeWeights(element, scheme)], journal=journal)
    assert [entry.rule for entry in journal.applications] == ["quantize-product"] * 3
    pairs = [pair for entry in journal.applications for pair in entry.replaced]
    assert [relation for *_, relation in pairs[::2]] == [EQUAL] * 3
    random = np.random.default_rng(0)
    given = {
        value.name or "": random.standard_normal(value.type.dims).astype(np.float32)
        for value in module.function("f").args
    }
    steps = {"int8": 0.5, "f8e4m3": 240 / 2**4, "f8e5m2": 57344 / 2**3}[element]
    for old, new, relation in pairs[1::2]:
        assert isinstance(relation, Quantized)
        assert old.name in QKV
        function = module.function("f")
        named = {value.name: value for op in function.ops for value in op.results}
        scale = named[str(relation.scale)]
        function.outputs = [*function.outputs, ("values", new), ("scale", scale)]
        weight = given[old.name or ""]
        for exact in (True, False):
            made = evaluate(function, given, MEANING) if exact else evaluate(function, given)
            values, scale = (made[name].astype(np.float64) for name in ("values", "scale"))
            view = [size if i in relation.dims else 1 for i, size in enumerate(weight.shape)]
            gap = np.abs(weight - values * scale.reshape(view))
            assert (gap <= (1e-12 if exact else steps * scale.max() * (1 + 1e-6))).all()
        function.outputs = list(function.outputs)[:-2]


def test_prepared_weights_are_rows_of_the_interface():
    module = mini()
    run_pipeline(module, parse_pipeline("quantize-weights,fuse-projections,lift-weights"))
    rows = [row for row in module.entries(Role.PARAM) if "layers.1" in row.name]
    assert {row.name.removeprefix("model.layers.1."): row.physical.text for row in rows} == {
        "self_attn.q_proj-k_proj-v_proj.weight.quantized": "s8[96,64]",
        "self_attn.q_proj-k_proj-v_proj.weight.scale": "f32[96]",
        "self_attn.o_proj.weight.quantized": "s8[64,64]",
        "self_attn.o_proj.weight.scale": "f32[64]",
        "mlp.gate_proj-up_proj.weight.quantized": "s8[256,64]",
        "mlp.gate_proj-up_proj.weight.scale": "f32[256]",
        "mlp.down_proj.weight.quantized": "s8[64,128]",
        "mlp.down_proj.weight.scale": "f32[64]",
    }
    # What the checkpoint holds has not changed, and nothing is made of a tensor twice.
    assert all(row.logical is row.physical for row in module.entries(Role.WEIGHT))
    made = [op for op in module.function(WEIGHTS_GLOBAL).ops if op.name == "quantize"]
    assert len(made) == 2 * 7
    for function in module.programs():
        read = {
            op.operands[1].op.operands[0].dtype.name
            for op in function.ops
            if op.name == "dot_general" and op.operands[1].op is not None
        }
        assert read == {"s8"}


# ---- fused ---------------------------------------------------------------------------------------


def test_channels_are_fused_with_their_scales_and_biases():
    weights = {**QKV, "qb": "f32[6]", "kb": "f32[3]", "vb": "f32[3]"}
    body: list[str] = []
    for name, weight, size in (("a", "q", 6), ("b", "k", 3), ("c", "v", 3)):
        body += [
            dot(f"{name}0", weight, size),
            f"%{name}1 = broadcast_in_dim(%{weight}b) shape=[2,{size}] dimensions=[1] "
            f": f32[2,{size}]",
            f"%{name} = add(%{name}0, %{name}1) : f32[2,{size}]",
        ]
    module = program(weights, *body, *RETURN)
    quantized(module)
    run_pipeline(module, [FuseProjections(), LiftWeights()])
    lines = print_function(module.function("f"), locs=False).splitlines()
    assert [line.strip() for line in lines if " = " in line and "slice" not in line][:5] == [
        "%0 = convert(%q-k-v.quantized) dtype=f32 : f32[12,4]",
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,12]",
        "%2 = broadcast_in_dim(%q-k-v.scale) shape=[2,12] dimensions=[1] : f32[2,12]",
        "%3 = multiply(%1, %2) : f32[2,12]",
        "%4 = broadcast_in_dim(%qb-kb-vb.prepared) shape=[2,12] dimensions=[1] : f32[2,12]",
    ]


def test_groups_are_fused_with_their_scales():
    module = program(QKV, *THREE, *RETURN)
    lines_in_groups(module)
    before = clone_module(module)
    run_pipeline(module, [FuseProjections(), LiftWeights()])
    lines = [line.strip() for line in print_function(module.function("f"), locs=False).splitlines()]
    assert lines[lines.index("arg %q-k-v.scale : f32[12,2]") + 1 :][:2] == [
        "%0 = dequantize(%q-k-v.quantized, %q-k-v.scale) block=[1,2] dtype=f32 : f32[12,4]",
        f"%1 = dot_general(%x, %0) {DOT} : f32[2,12]",
    ]
    passes = [FuseProjections()]
    assert all(verdict.ok for verdict in validate(before, passes, make_workload(before)))


def test_tensors_are_fused_into_channels_with_the_scale_of_their_tensor():
    module = program(QKV, *THREE, *RETURN)
    before = parse_text(module)
    quantized(module, scheme=PER_TENSOR)
    run_pipeline(module, [FuseProjections(), LiftWeights()])
    dots = [op for op in module.function("f").ops if op.name == "dot_general"]
    assert len(dots) == 1
    assert module.interface["q-k-v.scale"].physical.text == "f32[12]"
    random = np.random.default_rng(0)
    given = {name: random.standard_normal((n, 4)) for name, n in (("q", 6), ("k", 3), ("v", 3))}
    facts = evaluate(module.function(WEIGHTS_GLOBAL), given)
    for part, weight in zip(np.split(facts["q-k-v.scale"], [6, 9]), given.values(), strict=True):
        np.testing.assert_allclose(part, np.abs(weight).max() / 127.5, rtol=1e-6)
    assert before == parse_text(program(QKV, *THREE, *RETURN))


def parse_text(module: Module) -> str:
    return print_function(module.function("f"))


# ---- split over ranks ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ranks_hold_parts_of_what_is_quantized_whole(scheme: str):
    text = f"canonicalize,quantize-weights{{scheme={scheme}}}"
    sizes = "specialize{batch=[2],context=[8],tokens=[8]}"
    whole, parts = mini(), mini()
    run_pipeline(whole, parse_pipeline(f"{text},{sizes},lift-weights"))
    run_pipeline(
        parts, parse_pipeline(f"{text},{sizes},shard{{tp=2}},pad-to-mesh,partition,lift-weights")
    )
    given = make_workload(mini(), 0).weights
    wanted = evaluate(whole.function(WEIGHTS_GLOBAL), given)
    facts = evaluate(parts.function(WEIGHTS_GLOBAL), given)
    ranks: list[dict[str, Array]] = []
    for rank in range(2):
        index = {RANK: np.array([rank], np.int32)}
        made = evaluate(parts.function(WEIGHTS_RANK), {**given, **facts, **index})
        ranks.append({**facts, **made})
    names = {row.name for row in parts.entries(Role.PARAM)}
    # What keeps its type is padded and cut as well.
    others = {"model.embed_tokens.weight.prepared", "lm_head.weight.prepared"}
    assert names == {*wanted, *others}
    for name, array in wanted.items():
        found = [rank[name] for rank in ranks]
        split = [i for i, size in enumerate(array.shape) if size != found[0].shape[i]]
        if split:
            np.testing.assert_array_equal(np.concatenate(found, split[0]), array)
        else:
            # The scale of a tensor, or of channels of which each rank sums a part.
            assert name.endswith(".scale")
            np.testing.assert_array_equal(found, [array, array])
    columns = sum(array.shape[:1] != ranks[0][name].shape[:1] for name, array in wanted.items())
    per_rank = {PER_CHANNEL: 2, PER_TENSOR: 1}[scheme]
    assert columns == 2 * 5 * per_rank


@pytest.mark.parametrize(
    ("element", "tp"),
    [
        ("f32", 1),
        ("bf16", 2),
        pytest.param("f32", 2, marks=pytest.mark.slow),
        pytest.param("bf16", 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.one_in(15)
def test_every_pass_keeps_what_quantized_weights_mean(
    kind: str, scheme: str, tp: int, element: str
):
    module = model(element=element)
    passes = default(replace(BUCKETS, tp=tp, quantization=str(QuantizeWeights(kind, scheme, ()))))
    # Other numbers for each kind, scheme and count of ranks.
    seed = 4 * [*DTYPES].index(kind) + 2 * [*SCHEMES].index(scheme) + tp
    verdicts = validate(module, passes, make_workload(module, seed))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []
    assert any(v.rounding.relative > 1e-3 for v in verdicts if "quantize" in v.pass_text)


@pytest.mark.parametrize(("element", "scheme"), [("int8", PER_TENSOR), ("int4", GROUP)])
def test_a_quantized_model_has_the_products_of_one_that_is_not(element: str, scheme: str):
    # NxD Inference drops the fusion of q, k and v where activations are quantized.
    plain, small = mini(), mini()
    run_pipeline(plain, default(BUCKETS))
    run_pipeline(
        small, default(replace(BUCKETS, quantization=str(QuantizeWeights(element, scheme))))
    )
    for function in plain.programs():
        count = [
            sum(op.name == "dot_general" for op in module.function(function.name).ops)
            for module in (plain, small)
        ]
        assert count[0] == count[1]
