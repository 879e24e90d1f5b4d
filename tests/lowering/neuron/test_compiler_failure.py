"""Logs of neuronx-cc explained: codes, lines without a code, ops and rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.lowering.check.check import Finding
from graphgen.lowering.check.compiler_rules import module_rules, rules_by_op
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.neuronx_cc.command_line import OptionLayer, merge
from graphgen.lowering.neuronx_cc.compiler_failure import (
    CODE,
    CompilerFailure,
    FailedRun,
    blamed_op,
    explain,
    failure_of_json,
    help_of,
    known_codes,
)
from graphgen.lowering.neuronx_cc.worker import RunResult

HLO = """\
HloModule m, entry_computation_layout={(s32[2,2]{1,0})->s32[2,2]{1,0}}

ENTRY main {
  p = s32[2,2]{1,0} parameter(0)
  ROOT product.7 = s32[2,2]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_type="dot" op_name="layers/3/mlp via cse" source_file="model.py" source_line=12}
}
"""  # noqa: E501
DOT = Finding(
    "warn", "int-dot-trn2", "NCC_EVRF035", "main", "dot", "model.py:12", "dot(s32)", "cast it",
    "official", "docs",
)  # fmt: skip


@pytest.fixture
def hlo(tmp_path: Path) -> Path:
    file = tmp_path / "graph.hlo"
    file.write_bytes(parse_hlo_text(HLO))
    return file


def explained(hlo: Path, text: str, status: int = 70, *findings: Finding) -> CompilerFailure:
    command = merge([OptionLayer("a family", "--lnc=2 --odd")])
    result = RunResult(status, False, 1.0, 5_000_000_000)
    return explain(FailedRun("decode", result, text, command, findings, hlo))


def test_the_op_is_found_by_its_name_and_by_its_metadata(hlo: Path):
    found = explained(hlo, "INFO x\nERROR [NCC_EVRF035] int dot in %product.7\n", 70, DOT)
    assert (found.code, found.op, found.where) == ("NCC_EVRF035", "dot", "model.py:12 layers/3/mlp")
    assert (found.rule, found.predicted, found.remedy) == ("int-dot-trn2", True, "cast it")
    assert found.what == "int dot in %product.7"
    # Without a finding the rule is known, and did not fire.
    found = explained(hlo, "[NCC_EVRF035] int dot in product.7")
    assert (found.op, found.rule, found.predicted) == ("dot", "int-dot-trn2", False)
    # The code's line names no instruction, and another line does.
    found = explained(hlo, '[NCC_EVRF035] int dot\nop_name="layers/3/mlp" source_line=9\n')
    assert found.where == "layers/3/mlp"
    assert blamed_op("dot main parameter", hlo) is None, "opcodes are in every log"
    assert failure_of_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("text", "status", "kind", "words"),
    [
        (
            "ERROR [x]: Too many instructions after unroll for function sg0000 !",
            70,
            "refused",
            "-O1",
        ),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'",
            1,
            "no memory",
            "--jobs",
        ),
        ("[NCC_ILIN901] assert", 70, "internal", "another version"),
        ("neuronx-cc: error: unrecognized arguments: --odd", 2, "arguments", "comes from a family"),
        ("argument --lnc: invalid choice: 3", 2, "arguments", "--lnc comes from a family"),
        ("nothing", 3, "failed", "status 3"),
        ("", 139, "crash", "SIGSEGV"),
        ("", -9, "killed", "5.0 GB"),
        ("OSError: No space left on device", 1, "disk full", "free some space"),
    ],
)
def test_lines_without_a_code(hlo: Path, text: str, status: int, kind: str, words: str):
    found = explained(hlo, text, status)
    assert found.kind == kind
    assert words in f"{found.what} {found.remedy}"


def test_every_code_of_the_rules_is_explained():
    rules = [rule for rows in rules_by_op().values() for rule in rows]
    codes = {
        code for rule in [*rules, *module_rules().values()] for code in CODE.findall(rule.code)
    }
    assert codes <= known_codes()
    assert help_of("NCC_IXYZ001").meaning.startswith("an internal error")
    assert "not in the published list" in help_of("NCC_EXYZ001").meaning
