"""The op list under edits, and who reads what."""

from __future__ import annotations

import re

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Block, Function, Module, Op, Role, Value, entry, tensor
from graphgen.ir.dtype import f32
from graphgen.ir.loc import loc

T = tensor(f32, (4,))


def negate(block: Block, operand: Value, name: str) -> Op:
    """An op that is not yet in the block."""
    return Op("negate", (operand,), (T,), names=(name,))


def block_of(names: str) -> tuple[Block, dict[str, Op]]:
    """A block of independent ops, all reading one argument."""
    block = Block()
    x = block.add_arg(T, "x")
    ops = {name: negate(block, x, name) for name in names}
    for op in ops.values():
        block.append(op)
    return block, ops


def names(block: Block) -> str:
    """The ops in order; the links back must say the same."""
    forward = "".join(op.result.name or "?" for op in block)
    backward = "".join(op.result.name or "?" for op in reversed(block))
    assert forward == backward[::-1]
    assert len(block) == len(forward)
    return forward


def visit(block: Block, at: str, edit: object) -> str:
    """The ops a loop sees that edits the block when it gets to ``at``."""
    seen = ""
    for op in block:
        seen += op.result.name or "?"
        if op.result.name == at:
            edit()  # pyright: ignore[reportCallIssue]
    return seen


def test_append_and_insert_keep_the_order():
    block, ops = block_of("ac")
    block.insert_before(negate(block, block.args[0], "b"), ops["c"])
    block.insert_before(negate(block, block.args[0], "_"), ops["a"])
    assert names(block) == "_abc"
    assert block.first is not None
    assert block.first.result.name == "_"


@pytest.mark.parametrize("gone", ["a", "b", "c", "ab", "bc", "ac", "abc", "cba"])
def test_erase(gone: str):
    block, ops = block_of("abc")
    for name in gone:
        block.erase(ops[name])
        assert ops[name].block is None
    assert names(block) == "".join(name for name in "abc" if name not in gone)
    assert block.args[0].users == {op: 1 for name, op in ops.items() if name not in gone}


def test_an_op_that_is_read_cannot_be_erased():
    block, ops = block_of("a")
    block.append(negate(block, ops["a"].result, "b"))
    with pytest.raises(AssertionError, match="still has users"):
        block.erase(ops["a"])


def test_a_loop_may_erase_the_current_op():
    block, ops = block_of("abc")
    assert visit(block, "b", lambda: block.erase(ops["b"])) == "abc"
    assert names(block) == "ac"


def test_a_loop_may_erase_every_op():
    block, _ = block_of("abc")
    for op in block:
        block.erase(op)
    assert names(block) == ""
    assert block.first is None
    assert block.last is None


def test_a_loop_does_not_visit_an_op_inserted_before_the_current_one():
    block, ops = block_of("abc")
    new = negate(block, block.args[0], "n")
    assert visit(block, "b", lambda: block.insert_before(new, ops["b"])) == "abc"
    assert names(block) == "anbc"


def test_a_loop_visits_an_op_inserted_after_the_current_one():
    block, ops = block_of("abc")
    new = negate(block, block.args[0], "n")
    assert visit(block, "b", lambda: block.insert_before(new, ops["c"])) == "abnc"


def test_a_loop_visits_an_op_appended_at_the_last_one():
    block, _ = block_of("abc")
    new = negate(block, block.args[0], "n")
    assert visit(block, "c", lambda: block.append(new)) == "abcn"


def test_a_loop_does_not_visit_an_op_erased_ahead_of_it():
    block, ops = block_of("abcd")
    assert visit(block, "a", lambda: (block.erase(ops["b"]), block.erase(ops["c"]))) == "ad"


@pytest.mark.parametrize("gone", ["bc", "cb", "bcd", "dcb", "cbd"])
def test_a_loop_does_not_visit_ops_erased_with_the_current_one(gone: str):
    block, ops = block_of("abcde")

    def edit() -> None:
        for name in gone:
            block.erase(ops[name])

    left = "".join(name for name in "abcde" if name not in gone)
    assert visit(block, "b", edit) == "ab" + left[1:]
    assert names(block) == left


def test_a_backward_loop_may_erase_the_current_op():
    block, _ = block_of("abcd")
    seen = ""
    for op in reversed(block):
        seen += op.result.name or "?"
        if op.result.name in ("b", "d"):
            block.erase(op)
    assert seen == "dcba"
    assert names(block) == "ac"


def test_the_first_user_is_the_first_in_the_program():
    block, ops = block_of("ab")
    x, early = block.args[0], negate(block, block.args[0], "c")
    block.insert_before(early, ops["a"])
    assert list(x.users) == [ops["a"], ops["b"], early]
    assert block.first_user(x) is early
    assert block.first_user(early.result) is None


def test_users_count_operand_slots():
    block = Block()
    x, y = block.add_arg(T, "x"), block.add_arg(T, "y")
    square = Op("multiply", (x, x), (T,))
    mixed = Op("add", (x, y), (T,))
    assert x.users == {square: 2, mixed: 1}
    square.set_operands((x, y))
    assert x.users == {square: 1, mixed: 1}
    assert y.users == {mixed: 1, square: 1}
    square.set_operands((y, y))
    assert x.users == {mixed: 1}
    assert y.users == {mixed: 1, square: 2}


