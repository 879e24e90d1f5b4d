"""What ``check`` refuses, ``legalize`` writes in another form, which gives the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array, evaluate_ranks
from graphgen.eval.evaluate import rank_index
from graphgen.ir import RANK, Module
from graphgen.lowering.check.check import REWRITES, Finding, check
from graphgen.lowering.check.predicates import Request
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.cpu.pjrt import configure
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.stablehlo import read_stablehlo
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.legalize.legalize import Legalize
from graphgen.text import parse
from tests.oracles import xla_hlo
from tests.oracles.sample import any_array
from tests.passes.core.test_rule import SAMPLES

TARGETS = {"inf2": 1, "trn1": 1, "trn2": 2, "trn3": 2}
# The finding, a program with it (by the rule that does away with it), and the targets it is of.
CASES = [
    ("int-dot-trn2", "integer-dot", ("trn2", "trn3")),
    ("int64-dot", "integer-dot", ("inf2", "trn1")),
    ("coll-int", "integer-sum-over-ranks", tuple(TARGETS)),
    ("coll-int", "integer-extreme-over-ranks", tuple(TARGETS)),
    ("scatter-int-compute", "integer-scatter-add", tuple(TARGETS)),
    ("sra-32", "wide-shift", tuple(TARGETS)),
    ("a2a-dim0", "exchange-along-the-first", ("inf2", "trn1", "trn3")),
    ("a2a-2rank-lnc2", "exchange-of-two", ("trn2",)),
    ("fp8e4m3fn-dot", "widened-f8-dot", ("inf2", "trn1", "trn2")),
    ("gather-disjoint", "gather-of-elements", tuple(TARGETS)),
    ("gather-rows", "gather-of-rows", tuple(TARGETS)),
    ("sort-trn2", "front-of-sort", ("trn2", "trn3")),
    ("sort-trn2", "sort-by-kernel", ("trn2", "trn3")),
    ("replica-id", "rank-as-input", tuple(TARGETS)),
    ("partition-id", "rank-as-input", tuple(TARGETS)),
    ("status erf", "erf-by-quotients", tuple(TARGETS)),
]
EACH = [(rule, name, target) for rule, name, targets in CASES for target in targets]


def program(sample: str) -> Module:
    ranks = (
        4
        if "],[" in sample and "replica_groups" in sample
        else 2
        if "replica_groups" in sample
        else 1
    )
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
        | {RANK: rank_index(rank)}
        for rank in range(module.ranks)
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
            if "64[" in sample or "sort(" in sample:
                continue  # XLA is not asked for 64-bit types here, and knows no kernel of Neuron
            module = program(sample)
            inputs = given(module)
            wanted = evaluate_ranks(module.function("f"), inputs)
            run_pipeline(module, [Legalize(target="trn2")])
            ours = compile_program(module, module.function("f")).run_numpy(inputs)
            for one, other in zip(ours, wanted, strict=True):
                same(one["y"], other["y"], name)


WHICH = """\
HloModule which

%sum (a: u32[], b: u32[]) -> u32[] {
  %a = u32[] parameter(0)
  %b = u32[] parameter(1)
  ROOT %c = u32[] add(%a, %b)
}

ENTRY %main (x: u32[4]) -> u32[4] {
  %x = u32[4]{0} parameter(0)
  %id = u32[] replica-id()
  %all = u32[4]{0} broadcast(%id), dimensions={}
  %y = u32[4]{0} multiply(%x, %all)
  ROOT %z = u32[4]{0} all-reduce(%y), replica_groups={{0,1},{2,3}}, to_apply=%sum
}
"""
SAME = """\
module @which attributes {mhlo.num_replicas = 4 : i32} {
  func.func public @main(%x: tensor<4xui32>) -> tensor<4xui32> {
    %id = stablehlo.replica_id : tensor<ui32>
    %all = stablehlo.broadcast_in_dim %id, dims = [] : (tensor<ui32>) -> tensor<4xui32>
    %y = stablehlo.multiply %x, %all : tensor<4xui32>
    return %y : tensor<4xui32>
  }
}
"""


def test_a_read_program_that_asks_for_its_rank_gets_it_as_an_input():
    configure(4)
    proto = parse_hlo_text(WHICH)
    x = [np.arange(4, dtype=np.uint32) + 3 * rank for rank in range(4)]
    wanted = [out[0] for out in xla_hlo.run(proto, [[array] for array in x], 4)]
    module = read_hlo(proto)
    run_pipeline(module, [Legalize(target="trn1")])
    (function,) = module.programs()
    assert [value.name for value in function.args] == ["x", RANK]
    inputs = [{"x": array, RANK: rank_index(rank)} for rank, array in enumerate(x)]
    compiled = compile_program(module, function)
    for found in (evaluate_ranks(function, inputs), compiled.run_numpy(inputs)):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(next(iter(one.values())), other)


def test_stablehlo_asks_in_the_same_way():
    module = read_stablehlo(SAME)
    (function,) = module.programs()
    given = [{function.args[0].name or "": np.full(4, 5, np.uint32)} for _ in range(4)]
    found = [next(iter(out.values())) for out in evaluate_ranks(function, given)]
    assert [array.tolist() for array in found] == [[5 * rank] * 4 for rank in range(4)]


@pytest.mark.parametrize("kind", ["f32", "s32", "u8"])
def test_the_largest_of_anything_need_no_sort(kind: str):
    sample = f"arg %x : {kind}[3,20]\n%v, %a = top_k(%x) k=7 : {kind}[3,7], s32[3,7]"
    module = program(sample)
    inputs = given(module)
    wanted = evaluate_ranks(module.function("f"), inputs)
    run_pipeline(module, [Legalize(target="trn3")])
    assert found(module, "sort-trn2", "trn3") == []
    (one,), (other,) = evaluate_ranks(module.function("f"), inputs), wanted
    np.testing.assert_array_equal(one["y"], other["y"])


def test_infinities_come_before_what_rows_are_padded_with():
    sample = "arg %x : f32[1,5]\n%v, %a = top_k(%x) k=5 : f32[1,5], s32[1,5]"
    module = program(sample)
    run_pipeline(module, [Legalize(target="trn2")])
    x = np.array([[-np.inf, 2, -np.inf, 3, -np.inf]], np.float32)
    (out,) = evaluate_ranks(module.function("f"), [{"x": x}])
    assert out["y"].tolist() == [[3, 1, 0, 2, 4]]
