"""Products with weights in 8 bits as calls of the kernel: the scale is the kernel's or stays."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.passes.kernels.test_select_kernels import calls, configs, names, selected

WIDE = "%c = convert(%w) dtype=f32 : f32[64,8]"
DOT = (
    "%d = dot_general(%x, %c) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 "
    ": f32[2,64]"
)
COLUMN = "%b = broadcast_in_dim(%s) shape=[2,64] dimensions=[1] : f32[2,64]"
SCALED = "%y = multiply(%d, %b) : f32[2,64]"


def module(*ops: str, narrow: str = "s8", shape: str = "64,8") -> Module:
    """A program of x f32[2,8] and r f32[2,64] with narrow weights w[64,8] and scales."""
    values = {"x": "f32[2,8]", "r": "f32[2,64]", "t": "f32[2]"}
    weights = {"w": f"{narrow}[{shape}]", "s": "f32[64]", "one": "f32[]"}
    lines = ["module @m level=canonical {"]
    lines += [f"  input %{name} : {type_}" for name, type_ in values.items()]
    lines += [f"  weight %{name} : {type_}" for name, type_ in weights.items()]
    lines += [f"  output %y : {ops[-1].rpartition(' : ')[2]}", "}", "", "func @f phase=decode {"]
    lines += [f"  arg %{name} : {type_}" for name, type_ in (values | weights).items()]
    return parse("\n".join([*lines, *(f"  {op}" for op in ops), "  return y = %y", "}", ""]))


@pytest.mark.parametrize("narrow", ["s8", "f8e4m3fn", "f8e5m2"])
def test_numbers_of_8_bits_are_packed_in_pairs_and_widened_by_the_kernel(narrow: str):
    item = selected(module(WIDE, DOT, COLUMN, SCALED, narrow=narrow))
    (call,) = calls(item)
    assert call.operands[1].type.text == f"{narrow}[4,4,16,2]"
    assert [value.name for value in call.operands[2:]] == ["s"]
    assert names(item, "f") == ["call"]
    assert names(item, "kernel.linear") == [
        *("convert", "dot_general", "broadcast_in_dim", "multiply")
    ]


def test_one_scale_for_all_columns_is_the_kernels():
    spread = "%b = broadcast_in_dim(%one) shape=[2,64] dimensions=[] : f32[2,64]"
    item = selected(module(WIDE, DOT, spread, SCALED.replace("%d, %b", "%b, %d")))
    assert configs(item)[0]["scale"] is True
    assert [value.name for value in calls(item)[0].operands[2:]] == ["one"]


@pytest.mark.parametrize(
    "ops",
    [
        # A scale of rows.
        ("%b = broadcast_in_dim(%t) shape=[2,64] dimensions=[0] : f32[2,64]", SCALED),
        # The factor is not a scale.
        ("%y = multiply(%d, %r) : f32[2,64]",),
        # The product is read without its scale too.
        (COLUMN, SCALED.replace("%y", "%z"), "%y = add(%d, %z) : f32[2,64]"),
    ],
)
def test_what_is_no_scale_of_the_columns_stays(ops: tuple[str, ...]):
    item = selected(module(WIDE, DOT, *ops))
    assert configs(item)[0]["scale"] is False
    assert names(item, "kernel.linear") == ["convert", "dot_general"]
    assert names(item, "f")[-1] == ops[-1].split(" = ")[1].partition("(")[0]


def test_a_residual_and_a_rounding_stand_behind_the_scale():
    scaled = (WIDE, DOT, COLUMN, SCALED.replace("%y", "%z"))
    item = selected(module(*scaled, "%y = add(%z, %r) : f32[2,64]"))
    assert (configs(item)[0]["residual"], names(item, "f")) == (True, ["call"])
    item = selected(module(*scaled, "%y = convert(%z) dtype=bf16 : bf16[2,64]"))
    assert (configs(item)[0]["scale"], names(item, "f")) == (True, ["call"])


def test_a_weight_that_contracts_its_first_axis_is_turned():
    wide = WIDE.replace("[64,8]", "[8,64]")
    dot = DOT.replace("rhs_contracting_dims=[1]", "rhs_contracting_dims=[0]")
    item = selected(module(wide, dot, COLUMN, SCALED, shape="8,64"))
    assert calls(item)[0].operands[1].type.text == "s8[4,4,16,2]"
    assert configs(item)[0]["columns"] == 64


def test_other_narrow_types_keep_xlas_product():
    item = selected(module(WIDE, DOT.replace("%d", "%y"), narrow="s4"))
    assert calls(item) == []


@pytest.mark.parametrize(
    "quantize",
    [
        "quantize-weights",
        "quantize-weights{scheme=per_tensor_symmetric}",
        "quantize-weights{dtype=f8e4m3}",
        "quantize-weights{dtype=f8e5m2,scheme=per_tensor_symmetric}",
    ],
)
@pytest.mark.one_in(4)
def test_all_products_of_a_quantized_model_are_calls_that_mean_the_same(quantize: str):
    item = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    config = CompileConfig(
        kernels="on", quantization=quantize, batch=(3,), context=(8,), tokens=(8, 16)
    )
    verdicts = validate(item, default(config), make_workload(item, seed=4))
    assert [str(v) for v in verdicts if not v.ok] == []
    compiled = clone_module(item)
    run_pipeline(compiled, default(config))
    for program in compiled.programs():
        assert "dot_general" not in {op.name for op in program.block}
