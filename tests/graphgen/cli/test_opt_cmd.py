"""``graphgen opt``, ``graphgen passes`` and ``graphgen ops``."""

from __future__ import annotations

import re
from inspect import cleandoc
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ops import OPS
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.core import PASSES, parse_pipeline
from graphgen.passes.core.registry import all_passes
from graphgen.passes.pipelines import default
from graphgen.targets import target_names
from graphgen.text import parse, print_module
from tests.graphgen.cli.conftest import done, error, facts, graphgen

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
    assert report.pop("remarks") == []
    assert report == {
        "pass": "dce",
        "ops_before": 2,
        "ops_after": 0,
        "applications": 2,
        "stopped": False,
    }
    assert said["functions"] == [{"name": "f", "phase": "", "ops": 0}]


def test_what_changed_is_shown(dead: Path, tmp_path: Path):
    out = tmp_path / "out.gg"
    shown = done("opt", dead, "-p", "cse,dce", "--print-after", "CHANGED", "-o", out).stderr
    assert shown.startswith(
        "--- @f\n+++ @f after dce\n@@ -1,6 +1,4 @@\n func @f {\n   arg %x : f32[4]\n"
        "-  %a = negate(%x) : f32[4]\n-  %b = negate(%a) : f32[4]\n   return y = %x\n }\n"
    )
    cse, dce = facts(
        "opt", dead, "-p", "cse,dce", "--print-after", "CHANGED", "-o", out, "--fuel", "dce=1"
    )["passes"]
    assert cse["diff"] == ""
    assert dce["diff"].splitlines()[5:] == [
        " " + DEAD.splitlines()[5],
        "-  %b = negate(%a) : f32[4]",
        "   return y = %x",
        " }",
    ]
    assert dce["stopped"] is True


def test_a_pass_is_named_to_print_or_to_begin_and_end_at(dead: Path, tmp_path: Path):
    out = tmp_path / "out.gg"
    options = ("-p", "cse,dce,cse", "-o", out)
    shown = done("opt", dead, *options, "--print-before", "cse#2", "--print-after", "dce").stderr
    assert re.findall(r"^# .*", shown, re.MULTILINE) == ["# after dce", "# before cse"]
    rows = done("opt", dead, *options, "--start-at", "dce", "--stop-after", "dce", "--stats")
    assert [line.split()[0] for line in rows.stderr.splitlines()[2:]] == ["dce"]
    assert error("opt", dead, *options, "--print-after", "dse") == (
        "error[GG0705]: --print-after: no pass 'dse' here\n"
        "  --> --print-after dse\n"
        "  help: the pipeline has cse, dce, cse#2\n"
    )
    for stop, last in (("fuse", "tile-attention"), ("phase:shard", "cache-as-bits")):
        part = facts("opt", dead, "-p", "default", "--stop-after", stop, "-o", out)["passes"]
        assert part[-1]["pass"] == last
    backward = graphgen("opt", dead, *options, "--start-at", "dce", "--stop-after", "cse")
    assert backward.exit_code == 2
    assert "cse comes before dce" in backward.stderr


def test_every_stage_is_dumped(dead: Path, tmp_path: Path):
    done("opt", dead, "-p", "cse,dce", "-o", tmp_path / "out.gg", "--dump", tmp_path / "d")
    names = sorted(path.name for path in (tmp_path / "d").iterdir())
    assert names == ["000.input.gg", "002.dce.gg"]
    assert (tmp_path / "d" / "002.dce.gg").read_text() == ALIVE


def test_fuel(dead: Path, tmp_path: Path):
    out = tmp_path / "out.gg"
    said = done("opt", dead, "-p", "dce,cse", "-o", out, "--fuel", "1").stderr
    assert said.startswith("note: the fuel was used up in dce\nnote: wrote ")
    assert parse(out.read_text()).op_count() == 1
    assert error("opt", dead, "-p", "dce", "-o", out, "--fuel", "some") == (
        "error[GG0705]: --fuel=some is not an amount of fuel\n"
        "  --> --fuel some\n"
        "  help: write a number, or name=number,name#2=number, or name=[1-5,8]\n"
    )


def test_decisions(mini: Path, tmp_path: Path):
    options = ("-p", "default{context=[8],tokens=[8]}", "-o", tmp_path / "out.gg", "--decisions")
    said = facts("opt", mini, *options)["decisions"]
    assert {
        "pass": "fuse-projections",
        "rule": "fuse-siblings",
        "function": "decode.b1.c8",
        "scope": "model.layers.N.mlp.up_proj",
        "times": {"1": 2},
    } in said["made"]
    assert {
        "pass": "fuse-projections",
        "rule": "fuse-siblings",
        "function": "decode.b1.c8",
        "scope": "lm_head",
        "reason": "N product of this value with a weight, and N are worth fusing",
    } in said["near"]
    shown = done("opt", mini, *options).stderr
    assert re.search(r"fuse-siblings +@decode\.b1\.c8 +model\.layers\.N\.mlp\.up_proj +1 x", shown)
    assert re.search(r"@decode\.b1\.c8 +lm_head +N product of this value", shown)


