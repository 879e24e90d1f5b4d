"""``graphgen validate`` on what the user gives: arrays from a file, weights of a checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.runtime.test_tp import write_mini

TEXT = """\
module @m level=logical {
  input %x : f32[4]
  weight %w : f32[4]
  output %y : f32[4]
}

func @f phase=decode {
  arg %x : f32[4]
  arg %w : f32[4]
  %0 = subtract(%x, %w) : f32[4]
  %y = maximum(%0, %w) : f32[4]
  return y = %y
}
"""
# Wrong only where %x is larger than 1000, which random inputs never are.
PLUGIN = """\
from dataclasses import dataclass
from typing import ClassVar

from graphgen.passes.core import Pass, no_match, register, rule


@rule("maximum")
def clamp(op, b):
    if "clamp-large" in op.loc.via:
        return no_match("it is clamped", op.result)
    made = b.emit(op.name, op.operands, dict(op.attrs)).result
    return [b.binary("minimum", made, 1000.0)]


@register
@dataclass(frozen=True)
class ClampLarge(Pass):
    name: ClassVar[str] = "clamp-large"

    def run(self, module, rewriter):
        for function in module.functions.values():
            rewriter.apply_rules(function, [clamp])
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_mini(folder)
    return folder


def test_given_inputs_show_what_random_ones_do_not(tmp_path: Path):
    from graphgen.passes.core import PASSES

    file, plugin, arrays = tmp_path / "m.gg", tmp_path / "clamp.py", tmp_path / "case.npz"
    file.write_text(TEXT)
    plugin.write_text(PLUGIN)
    np.savez(arrays, x=np.array([1, 2, 3, 5000], np.float32), w=np.ones(4, np.float32))
    words = ("validate", file, "-p", "clamp-large", "--plugin", plugin, "--no-rewrites")
    try:
        done(*words)
        del PASSES["clamp-large"]
        shown = graphgen(*words, "--inputs", arrays)
    finally:
        PASSES.pop("clamp-large", None)
    assert shown.exit_code == 1
    assert "first wrong rewrite: clamp-large #1: clamp at %y" in shown.stdout
    np.savez(arrays, z=np.ones(4, np.float32))
    assert "there is no input called z" in error("validate", file, "-p", "dce", "--inputs", arrays)


def test_real_weights(checkpoint: Path, tmp_path: Path):
    file = tmp_path / "m.gg"
    done("build", checkpoint, "--dtype", "f32", "-o", file)
    found = facts("validate", file, "--weights", checkpoint)
    assert all(item["ok"] for item in found["passes"])
    random = facts("validate", file)
    # They are others: the numbers of the rounding check differ.
    assert found["passes"] != random["passes"]


def test_weights_that_do_not_fit(checkpoint: Path, mini: Path):
    assert "GG0602" in error("validate", mini, "-p", "dce", "--weights", checkpoint)


NEVER = """\
module @m level=logical {
  input %x : f32[4]
  output %y : f32[4]
}

func @less {
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %y = negate(%a) : f32[4]
  return y = %y
}

func @more {
  arg %x : f32[4]
  %y = abs(%x) : f32[4]
  return y = %y
}

func @f phase=main {
  arg %x : f32[4]
  %which = constant() value=s32[](1) : s32[]
  %y = conditional(%which, %x, %x) branches=[less,more] takes=[1,1] results=[f32[4]] : f32[4]
  return y = %y
}
"""


