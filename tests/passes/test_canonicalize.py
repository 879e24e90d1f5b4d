"""Canonicalization: when each rule fires, when it does not, and that it comes to an end."""

from __future__ import annotations

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.passes.canonical.canonicalize import RULES, Canonicalize
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.text import parse
from tests.passes.programs import after, function, lines

# Rule, operation lines before, operation lines after; %y is returned.
FIRES = {
    "identity: reshape": (["%y = reshape(%x) shape=[2,6] : f32[2,6]"], []),
    "identity: convert": (["%y = convert(%x) dtype=f32 : f32[2,6]"], []),
    "identity: transpose": (["%y = transpose(%x) permutation=[0,1] : f32[2,6]"], []),
    "identity: broadcast_in_dim": (
        ["%y = broadcast_in_dim(%x) shape=[2,6] dimensions=[0,1] : f32[2,6]"],
        [],
    ),
    "identity: slice": (
        ["%y = slice(%x) start_indices=[0,0] limit_indices=[2,6] : f32[2,6]"],
        [],
    ),
    "identity: slice with strides of 1": (
        ["%y = slice(%x) start_indices=[0,0] limit_indices=[2,6] strides=[1,1] : f32[2,6]"],
        [],
    ),
    "identity: pad": (["%y = pad(%x, %s) low=[0,0] high=[0,0] : f32[2,6]"], []),
    "reshape-of-reshape": (
        ["%a = reshape(%x) shape=[12] : f32[12]", "%y = reshape(%a) shape=[3,4] : f32[3,4]"],
        ["%a = reshape(%x) shape=[12] : f32[12]", "%y = reshape(%x) shape=[3,4] : f32[3,4]"],
    ),
    "reshape-of-reshape and back": (
        ["%a = reshape(%x) shape=[12] : f32[12]", "%y = reshape(%a) shape=[2,6] : f32[2,6]"],
        ["%a = reshape(%x) shape=[12] : f32[12]"],
    ),
    "reshape-of-reshape, three": (
        [
            "%a = reshape(%x) shape=[12] : f32[12]",
            "%b = reshape(%a) shape=[4,3] : f32[4,3]",
            "%y = reshape(%b) shape=[3,4] : f32[3,4]",
        ],
        [
            "%a = reshape(%x) shape=[12] : f32[12]",
            "%b = reshape(%x) shape=[4,3] : f32[4,3]",
            "%y = reshape(%x) shape=[3,4] : f32[3,4]",
        ],
    ),
    "transpose-of-transpose": (
        [
            "%b = broadcast_in_dim(%x) shape=[2,6,5] dimensions=[0,1] : f32[2,6,5]",
            "%a = transpose(%b) permutation=[1,2,0] : f32[6,5,2]",
            "%y = transpose(%a) permutation=[0,2,1] : f32[6,2,5]",
        ],
        [
            "%b = broadcast_in_dim(%x) shape=[2,6,5] dimensions=[0,1] : f32[2,6,5]",
            "%a = transpose(%b) permutation=[1,2,0] : f32[6,5,2]",
            "%y = transpose(%b) permutation=[1,0,2] : f32[6,2,5]",
        ],
    ),
    "transpose-of-transpose and back": (
        [
            "%a = transpose(%x) permutation=[1,0] : f32[6,2]",
            "%y = transpose(%a) permutation=[1,0] : f32[2,6]",
        ],
        ["%a = transpose(%x) permutation=[1,0] : f32[6,2]"],
    ),
    "concatenate-of-one": (["%y = concatenate(%x) dimension=1 : f32[2,6]"], []),
    "constant-on-the-right": (
        ["%c = constant() value=f32[](2.0) : f32[]", "%y = add(%c, %s) : f32[]"],
        ["%c = constant() value=f32[](2.0) : f32[]", "%y = add(%s, %c) : f32[]"],
    ),
    "constant-on-the-right, spread": (
        [
            "%c = constant() value=f32[](2.0) : f32[]",
            "%k = broadcast_in_dim(%c) shape=[2,6] : f32[2,6]",
            "%y = maximum(%k, %x) : f32[2,6]",
        ],
        [
            "%c = constant() value=f32[](2.0) : f32[]",
            "%k = broadcast_in_dim(%c) shape=[2,6] : f32[2,6]",
            "%y = maximum(%x, %k) : f32[2,6]",
        ],
    ),
}
STAYS = {
    "another shape": ["%y = reshape(%x) shape=[6,2] : f32[6,2]"],
    "another type": ["%y = convert(%x) dtype=bf16 : bf16[2,6]"],
    "a square transposed": ["%y = transpose(%q) permutation=[1,0] : f32[3,3]"],
    "a square broadcast the other way": [
        "%y = broadcast_in_dim(%q) shape=[3,3] dimensions=[1,0] : f32[3,3]"
    ],
    "a slice": ["%y = slice(%x) start_indices=[0,1] limit_indices=[2,6] : f32[2,5]"],
    "a pad": ["%y = pad(%x, %s) low=[1,0] high=[0,0] : f32[3,6]"],
    "a reshape of a transpose": [
        "%a = transpose(%x) permutation=[1,0] : f32[6,2]",
        "%y = reshape(%a) shape=[12] : f32[12]",
    ],
    "two joined": ["%y = concatenate(%x, %x) dimension=0 : f32[4,6]"],
    "a constant on the right": [
        "%c = constant() value=f32[](2.0) : f32[]",
        "%y = multiply(%s, %c) : f32[]",
    ],
    "constants on both sides": [
        "%c = constant() value=f32[](2.0) : f32[]",
        "%d = constant() value=f32[](3.0) : f32[]",
        "%y = multiply(%c, %d) : f32[]",
    ],
    "an order that matters": [
        "%c = constant() value=f32[](2.0) : f32[]",
        "%y = subtract(%c, %s) : f32[]",
    ],
    "no constant": [
        "%a = negate(%s) : f32[]",
        "%b = broadcast_in_dim(%a) shape=[2,6] : f32[2,6]",
        "%y = add(%b, %x) : f32[2,6]",
    ],
}
ARGS = ["arg %x : f32[2,6]", "arg %q : f32[3,3]", "arg %s : f32[]"]


