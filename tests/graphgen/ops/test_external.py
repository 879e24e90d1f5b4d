"""Custom calls and instructions of others: printed, read back, written, and not evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir.clone import clone_module
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.ops import verify
from graphgen.passes.equiv.choice_replay import chooses
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo

TEXT = """\
module @m level=target {
}

func @f {
  arg %x : f32[2,3]
  %v, %i = custom_call(%x) target="AwsNeuronTopK" config="k\\u0020= 2" \
results=[f32[2,2],u32[2,2]] : f32[2,2], u32[2,2]
  return v = %v
  return i = %i
}
""".replace("= 2", "=\\u00202")
OPAQUE = """\
module @m level=target {
}

func @f {
  arg %x : f32[2,3]
  %y = hlo.opaque(%x) opcode="cosh" results=[f32[2,3]] : f32[2,3]
  return y = %y
}
"""


@pytest.mark.parametrize("text", [TEXT, OPAQUE])
def test_it_is_read_back_and_copied(text: str):
    module = parse(text)
    verify(module)
    assert print_module(module) == text
    assert print_module(clone_module(module)) == text


def test_a_custom_call_in_both_forms():
    module = parse(TEXT)
    stablehlo = emit_stablehlo(module, module.function("f"), locs=False)
    call = 'stablehlo.custom_call @"AwsNeuronTopK"(%x) {backend_config = "k = 2"}'
    types = "(tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x2xui32>)"
    assert f"%v, %i = {call} : {types}" in stablehlo
    text = xla_hlo.parsed(emit_hlo(module, module.function("f")))
    assert 'custom_call_target="AwsNeuronTopK"' in text
    assert 'backend_config="k = 2"' in text
    assert text.count("get-tuple-element") == 2


def test_an_opaque_instruction_is_written_as_it_was():
    module = parse(OPAQUE)
    proto = emit_hlo(module, module.function("f"))
    assert "cosh" in [code for found in _opcodes(proto) for code in found]
    with pytest.raises(GraphgenError) as caught:
        emit_stablehlo(module, module.function("f"))
    assert caught.value.code == "GG0401"


def _opcodes(proto: bytes) -> list[list[str]]:
    text = xla_hlo.parsed(proto)
    return [line.replace("(", " ").split() for line in text.splitlines()]


UNKNOWN = TEXT.replace("AwsNeuronTopK", "AwsNeuronIntMatmult")


@pytest.mark.parametrize(("text", "name"), [(UNKNOWN, "AwsNeuronIntMatmult"), (OPAQUE, "cosh")])
def test_it_cannot_be_evaluated(text: str, name: str):
    with pytest.raises(
        GraphgenError, match=f"{name} (has no evaluation rule|cannot be run here)"
    ) as caught:
        evaluate(parse(text).function("f"), {"x": np.zeros((2, 3), np.float32)})
    assert caught.value.code == "GG0403"


ONE_RESULT = TEXT.replace("%v, %i", "%v").replace("  return i = %i\n", "")
ONE_RESULT = ONE_RESULT.replace(",u32[2,2]]", "]").replace(", u32[2,2]", "")


@pytest.mark.parametrize(("text", "chosen"), [(TEXT, True), (UNKNOWN, False), (ONE_RESULT, False)])
def test_the_kernel_of_top_k_chooses_where_it_gives_places(text: str, chosen: bool):
    (op,) = parse(text).function("f").block
    assert (chooses(op) is not None) == chosen


@pytest.mark.parametrize(("more", "written"), [("e80401", True), ("e80402", True), ("6001", False)])
def test_what_stablehlo_has_no_words_for_is_not_dropped(more: str, written: bool):
    module = parse(TEXT.replace(" results=", f' more="{more}" results='))
    if written:
        assert "stablehlo.custom_call" in emit_stablehlo(module, module.function("f"))
    else:
        with pytest.raises(GraphgenError, match=r"has no word for HLO's field 12\n") as caught:
            emit_stablehlo(module, module.function("f"))
        assert caught.value.code == "GG0401"
