"""Calls in HLO: read as calls of functions, each computation once, written and run again."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.analysis import inlined
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.inspect.normalize import normalized
from graphgen.text import parse, print_module
from tests.lowering.hlo.test_unmodelled import with_field
from tests.oracles import xla_hlo

# One that is called twice, one inside of it, tuples in and out.
TEXT = """
HloModule calls

%inner (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  ROOT %e = f32[4] exponential(%a)
}

%both (p: (f32[4], f32[4])) -> (f32[4], f32[4]) {
  %p = (f32[4], f32[4]) parameter(0)
  %l = f32[4] get-tuple-element(%p), index=0
  %r = f32[4] get-tuple-element(%p), index=1
  %i = f32[4] call(%l), to_apply=%inner
  %s = f32[4] subtract(%i, %r)
  ROOT %t = (f32[4], f32[4]) tuple(%s, %l)
}

ENTRY %main (x: f32[4], y: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %y = f32[4] parameter(1)
  %in = (f32[4], f32[4]) tuple(%x, %y)
  %one = (f32[4], f32[4]) call(%in), to_apply=%both
  %again = (f32[4], f32[4]) call(%one), to_apply=%both
  %u = f32[4] get-tuple-element(%again), index=0
  %v = f32[4] get-tuple-element(%one), index=1
  ROOT %sum = f32[4] add(%u, %v)
}
"""
X = np.asarray([0.5, -1, 2, 0], np.float32)
Y = np.asarray([1, 0, -0.5, 3], np.float32)


def module() -> Module:
    found = read_hlo(parse_hlo_text(TEXT))
    verify(found)
    return found


def test_each_computation_is_one_function():
    found = module()
    assert list(found.functions) == ["inner", "both", "main"]
    assert [f.name for f in found.programs()] == ["main"]
    (program,) = found.programs()
    assert [op.name for op in program.block] == ["call", "call", "add"]
    assert "opaque" not in found.meta
    assert print_module(parse(print_module(found))) == print_module(found)


def test_numpy_and_xla_give_what_xla_gives_of_the_file():
    found = module()
    (program,) = found.programs()
    ((wanted,),) = xla_hlo.run(xla_hlo.from_text(TEXT), [[X, Y]])
    (ours,) = evaluate(inlined(found, program), {"x": X, "y": Y}).values()
    np.testing.assert_allclose(ours, wanted, rtol=1e-6)
    (theirs,) = compile_program(found, program).run_numpy([{"x": X, "y": Y}])[0].values()
    np.testing.assert_allclose(theirs, wanted, rtol=1e-6)
    ((again,),) = xla_hlo.run(emit_hlo(found, program), [[X, Y]])
    np.testing.assert_array_equal(again, wanted)


def test_written_and_read_again():
    found = module()
    again = read_hlo(emit_hlo(found, found.programs()[0]))
    assert list(again.functions) == list(found.functions)
    assert print_module(normalized(again)) == print_module(normalized(found))


def test_layers_that_were_outlined_come_back():
    whole = build(known_shape("llama-3.1-8b"), f32, mini=True, phases=("decode",))
    run_pipeline(
        whole, parse_pipeline("specialize{batch=[1],context=[8],tokens=[8]},legalize,cse,dce")
    )
    flat = read_hlo(emit_hlo(whole, whole.programs()[0]))
    run_pipeline(whole, parse_pipeline("outline-layers"))
    proto = emit_hlo(whole, whole.programs()[0])
    called = [read_hlo(proto), read_hlo(parse_hlo_text(print_hlo_text(proto)))]
    for found in called:
        verify(found)
        assert any(op.name == "call" for op in found.programs()[0].block)
        assert print_module(normalized(found)) == print_module(normalized(flat))


def test_a_call_that_does_not_fit():
    wrong = TEXT.replace("call(%in), to_apply=%both", "call(%x), to_apply=%both")
    found = read_hlo(parse_hlo_text(wrong))
    assert found.meta["opaque"] == "call: it does not fit %both (1)"


def test_a_composite_is_a_call_that_stays_one():
    proto = with_field(parse_hlo_text(TEXT), "call", wire.integer(InstructionField.IS_COMPOSITE, 1))
    found = read_hlo(proto)
    assert "opaque" not in found.meta
    calls = [op for op in found.programs()[0].ops if op.name == "call"]
    assert {op.annotations["hlo.is_composite"] for op in calls} == {"true"}
    again = read_hlo(emit_hlo(found, found.programs()[0]))
    kept = [op.annotations for op in again.programs()[0].ops if op.name == "call"]
    assert kept == [op.annotations for op in calls]


def test_a_computation_that_calls_itself():
    # The one inside is the first computation; a negation that calls it stands in it.
    text = TEXT.replace("ROOT %e = f32[4] exponential(%a)", "ROOT %e = f32[4] call(%a)")
    proto = with_field(
        parse_hlo_text(text), "call", wire.integers(InstructionField.CALLED_IDS, [1])
    )
    with pytest.raises(GraphgenError) as caught:
        read_hlo(proto)
    assert caught.value.code in ("GG0801", "GG0103")
