"""Programs of other tools for the ranks of a mesh, against the program for one device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.open import open_module
from graphgen.lowering.rank_program import (
    as_whole_program,
    is_foreign,
    parse_layouts,
    with_domains,
    with_known_loops,
)
from graphgen.ops import verify
from graphgen.passes.equiv.refute import with_counterexamples
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import Claim
from graphgen.text import parse
from tests.oracles import sharded_pairs as oracle

PAIRS = (
    *("attention", "convolution", "embedding", "experts", "fused_qkv", "mlp", "normalization"),
    *("pipelined_scan", "ring_attention", "training_step"),
)
# An online softmax is not among the relations that the prover knows here.
OPEN = ("ring_attention",)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of all pairs, which a process of its own writes."""
    folder = tmp_path_factory.mktemp("pairs")
    assert oracle.__file__
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, oracle.__file__, str(folder)], check=True, cwd=root)
    return folder


def claim(folder: Path, name: str, kind: str) -> Claim:
    """The verdict on the only result of a pair."""
    reference = open_module(folder / f"{name}.single.mlir")
    if name == "embedding":
        # Ids out of the vocabulary are read in another way.
        with_domains(reference, ["arg0=[0,15]"])
    read = open_module(folder / f"{name}.{kind}")
    assert is_foreign(read)
    reference = with_known_loops(reference)
    module, _ = as_whole_program(reference, read, {})
    verify(module)
    found = with_counterexamples(reference, module, prove_refinement(reference, module))
    (only,) = found.claims
    return only


@pytest.mark.parametrize("name", PAIRS)
def test_a_program_that_was_divided_right_is_proved_and_never_refuted(
    programs: Path, name: str
) -> None:
    found = claim(programs, name, "right.mlir")
    if name in OPEN:
        assert found.status is Status.UNDECIDED
        assert all(found.pair)
    else:
        assert found.status in (Status.PROVED, Status.REAL), found


@pytest.mark.parametrize("name", PAIRS)
def test_a_program_that_was_divided_wrong_is_refuted_with_numbers(
    programs: Path, name: str
) -> None:
    found = claim(programs, name, "wrong.mlir")
    assert found.status is Status.REFUTED, found
    assert "instead of" in found.counterexample
    assert found.pair[1]


def test_the_op_that_was_changed_is_blamed(programs: Path) -> None:
    assert "low=[]" in claim(programs, "convolution", "wrong.mlir").pair[1]
    assert "constant() value=f32[](4.0)" in claim(programs, "normalization", "wrong.mlir").pair[1]
    assert "dynamic_slice" in claim(programs, "pipelined_scan", "wrong.mlir").pair[1]


def test_what_xla_has_divided_is_related_by_the_shardings_of_its_file(programs: Path) -> None:
    assert claim(programs, "fused_qkv", "split.pb").status is Status.REAL


WHOLE = """\
module @a level=logical {
  meta format = "stablehlo"
  input %x : f32[4,8]
  input %w : f32[8,8]
  output %y : f32[4,8]
}

func @main phase=main {
  arg %x : f32[4,8]
  arg %w : f32[8,8]
  %0 = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[4,8]
  return y = %0
}
"""
PART = """\
module @b level=sharded {
  meta format = "hlo"
  meta hlo.num_partitions = "4"
  input %p0 : f32[4,8]
  input %p1 : f32[8,2]
  output %r : f32[4,2]
}

func @main phase=main {
  arg %p0 : f32[4,8]
  arg %p1 : f32[8,2]
  %0 = dot_general(%p0, %p1) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[4,2]
  return r = %0
}
"""


def status(part: str, *layouts: str) -> tuple[Status, str]:
    whole = parse(WHOLE, "a")
    module, relation = as_whole_program(whole, parse(part, "b"), parse_layouts(layouts))
    verify(module)
    (only,) = with_counterexamples(whole, module, prove_refinement(whole, module)).claims
    return only.status, relation


def test_a_layout_is_inferred_where_one_dimension_differs() -> None:
    assert status(PART) == (Status.REAL, "arguments in order; inferred from types")


def test_layouts_are_given_by_the_names_of_either_program() -> None:
    assert status(PART, "p1:{-,tp}", "y:{-,tp}") == (
        Status.REAL,
        "arguments in order; given",
    )


def test_a_sum_over_ranks_may_be_left_to_the_caller() -> None:
    rows = (
        PART.replace("f32[8,2]", "f32[2,8]")
        .replace("p0 : f32[4,8]", "p0 : f32[4,2]")
        .replace("f32[4,2]\n  return", "f32[4,8]\n  return")
        .replace("%r : f32[4,2]", "%r : f32[4,8]")
    )
    assert status(rows, "p0:{-,tp}", "p1:{tp,-}", "y:{-,-+tp}")[0] is Status.REAL
    # Without the sum each rank has a part of it.
    assert status(rows, "p0:{-,tp}", "p1:{tp,-}")[0] is Status.REFUTED


@pytest.mark.parametrize(
    ("layouts", "code"),
    [
        (["p1:{tp,-}"], "GG0205"),
        (["p1:{-,tp}", "p1:{-,tp}"], "GG0302"),
        (["p1"], "GG0302"),
        (["p1:{-,dp}", "p0:{tp,-}"], "GG0302"),
    ],
)
def test_layouts_that_do_not_fit_are_errors(layouts: list[str], code: str) -> None:
    with pytest.raises(GraphgenError) as caught:
        as_whole_program(parse(WHOLE, "a"), parse(PART, "b"), parse_layouts(layouts))
    assert caught.value.code == code


def test_types_that_leave_the_layout_open_are_an_error_that_names_the_option() -> None:
    part = PART.replace("p0 : f32[4,8]", "p0 : f32[1,8]").replace("f32[4,2]", "f32[1,2]")
    with pytest.raises(GraphgenError) as caught:
        as_whole_program(parse(WHOLE, "a"), parse(part, "b"), {})
    assert "--relate 'y:{tp,-}'" in caught.value.help