def test_what_no_call_reaches_is_never_ok(tmp_path: Path):
    from graphgen.passes.core import PASSES

    file, plugin = tmp_path / "m.gg", tmp_path / "clamp.py"
    file.write_text(NEVER)
    plugin.write_text(PLUGIN.replace('"maximum"', '"negate"'))
    alone = ("validate", file, "-p", "clamp-large", "--plugin", plugin)
    words = (*alone, "--no-rewrites")
    missed = "not run: branch 0 (@less) of the conditional in @f, after clamp-large"
    try:
        shown = graphgen(*words)
        del PASSES["clamp-large"]
        required = graphgen(*words, "--require-coverage", "--coverage")
        del PASSES["clamp-large"]
        found = facts(*words, "--allow", "not-covered")
        del PASSES["clamp-large"]
        checked = graphgen(*alone)
    finally:
        PASSES.pop("clamp-large", None)
    # Each rewrite alone needs no call: numbers over 1000 are drawn.
    assert checked.stdout.splitlines()[1].endswith(" WRONG rewrite")
    assert shown.exit_code == 2
    assert shown.stdout.splitlines()[1].endswith(" not covered")
    assert f"coverage: programs 1 of 1\n{missed}\n" in shown.stdout
    assert required.exit_code == 1
    assert missed in required.stdout
    assert "conditional in @f    taken: @more" in required.stdout
    assert (found["passes"][0]["ok"], found["passes"][0]["uncovered"]) == (False, ["less"])
    assert found["coverage"]["complete"] is False
    assert [hole["name"] for hole in found["coverage"]["holes"]] == ["f"]
    # A pass that leaves it alone is ok, but the module is not covered.
    assert " ok" in done("validate", file, "-p", "cse").stdout
    assert graphgen("validate", file, "-p", "cse", "--require-coverage").exit_code == 1


def test_a_model_is_validated_on_its_twins():
    words = ("validate", "llama-3.1-8b", "-p", "canonicalize,cse", "--twins", "mini")
    shown = done(*words).stdout.splitlines()
    assert re.fullmatch(r"mini twin, \d+ calls, plain values:", shown[0])
    assert sum(line.endswith(" ok") for line in shown) == 2
    (twin,) = facts(*words, "--thorough")["twins"]
    assert (twin["twin"], twin["passed"], twin["not_run"]) == ("mini", True, [])
    assert twin["values"] == "realistic"
    assert any("idle" in call for call in twin["calls"])
    assert [item["ok"] for item in twin["passes"]] == [True, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("m.gg", "--twins", "wide"), "a module file is validated as it is"),
        (("gpt2", "--twins", "both", "--layers", "1"), "take the model at its own size"),
        (("m.gg", "--thorough", "--script", "short"), "leave out --script short"),
        (("gpt2", "--layerwise", "--statistics", "smollm2"), "have weights of their own"),
        (("gpt2", "--layerwise", "--thorough"), "--thorough: cannot be combined"),
    ],
)
def test_options_that_do_not_go_with_twins(words: tuple[str, ...], message: str):
    refused = graphgen("validate", *words)
    assert refused.exit_code == 2
    assert message in refused.output


def test_a_budget_that_types_do_not_explain_is_exit_status_2(tmp_path: Path):
    from graphgen.passes.core import PASSES

    file, plugin = tmp_path / "m.gg", tmp_path / "clamp.py"
    file.write_text(TEXT)
    exact = PLUGIN.replace('b.binary("minimum", made, 1000.0)', "made")
    budget = '    rounding: ClassVar[float] = 0.1\n    name: ClassVar[str] = "clamp-large"\n'
    plugin.write_text(exact.replace('    name: ClassVar[str] = "clamp-large"\n', budget))
    words = ("validate", file, "-p", "clamp-large", "--plugin", plugin)
    try:
        ran = graphgen(*words)
    finally:
        PASSES.pop("clamp-large", None)
    assert ran.exit_code == 2, ran.output
    assert ran.stdout.splitlines()[1].endswith(" budget not explained")
    assert "budget not explained: clamp-large may round by 1.0e-01" in ran.stdout


