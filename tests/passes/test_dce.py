"""Dead code: what nobody reads goes, everything else stays where it was."""

from __future__ import annotations

import graphgen.passes.pipelines  # noqa: F401
from graphgen.passes.cleanup.dce import DeadCodeElimination
from graphgen.passes.core import run_pipeline
from graphgen.text import parse
from tests.passes.programs import after, function, lines

TABLE = "inv_freq=f32[2](1.0,0.5) : f32[1,2], f32[1,2]"


def test_chains_go_as_a_whole_and_arguments_stay():
    body = [
        "arg %x : f32[4]",
        "arg %unused : f32[4]",
        "%a = negate(%x) : f32[4]",
        "%b = add(%a, %a) : f32[4]",
        "%c = exponential(%x) : f32[4]",
        "%d = multiply(%b, %c) : f32[4]",
        "%y = sine(%c) : f32[4]",
        "return y = %y",
    ]
    kept = [body[0], body[1], body[4], body[6], body[7]]
    assert lines(after(function(*body), "dce")) == kept


def test_an_op_stays_while_one_of_its_results_is_used():
    body = ["arg %p : s32[1]", f"%cos, %sin = rope_table(%p) {TABLE}", "return y = %sin"]
    assert lines(after(function(*body), "dce")) == body


def test_an_op_goes_when_none_of_its_results_is_used():
    body = ["arg %p : s32[1]", f"%cos, %sin = rope_table(%p) {TABLE}", "return y = %p"]
    assert lines(after(function(*body), "dce")) == [body[0], body[2]]


def test_what_is_returned_stays_though_nobody_reads_it():
    body = ["arg %x : f32[4]", "%y = negate(%x) : f32[4]", "return y = %y"]
    assert lines(after(function(*body), "dce")) == body


def test_every_function_is_cleaned():
    text = function("arg %x : f32[4]", "%a = negate(%x) : f32[4]", "return y = %x")
    module = parse(text + text.partition("}\n")[2].replace("@f", "@g"))
    (report,) = run_pipeline(module, [DeadCodeElimination()])
    assert report.applications == 2
    assert module.op_count() == 0


def test_what_has_an_effect_stays():
    call = '  %{0} = custom_call(%x) target="DevicePrint"{1} results=[f32[4]] : f32[4]\n'
    send = '  %s = hlo.opaque(%x) opcode="outfeed" results=[f32[4]] : f32[4]\n'
    idle = '  %i = hlo.opaque(%x) opcode="cosh" results=[f32[4]] : f32[4]\n'
    says = ' more="88040168ff"'
    body = call.format("a", "") + call.format("b", says) + send + idle
    text = (
        "module @m level=target {\n}\n\nfunc @f {\n  arg %x : f32[4]\n"
        + body
        + "  return y = %x\n}\n"
    )
    module = parse(text)
    run_pipeline(module, [DeadCodeElimination()])
    assert [op.results[0].name for op in module.function("f").block] == ["b", "s"]
