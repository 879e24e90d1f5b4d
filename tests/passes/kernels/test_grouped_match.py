"""Products with weights in groups as calls of the kernel: what is packed, and what is refused."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, Role, dtype
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import u8
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.stored_readings import ReadQuantized
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.passes.kernels.test_select_kernels import calls, configs, names, selected

DOT = (
    "%y = dot_general(%x, %c) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 "
    ": f32[2,64]"
)


def module(block: str, scale: str, narrow: str = "s4", facts: str = "", depth: int = 32) -> Module:
    """A program of x f32[2,depth] with dequantized weights w[64,depth]."""
    weights = {"w": f"{narrow}[64,{depth}]", "s": scale, "z": scale.replace("f32", "u8")}
    arguments = {"x": f"f32[2,{depth}]", **weights}
    lines = ["module @m level=canonical {", f"  input %x : f32[2,{depth}]"]
    lines += [f"  weight %{name} : {type_}" for name, type_ in weights.items()]
    lines += ["  output %y : f32[2,64]", "}", "", "func @f phase=decode {"]
    lines += [f"  arg %{name} : {type_}" for name, type_ in arguments.items()]
    wide = f"%c = dequantize(%w, %s{facts}) block=[{block}] dtype=f32 : f32[64,{depth}]"
    return parse("\n".join([*lines, f"  {wide}", f"  {DOT}", "  return y = %y", "}", ""]))


def test_numbers_of_4_bits_are_packed_two_a_byte_with_the_scales_of_their_groups():
    item = selected(module("1,16", "f32[64,2]"))
    (call,) = calls(item)
    assert [value.type.text for value in call.operands] == [
        *("f32[2,32]", "u8[4,4,16,4]", "f32[4,2,16]")
    ]
    (config,) = configs(item)
    assert (config["scale"], config["group"], config["zero"]) == (True, 16, False)
    assert names(item, "kernel.linear")[-2:] == ["dequantize", "dot_general"]
    assert "dequantize" not in names(item, "f")


@pytest.mark.parametrize("narrow", ["u4", "s4"])
def test_zero_points_are_packed_like_scales(narrow: str):
    item = selected(module("1,16", "f32[64,2]", narrow, ", %z"))
    types = [value.type.text for value in calls(item)[0].operands]
    # Integers to 256 are exact in bf16.
    assert types[2:] == ["f32[4,2,16]", "bf16[4,2,16]"]
    assert configs(item)[0]["zero"] is True


@pytest.mark.parametrize("scale", ["f16", "bf16"])
def test_scales_of_16_bits_stay_so(scale: str):
    assert calls(selected(module("1,16", f"{scale}[64,2]")))[0].operands[2].type.text == (
        f"{scale}[4,2,16]"
    )
    item = module("1,16", f"{scale}[64,2]")
    verdicts = validate(item, parse_pipeline("select-kernels"), make_workload(item, seed=3))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


def test_numbers_without_a_sign_have_a_zero_point():
    item = selected(module("1,16", "f32[64,2]", "u4"))
    assert configs(item)[0]["zero"] is True


@pytest.mark.parametrize(
    ("block", "scale"),
    [("16,16", "f32[4,2]"), ("64,16", "f32[1,2]"), ("1,32", "f32[64,1]"), ("40,24", "f32[2,2]")],
)
def test_a_scale_of_several_columns_is_repeated(block: str, scale: str):
    item = selected(module(block, scale, "s8"))
    group = int(block.partition(",")[2])
    assert configs(item)[0]["group"] == group
    groups = -(-32 // group)
    assert calls(item)[0].operands[2].type.text == f"f32[4,{groups},16]"


@pytest.mark.parametrize(
    ("block", "scale", "narrow", "reason"),
    [
        ("1,12", "f32[64,3]", "s4", "groups of 12 are not whole steps of 8 numbers"),
        ("1,5", "f32[64,7]", "s8", "groups of 5 are not whole steps of 2 numbers"),
        ("1,16", "f32[64,2]", "f4e2m1fn", "the kernel has no groups of f4e2m1fn"),
    ],
)
def test_other_groups_keep_xlas_product(block: str, scale: str, narrow: str, reason: str):
    journal = Journal()
    item = selected(module(block, scale, narrow), journal)
    assert calls(item) == []
    assert [miss.why.reason for miss in journal.misses] == [reason]


@pytest.mark.parametrize(
    ("narrow", "facts"), [("s4", ""), ("s4", ", %z"), ("u4", ""), ("u4", ", %z"), ("s8", ", %z")]
)
@pytest.mark.parametrize(("block", "scale"), [("1,16", "f32[64,3]"), ("8,16", "f32[8,3]")])
def test_the_call_means_the_same(narrow: str, facts: str, block: str, scale: str):
    # 40 numbers end in a short group; the columns are turned by the last case's axis.
    item = module(block, scale, narrow, facts, depth=40)
    verdicts = validate(item, parse_pipeline("select-kernels"), make_workload(item, seed=3))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


CONFIG = CompileConfig(kernels="on", batch=(3,), context=(8,), tokens=(8, 16))


@pytest.mark.parametrize("size", [16, 32, 64])
@pytest.mark.one_in(3)
def test_weights_quantized_at_load_are_packed_and_mean_the_same(size: int):
    item = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    passes = parse_pipeline(
        f"canonicalize,quantize-weights{{dtype=int4,scheme=group,group_size={size}}}"
    )
    run_pipeline(item, passes)
    verdicts = validate(item, default(CONFIG), make_workload(item, seed=4))
    assert [str(v) for v in verdicts if not v.ok] == []
    run_pipeline(item, default(CONFIG))
    packed = [row.physical.text for row in item.entries(Role.PARAM) if row.physical.dtype is u8]
    assert len(packed) == 2 * 4


@pytest.mark.parametrize(
    ("scheme", "element", "zero_points"),
    [
        ("pack-quantized", "u4", False),
        ("pack-quantized", "s4", True),
        ("compressed-tensors", "s8", False),
        ("gptq", "u4", True),
        ("awq", "u4", True),
    ],
)
@pytest.mark.one_in(6)
def test_all_products_of_a_quantized_model_are_calls_that_mean_the_same(
    scheme: str, element: str, zero_points: bool
):
    item = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    projections = ("*_proj",)
    run_pipeline(item, [ReadQuantized(scheme, element, (1, 16), zero_points, modules=projections)])
    verdicts = validate(item, default(CONFIG), make_workload(item, seed=4))
    assert [str(v) for v in verdicts if not v.ok] == []
    compiled = clone_module(item)
    run_pipeline(compiled, default(CONFIG))
    for program in compiled.programs():
        assert "dot_general" not in {op.name for op in program.block}
        found = [config for config in configs(compiled, program.name) if "group" in config]
        # Queries, keys and values are one product, and so are gate and up.
        assert [config["group"] for config in found] == [16] * 4 * 2 + [0]
        assert [config["activation"] for config in found].count("silu") == 2
