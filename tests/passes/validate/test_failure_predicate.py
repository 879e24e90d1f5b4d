"""Predicates of failing modules: wrong numbers by one pass, the same exception, after passes."""

from __future__ import annotations

from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.validate.failure_predicate import after_passes, at_fault, same_exception
from graphgen.text import parse
from tests.oracles.planted_bugs import Bug, Planted, only, operands
from tests.oracles.small_modules import function

WRONG = Planted(Bug("swap", "subtract", "f", "here", operands(1, 0)))
GATED = "model.layers.0.mlp"
ARGS = ("arg %x : f32[4]", "arg %z : f32[4]")


def small(op: str, scope: str = "here") -> Module:
    """A program of one op in a scope."""
    body = [*ARGS, f"%y = {op} : f32[4]  # m.py:1 {scope}", "return y = %y"]
    rows = "  input %x : f32[4]\n  input %z : f32[4]\n  output %y : f32[4]\n}\n"
    text = function(*body).replace("}\n", rows, 1)
    return parse(text.replace("func @f {", "func @f phase=main {"))


def passes(*first: str) -> list[Pass]:
    return [*parse_pipeline(",".join(first)), WRONG]


def test_the_first_pass_that_changes_numbers():
    fails, guilty, state = at_fault(small("subtract(%x, %z)"), passes("cse", "dce"), seed=1)
    assert state == "WRONG"
    assert guilty is WRONG
    assert fails(small("subtract(%x, %z)"))
    assert fails(small("subtract(%z, %x)"))
    assert not fails(small("subtract(%x, %z)", scope="there"))
    assert not fails(small("add(%x, %z)"))


def test_no_pass_changes_numbers():
    fails, guilty, _ = at_fault(small("add(%x, %z)"), passes("cse"), seed=1)
    assert guilty is None
    assert not fails(small("subtract(%x, %z)"))


def test_tokens_chosen_in_programs_are_compared_with_the_logits_they_follow_from():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    first = parse_pipeline("canonicalize,on-device-sampling{do_sample=true}")
    assert at_fault(module, first, seed=1)[1] is None
    item = Planted(Bug("swap", "multiply", "prefill", GATED, only(0)))
    fails, guilty, _ = at_fault(module, [*first, item], seed=1)
    assert guilty is item
    assert fails(module)


def test_the_same_exception():
    # Sampling wants programs that give logits.
    sampling = parse_pipeline("on-device-sampling")
    fails, failure = same_exception(small("add(%x, %z)"), sampling)
    assert failure is not None
    assert failure.code == "GG0304"
    assert fails(small("subtract(%x, %z)"))
    cannot = parse_pipeline("on-device-sampling{global_topk=-1}")
    assert same_exception(small("add(%x, %z)"), cannot)[1] != failure


def test_no_exception():
    fails, failure = same_exception(small("add(%x, %z)"), parse_pipeline("cse"))
    assert failure is None
    assert not fails(small("add(%x, %z)"))


def test_a_failure_after_passes():
    seen: list[int] = []

    def fails(module: Module) -> bool:
        seen.append(len(list(module.function("f").block)))
        return True

    before = small("add(%x, %z)")
    before.function("f").outputs = [("y", before.function("f").args[0])]
    assert after_passes(parse_pipeline("dce"), fails)(before)
    assert seen == [0]
    assert len(list(before.function("f").block)) == 1
    assert not after_passes(parse_pipeline("on-device-sampling"), fails)(before)
    assert seen == [0]