def test_errors_of_the_pipeline(dead: Path, tmp_path: Path):
    out = tmp_path / "out.gg"
    assert error("opt", dead, "-p", "dec", "-o", out) == (
        "error[GG0301]: unknown pass 'dec'\n  --> --pipeline dec\n  help: did you mean dce?\n"
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
    assert said["requires"] == ["specialized", "partitioned"]
    assert said["result_of"] == ["legalize{min_rows=2}"]
    target, rows = said["options"]
    assert rows == {
        "name": "min_rows",
        "type": "int",
        "default": "8",
        "choices": [],
        "doc": "rows a 16-bit product with a weight is padded to, on the CPU.",
    }
    assert (target["type"], target["choices"]) == (" | ".join(target_names()), list(target_names()))
    assert "Requires:  specialized: every size is a number\n" in done("passes", "legalize").stdout


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(all_passes()))
def test_every_page_can_be_read_back(name: str):
    said, page = facts("passes", name), done("passes", name).stdout
    assert all(option["doc"] and option["default"] is not None for option in said["options"])
    assert print_module(parse(said["given"])) != print_module(parse(said["result"]))
    assert [str(item) for item in parse_pipeline(page.splitlines()[0])] == [name]
    assert page.splitlines()[2] == said["summary"]
    head, _, rest = page.partition("\nGiven:\n")
    given, _, result = rest.partition("\n\nResult")
    assert cleandoc(given) == said["given"]
    assert cleandoc(result.partition(":\n")[2]) == said["result"]
    assert "\nLevel:" in head
    assert "\nRounding:" in head


def test_a_page_of_a_pass_of_ones_own(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from graphgen.passes.core import Pass, PASSES, register\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Pass):\n"
        '    """Do as I say."""\n'
        "    name = 'mine'\n"
        "    ratio: float = 0.5\n"
        "    def run(self, module, rewriter): pass\n"
        "PASSES.pop('mine', None)\n"
        "register(Mine)\n"
    )
    try:
        assert done("passes", "mine", "--plugin", path).stdout.startswith(
            "mine{ratio=0.5}\n\nDo as I say.\n\nOptions:"
        )
    finally:
        PASSES.pop("mine", None)


def test_pipelines_are_listed_and_explained():
    row, other, small = done("pipeline").stdout.splitlines()[1:]
    assert row.startswith("default   From the logical module")
    assert other.startswith("imported  ")
    assert small.startswith("small     The default pipeline with programs that NumPy runs")
    page = done("pipeline", "default").stdout
    assert page.startswith("default{target=cpu,tp=1,")
    assert page.endswith("\n  cse\n  dce\n")
    said = facts("pipeline", "default")
    assert said["passes"] == [str(item) for item in default(CompileConfig())]
    assert [item["name"] for item in facts("pipeline")] == ["default", "imported", "small"]


def test_a_pipeline_is_shown_pass_by_pass():
    said = facts("pipeline", "default{tp=2,min_rows=4,batch=[2]},cse", "--show")
    wanted = [*default(CompileConfig(batch=(2,), tp=2, min_rows=4)), CommonSubexpressions()]
    assert [item["pass"] for item in said] == [str(item) for item in wanted]
    (legalize,) = [item for item in said if item["name"] == "legalize"]
    assert legalize["options"] == {"target": "cpu", "min_rows": "4"}
    assert legalize["gives"] == "target"
    rows = done("pipeline", "default{tp=2}", "--show").stdout.splitlines()
    assert len(rows) == 1 + len(default(CompileConfig(tp=2)))
    (shard,) = [row for row in rows if re.search(r"shard +shard ", row)]
    assert shard.split()[3:] == ["logical", "|", "canonical", "raw-weights", "not", "partitioned"]


def test_mistakes_in_pipelines():
    assert error("pipeline", "canonicalize,defualt") == (
        "error[GG0301]: unknown pass 'defualt'\n  help: did you mean default?\n"
    )
    assert error("pipeline", "default{target=gpu}", "--show").startswith(
        "error[GG0302]: default: target is 'gpu', expected cpu, inf2, "
    )
    assert error("pipeline", "legalize,partition", "--show") == (
        "error[GG0303]: partition takes a module at level logical or canonical, not 'target'\n"
        "  --> pass 2 of 2: partition\n  help: put partition before legalize\n"
    )


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
