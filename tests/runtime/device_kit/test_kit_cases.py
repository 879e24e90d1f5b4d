"""The cases of kits: which ops, rewrites and rules they reach, and which they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import dtype
from graphgen.lowering.check.compiler_rules import legality, opcode_of, rules_by_op
from graphgen.passes.legalize.legalization_rules import EVERYWHERE
from graphgen.runtime.device_kit.build_kit import build_kit, wanted_by
from graphgen.runtime.device_kit.hlo_text_cases import NOT_IN_THE_KIT, opcodes
from graphgen.runtime.device_kit.kit_program import some_array
from graphgen.runtime.device_kit.model_cases import MODELS, PHASES
from graphgen.runtime.device_kit.op_cases import op_program, op_programs
from graphgen.runtime.device_kit.rate_cases import rate_programs, rates
from graphgen.runtime.device_kit.rewrite_cases import rewrite_programs, rewrites_of
from graphgen.runtime.kit_runner.kit_types import KitTensor
from graphgen.runtime.kit_runner.numbers import compared
from graphgen.targets import accelerator, find_target
from graphgen.text.grammar import parse_type
from tests.oracles import xla_hlo

TARGETS = ("trn1", "trn2", "inf2")
# Executed on a device, but XLA's compiler for CPUs does not know them.
REFUSED_BY_XLA = {
    "op/clamp/pred", "op/select_and_scatter/c64", "op/bitcast/f32", "op/bitcast/bf16",
}  # fmt: skip
# Rules that no small program can be about.
UNTESTED = {
    "big-const": "a constant of 16 MB makes a kit too large",
    "dynamic-reshape": "its opcode has no case",
    "topk-last-dim": "our topk is always of the last dimension",
    "topk-mult-8": "refused as an opcode before",
    "topk-wide": "refused as an opcode before",
}


def test_every_opcode_of_the_table_has_a_case_or_a_reason():
    found = {opcode_of(use.op, {}) for _, use in op_programs()} | opcodes()
    table = {*cast(Mapping[str, object], legality()["ops"])}
    assert table - found == {*NOT_IN_THE_KIT}


@pytest.mark.parametrize("target", TARGETS)
def test_every_rewrite_of_a_target_changes_its_program(target: str):
    device = accelerator(target)
    names = rewrites_of(device)
    assert {*names} == {rule.name for rule in EVERYWHERE} | {*find_target(target).rules}
    for name in names if target == "trn2" else ("top-k-by-kernel",):
        before, after = rewrite_programs(name, device)
        assert before.hlo != after.hlo, name
        assert [*before.outputs] == [*after.outputs]


def test_there_are_thirty_model_programs():
    assert len(MODELS) * len(PHASES) >= 30


@pytest.mark.slow
def test_rules_without_a_case_are_named_with_the_reason():
    builder = build_kit([accelerator(name) for name in ("trn1", "trn2")], wanted_by(()))
    cases = [case for rows in builder.targets.values() for case in rows["cases"]]
    assert len({case["name"] for case in builder.targets["trn2"]["cases"]}) == len(
        builder.targets["trn2"]["cases"]
    )
    met = {rule["rule"] for case in cases for rule in case["subject"]["rules"]}
    every = {rule.id for rules in rules_by_op().values() for rule in rules}
    assert every - met == {*UNTESTED}


def test_rates_are_of_programs_that_give_what_they_are_given():
    programs = {program.name: program for program in rate_programs(size=16, read=8)}
    assert {rate.name for rate in rates()} == {*programs}
    for program in programs.values():
        found = evaluate(program.function, program.inputs, module=program.module)
        assert found["y"].tobytes() == program.outputs["y"].tobytes(), program.name
    products, *_, memory = rates(16, 8)
    assert (products.amount, memory.amount) == (2 * 8 * 16**3 / 1e12, 2 * 64 / 1e9)
    assert (products.published(accelerator("trn2", 1)), memory.published(accelerator("trn1"))) == (
        79.0,
        410.0,
    )


def test_integers_of_inputs_are_small_of_either_sign_and_never_0():
    small = {*range(1, 8)}
    assert {*some_array("x", parse_type("u8[500]")).tolist()} == small
    found = {*some_array("x", parse_type("s32[500]")).tolist()}
    assert found == small | {-number for number in small}
    assert {*some_array("x", parse_type("s32[500]"), 4).tolist()} == {*range(4)}


def test_an_op_is_only_asked_for_types_that_it_takes():
    uses = {name: use for name, use in op_programs() if name.startswith("op/sqrt/")}
    made = {name for name, use in uses.items() if op_program(name, use) is not None}
    assert "op/sqrt/bf16" in made
    assert "op/sqrt/s32" in uses
    assert "op/sqrt/s32" not in made


@pytest.mark.slow
def test_expected_numbers_are_those_of_xla():
    builder = build_kit([accelerator("trn2")], wanted_by(("op", "rewrite", "model")))
    ran, refused = 0, set[str]()
    for case in builder.targets["trn2"]["cases"]:
        hlo = builder.files[case["hlo"]]
        # XLA knows no kernels of Neuron.
        if case["why_not_run"] or b"AwsNeuron" in hlo or b"GraphgenKnows" in hlo:
            continue
        given = [_given(item, builder.files[item["data"]]) for item in case["inputs"]]
        try:
            found = xla_hlo.run(hlo, [given])[0]
        except GraphgenError:
            refused.add(case["name"])
            continue
        for item, array in zip(case["outputs"], found, strict=True):
            got = np.ascontiguousarray(array).tobytes()
            result = compared(item, got, builder.files[item["data"]])
            assert result["right"], (case["name"], result)
        ran += 1
    assert ran > 900
    assert refused == REFUSED_BY_XLA


def _given(item: KitTensor, data: bytes) -> Array:
    return np.frombuffer(data, numpy_dtype(dtype(item["dtype"]))).reshape(item["dims"])
