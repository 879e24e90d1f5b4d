"""Comparing two modules by numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape
from graphgen.passes import pipelines
from graphgen.passes.core import run_pipeline
from graphgen.passes.equiv.equiv import equivalent
from graphgen.text import parse, print_module

SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


def mini(name: str = "smollm2-135m", kind: str = "f32") -> Module:
    return build(known_shape(name), dtype(kind), mini=True)


def lowered(module: Module, tp: int) -> Module:
    run_pipeline(module, pipelines.default(replace(SMALL, tp=tp)))
    return module


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_the_pipeline_keeps_the_program_at_any_degree(kind: str):
    assert equivalent(mini(kind=kind), lowered(mini(kind=kind), 1)).equal
    assert equivalent(lowered(mini(kind=kind), 2), mini(kind=kind)).equal
    assert equivalent(lowered(mini(kind=kind), 2), lowered(mini(kind=kind), 1)).equal


ONE_LAYER = """\
module @m level=logical {
  input %x : f32[2,16]
  output %y : f32[2,16]
}

func @decode phase=decode {
  arg %x : f32[2,16]
  %y = negate(%x) : f32[2,16]
  return y = %y
}
"""


def test_a_part_of_a_model_is_called_with_all_its_rows():
    assert equivalent(parse(ONE_LAYER), parse(ONE_LAYER)).equal
    assert not equivalent(parse(ONE_LAYER), parse(ONE_LAYER.replace("negate", "abs"))).equal


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon=1e-05", "epsilon=1.1e-05"),
        ("scale=0.3535533905932738", "scale=0.3535"),
        ("inv_freq=f32[4](1.0,", "inv_freq=f32[4](1.001,"),
    ],
)
def test_a_change_of_one_number_is_seen(old: str, new: str):
    text = print_module(mini())
    assert old in text
    changed = text.replace(old, new, 1)
    found = equivalent(parse(text), parse(changed))
    assert not found.equal
    assert found.left.line > 0


def test_other_weights_are_another_interface():
    with pytest.raises(GraphgenError) as caught:
        equivalent(mini(), mini("llama-3.1-8b"))
    assert str(caught.value) == (
        "error[GG0205]: the modules differ in weights: lm_head.weight\n"
        "  help: compare modules of one interface; passes never change its logical side"
    )


def test_the_command_tells_by_status_and_json(tmp_path: Path):
    left, right = tmp_path / "a.gg", tmp_path / "b.gg"
    text = print_module(mini())
    left.write_text(text)
    right.write_text(text.replace("epsilon=1e-05", "epsilon=1e-04"))
    same = CliRunner().invoke(app, ["equiv", str(left), str(left)])
    lines = same.stdout.splitlines()
    assert (same.exit_code, lines[0]) == (0, "equal: worst relative difference 0.0e+00")
    assert re.fullmatch(r"drawn values: (\d+) of \1 agree", lines[1])
    assert lines[2].startswith("coverage: programs 2 of 2, ")
    other = CliRunner().invoke(app, ["equiv", str(left), str(right), "--json"])
    assert other.exit_code == 1
    facts = json.loads(other.stdout)
    assert facts["equal"] is False
    assert facts["relative"] > 1e-6
