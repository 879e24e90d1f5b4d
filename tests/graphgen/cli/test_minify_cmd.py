"""``graphgen minify``: deep modules with a planted bug become a few ops that still have it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.models.family_module import build_module
from graphgen.models.llama import LLAMA
from graphgen.ops import verify
from graphgen.passes.core import PASSES, parse_pipeline
from graphgen.passes.validate.failure_predicate import same_exception
from graphgen.text import parse, print_module
from tests.graphgen.cli.conftest import ROOT, done, error, graphgen
from tests.oracles.planted_bugs import CONFIG

pytestmark = pytest.mark.usefixtures("registry")

PLUGIN = ROOT / "tests/oracles/planted_bugs_plugin.py"
QUICK = ("swap-kv",)
TEN = (
    *(*QUICK, "stale-read", "swap-gate-up"),
    *("rope-halves", "bias-dropped", "stale-write", "eps", "heads-reversed"),
    *("transposed-weight", "silu-sign"),
)
# The bug and the layers of a mini Llama.
CASES = [
    *[pytest.param(bug, 12) for bug in QUICK],
    *[pytest.param(bug, 32, marks=pytest.mark.slow) for bug in TEN],
]


@pytest.mark.parametrize(("bug", "layers"), CASES)
def test_many_layers_become_a_few_ops_that_are_still_wrong(bug: str, layers: int, tmp_path: Path):
    deep, out, layer = tmp_path / "deep.gg", tmp_path / "small.gg", layers * 5 // 9
    config = replace(CONFIG, num_hidden_layers=layers)
    deep.write_text(print_module(build_module(LLAMA, config, f32)))
    pipeline = f"canonicalize,planted{{bug={bug},layer={layer}}},dce"
    arguments = ("-p", pipeline, "--plugin", PLUGIN)
    result = done("minify", deep, *arguments, "-o", out, "--json")
    facts = json.loads(result.stdout)
    assert facts["ops_before"] > 62 * layers
    assert [item["what"] for item in facts["rounds"]][:2] == ["programs", "layers"]
    small = parse(out.read_text())
    verify(small)
    assert sum(f["ops"] for f in facts["functions"]) == small.op_count() < 30
    # What is left is still of the layer, and still wrong; without the bug it is right.
    text = out.read_text()
    assert f"model.layers.{layer}." in text
    assert "changes the meaning" in result.stderr
    PASSES.pop("planted")
    again = graphgen("validate", out, *arguments)
    assert (again.exit_code, "WRONG" in again.stdout) == (1, True), again.output
    PASSES.pop("planted")
    harmless = pipeline.replace("},dce", ",harmless=true},dce")
    done("validate", out, "-p", harmless, "--plugin", PLUGIN)


def test_progress_is_told_on_stderr(mini: Path, tmp_path: Path):
    check = tmp_path / "check.sh"
    check.write_text("! grep -qF 'silu(' $1\n")
    command = f"sh {check} {{}}"
    result = done("minify", mini, "--command", command, "-o", tmp_path / "small.gg")
    lines = [line.split() for line in result.stderr.splitlines()]
    assert lines[0][:5] == ["programs", "110", "->", "55", "ops,"]
    assert lines[-2][0] == "attributes"
    small = parse((tmp_path / "small.gg").read_text())
    assert [op.name for f in small.programs() for op in f.block] == ["silu"]
    assert [op.result.type.text for f in small.programs() for op in f.block] == ["f32[B,1,1]"]


def test_a_command_is_asked_about_the_module_behind_the_passes(mini: Path, tmp_path: Path):
    check = tmp_path / "check.sh"
    check.write_text("! grep -qF 'rsqrt(' $1\n")
    out = tmp_path / "small.gg"
    pipeline = "specialize{batch=[1],context=[8],tokens=[8]},legalize"
    done("minify", mini, "-p", pipeline, "--command", f"sh {check} {{}}", "-o", out)
    small = parse(out.read_text())
    assert [op.name for f in small.programs() for op in f.block] == ["rms_norm"]


def test_an_exception(mini: Path, tmp_path: Path):
    out = tmp_path / "small.gg"
    result = done("minify", mini, "-p", "shard{tp=3},partition", "--check", "crash", "-o", out)
    assert "note: it fails by GG0304: " in result.stderr
    assert parse(out.read_text()).op_count() <= 2
    again = error("opt", out, "-p", "shard{tp=3},partition")
    assert "does not divide over tp = 3" in again
    # What is left can be validated: the pass raises, the module runs.
    shown = graphgen("validate", out, "-p", "shard{tp=3},partition")
    assert shown.exit_code == 1
    assert "\nraised: " in shown.stdout
    assert "does not divide over tp = 3" in shown.stdout


def test_what_is_left_runs_where_the_module_ran(mini: Path):
    def of_no_size(module: Module) -> Module:
        # Its programs are well formed, but their caches have no size in common.
        smaller = clone_module(module)
        for slots, function in enumerate(smaller.programs(), 7):
            function.dims["M"] = slots
        return smaller

    passes = parse_pipeline("shard{tp=3},partition")
    module = parse(mini.read_text())
    fails, failure = same_exception(module, passes)
    assert failure is not None
    assert fails(clone_module(module))
    assert not fails(of_no_size(module))


def test_what_does_not_fail_is_refused(mini: Path):
    assert "no pass is at fault: validate calls none wrong" in error("minify", mini, "-p", "dce")
    assert "raises no exception" in error("minify", mini, "-p", "dce", "--check", "crash")
    assert "does not fail for the module as it is" in error("minify", mini, "--command", "test {}")
    assert "nothing can fail without passes" in error("minify", mini)
    assert "names no file" in error("minify", mini, "--command", "false")


def test_a_check_that_changes_its_mind_is_refused(mini: Path, tmp_path: Path):
    check = tmp_path / "check.sh"
    check.write_text(f"if [ -e {tmp_path}/once ]; then exit 0; fi; touch {tmp_path}/once; exit 1\n")
    text = error("minify", mini, "--command", f"sh {check} {{}}")
    assert "the check fails at one time and not at another" in text