# Hides slot 0 from the token at position 11 of decode steps, which few calls make.
HIDING = """\
from dataclasses import dataclass
from typing import ClassVar

from graphgen.passes.core import Pass, no_match, register, rule


@rule("attention_mask")
def hide(op, b):
    if "hide" in op.loc.via:
        return no_match("it is done", op.result)
    seen = b.emit(op.name, op.operands, dict(op.attrs)).result
    if b.function.phase != "decode":
        return [seen]
    positions, keys = op.operands
    here = b.compare(positions, b.full(11, positions.type), "EQ")
    first = b.compare(keys, b.full(0, keys.type), "EQ")
    shape = seen.type.shape
    both = b.and_(b.broadcast_in_dim(here, shape, [0, 1]), b.broadcast_in_dim(first, shape, [0, 2]))
    return [b.and_(seen, b.not_(both))]


@register
@dataclass(frozen=True)
class Hide(Pass):
    name: ClassVar[str] = "hide"

    def run(self, module, rewriter):
        for function in module.functions.values():
            rewriter.apply_rules(function, [hide])
"""


def hidden(words: tuple[object, ...], plugin: Path) -> tuple[int, str]:
    """The exit status and the output of a validation with the pass that hides slot 0."""
    from graphgen.passes.core import PASSES

    try:
        ran = graphgen("validate", *words, "-p", "hide", "--plugin", plugin, "--no-rewrites")
    finally:
        PASSES.pop("hide", None)
    return ran.exit_code, ran.stdout


def test_a_quick_validation_is_never_ok_alone(mini: Path, tmp_path: Path):
    plugin = tmp_path / "hide.py"
    plugin.write_text(HIDING)
    status, shown = hidden((mini,), plugin)
    assert status == 1
    assert shown.splitlines()[1].endswith(" WRONG")
    status, shown = hidden((mini, "--quick"), plugin)
    assert status == 2
    assert shown.splitlines()[1].endswith(" ok of what was tried")
    assert "not tried: @decode positions" in shown
    assert hidden((mini, "--quick", "--allow", "not-covered"), plugin)[0] == 0
    # What is wrong is wrong, whatever is allowed.
    assert hidden((mini, "--allow", "unknown,searched,not-covered,budget"), plugin)[0] == 1


def test_a_right_file_is_ok_at_all_places_and_on_its_wide_twin(mini: Path):
    words = ("validate", mini, "-p", "canonicalize,cse", "--no-rewrites")
    shown = done(*words).stdout
    assert "places: " in shown
    assert "positions 0..15 of 16 in rows 0..4" in shown
    assert re.search(r"^wide twin, \d+ calls, plain values: all 2 passes: ok$", shown, re.M)
    found = facts(*words)
    assert (found["wide"]["twin"], found["wide"]["passed"]) == ("wide", True)
    assert found["coverage"]["holes"] == []
    short = graphgen(*words, "--script", "short")
    assert short.exit_code == 2
    assert "wide twin" not in short.stdout


def test_a_part_that_is_not_covered_is_exit_status_2(tmp_path: Path):
    from graphgen.passes.core import PASSES

    file, plugin = tmp_path / "m.gg", tmp_path / "clamp.py"
    file.write_text(NEVER)
    plugin.write_text(PLUGIN.replace('"maximum"', '"negate"'))
    words = ("validate", file, "-p", "clamp-large", "--plugin", plugin, "--no-rewrites")
    for more, status in (((), 2), (("--allow", "not-covered"), 0), (("--allow", "searched"), 2)):
        try:
            assert graphgen(*words, *more).exit_code == status
        finally:
            PASSES.pop("clamp-large", None)


def test_a_state_to_allow_that_does_not_exist(tmp_path: Path):
    refused = graphgen("validate", tmp_path / "m.gg", "--allow", "ok")
    assert refused.exit_code == 2
    assert "there is no state ok" in refused.output


def test_a_proof_goes_from_the_first_module_to_the_last(tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(TEXT)
    ended = graphgen("validate", file, "-p", "canonicalize,cse", "--prove", "--json")
    whole = [row["pipeline"] for row in json.loads(ended.stdout)["passes"]]
    assert whole[0] is None
    assert whole[1]["complete"]
    assert [claim["status"] for claim in whole[1]["claims"]] == ["proved"]
