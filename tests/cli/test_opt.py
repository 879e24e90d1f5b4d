"""``graphgen opt``, ``graphgen passes`` and ``graphgen ops``."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.ops import OPS
from graphgen.text import parse
from passes.core import PASSES, parse_pipeline
from tests.cli.conftest import done, error, facts, graphgen

DEAD = """\
module @m level=logical {
}

func @f {
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %b = negate(%a) : f32[4]
  return y = %x
}
"""
ALIVE = """\
module @m level=logical {
}

func @f {
  arg %x : f32[4]
  return y = %x
}
"""


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    path = tmp_path / "dead.gg"
    path.write_text(DEAD)
    return path


def test_the_result_is_written(dead: Path, tmp_path: Path):
    assert done("opt", dead, "-p", "dce").stdout == ALIVE
    out = tmp_path / "out.gg"
    assert done("opt", dead, "-p", "dce", "-o", out).stdout == ""
    assert out.read_text() == ALIVE


def test_from_standard_input():
    assert done("opt", "-", "-p", "dce", input=DEAD).stdout == ALIVE
    result = graphgen("opt", "-", "-p", "dce", input="nothing")
    assert "--> <stdin>:1:1" in result.stderr


def test_an_empty_pipeline_prints_the_module_again(dead: Path):
    assert done("opt", dead, "-p", "").stdout == DEAD


def test_statistics(dead: Path):
    result = done("opt", dead, "-p", "canonicalize,dce", "--stats")
    assert [line.split() for line in result.stderr.splitlines()] == [
        ["pass", "ops", "before", "ops", "after", "rewrites"],
        ["canonicalize", "2", "2", "0"],
        ["dce", "2", "0", "2"],
    ]
    assert "level=canonical" in result.stdout
    assert "ms" in done("opt", dead, "-p", "dce", "--time").stderr.splitlines()[0]


def test_statistics_as_json(dead: Path, tmp_path: Path):
    said = facts("opt", dead, "-p", "dce", "-o", tmp_path / "out.gg")
    (report,) = said["passes"]
    assert report.pop("seconds") >= 0
    assert report == {"pass": "dce", "ops_before": 2, "ops_after": 0, "applications": 2}
    assert said["functions"] == [{"name": "f", "phase": "", "ops": 0}]


def test_errors_of_the_pipeline(dead: Path, tmp_path: Path):
    out = tmp_path / "out.gg"
    assert error("opt", dead, "-p", "dec", "-o", out) == (
        "error[GG0301]: unknown pass 'dec'\n  help: did you mean dce?\n"
    )
    assert error("opt", dead, "-p", "legalize{colour=red}", "-o", out).startswith(
        "error[GG0302]: legalize has no option 'colour'\n"
    )
    assert error("opt", dead, "-p", "canonicalize,canonicalize{", "-o", out).startswith(
        "error[GG0302]: "
    )
    assert not out.exists()


def test_specializing_a_partitioned_module_binds_its_states(split: Path):
    text = done("opt", split, "-p", "specialize{context=[8],tokens=[8]},legalize").stdout
    module = parse(text)
    row = module.interface["model.layers.0.self_attn.k_cache"]
    assert (row.logical.text, row.physical.text) == ("f32[1,8,2,8]", "f32[1,8,1,8]")
    (whole, _) = module.function(row.pack).args
    assert whole.type is row.logical


def test_every_pass_is_listed():
    rows = {line.split()[0] for line in done("passes").stdout.splitlines()[1:]}
    assert rows == set(PASSES)
    assert {"canonicalize", "specialize", "legalize", "dce"} <= rows
    assert [item["name"] for item in facts("passes")] == sorted(PASSES)


def test_the_page_of_a_pass_shows_options_that_can_be_pasted():
    text = done("passes", "specialize").stdout
    head = text.splitlines()[0]
    assert head.startswith("specialize{batch=[1],")
    assert str(parse_pipeline(head)[0]) == "specialize"
    assert "Given:" in text
    said = facts("passes", "legalize")
    assert said["gives"] == "target"
    assert {"name": "min_rows", "type": "int", "default": "8"} in said["options"]


def test_unknown_pass():
    assert error("passes", "specialise") == (
        "error[GG0301]: unknown pass 'specialise'\n  help: did you mean specialize?\n"
    )


def test_every_op_is_listed():
    rows = {line.split()[0] for line in done("ops").stdout.splitlines()[1:]}
    assert rows == set(OPS)
    assert [item["name"] for item in facts("ops")] == sorted(OPS)


def test_the_page_of_an_op():
    text = done("ops", "compare").stdout
    assert text.startswith("compare(lhs, rhs)    simple\n\nCompare elements;")
    assert text.endswith("Attributes:\n    direction: EQ | NE | LT | LE | GT | GE\n")
    said = facts("ops", "dot_general")
    assert said["operands"] == ["lhs", "rhs"]
    batch = next(item for item in said["attributes"] if item["name"] == "lhs_batch_dims")
    assert (batch["required"], batch["default"]) == (False, "[]")


def test_unknown_op():
    assert error("ops", "dot_genral").startswith(
        "error[GG0103]: unknown op 'dot_genral'\n  help: did you mean dot_general"
    )
