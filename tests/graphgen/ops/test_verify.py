"""The verifier finds each way in which a module can be broken, and names the place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Role, Value, attrs_of, entry, symbol, tensor
from graphgen.ir.dtype import bf16, f32, s32
from graphgen.ops import verify
from graphgen.text import parse

GOOD = """\
module @m level=canonical {
  input %x : f32[B,4]
  weight %w : f32[4,4]
  state %k : f32[R,4]
  output %y : f32[B,4]
}

func @decode phase=decode dims={B=2,R=2} {
  arg %x : f32[2,4]
  arg %w : f32[4,4]
  arg %k : f32[2,4]
  %h = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]
  %n = add(%k, %h) : f32[2,4]
  return k = %n
  return y = %h
}
"""


def broken(module: Module) -> GraphgenError:
    with pytest.raises(GraphgenError) as caught:
        verify(module)
    return caught.value


def op(module: Module, name: str) -> Op:
    return next(op for op in module.function("decode").ops if op.name == name)


def arg(module: Module, name: str) -> Value:
    found = module.function("decode").arg(name)
    assert found is not None
    return found


def test_the_module_is_fine_to_begin_with():
    verify(parse(GOOD))


def read_too_early(m: Module) -> None:
    first, second = op(m, "dot_general"), op(m, "add")
    first.set_operands((second.result, first.operands[1]))


def read_of_a_foreign_value(m: Module) -> None:
    other = Function("g").block.add_arg(tensor(f32, (2, 4)), "z")
    add = op(m, "add")
    add.set_operands((add.operands[0], other))


def foreign_output(m: Module) -> None:
    other = Function("g").block.add_arg(tensor(f32, (2, 4)), "z")
    m.function("decode").outputs = [("k", op(m, "add").result), ("y", other)]


def erased_output(m: Module) -> None:
    function = m.function("decode")
    b = Builder(function)
    gone = b.silu(arg(m, "x"))
    function.outputs = [("k", op(m, "add").result), ("y", gone)]
    assert gone.op is not None
    function.block.erase(gone.op)


def wrong_result_type(m: Module) -> None:
    op(m, "add").result.type = tensor(f32, (4, 2))


def wrong_result_count(m: Module) -> None:
    add = op(m, "add")
    add.results = (*add.results, Value(tensor(f32), add, 1, None))


def operands_that_do_not_fit(m: Module) -> None:
    add = op(m, "add")
    add.set_operands((add.operands[0], arg(m, "w")))


def forgotten_user(m: Module) -> None:
    arg(m, "x").remove_use(op(m, "dot_general"))


def wrong_count(m: Module) -> None:
    m.function("decode").block.size += 1


def unknown_level(m: Module) -> None:
    m.level = "final"


def unknown_op(m: Module) -> None:
    op(m, "add").name = "sum"


def output_twice(m: Module) -> None:
    m.function("decode").outputs.append(("y", arg(m, "x")))


def argument_twice(m: Module) -> None:
    m.function("decode").block.add_arg(tensor(f32, (2, 4)), "x")


def argument_without_a_row(m: Module) -> None:
    m.function("decode").block.add_arg(tensor(f32), "z")


def argument_of_another_type(m: Module) -> None:
    m.interface["w"] = entry(Role.WEIGHT, "w", tensor(bf16, (4, 4)))


def argument_with_the_name_of_an_output(m: Module) -> None:
    m.function("decode").block.add_arg(tensor(f32, (2, 4)), "y")


def rank_of_another_type(m: Module) -> None:
    m.function("decode").block.add_arg(tensor(s32), "rank")


def output_without_a_row(m: Module) -> None:
    m.function("decode").outputs.append(("z", arg(m, "x")))


def output_with_the_name_of_a_weight(m: Module) -> None:
    m.function("decode").outputs.append(("w", arg(m, "w")))


def output_of_another_type(m: Module) -> None:
    m.interface["y"] = entry(Role.OUTPUT, "y", tensor(f32, (symbol("B"), 5)))


def dropped_state(m: Module) -> None:
    m.function("decode").outputs = [("y", arg(m, "x"))]


def representation_without_functions(m: Module) -> None:
    m.interface["k"] = replace(m.interface["k"], logical=tensor(f32, (8,)))


def pack_that_does_not_exist(m: Module) -> None:
    m.interface["k"] = replace(m.interface["k"], pack="cut", unpack="join")


def collective_before_partition(m: Module) -> None:
    b = Builder(m.function("decode"))
    b.all_reduce(arg(m, "x"), [[0, 1]])


def collective_of_too_few_ranks(m: Module) -> None:
    m.level, m.mesh = "sharded", {"dp": 2, "tp": 2}
    collective_before_partition(m)


def collective_of_too_many_ranks(m: Module) -> None:
    m.level, m.mesh = "sharded", {"tp": 2}
    b = Builder(m.function("decode"))
    b.collective_permute(arg(m, "x"), [[0, 1], [1, 2]])


def composite_at_target(m: Module) -> None:
    m.level = "target"
    Builder(m.function("decode")).silu(arg(m, "x"))


def symbols_at_target(m: Module) -> None:
    m.level = "target"
    Builder(m.function("decode")).iota(s32, (symbol("B"),), 0)


BREAKS: list[tuple[str, Callable[[Module], None]]] = [
    ("GG0202", read_too_early),
    ("GG0202", read_of_a_foreign_value),
    ("GG0202", foreign_output),
    ("GG0202", erased_output),
    ("GG0203", wrong_result_type),
    ("GG0203", wrong_result_count),
    ("GG0105", operands_that_do_not_fit),
    ("GG0204", forgotten_user),
    ("GG0204", wrong_count),
    ("GG0204", unknown_level),
    ("GG0103", unknown_op),
    ("GG0107", output_twice),
    ("GG0107", argument_twice),
    ("GG0205", argument_without_a_row),
    ("GG0205", argument_of_another_type),
    ("GG0205", argument_with_the_name_of_an_output),
    ("GG0205", rank_of_another_type),
    ("GG0205", output_without_a_row),
    ("GG0205", output_with_the_name_of_a_weight),
    ("GG0205", output_of_another_type),
    ("GG0205", dropped_state),
    ("GG0205", representation_without_functions),
    ("GG0205", pack_that_does_not_exist),
    ("GG0206", collective_before_partition),
    ("GG0204", collective_of_too_few_ranks),
    ("GG0204", collective_of_too_many_ranks),
    ("GG0206", composite_at_target),
    ("GG0206", symbols_at_target),
]


@pytest.mark.parametrize(("code", "damage"), BREAKS, ids=lambda item: getattr(item, "__name__", ""))
def test_each_damage_has_its_code(code: str, damage: Callable[[Module], None]):
    module = parse(GOOD)
    damage(module)
    assert broken(module).code == code


def test_the_messages(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for _, damage in BREAKS:
        module = parse(GOOD)
        damage(module)
        # The line of this file is not part of the message.
        text = str(broken(module)).replace("tests/graphgen/ops/test_verify.py", "FILE")
        lines = [line.split(":")[0] if "FILE" in line else line for line in text.splitlines()]
        shown.append(f"## {damage.__name__.replace('_', ' ')}\n" + "\n".join(lines))
    golden("graphgen/verify_errors.txt", "\n\n".join(shown))


def test_a_good_op_does_not_excuse_another_with_the_same_types():
    module = parse(GOOD)
    b = Builder(module.function("decode"))
    x = arg(module, "x")
    b.concatenate([x, x], 0)
    verify(module)
    # The same types in the same order, but one operand and two results.
    wrong = Op("concatenate", (x,), (x.type, tensor(f32, (4, 4))), attrs_of({"dimension": 0}))
    module.function("decode").block.append(wrong)
    assert broken(module).code == "GG0203"


def test_a_collective_is_fine_after_partition():
    module = parse(GOOD)
    module.level = "sharded"
    collective_before_partition(module)
    verify(module)


def test_the_rank_is_no_interface_row():
    module = parse(GOOD)
    module.function("decode").block.add_arg(tensor(s32, (1,)), "rank")
    verify(module)


def test_functions_that_are_no_programs_need_no_interface():
    module = parse(GOOD)
    with Builder(module.add(Function("pack"))) as b:
        function = module.function("pack")
        function.outputs = [("part", -function.block.add_arg(tensor(f32, (3,)), "whole"))]
        assert b.function is function
    verify(module)
