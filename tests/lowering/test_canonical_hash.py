"""The key of a compilation: the same wherever a program is made; another for any change of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

HOW = Compilation("trn2", 2, "--auto-cast=none -O1", "neuronx-cc 2.27")
ROOT = Path(__file__).resolve().parents[2]
TEXT = """\
module @m level=sharded mesh=tp:2 {
  meta note = "a"
  input %x : f32[2,4]
  weight %w : f32[4,4]
  state %k : f32[2,4]
  output %y : f32[2,4]
  output %z : f32[2,4]
}

func @f phase=decode {
  arg %x : f32[2,4]
  arg %w : f32[4,4]
  arg %k : f32[2,4]
  %c = constant() value=f32[](0.5) : f32[]  # model.py:3 block
  %b = broadcast_in_dim(%c) shape=[2,4] : f32[2,4]  # model.py:4 block via canonicalize
  %d = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[2,4]
  %r = all_reduce(%d) kind=add replica_groups=[[0,1]] : f32[2,4]
  %s = subtract(%r, %b) : f32[2,4]
  %t = transpose(%w) permutation=[1,0] : f32[4,4]
  %e = dot_general(%s, %t) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[2,4]
  %n = add(%k, %e) : f32[2,4]
  return y = %s
  return z = %e
  return k = %n
}
"""
SAME = {
    "values are called otherwise": [("%s", "%other"), ("%e", "%77")],
    "source lines": [("# model.py:3 block", "# /elsewhere/model.py:99 layers.7 via dce,cse")],
    "no source lines": [
        ("  # model.py:3 block", ""),
        ("  # model.py:4 block via canonicalize", ""),
    ],
    "the module's name": [("module @m", "module @other")],
    "the program's name": [("func @f", "func @decode.b2")],
    "free text": [('note = "a"', 'source = "/home of mine/m.gg"')],
    "another function nobody calls": [
        ("func @f", "func @g {\n  arg %q : f32[]\n  return q = %q\n}\n\nfunc @f")
    ],
}
OTHER = {
    "an op": [("subtract(%r, %b)", "multiply(%r, %b)")],
    "operands in another order": [("subtract(%r, %b)", "subtract(%b, %r)")],
    "another operand": [("add(%k, %e)", "add(%k, %s)")],
    "an attribute": [("permutation=[1,0]", "permutation=[0,1]")],
    "a constant": [("f32[](0.5)", "f32[](0.25)")],
    "a sign of zero": [("f32[](0.5)", "f32[](-0.0)")],
    "an element type": [("f32", "bf16")],
    "a shape": [("[2,4]", "[3,4]")],
    "a kind of reduction": [("kind=add", "kind=maximum")],
    "the groups": [("[[0,1]]", "[[1,0]]")],
    "the ranks": [("mesh=tp:2", "mesh=tp:4"), ("[[0,1]]", "[[0,1],[2,3]]")],
    "an argument's name": [("%x", "%tokens")],
    "an output's name": [("%z", "%u"), ("return z", "return u")],
    "arguments in another order": [
        ("  arg %x : f32[2,4]\n  arg %w : f32[4,4]\n", "  arg %w : f32[4,4]\n  arg %x : f32[2,4]\n")
    ],
    "outputs in another order": [
        ("  return y = %s\n  return z = %e\n", "  return z = %e\n  return y = %s\n")
    ],
    "an alias": [("  state %k : f32[2,4]\n", "  input %k : f32[2,4]\n"), ("return k", "return l"),
                 ("  output %y", "  output %l : f32[2,4]\n  output %y")],
    "an op nobody reads": [("  %n =", "  %dead = negate(%k) : f32[2,4]\n  %n =")],
    "one output more": [("  return k", "  return w2 = %t\n  return k"),
                        ("  output %y", "  output %w2 : f32[4,4]\n  output %y")],
}  # fmt: skip


def key(text: str, how: Compilation = HOW) -> str:
    module = parse(text)
    return canonical_hash(module, module.programs()[0], how)


def changed(replacements: list[tuple[str, str]]) -> str:
    text = TEXT
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_key_is_a_hash():
    assert len(key(TEXT)) == 64
    assert int(key(TEXT), 16)


@pytest.mark.parametrize("change", SAME)
def test_what_is_not_compiled_makes_no_difference(change: str):
    assert key(changed(SAME[change])) == key(TEXT)


@pytest.mark.parametrize("change", OTHER)
def test_any_change_of_meaning_changes_it(change: str):
    assert key(changed(OTHER[change])) != key(TEXT)


@pytest.mark.parametrize(
    "how",
    [
        replace(HOW, target="trn1", lnc=1),
        replace(HOW, lnc=1),
        replace(HOW, flags="--auto-cast=none -O2"),
        replace(HOW, flags="-O1 --auto-cast=none"),
        replace(HOW, flags=""),
        replace(HOW, compiler="neuronx-cc 2.28"),
    ],
)
def test_how_it_is_compiled_is_part_of_it(how: Compilation):
    assert key(TEXT, how) != key(TEXT)


def test_spaces_between_flags_are_not():
    assert key(TEXT, replace(HOW, flags="  --auto-cast=none   -O1 ")) == key(TEXT)


def test_no_two_of_all_these_are_equal():
    keys = [key(changed(change)) for change in OTHER.values()]
    assert len(set(keys)) == len(keys)


def test_a_called_function_is_part_of_it():
    lines = "  %n = call(%k) to_apply=inner results=[f32[2,4]] : f32[2,4]\n"
    inner = (
        "\nfunc @inner {\n  arg %q : f32[2,4]\n  %a = negate(%q) : f32[2,4]\n  return a = %a\n}\n"
    )
    text = TEXT.replace("  %n = add(%k, %e) : f32[2,4]\n", lines) + inner
    assert key(text.replace("negate", "abs")) != key(text)


def compiled(target: str = "trn2") -> Module:
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    run_pipeline(module, default(CompileConfig(context=(8,), tokens=(8,), tp=2, target=target)))
    return module


def test_a_printed_program_keeps_its_key_with_and_without_locations():
    module = compiled()
    for locs in (True, False):
        again = parse(print_module(module, locs=locs))
        for one, other in zip(module.programs(), again.programs(), strict=True):
            assert canonical_hash(again, other, HOW) == canonical_hash(module, one, HOW)


PROGRAM = """\
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.models import build, known_shape
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
run_pipeline(module, default(CompileConfig(context=(8,), tokens=(8,), tp=2, target="trn2")))
how = Compilation("trn2", 2, "--auto-cast=none -O1", "neuronx-cc 2.27")
print(*[canonical_hash(module, function, how) for function in module.programs()])
"""


def test_another_process_folder_and_checkout_give_the_same_keys(tmp_path: Path):
    checkout = tmp_path / "another" / "checkout"
    for package in ("graphgen", "passes", "lowering"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, checkout / package, ignore=ignore)
    module = compiled()
    wanted = " ".join([canonical_hash(module, f, HOW) for f in module.programs()])
    for root, seed in ((ROOT, "1"), (checkout, "2")):
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == wanted


def test_the_command(tmp_path: Path):
    module = compiled()
    file = tmp_path / "m.gg"
    file.write_text(print_module(module))
    args = ["hash", str(file), "--flags=--auto-cast=none -O1", "--compiler", "neuronx-cc 2.27"]
    ran = CliRunner().invoke(app, [*args, "--json"])
    assert ran.exit_code == 0, ran.output
    found = {item["name"]: item["hash"] for item in json.loads(ran.stdout)["programs"]}
    assert found == {f.name: canonical_hash(module, f, HOW) for f in module.programs()}
    table = CliRunner().invoke(app, args)
    assert all(item in table.stdout for item in found.values())
