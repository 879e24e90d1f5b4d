"""Normalized: equal texts for equal programs, whoever wrote them; different ones for others."""

from __future__ import annotations

from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.inspect.normalize import normalized
from graphgen.report.diff import diff_functions
from graphgen.text import parse, print_module
from tests.passes.inspect.test_slice import SMALL

OTHER = """\
module @other level=target {
  input %p : f32[4]
  input %q : f32[4]
  state %r : f32[4]
  output %s : f32[4]
}

func @g phase=main {
  arg %p : f32[4]
  arg %q : f32[4]
  arg %r : f32[4]
  %dead = sine(%q) : f32[4]  # elsewhere.py:3 net
  %k = constant() value=f32[4](1.0,2.0,3.0,4.0) : f32[4]
  %z = multiply(%p, %k) : f32[4]
  %e = exponential(%z) : f32[4]
  %c = add(%e, %r) : f32[4]
  %d = subtract(%c, %z) : f32[4]
  return s = %d
  return r = %c
}
"""


def text(module: Module, *, keep_names: bool = False) -> str:
    made = normalized(module, keep_names=keep_names)
    verify(made)
    return print_module(made)


def test_names_places_order_and_dead_ops():
    one = text(parse(SMALL))
    assert one == text(parse(OTHER))
    assert one == text(parse(one))
    assert "# " not in one
    assert "%multiply.f32.4.0 = multiply(%input0, %constant.f32.4.0)" in one
    assert "  return state0 = %add.f32.4.0\n" in one


def test_names_that_are_kept():
    kept = text(parse(OTHER), keep_names=True)
    assert kept.startswith("module @other")
    assert "%multiply.f32.4.0 = multiply(%p, " in kept


def test_programs_are_numbered_from_zero():
    programs = SMALL.partition("func @f")[2]
    made = text(parse(SMALL + "".join(f"\nfunc @{name}{programs}" for name in ("a", "b"))))
    names = [line.split()[1] for line in made.splitlines() if line.startswith("func")]
    assert names == ["@program0", "@program1", "@program2"]


def test_a_change_changes_few_lines():
    one = text(parse(SMALL)).splitlines()
    more = SMALL.replace("  %c = add(%0", "  %n = negate(%0) : f32[4]\n  %c = add(%n")
    other = text(parse(more)).splitlines()
    changed = [line for line in other if line not in one]
    assert len(changed) == 2


def test_a_model_through_every_form():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True, phases=("decode",))
    run_pipeline(
        module,
        parse_pipeline("specialize{batch=[1],context=[8],tokens=[8],slots=8},legalize,cse,dce"),
    )
    (function,) = module.programs()
    proto = emit_hlo(module, function)
    forms = [
        read_hlo(proto),
        read_hlo(parse_hlo_text(print_hlo_text(proto))),
        read_stablehlo(emit_stablehlo(module, function).encode(), "m.mlir"),
    ]
    texts = {text(form).replace("level=logical", "level=target") for form in forms}
    assert len(texts) == 1


def test_calls_are_gone():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True, phases=("decode",))
    run_pipeline(
        module,
        parse_pipeline("specialize{batch=[1],context=[8],tokens=[8],slots=8},legalize,cse,dce"),
    )
    whole = text(module)
    run_pipeline(module, parse_pipeline("outline-layers"))
    assert any(op.name == "call" for op in module.programs()[0].block)
    assert text(module) == whole


def test_what_is_equal_is_shared_but_not_random_numbers():
    twice = SMALL.replace("  %d = sub", "  %a2 = multiply(%x, %k) : f32[4]\n  %d = sub").replace(
        "(%c, %a)", "(%c, %a2)"
    )
    assert text(parse(twice)) == text(parse(SMALL))
    draw = '%{0} = hlo.opaque(%x) opcode="rng" results=[f32[4]] : f32[4]'
    drawn = SMALL.replace("%a = multiply(%x, %k) : f32[4]", draw.format("a"))
    drawn = drawn.replace("%0 = exponential(%a) : f32[4]", draw.format("0"))
    assert text(parse(drawn)).count('opcode="rng"') == 2


def test_what_has_an_effect_is_not_dead():
    call = '%p = custom_call(%x) target="DevicePrint" more="880401" results=[f32[4]] : f32[4]'
    spoken = SMALL.replace("  %d = sub", f"  {call}\n  %d = sub")
    assert 'target="DevicePrint"' in text(parse(spoken))
    found = diff_functions(
        (parse(SMALL), parse(spoken)), *[parse(t).programs()[0] for t in (SMALL, spoken)]
    )
    assert [change.what for change in found.changes] == ["nothing / custom_call"]
