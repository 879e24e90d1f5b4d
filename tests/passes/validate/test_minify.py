"""The smallest module that fails, of small ones: what is taken away, and what has to stay."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.validate.minify import Minifier, Round
from graphgen.text import parse, print_module

TEXT = """\
module @m level=logical {
  meta note = "text"
  input %x : f32[4,8]
  input %z : f32[32]
  output %y : f32[32]
}

func @other phase=decode {
  arg %z : f32[32]
  %y = tanh(%z) : f32[32]
  return y = %y
}

func @f phase=main {
  arg %x : f32[4,8]
  arg %z : f32[32]
  %r = reshape(%x) shape=[32] : f32[32]  # m.py:1 layers.0
  %a = negate(%r) : f32[32]  # m.py:2 layers.0
  %b = exponential(%a) : f32[32]  # m.py:3 layers.1
  %c = add(%b, %z) : f32[32]  # m.py:4 layers.2
  return y = %c
}
"""
SMALLEST = """\
func @f phase=main {
  arg %x : f32[1,1]
  %r = reshape(%x) shape=[1] : f32[1]
  %a = negate(%r) : f32[1]
  return y = %a
}
"""


def smallest(text: str, *needed: str) -> tuple[str, list[Round]]:
    """The functions of what is left, of what fails as long as one function has these ops."""

    def fails(module: Module) -> bool:
        return any(
            set(needed) <= {op.name for op in function.ops}
            for function in module.functions.values()
        )

    rounds: list[Round] = []
    made = Minifier(parse(text), fails, rounds.append, lambda ops, asked: None)
    found = print_module(made.run(), locs=False)
    assert made.rounds == rounds
    return "func" + found.partition("\nfunc")[2], rounds


def test_sizes_that_depend_on_each_other_become_smaller_together():
    """A reshape of [4,8] to [32] can be that of [4,1] to [4], and so of [1,1] to [1]."""
    found, rounds = smallest(TEXT, "reshape", "negate")
    assert " ".join(found.split()).replace("output0", "y") == " ".join(SMALLEST.split())
    assert [one.what for one in rounds][:2] == ["programs", "layers"]
    assert [one.what for one in rounds][-2:] == ["dims", "attributes"]
    counts = [one.checks for one in rounds]
    assert counts == sorted(counts)
    assert rounds[-1].ops == 2


def test_any_single_op_is_left_alone():
    for name in ("negate", "exponential", "add", "tanh"):
        found, rounds = smallest(TEXT, name)
        assert rounds[-1].ops == 1
        assert f" = {name}(" in found
        assert "f32[1]" in found


def test_a_check_that_passes_is_refused():
    with pytest.raises(GraphgenError, match="does not fail for the module as it is"):
        smallest(TEXT, "sine")
    answers = iter([True, False])
    made = Minifier(parse(TEXT), lambda module: next(answers), lambda one: None, lambda a, b: None)
    with pytest.raises(GraphgenError, match="at one time and not at another") as refused:
        made.run()
    assert refused.value.code == "GG0304"