@pytest.mark.parametrize("name", FIRES)
def test_rules_fire(name: str):
    before, wanted = FIRES[name]
    result = "%y" if any(line.startswith("%y") for line in wanted) else "%x"
    text = after(function(*ARGS, *before, "return y = %y"), "canonicalize")
    assert lines(text) == [*ARGS, *wanted, f"return y = {result}"]


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str):
    body = [*ARGS, *STAYS[name], "return y = %y"]
    assert lines(after(function(*body), "canonicalize")) == body


def test_every_rule_is_tried():
    assert {name.split(":")[0].split(",")[0].removesuffix(" and back") for name in FIRES} == {
        rule.name for rule in RULES
    }


def test_symbolic_shapes():
    body = [
        "arg %x : f32[B,S]",
        "%a = reshape(%x) shape=[B*S] : f32[B*S]",
        "%b = reshape(%a) shape=[B,S] : f32[B,S]",
        "%y = slice(%b) start_indices=[0,0] limit_indices=[B,S] : f32[B,S]",
        "return y = %y",
    ]
    text = after(function(*body), "canonicalize")
    assert lines(text) == [body[0], body[1], "return y = %x"]


def test_a_second_run_changes_nothing():
    for before, _ in FIRES.values():
        once = after(function(*ARGS, *before, "return y = %y"), "canonicalize")
        assert after(once, "canonicalize") == once


def test_a_rule_that_declines_says_why_and_where():
    module = parse(function(*ARGS, *STAYS["a square transposed"], "return y = %y"))
    journal = Journal()
    Canonicalize().run(module, Rewriter("canonicalize", journal))
    misses = {miss.rule: miss.why for miss in journal.misses}
    assert misses["identity"].reason == "the permutation moves dimensions"
    assert misses["transpose-of-transpose"].reason == "the operand is not a transpose"
    at = misses["identity"].at
    assert at is not None
    assert at.name == "q"


def test_new_ops_carry_the_name_of_the_pass():
    body = ["%c = constant() value=f32[](2.0) : f32[]", "%y = add(%c, %s) : f32[]  # a.py:3 attn"]
    module = parse(function(*ARGS, *body, "return y = %y"))
    run_pipeline(module, [Canonicalize()])
    op = next(op for op in module.function("f").ops if op.name == "add")
    assert repr(op.loc) == "a.py:3 attn via canonicalize"
    assert op.result.name == "y"
