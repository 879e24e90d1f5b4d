"""``graphgen validate`` on what the user gives: arrays from a file, weights of a checkpoint."""

from __future__ import annotations

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
    words = ("validate", file, "-p", "clamp-large", "--plugin", plugin)
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
