"""The fingerprint: equal for what differs in names only, different for any other change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphgen.analysis import fingerprint, function_fingerprint
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

TEXT = """\
module @m level=logical mesh=tp:2 {
  meta note = "a"
  input %x : f32[B,4]
  weight %w : f32[4,4] sharding={tp,-}
  state %k : bf16[2,4] as u16[2,4] pack=@pack unpack=@unpack
  output %y : f32[B,4]
}

func @f phase=decode dims={S=1} {
  arg %x : f32[B,4]
  arg %w : f32[4,4]
  arg %k : u16[2,4]
  %a = negate(%x) : f32[B,4]  # model.py:3 block
  %b = exponential(%a) : f32[B,4]  # model.py:4 block via canonicalize
  %c = subtract(%a, %b) : f32[B,4]
  %d = dot_general(%c, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[B,4]
  %h = convert(%d) dtype=bf16 : bf16[B,4]
  %e = slice(%d) start_indices=[0,1] limit_indices=[B,3] : f32[B,2]
  %g = concatenate(%e, %e) dimension=1 : f32[B,4]
  return k = %k
  return y = %g
}

func @pack {
  arg %whole : bf16[2,4]
  arg %rank : s32[1]
  %p = bitcast_convert(%whole) dtype=u16 : u16[2,4]
  return part = %p
}

func @unpack {
  arg %parts : u16[2,2,4]
  %u = slice(%parts) start_indices=[0,0,0] limit_indices=[1,2,4] : u16[1,2,4]
  %v = reshape(%u) shape=[2,4] : u16[2,4]
  %w = bitcast_convert(%v) dtype=bf16 : bf16[2,4]
  return whole = %w
}
"""

# Name of the change, and what is replaced by what.
SAME = {
    "values are called otherwise": [("%a", "%other"), ("%g", "%7")],
    "a value is called like another function's": [("%b", "%p")],
    "source lines": [("# model.py:3 block", "# elsewhere.py:99 layers.7 via dce")],
    "no source lines": [("  # model.py:3 block", "")],
    "the module's name": [("module @m", "module @other")],
    "free text": [('  meta note = "a"\n', '  meta config = "b"\n')],
    "the level": [("level=logical", "level=canonical")],
}
OTHER = {
    "an op": [("exponential(", "logistic(")],
    "operands in another order": [("subtract(%a, %b)", "subtract(%b, %a)")],
    "another operand": [("subtract(%a, %b)", "subtract(%a, %a)")],
    "an attribute": [
        ("start_indices=[0,1] limit_indices=[B,3]", "start_indices=[0,2] limit_indices=[B,4]")
    ],
    "an element type": [("dtype=bf16 : bf16[B,4]", "dtype=f16 : f16[B,4]")],
    "a symbol": [("B", "T")],
    "an op nobody reads": [("  %e =", "  %dead = negate(%a) : f32[B,4]\n  %e =")],
    "an output's name": [("return part", "return piece")],
    "an argument's name": [("%whole", "%all")],
    "an interface name": [("%w : f32[4,4]", "%v : f32[4,4]"), ("(%c, %w)", "(%c, %v)")],
    "outputs in another order": [
        ("  return k = %k\n  return y = %g\n", "  return y = %g\n  return k = %k\n")
    ],
    "arguments in another order": [
        ("  arg %x : f32[B,4]\n  arg %w : f32[4,4]\n", "  arg %w : f32[4,4]\n  arg %x : f32[B,4]\n")
    ],
    "interface rows in another order": [
        (
            "  input %x : f32[B,4]\n  weight %w : f32[4,4] sharding={tp,-}\n",
            "  weight %w : f32[4,4] sharding={tp,-}\n  input %x : f32[B,4]\n",
        )
    ],
    "a role": [("  input %x", "  weight %x")],
    "a sharding of the interface": [("{tp,-}", "{-,tp}")],
    "a sharding of a value": [("negate(%x) : f32[B,4]", "negate(%x) : f32[B,4]{-,tp}")],
    "a logical type": [("state %k : bf16", "state %k : f16")],
    "a physical type": [("as u16[2,4]", "as u16[1,4]")],
    "the mesh": [("mesh=tp:2", "mesh=tp:4")],
    "the mesh's axis": [("mesh=tp:2", "mesh=ep:2")],
    "a phase": [("phase=decode", "phase=prefill")],
    "dims": [("dims={S=1}", "dims={S=2}")],
    "a function's name": [("@pack", "@packed")],
    "what a function computes": [
        ("bitcast_convert(%whole) dtype=u16", "convert(%whole) dtype=u16")
    ],
}


def changed(replacements: list[tuple[str, str]]) -> str:
    text = TEXT
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("change", SAME)
def test_names_make_no_difference(change: str):
    text = changed(SAME[change])
    assert text != TEXT
    assert fingerprint(parse(text)) == fingerprint(parse(TEXT))


@pytest.mark.parametrize("change", OTHER)
def test_everything_else_does(change: str):
    text = changed(OTHER[change])
    assert fingerprint(parse(text)) != fingerprint(parse(TEXT))


def test_two_ops_in_the_other_order_are_another_program():
    lines = ["  %a = negate(%x) : f32[2]\n", "  %b = exponential(%x) : f32[2]\n"]
    head = "module @m level=logical {\n}\n\nfunc @f {\n  arg %x : f32[2]\n"
    end = "  return a = %a\n  return b = %b\n}\n"
    one, other = (parse(head + "".join(order) + end) for order in (lines, lines[::-1]))
    assert fingerprint(one) != fingerprint(other)


def test_a_function_is_the_same_under_another_name():
    module = parse(TEXT)
    other = parse(TEXT.replace("@pack", "@packed"))
    one = function_fingerprint(module.function("pack"))
    assert one == function_fingerprint(other.function("packed"))
    assert one != function_fingerprint(module.function("unpack"))
    assert len(one) == 64


@pytest.mark.parametrize("tp", [1, 2])
def test_a_compiled_model_has_one_fingerprint_with_and_without_locations(tp: int):
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    run_pipeline(module, default(CompileConfig(context=(8,), tokens=(8,), tp=tp)))
    for locs in (True, False):
        assert fingerprint(parse(print_module(module, locs=locs))) == fingerprint(module)


def test_another_process_in_another_folder_gives_the_same(tmp_path: Path):
    program = (
        "from graphgen.analysis import fingerprint\n"
        "from graphgen.ir import dtype\n"
        "from graphgen.models import build, known_shape\n"
        "print(fingerprint(build(known_shape('llama-3.1-8b'), dtype('bf16'), mini=True)))\n"
    )
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "77"}
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    assert said.stdout.strip() == fingerprint(module)
    run_pipeline(module, parse_pipeline("specialize"))
    assert said.stdout.strip() != fingerprint(module)
