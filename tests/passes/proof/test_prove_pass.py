"""Proofs of passes, and of indices, over language models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.inspect.result_json import verdict_json
from graphgen.passes.pipelines import default
from graphgen.passes.proof.pass_proof import PROVED, PassProof, Proof, Status
from graphgen.passes.proof.prove_bounds import prove_bounds, prove_indices
from graphgen.passes.proof.prove_pass import assumptions, prove_pass
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.validate.verdict import Verdict
from graphgen.passes.validate.verdict_text import proof_lines
from graphgen.text import print_module
from tests.graphgen.cli.conftest import done

CONFIG = CompileConfig(batch=(1, 3), context=(8,), tokens=(8, 16))
# Passes of the default pipeline that change how states are stored, or promise something of rows.
OPEN = {"specialize", "cache-as-bits"}
FAMILIES = ("llama-3.1-8b", "gpt2", "gemma-3-1b", "bloom-560m")


def mini(name: str) -> Module:
    return build(known_shape(name), bf16, mini=True)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.one_in(4)
def test_passes_of_the_default_pipeline_are_proved(name: str):
    module = mini(name)
    for item in default(CONFIG):
        before = clone_module(module)
        apply_pass(module, item)
        if item.name not in OPEN:
            proof = prove_pass(before, module)
            # Passes that may round otherwise keep the meaning in real arithmetic.
            proved = proof.proved + (proof.real if item.rounding else 0)
            assert proved == len(proof.programs), item.name


def test_what_is_not_compared_says_why():
    before = mini("llama-3.1-8b")
    (first, *_) = prove_pass(before, mini("gpt2")).programs.values()
    assert first.status is Status.UNDECIDED
    assert first.why


def test_a_pass_that_divides_values_over_ranks_is_proved_but_for_rounding():
    module = mini("llama-3.1-8b")
    before = clone_module(module)
    run_pipeline(module, parse_pipeline("shard{tp=2}"))
    for proof in prove_pass(before, module).programs.values():
        assert proof.status in (Status.PROVED, Status.REAL)


def test_a_refuted_program_comes_first():
    proof = PassProof({"a": PROVED, "b": Proof(Status.UNDECIDED), "c": Proof(Status.REFUTED)})
    assert (proof.proved, proof.first) == (1, ("c", Proof(Status.REFUTED)))


def test_indices_of_a_logical_model_are_within_bounds_for_all_sizes():
    module = mini("llama-3.1-8b")
    for function in module.programs():
        proofs = prove_bounds(module, function)
        assert len(proofs) == 13
        assert {proof.status for proof in proofs} == {Status.PROVED}


def test_an_index_that_may_be_outside_is_reported_with_its_range():
    module = mini("gpt2")
    run_pipeline(module, default(CONFIG))
    open_ = {
        (str(proof.index.high), proof.why)
        for function in module.programs()
        for proof in prove_bounds(module, function)
        if proof.status is not Status.PROVED
    }
    # Padding reads the table of positions at -1, and an idle row reads a row of the cache.
    assert open_ == {("1023", "known to be in [-1, 15]"), ("2", "known to be in [0, 3]")}
    verdict = Verdict("dce", proof=PassProof({}), indices=prove_indices(module))
    *_, line = proof_lines([verdict])
    assert isinstance(line, str)
    assert line.startswith("indices within bounds for all sizes: ")
    assert "gather known to be in [-1, 15], bounds [0, 1023]" in line
    facts = json.loads(json.dumps(verdict_json(verdict)))["indices"]
    assert facts["count"] == facts["proved"] + len(facts["undecided"])
    assert {(item["high"], item["why"]) for item in facts["undecided"]} == open_


def test_the_command_prints_proofs_beside_numbers(tmp_path: Path):
    file = tmp_path / "mini.gg"
    file.write_text(print_module(mini("llama-3.1-8b")), encoding="utf-8")
    out = done("validate", str(file), "-p", "canonicalize,cache-as-bits", "--prove").stdout
    assert "canonicalize   2 of 2\n" in out
    # Caches as bits are decided by the interface table.
    assert "is stored otherwise" not in out
    assert "indices within bounds for all sizes: 26 of 26\n" in out
    out = done("validate", str(file), "-p", "canonicalize", "--prove", "--json").stdout
    (found,) = json.loads(out)["passes"]
    assert found["proof"]["decode"]["status"] == "proved"
    assert found["indices"] == {"count": 26, "proved": 26, "undecided": []}


def test_what_is_known_of_every_call():
    module = mini("llama-3.1-8b")
    run_pipeline(module, parse_pipeline("specialize{batch=[3],context=[8],tokens=[16]}"))
    (tokens,) = {r.logical.shape[0] for r in module.entries(Role.WEIGHT) if "embed" in r.name}
    assert assumptions(module, module.function("decode.b3.c16")).ranges == {
        "rank": (0, 0),
        "tokens": (0, tokens + -1),
        "positions": (-1, 15),
        "lengths": (0, 16),
        "seq_ids": (0, 3),
    }
