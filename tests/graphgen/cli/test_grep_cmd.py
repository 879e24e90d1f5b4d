"""graphgen grep: layers folded, exit status, hints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, facts, graphgen
from tests.graphgen.cli.test_inspect_cmd import step
from tests.lowering.hlo.test_unmodelled import REGIONS

__all__ = ["step"]


def test_layers_are_folded_and_unfolded(mini: Path):
    pattern = "dot_general(_, weight){scope=*.mlp.*}"
    folded = done("grep", mini, pattern, "--program", "decode").stdout.splitlines()
    assert folded[0].split() == ["times", "program", "layers", "first", "match", "at"]
    assert [line.split()[:3] for line in folded[1:4]] == [
        ["2", "@decode", "model.layers.{0,1}"]
    ] * 3
    assert len([line for line in folded if line]) == 4
    whole = done("grep", mini, pattern, "--program", "decode", "--all").stdout
    assert len([line for line in whole.splitlines() if line]) == 7
    assert "graphgen/nn/linear.py:" in whole


def test_a_chain_with_lines(step: Path):
    text = done("grep", step, "custom_call -> add -> return").stdout
    assert (
        "%n = custom_call(%x, %cache) : f32[8] -> %new = add(%cache, %n) : f32[8] -> return cache"
        in text
    )
    assert text.rstrip().endswith("net.py:9, net.py:10")
    (found,) = facts("grep", step, "custom_call -> add -> return")
    assert (found["program"], found["layer"], found["output"]) == ("main", "layers.1", "cache")
    assert [op["where"] for op in found["ops"]] == ["net.py:9", "net.py:10"]


def test_no_match_and_why(step: Path):
    result = graphgen("grep", step, "dot_genral(_, param) -> reshape")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "note: no match\nnote: no op is called dot_genral; there is dot_general" in result.stderr
    assert graphgen("grep", step, "sort", "--json").stdout == "[]\n"


def test_a_mistake_has_exit_status_2(step: Path):
    result = graphgen("grep", step, "dot(")
    assert result.exit_code == 2
    assert "error[GG0705]: pattern:" in result.stderr


# A product in a fusion that the program, and a loop in a branch of it, run.
NESTED = """HloModule nest

fused {
  a = f32[4,4] parameter(0)
  b = f32[4,4] parameter(1)
  d = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[4,4] exponential(d)
}

inner_cond {
  s = (s32[], f32[4,4], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}

inner_body {
  s = (s32[], f32[4,4], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  v = f32[4,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[4,4] fusion(x, v), kind=kLoop, calls=fused
  y = f32[4,4] sine(f)
  ROOT t = (s32[], f32[4,4], f32[4,4]) tuple(j, y, v)
}

then {
  p = f32[4,4] parameter(0)
  ROOT c = f32[4,4] cosine(p)
}

else {
  p = f32[4,4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4,4], f32[4,4]) tuple(z, p, p)
  w = (s32[], f32[4,4], f32[4,4]) while(t), condition=inner_cond, body=inner_body
  ROOT x = f32[4,4] get-tuple-element(w), index=1
}

ENTRY main {
  x = f32[4,4] parameter(0)
  p = pred[] parameter(1)
  f = f32[4,4] fusion(x, x), kind=kOutput, calls=fused
  ROOT r = f32[4,4] conditional(p, x, f), true_computation=then, false_computation=else
}
"""


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    file = tmp_path / "nested.hlo"
    file.write_text(NESTED)
    return file


def test_fusions_loops_and_branches_are_searched(nested: Path):
    text = done("grep", nested, "dot_general -> exponential").stdout
    assert "1      @main    -       %d = dot_general(%x.2, %x.2) : f32[4,4] -> %f.1 = expon" in text
    assert "%r.branch1/%w.0.body/%d = dot_general(%x, %v) : f32[4,4] -> %f = exponential" in text
    assert text.count("@main") == 2
    (found,) = facts("grep", nested, "dot_general -> exponential -> sine")
    assert (found["program"], found["inside"]) == ("main", "%r.branch1/%w.0.body")
    # The argument of a branch is what the conditional hands it.
    (cosine,) = facts("grep", nested, "cosine(input)")
    assert cosine["inside"] == "%r.branch0"
    assert facts("grep", nested, "cosine(input)", "--program", "then") != []
    assert graphgen("grep", nested, "cosine(weight)").exit_code == 1


def test_inspect_counts_what_loops_and_branches_run(nested: Path):
    text = done("inspect", nested).stdout
    assert "@main (main): 3 ops, 10 more in loops and branches" in text
    assert "ops         dot_general 1, exponential 1, conditional 1" in text
    assert "all ops     constant 3, dot_general 2, exponential 2, conditional 1, cosine 1" in text
    (program,) = facts("inspect", nested)["programs"]
    assert program["whole_histogram"]["dot_general"] == 2
    assert sum(program["whole_histogram"].values()) == 13
    body = next(item for item in program["bodies"] if item["name"] == "inner_body")
    assert body["histogram"]["dot_general"] == 1
    assert "call" not in body["histogram"]


def test_computations_that_are_kept_as_bytes_are_noted(tmp_path: Path):
    file = tmp_path / "regions.hlo"
    file.write_text(REGIONS)
    result = graphgen("grep", file, "subtract")
    assert "note: 1 subtract in the computations that select-and-scatter calls" in result.stderr
