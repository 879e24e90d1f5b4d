"""Modules through pickle and deepcopy: the same text, the same interned objects, at any depth."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from graphgen.ir import Module, sharding
from graphgen.text import parse, print_module

TEXT = """\
module @m level=logical {
  input %x : f32[B,4]
  output %y : f32[B,4]
}

func @f phase=main hlo.note="function" {
  arg %x : f32[B,4] hlo.note="argument"
  %a = negate(%x) hlo.note="op" : f32[B,4]  # model.py:7 layers.0
  %b = broadcast_in_dim(%a) shape=[B,4] dimensions=[0,1] : f32[B,4]
  return y = %b
}
"""


def _pickled(module: Module) -> Module:
    return pickle.loads(pickle.dumps(module))


@pytest.mark.parametrize("again", [_pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_module_is_the_same_afterwards(again: Callable[[Module], Module]):
    module = parse(TEXT)
    value = next(iter(module.function("f").ops)).result
    value.sharding = sharding(["tp", None])
    copied = again(module)
    assert print_module(copied) == print_module(module)
    ours, theirs = copied.function("f"), module.function("f")
    assert not {*ours.block} & {*theirs.block}
    assert ours.args[0].type is theirs.args[0].type
    assert [op.attrs for op in ours.ops] == [op.attrs for op in theirs.ops]
    assert [op.loc for op in ours.ops] == [op.loc for op in theirs.ops]
    assert next(iter(ours.ops)).result.sharding is value.sharding


def test_a_program_of_any_length_pickles():
    lines = [f"  %{i} = negate(%{i - 1 if i else 'x'}) : f32[2]\n" for i in range(5000)]
    head, tail = "func @f phase=main {\n  arg %x : f32[2]\n", "  return y = %4999\n}\n"
    module = parse(
        "module @m level=logical {\n  input %x : f32[2]\n  output %y : f32[2]\n}\n\n"
        + head + "".join(lines) + tail
    )  # fmt: skip
    copied = _pickled(module)
    assert copied.op_count() == 5000
    assert print_module(copied) == print_module(module)
