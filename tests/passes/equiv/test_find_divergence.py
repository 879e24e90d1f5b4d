"""Where two programs part: planted bugs are found by comparing with the program without."""

from __future__ import annotations

import pytest

from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.equiv.find_divergence import Divergence
from graphgen.passes.equiv.paired_run import CompareOptions
from graphgen.passes.validate.blame import apply_pass
from graphgen.text import parse
from tests.oracles.planted_bugs import BUGS, SIMPLE, Bug, Planted, model

WRONG_MEANING = [bug for bug in BUGS if not bug.rounding]
# An op that is left out cannot be named: the next one reads something else.
LEFT_OUT = {
    "bias-dropped": "model.layers.1.self_attn",
    "residual-dropped": "model.layers.0.post_attention_layernorm",
    "not-causal": "model.layers.0.self_attn",
    # The state is given back as it was.
    "stale-write": "",
}


def with_bug(bug: Bug) -> Module:
    module = clone_module(model(bug.after, bug.element))
    apply_pass(module, Planted(bug))
    return module


@pytest.mark.parametrize("bug", WRONG_MEANING, ids=[bug.name for bug in WRONG_MEANING])
@pytest.mark.one_in(4)
def test_the_scope_of_a_planted_bug_is_named(bug: Bug):
    found = equivalent(model(bug.after, bug.element), with_bug(bug), CompareOptions(seed=3))
    assert not found.equal
    assert found.first is not None
    assert found.first.right.loc.scope == LEFT_OUT.get(bug.name, bug.scope)
    assert found.first.left.number != found.first.right.number
    assert found.first.left.loc.scope or found.first.left.loc.line


ON_SIMPLE = [bug for bug in WRONG_MEANING if bug.after == SIMPLE]


@pytest.mark.parametrize("bug", ON_SIMPLE, ids=[bug.name for bug in ON_SIMPLE])
def test_it_is_found_between_programs_read_from_stablehlo(bug: Bug):
    right, wrong = model(bug.after, bug.element), with_bug(bug)
    texts = (emit_stablehlo(m, m.function(bug.program)) for m in (right, wrong))
    first, second = (read_stablehlo(text) for text in texts)
    found = equivalent(first, second)
    assert not found.equal
    assert found.first is not None
    assert found.first.right.loc.scope == LEFT_OUT.get(bug.name, bug.scope)


def program(*lines: str) -> Module:
    body = "".join(f"  {line}\n" for line in lines)
    return parse(
        "module @m level=logical {\n  input %x : f32[2,3]\n  output %y : f32[2,3]\n}\n\n"
        f"func @f phase=main {{\n  arg %x : f32[2,3]\n{body}  return y = %y\n}}\n"
    )


def first(left: Module, right: Module) -> Divergence:
    found = equivalent(left, right).first
    assert found is not None
    return found


def test_a_constant_is_blamed_rather_than_what_reads_it():
    def scaled(factor: str) -> Module:
        return program(
            f"%c = constant() value=f32[]({factor}) : f32[]",
            "%b = broadcast_in_dim(%c) shape=[2,3] : f32[2,3]",
            "%s = logistic(%x) : f32[2,3]",
            "%y = multiply(%s, %b) : f32[2,3]",
        )

    found = first(scaled("0.5"), scaled("0.25"))
    left, right = "%c = constant() value=f32[](0.5)", "%c = constant() value=f32[](0.25)"
    assert (found.left.text, found.right.text) == (left, right)
    assert (found.left.number, found.right.number, found.between) == (0.5, 0.25, 0)


def test_operands_the_wrong_way_round_are_told():
    def difference(a: str, b: str) -> Module:
        return program(
            "%s = logistic(%x) : f32[2,3]",
            "%e = exponential(%x) : f32[2,3]",
            f"%y = subtract({a}, {b}) : f32[2,3]",
        )

    found = first(difference("%s", "%e"), difference("%e", "%s"))
    assert found.right.text == "%y = subtract(%e, %s)"
    assert found.crossed == (("%e", "%e", "%s"), ("%s", "%s", "%e"))


def test_values_are_found_by_their_numbers_under_other_names():
    left = program(
        "%s = logistic(%x) : f32[2,3]",
        "%t = exponential(%s) : f32[2,3]",
        "%y = add(%t, %x) : f32[2,3]",
    )
    right = program(
        # logistic(x) = 1 - logistic(-x), under names that say something else.
        "%t = negate(%x) : f32[2,3]",
        "%u = logistic(%t) : f32[2,3]",
        "%c = constant() value=f32[](1.0) : f32[]",
        "%b = broadcast_in_dim(%c) shape=[2,3] : f32[2,3]",
        "%s = subtract(%b, %u) : f32[2,3]",
        "%r = exponential(%s) : f32[2,3]",
        "%y = subtract(%r, %x) : f32[2,3]",
    )
    found = first(left, right)
    assert found.left.text == "%y = add(%t, %x)"
    assert found.right.text == "%y = subtract(%r, %x)"
    assert found.between == 0


def test_a_mask_does_not_hide_what_stands_beside_it():
    def masked(op: str) -> Module:
        return program(
            "%i = iota() dtype=s32 shape=[2,3] dimension=1 : s32[2,3]",
            "%c = constant() value=s32[](2) : s32[]",
            "%b = broadcast_in_dim(%c) shape=[2,3] : s32[2,3]",
            "%p = compare(%i, %b) direction=LT : pred[2,3]",
            "%n = constant() value=f32[](-3.4028235e+38) : f32[]",
            "%m = broadcast_in_dim(%n) shape=[2,3] : f32[2,3]",
            f"%e = {op}(%x) : f32[2,3]",
            "%s = select(%p, %e, %m) : f32[2,3]",
            "%y = exponential(%s) : f32[2,3]",
        )

    assert first(masked("sine"), masked("negate")).right.text == "%e = negate(%x)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("reverse(%x) dimensions=[0]", "reverse(%x) dimensions=[1]"),
        ("compare(%x, %x) direction=LT", "compare(%x, %x) direction=EQ"),
    ],
)
def test_the_attributes_that_differ_are_printed(old: str, new: str):
    def with_op(op: str) -> Module:
        kind = "pred" if op.startswith("compare") else "f32"
        end = "%y = convert(%a) dtype=f32" if kind == "pred" else "%y = negate(%a)"
        return program(f"%a = {op} : {kind}[2,3]", f"{end} : f32[2,3]")

    found = first(with_op(old), with_op(new))
    assert (found.left.text, found.right.text) == (f"%a = {old}", f"%a = {new}")