def test_replace_uses_moves_readers_outputs_and_the_name():
    function = Function("f")
    x = function.block.add_arg(T, "x")
    old, new = (Op("negate", (x,), (T,), names=(name,)) for name in ("old", None))
    square = Op("multiply", (old.result, old.result), (T,))
    for op in (old, new, square):
        function.block.append(op)
    function.outputs = [("y", old.result), ("z", square.result), ("again", old.result)]
    function.replace_uses(old.result, new.result)
    assert square.operands == (new.result, new.result)
    assert old.result.users == {}
    assert new.result.users == {square: 2}
    assert new.result.name == "old"
    wanted = [("y", new.result), ("z", square.result), ("again", new.result)]
    assert list(function.outputs) == wanted
    assert function.returns(new.result)
    assert not function.returns(old.result)


def test_the_first_of_many_users_is_found_from_wherever_uses_were_made():
    block, ops = block_of("abcdefg")
    read = ops["a"].result
    for users in ("cb", "gcd", "efdg", "bg", "gb"):
        for name in users:
            ops[name].set_operands((read,))
        first = next(op for op in block if op in read.users)
        assert block.first_user(read) is first is ops[min(users)]
        for name in users:
            ops[name].set_operands(())


def test_outputs_are_set_dropped_and_found_by_name_and_value():
    function = Function("f")
    x, y = (function.block.add_arg(T, name) for name in "xy")
    outputs = function.outputs
    outputs.append(("a", x))
    outputs.append(("b", x))
    outputs.append(("c", y))
    outputs.set("b", y)
    assert (list(outputs), outputs.returns(x)) == ([("a", x), ("b", y), ("c", y)], True)
    outputs.drop("a")
    outputs.drop("none of them")
    assert (list(outputs), outputs[-1], len(outputs)) == ([("b", y), ("c", y)], ("c", y), 2)
    assert (outputs.get("a"), outputs.get("c"), outputs.returns(x)) == (None, y, False)
    outputs.append(("a", x))
    outputs.replace(y, x)
    assert list(outputs) == [("b", x), ("c", x), ("a", x)]
    assert not outputs.returns(y)


def test_an_op_is_used_where_a_result_is_read_or_returned():
    function = Function("f")
    x = function.block.add_arg(T, "x")
    read, reads = negate(function.block, x, "read"), Op("negate", (x,), (T,))
    reads.set_operands((read.result,))
    assert (function.uses(read), function.uses(reads)) == (True, False)
    assert (read.result.is_read_by(reads), x.is_read_by(read), x.is_read_by(reads)) == (
        *(True, True, False),
    )
    function.outputs = [("y", reads.result)]
    assert function.uses(reads)


def test_replace_uses_keeps_a_name_of_its_own():
    function = Function("f")
    x, y = function.block.add_arg(T, "x"), function.block.add_arg(T, "y")
    function.replace_uses(x, y)
    assert y.name == "y"


def test_results_of_an_op_with_several():
    op = Op("rope_table", (), (T, T), names=("cos", "sin"))
    assert [(v.name, v.index, v.op) for v in op.results] == [("cos", 0, op), ("sin", 1, op)]
    with pytest.raises(AssertionError, match="has 2 results"):
        _ = op.result


def test_names_and_producers():
    block, ops = block_of("a")
    value = ops["a"].result
    assert value.producer("negate") is ops["a"]
    assert value.producer("add") is None
    assert block.args[0].producer("negate") is None
    assert repr(value) == "%a = negate(...) : f32[4]"
    assert repr(ops["a"]) == "<negate f32[4] at ?:0>"


def test_locations_are_one_object_and_gather_passes_once():
    where = loc("m.py", 3, "model.norm")
    assert loc("m.py", 3, "model.norm") is where
    once = where.through("dce").through("legalize").through("dce")
    assert once.via == ("dce", "legalize")
    assert repr(once) == "m.py:3 model.norm via dce,legalize"
    assert where.through("") is where


def test_modules_hold_functions_by_name():
    module = Module("m", mesh={"tp": 2, "dp": 3})
    module.add(Function("prefill", phase="prefill"))
    module.add(Function("pack"))
    assert module.ranks == 6
    assert [f.name for f in module.programs()] == ["prefill"]
    with pytest.raises(GraphgenError, match=re.escape("function @pack is defined twice")) as caught:
        module.add(Function("pack"))
    assert caught.value.code == "GG0107"
    with pytest.raises(GraphgenError, match="no function @decode") as caught:
        module.function("decode")
    assert caught.value.code == "GG0202"
    assert caught.value.help == "the module has @prefill, @pack"


def test_interface_rows_by_role():
    module = Module("m")
    for role, name in ((Role.INPUT, "x"), (Role.WEIGHT, "w"), (Role.INPUT, "y")):
        module.interface[name] = entry(role, name, T)
    assert [row.name for row in module.entries(Role.INPUT)] == ["x", "y"]
    changed = module.interface["w"].with_physical(tensor(f32, (2,)), "pack", "unpack")
    assert (changed.logical, changed.physical) == (T, tensor(f32, (2,)))
    assert (changed.pack, changed.unpack) == ("pack", "unpack")
