"""Cloning and fresh names: what copies keep, and how they differ where a cloner says so."""

from graphgen.ir import Function, Value
from graphgen.ir.clone import Cloner, clone_module
from graphgen.ir.names import claim_name, fresh_name
from graphgen.text import parse, print_module

TEXT = """\
module @m level=logical {
  input %x : f32[B,4]
  output %y : f32[B,4]
}

func @f phase=main {
  arg %x : f32[B,4]
  %a = negate(%x) : f32[B,4]
  %b = broadcast_in_dim(%a) shape=[B,4] dimensions=[0,1] : f32[B,4]
  return y = %b
}
"""


def original() -> Function:
    return parse(TEXT).function("f")


def test_a_module_and_its_copy_read_the_same_and_share_no_op():
    module = parse(TEXT)
    copy = clone_module(module)
    assert print_module(copy) == print_module(module)
    assert not set(copy.function("f").block) & set(module.function("f").block)


def test_symbols_are_bound_in_types_and_attributes_and_the_pass_is_named():
    made = Function("g")
    mapping = Cloner(symbols={"B": 3}, via="bind").function(original(), made)
    assert [str(op.result.type.shape) for op in made.block] == ["(3, 4)", "(3, 4)"]
    assert list(made.ops)[1].attrs["shape"] == (3, 4)
    assert {op.loc.via for op in made.block} == {("bind",)}
    assert len(mapping) == 3


def test_an_op_is_copied_in_front_of_another_without_its_names():
    function = original()
    first = next(function.ops)
    mapping: dict[Value, Value] = {function.args[0]: function.args[0]}
    copy = Cloner(mapping, names=False).op(first, function.block, first)
    assert next(function.ops) is copy
    assert (copy.result.name, first.result.name) == (None, "a")
    assert mapping[first.result] is copy.result


def test_fresh_names_count_from_a_number_in_a_form():
    assert fresh_name("a", {"b"}) == "a"
    assert fresh_name("a", {"a", "a.1"}) == "a.2"
    assert fresh_name("a", {"a"}, 2) == "a.2"
    assert fresh_name("a1", {"a1", "a2"}, 2, "a{number}") == "a3"
    taken = {"a"}
    assert [claim_name("a", taken), claim_name("a", taken)] == ["a.1", "a.2"]
