"""Equivalence on drawn values: pairs that the calls of a workload cannot tell apart."""

from __future__ import annotations

import pytest

from graphgen.ir import Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.passes import pipelines
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.validate.drawn_equiv import equivalent_throughout
from graphgen.text import parse
from tests.oracles.wrong_rewrites import LAST_TIES, UNSHIFTED


def module(body: str, kind: str = "f32[16]", rows: str = "", functions: str = "") -> Module:
    """A module of two inputs ``%x`` and ``%z``; ``%y`` is handed back."""
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    head = "".join(f"  {row}\n" for row in rows.splitlines())
    args = "".join(
        f"  arg {row.split(' : ')[0].split()[-1]} : {row.split(' : ')[1]}\n"
        for row in rows.splitlines()
        if not row.startswith(("weight", "output"))
    )
    output = "" if "output" in rows else f"  output %y : {kind}\n"
    return parse(
        f"module @m level=target {{\n  input %x : {kind}\n  input %z : {kind}\n{head}{output}}}\n\n"
        f"{functions}func @main phase=main {{\n  arg %x : {kind}\n  arg %z : {kind}\n"
        f"{args}{lines}  return y = %y\n}}\n"
    )


EIGHT = "%c = constant() value=s32[]({}) : s32[]\n%b = broadcast_in_dim(%c) shape=[16] : s32[16]\n"
SHIFTED = """%m = reduce(%x) dimensions=[0] kind=maximum : f32[]
%w = broadcast_in_dim(%m) shape=[16] : f32[16]
%d = subtract(%x, %w) : f32[16]
"""
SOFTMAX = """%e = exponential(%d) : f32[16]
%s = reduce(%e) dimensions=[0] kind=add : f32[]
%t = broadcast_in_dim(%s) shape=[16] : f32[16]
%y = divide(%e, %t) : f32[16]"""
LAST = """%r = reverse(%x) dimensions=[0] : f32[16]
%v, %k = top_k(%r) k=2 : f32[2], s32[2]
%c = constant() value=s32[](15) : s32[]
%b = broadcast_in_dim(%c) shape=[2] : s32[2]
%y = subtract(%b, %k) : s32[2]"""
DIFFERENT = {
    "division as a shift": (
        EIGHT.format(8) + "%y = divide(%x, %b) : s32[16]",
        EIGHT.format(3) + "%y = shift_right_arithmetic(%x, %b) : s32[16]",
        "s32[16]",
        "",
    ),
    "remainder as a mask": (
        EIGHT.format(8) + "%y = remainder(%x, %b) : s32[16]",
        EIGHT.format(7) + "%y = and(%x, %b) : s32[16]",
        "s32[16]",
        "",
    ),
    "maximum as a select": (
        "%y = maximum(%x, %z) : f32[16]",
        "%p = compare(%x, %z) direction=GT : pred[16]\n%y = select(%p, %x, %z) : f32[16]",
        "f32[16]",
        "",
    ),
    "minimum as a select": (
        "%y = minimum(%x, %z) : f32[16]",
        "%p = compare(%x, %z) direction=LT : pred[16]\n%y = select(%p, %x, %z) : f32[16]",
        "f32[16]",
        "",
    ),
    "softmax without its maximum": (
        SHIFTED + SOFTMAX,
        SOFTMAX.replace("%d", "%x"),
        "f32[16]",
        "",
    ),
    "logistic by another formula": (
        "%y = tanh(%x) : f32[16]",
        """%e = exponential(%x) : f32[16]
%n = negate(%x) : f32[16]
%f = exponential(%n) : f32[16]
%a = subtract(%e, %f) : f32[16]
%b = add(%e, %f) : f32[16]
%y = divide(%a, %b) : f32[16]""",
        "f32[16]",
        "",
    ),
    "ties of top_k": (
        "%v, %y = top_k(%x) k=2 : f32[2], s32[2]",
        LAST,
        "f32[16]",
        "output %y : s32[2]",
    ),
    "a complex sign": (
        "%y = imag(%x) : f32[16]",
        "%i = imag(%x) : f32[16]\n%y = negate(%i) : f32[16]",
        "c64[16]",
        "output %y : f32[16]",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_pairs_that_differ_on_boundary_values(name: str):
    one, other, kind, rows = DIFFERENT[name]
    left, right = module(one, kind, rows), module(other, kind, rows)
    found = equivalent_throughout(left, right)
    assert not found.found.equal
    assert equivalent_throughout(left, left).found.equal
    assert equivalent_throughout(right, right).found.equal


@pytest.mark.parametrize("role", ["state", "param"])
def test_states_and_weights_are_drawn(role: str):
    functions = ""
    rows = "state %s : f32[16]"
    if role == "param":
        rows = "weight %w : f32[16]\nparam %s : f32[16]"
        functions = (
            "func @weights.global {\n  arg %w : f32[16]\n  %n = negate(%w) : f32[16]\n"
            "  return s = %n\n}\n\n"
        )
    one, other = (
        module(body.replace("%x, %z", "%x, %s"), "f32[16]", rows, functions)
        for body in DIFFERENT["maximum as a select"][:2]
    )
    if role == "state":
        for each in (one, other):
            function = each.function("main")
            function.outputs.append(("s", function.args[2]))
    found = equivalent_throughout(one, other)
    assert not found.found.equal
    assert found.values


EQUAL = {
    "a sum in another order": (
        "%y = reduce(%x) dimensions=[0] kind=add : f32[]",
        """%a = slice(%x) start_indices=[0] limit_indices=[8] : f32[8]
%b = slice(%x) start_indices=[8] limit_indices=[16] : f32[8]
%c = reduce(%a) dimensions=[0] kind=add : f32[]
%d = reduce(%b) dimensions=[0] kind=add : f32[]
%y = add(%c, %d) : f32[]""",
        "output %y : f32[]",
    ),
    "factors in another order": (
        "%a = multiply(%x, %z) : f32[16]\n%y = multiply(%a, %x) : f32[16]",
        "%a = multiply(%z, %x) : f32[16]\n%y = multiply(%x, %a) : f32[16]",
        "",
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_rounding_alone_makes_no_difference(name: str):
    one, other, rows = EQUAL[name]
    found = equivalent_throughout(module(one, rows=rows), module(other, rows=rows))
    assert found.found.equal
    assert found.agreed
    assert found.coverage is not None


def test_what_cancels_is_not_decided_rather_than_different():
    """The exponential of a huge sum that cancels shows the order in which it is summed."""
    end = "\n%t = sine(%s) : f32[]\n%y = broadcast_in_dim(%t) shape=[16] : f32[16]"
    one, other = (EQUAL["a sum in another order"][at].replace("%y", "%s") + end for at in range(2))
    found = equivalent_throughout(module(one), module(other))
    assert found.found.equal


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("llama-3.1-8b", "default{batch=[3],context=[8],tokens=[8,16],tp=2}"),
        ("mixtral-8x7b", "default{batch=[3],context=[8],tokens=[8,16]}"),
    ],
)
def test_pipelines_keep_language_models_equal(name: str, pipeline: str):
    left, right = (build(known_shape(name), dtype("f32"), mini=True) for _ in range(2))
    run_pipeline(right, pipelines.parse(pipeline))
    found = equivalent_throughout(left, right)
    assert found.found.equal
    assert ("mixtral" in name) == any(values.startswith("ties by") for values in found.agreed)


@pytest.mark.parametrize("item", [LAST_TIES, UNSHIFTED], ids=lambda item: item.name)
def test_what_a_router_does_wrong_is_found_in_a_whole_model(item: Pass):
    left = build(known_shape("mixtral-8x7b"), dtype("f32"), mini=True)
    right = clone_module(left)
    run_pipeline(right, [item])
    found = equivalent_throughout(left, right)
    assert not found.found.equal
    assert found.values
    assert found.found.first is not None
