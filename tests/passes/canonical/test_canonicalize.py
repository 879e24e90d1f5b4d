"""Canonicalization: journal and provenance; texts are in ``tests/filecheck/canonicalize``."""

from __future__ import annotations

from pathlib import Path

import graphgen.passes.pipelines  # noqa: F401
from graphgen.passes.canonical.canonicalize import RULES, Canonicalize
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.text import parse
from tests.oracles.small_modules import function

SQUARE = "%y = transpose(%q) permutation=[1,0] : f32[3,3]"
ARGS = ["arg %x : f32[2,6]", "arg %q : f32[3,3]", "arg %s : f32[]"]


def test_every_rule_is_tried():
    path = Path(__file__).resolve().parents[2] / "filecheck" / "canonicalize" / "fires.gg"
    journal = Journal()
    run_pipeline(parse(path.read_text()), [Canonicalize()], journal=journal)
    assert {entry.rule for entry in journal.applications} == {rule.name for rule in RULES}


def test_a_rule_that_declines_says_why_and_where():
    module = parse(function(*ARGS, SQUARE, "return y = %y"))
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
