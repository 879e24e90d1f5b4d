"""What ``check`` refuses, ``legalize`` writes in another form, which gives the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array, evaluate_ranks
from graphgen.ir import Module
from graphgen.text import parse
from lowering.check.check import Finding, check
from lowering.check.predicates import Request
from lowering.check.rewrites import REWRITES
from lowering.cpu import compile_program
from lowering.cpu.pjrt import configure
from passes.core import run_pipeline
from passes.core.journal import Journal
from passes.legalize.legalize import Legalize
from tests.oracles.sample import any_array
from tests.passes.test_rules import SAMPLES

TARGETS = {"inf2": 1, "trn1": 1, "trn2": 2, "trn3": 2}
# The finding, a program with it (by the rule that does away with it), and the targets it is of.
CASES = [
    ("int-dot-trn2", "integer-dot", ("trn2", "trn3")),
    ("int64-dot", "integer-dot", ("inf2", "trn1")),
    ("coll-int", "integer-sum-over-ranks", tuple(TARGETS)),
    ("coll-int", "integer-extreme-over-ranks", tuple(TARGETS)),
    ("scatter-int-compute", "integer-scatter-add", tuple(TARGETS)),
    ("sra-32", "wide-shift", tuple(TARGETS)),
    ("a2a-dim0", "exchange-along-the-first", tuple(TARGETS)),
    ("fp8e4m3fn-dot", "widened-f8-dot", ("inf2", "trn1", "trn2")),
    ("gather-disjoint", "gather-of-elements", tuple(TARGETS)),
    ("gather-rows", "gather-of-rows", tuple(TARGETS)),
    ("status erf", "erf-by-quotients", tuple(TARGETS)),
]
EACH = [(rule, name, target) for rule, name, targets in CASES for target in targets]


def program(sample: str) -> Module:
    ranks = 4 if "[0,1],[3,2]" in sample else 2 if "replica_groups" in sample else 1
    mesh = f" mesh=tp:{ranks}" if ranks > 1 else ""
    lines = "".join(f"  {line}\n" for line in sample.splitlines())
    text = f"module @m level=sharded{mesh} {{\n}}\n\nfunc @f {{\n{lines}"
    return parse(f"{text}  return y = %a\n}}\n")


def found(module: Module, rule: str, target: str) -> list[Finding]:
    request = Request(target, TARGETS[target], sdk_next=True)
    name, _, opcode = rule.partition(" ")
    return [item for item in check(module, request) if item.rule == name and opcode in item.op]


def given(module: Module) -> list[dict[str, Array]]:
    random = np.random.default_rng(3)
    function = module.function("f")
    return [
        {value.name or "": any_array(random, value.type) for value in function.args}
        for _ in range(module.ranks)
    ]


def same(ours: Array, wanted: Array, name: str) -> None:
    """Bit for bit, but for the error function."""
    if "erf" in name:
        one, other = (array.astype(np.float64) for array in (ours, wanted))
        tolerance = {4: 1e-6, 2: 8e-3}[wanted.dtype.itemsize]
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=1e-7)
    else:
        np.testing.assert_array_equal(ours, wanted)


def test_every_rewrite_has_a_case():
    assert {rule for rule, _, _ in CASES} == set(REWRITES)
    for rule, name, _ in CASES:
        assert name in REWRITES[rule]


@pytest.mark.parametrize(("rule", "name", "target"), EACH)
def test_a_finding_is_gone_after_legalize(rule: str, name: str, target: str):
    refused = 0
    for sample in SAMPLES[name]:
        module = program(sample)
        before = found(module, rule, target)
        refused += len(before)
        assert all(name in item.rewrite and target in item.rewrite for item in before)
        inputs = given(module)
        wanted = evaluate_ranks(module.function("f"), inputs)
        run_pipeline(module, [Legalize(target=target)], journal=(journal := Journal()))
        assert found(module, rule, target) == []
        if before:
            assert any(name in item.rule for item in journal.applications)
        for one, other in zip(evaluate_ranks(module.function("f"), inputs), wanted, strict=True):
            same(one["y"], other["y"], name)
    assert refused


def test_xla_computes_the_same_from_the_legal_forms():
    configure(4)
    for _, name, _ in CASES:
        for sample in SAMPLES[name]:
            if "64[" in sample:
                continue  # XLA is not asked for 64-bit types here
            module = program(sample)
            inputs = given(module)
            wanted = evaluate_ranks(module.function("f"), inputs)
            run_pipeline(module, [Legalize(target="trn2")])
            ours = compile_program(module, module.function("f")).run_numpy(inputs)
            for one, other in zip(ours, wanted, strict=True):
                same(one["y"], other["y"], name)
