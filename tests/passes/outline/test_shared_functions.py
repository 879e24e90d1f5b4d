"""Functions of loops and choices: numbered by name, and one for equal ones."""

from __future__ import annotations

from graphgen.ir import Function, Module
from graphgen.passes.outline.shared_functions import SharedFunctions
from graphgen.text import parse


def function(op: str) -> Function:
    """A function of one elementwise op."""
    text = f"func @f {{\n  arg %x : f32[2]\n  %y = {op}(%x) : f32[2]\n  return y = %y\n}}\n"
    return parse(f"module @m level=logical {{\n}}\n\n{text}").function("f")


def test_functions_of_a_name_are_numbered_and_equal_ones_are_one():
    module = Module("m", "logical")
    module.add(function("cosine"))
    module.functions["body.2"] = function("tanh")
    shared = SharedFunctions(module)
    given = ["negate", "sine", "negate", "exponential"]
    names = [shared.add("body", function(op)) for op in given]
    assert names == ["body.1", "body.3", "body.1", "body.4"]
    assert shared.add("other", function("negate")) == "other.1"
    put = [one.name for one in shared.put_first()]
    assert put == ["body.1", "body.3", "body.4", "other.1"]
    assert [*module.functions] == [*put, "f", "body.2"]
    assert shared.put_first() == []
