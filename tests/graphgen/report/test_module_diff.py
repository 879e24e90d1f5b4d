"""Structural difference: what makes none, and each kind of difference at the place it is made."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ir.dtype import bf16, f32
from graphgen.models import build, known_shape
from graphgen.report.diff import (
    ProgramDifference,
    diff_functions,
    diff_modules,
    grouped_changes,
)
from graphgen.text import parse, print_module

HEAD = """\
module @m level=target {
  input %x : f32[4]
  input %w : f32[4]
  state %cache : f32[4]
  output %y : f32[4]
}

func @f phase=main {
  arg %x : f32[4]
  arg %w : f32[4]
  arg %cache : f32[4]
"""
BODY = """\
  %a = multiply(%x, %w) : f32[4]
  %b = exponential(%a) : f32[4]
  %c = add(%b, %cache) : f32[4]
  %d = subtract(%c, %a) : f32[4]
  return y = %d
  return cache = %c
"""


def module(body: str = BODY, head: str = HEAD) -> Module:
    return parse(f"{head}{body}}}\n")


def compared(one: Module, other: Module) -> ProgramDifference:
    return diff_functions((one, other), one.programs()[0], other.programs()[0])


def whats(body: str, head: str = HEAD) -> list[str]:
    """What is different from BODY."""
    found = compared(module(), module(body, head))
    return [*found.interface, *[change.what for change in found.changes]]


def swapped(body: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in body
        body = body.replace(old, new)
    return body


@pytest.mark.parametrize(
    "body",
    [
        swapped(BODY, ("%a", "%z"), ("%d", "%q")),
        # Another order, an op twice, and one that nobody reads.
        """\
  %a = multiply(%x, %w) : f32[4]
  %dead = sine(%x) : f32[4]
  %a2 = multiply(%x, %w) : f32[4]
  %b = exponential(%a2) : f32[4]
  %c = add(%b, %cache) : f32[4]
  %d = subtract(%c, %a) : f32[4]
  return y = %d
  return cache = %c
""",
        swapped(BODY, (") : f32[4]\n", ") : f32[4]  # net.py:7 a.b\n")),
    ],
)
def test_names_places_order_and_sharing_make_no_difference(body: str):
    found = compared(module(), module(body))
    assert found.same
    assert found.equal >= 4


def test_an_attribute():
    one = "  %a = slice(%x) start_indices=[0] limit_indices=[2] : f32[2]\n  return y = %a\n"
    other = swapped(one, ("[0]", "[1]"), ("[2] :", "[3] :"))
    head = swapped(HEAD, ("output %y : f32[4]", "output %y : f32[2]"))
    head = swapped(head, ("  state %cache : f32[4]\n", ""), ("  arg %cache : f32[4]\n", ""))
    found = compared(module(one, head), module(other, head))
    (change,) = found.changes
    assert change.what == "slice: start_indices [0] / [1]; limit_indices [2] / [3]"


def test_another_op():
    assert whats(swapped(BODY, ("= exponential", "= tanh"))) == ["exponential / tanh"]


def test_another_operand_and_operands_in_another_order():
    assert whats(swapped(BODY, ("subtract(%c, %a)", "subtract(%c, %b)"))) == [
        "subtract: operand 1: %a (multiply, f32[4]) / %b (exponential, f32[4])"
    ]
    assert whats(swapped(BODY, ("subtract(%c, %a)", "subtract(%a, %c)")))[0].startswith(
        "subtract: operand 0: %c (add, f32[4]) / %a (multiply, f32[4]); operand 1"
    )


CALL = """\
  %a = call(%x, %w) to_apply=inner results=[f32[4]] : f32[4]
  return y = %a
  return cache = %cache
}

func @inner {
  arg %x : f32[4]
  arg %w : f32[4]
  %a = multiply(%x, %w) : f32[4]
  return a = %a
"""


def test_functions_of_one_name_are_those_of_their_own_module():
    """In both directions: a program is not compared with what the other module calls."""
    one, other = module(CALL), module(swapped(CALL, ("= multiply(", "= add(")))
    assert [change.what for change in compared(one, other).changes] == ["multiply / add"]
    assert [change.what for change in compared(other, one).changes] == ["add / multiply"]
    assert compared(one, module(CALL)).same


def test_an_op_put_in_and_one_taken_out():
    more = swapped(BODY, ("  %c = add(%b", "  %n = negate(%b) : f32[4]\n  %c = add(%n"))
    assert whats(more) == [
        "add: operand 0: %b (exponential, f32[4]) / %n (negate, f32[4])",
        "nothing / negate",
    ] or whats(more) == [
        "nothing / negate",
        "add: operand 0: %b (exponential, f32[4]) / %n (negate, f32[4])",
    ]
    less = swapped(BODY, ("  %b = exponential(%a) : f32[4]\n", ""), ("add(%b", "add(%a"))
    assert sorted(whats(less)) == [
        "add: operand 0: %b (exponential, f32[4]) / %a (multiply, f32[4])",
        "exponential / nothing",
    ]


def test_a_change_shows_where_it_is_made_and_not_where_it_has_an_effect():
    found = compared(module(), module(swapped(BODY, ("multiply(%x, %w)", "divide(%x, %w)"))))
    assert [change.what for change in found.changes] == ["multiply / divide"]
    assert found.equal == 3


def test_arguments_in_another_order():
    head = swapped(
        HEAD, ("  arg %x : f32[4]\n  arg %w : f32[4]\n", "  arg %w : f32[4]\n  arg %x : f32[4]\n")
    )
    assert whats(BODY, head) == ["order of arguments: x is number 0 / number 1, and 1 more"]


def test_outputs_in_another_order():
    body = swapped(
        BODY, ("  return y = %d\n  return cache = %c\n", "  return cache = %c\n  return y = %d\n")
    )
    assert whats(body) == ["order of outputs: y is number 0 / number 1, and 1 more"]


def test_another_output():
    assert whats(swapped(BODY, ("y = %d", "y = %b"))) == [
        # Nobody reads the difference any more.
        "subtract / nothing",
        "output 0 y: %d (subtract, f32[4]) / %b (exponential, f32[4])",
    ]


def test_memory_that_is_taken_over_no_more():
    head = swapped(
        HEAD,
        ("state %cache", "input %cache"),
        ("  output %y", "  output %new : f32[4]\n  output %y"),
    )
    body = swapped(BODY, ("return cache =", "return new ="))
    assert whats(body, head) == [
        "output 1 cache takes the memory of argument 2 / memory of its own"
    ]


def test_memory_of_another_argument():
    head = swapped(HEAD, ("input %w", "state %w"), ("state %cache", "input %cache"))
    body = swapped(BODY, ("return cache =", "return w ="))
    assert whats(body, head) == [
        "output 1 cache takes the memory of argument 2 / the memory of argument 1"
    ]


def test_another_number_of_arguments():
    head = swapped(
        HEAD,
        ("  arg %x", "  arg %extra : s32[]\n  arg %x"),
        ("  input %x", "  input %extra : s32[]\n  input %x"),
    )
    assert whats(BODY, head) == [
        "3 arguments / 4 arguments",
        "argument extra is in the second only",
    ]


def test_names_that_say_nothing_go_by_position():
    head = swapped(HEAD, ("%x", "%p0"), ("%w", "%p1"), ("%cache", "%p2"))
    body = swapped(
        BODY, ("%x", "%p0"), ("%w", "%p1"), ("%cache", "%p2"), ("return cache", "return p2")
    )
    assert whats(body, head) == []


def test_a_model_and_itself_without_places_and_the_same_change_in_each_layer():
    whole = build(known_shape("llama-3.1-8b"), f32, mini=True)
    bare = parse(print_module(whole, locs=False))
    for function in whole.programs():
        assert diff_functions((whole, bare), function, bare.function(function.name)).same
    other = parse(print_module(whole).replace("silu(", "tanh("))
    found = diff_functions((whole, other), whole.function("decode"), other.function("decode"))
    assert [change.what for change in found.changes] == ["silu / tanh"] * 2
    lines = {(change.first.loc.line, change.second.loc.line)
             for change in found.changes if change.first and change.second}  # fmt: skip
    assert len(lines) == 1


def test_two_types_of_a_model():
    shape = known_shape("llama-3.1-8b")
    one, other = build(shape, f32, mini=True), build(shape, bf16, mini=True)
    found = diff_functions((one, other), one.function("decode"), other.function("decode"))
    assert "argument 4 %model.embed_tokens.weight: f32[257,64] / bf16[257,64]" in found.interface
    assert found.changes[0].what.startswith("embedding: f32[")


def test_random_numbers_are_not_shared():
    draw = '  %{0} = hlo.opaque(%x, %w) opcode="rng" results=[f32[4]] : f32[4]\n'
    two = draw.format("a") + draw.format("b") + "  %d = add(%a, %b) : f32[4]\n  return y = %d\n"
    head = swapped(HEAD, ("  state %cache : f32[4]\n", ""), ("  arg %cache : f32[4]\n", ""))
    one = swapped(two, ("add(%a, %b)", "add(%a, %a)"))
    assert compared(module(two, head), module(two, head)).same
    assert not compared(module(two, head), module(one, head)).same


def programs(*names: str) -> Module:
    """A module of one negation a program."""
    head = "module @m level=logical {\n  input %x : f32[2]\n  output %y : f32[2]\n}\n"
    body = "  arg %x : f32[2]\n  %y = negate(%x) : f32[2]\n  return y = %y\n}\n"
    return parse(head + "".join(f"\nfunc @{name} phase=main {{\n{body}" for name in names))


def test_programs_go_together_by_name_and_two_alone_whatever_they_are_called():
    def pairs(first: Module, second: Module) -> tuple[list[tuple[str, str]], list[str]]:
        found = diff_modules(first, second)
        assert all(item.same for item in found.programs)
        return [(p.first.name, p.second.name) for p in found.programs], [*found.unpaired]

    assert pairs(programs("f"), programs("g")) == ([("f", "g")], [])
    assert pairs(programs("f", "g"), programs("g", "f")) == ([("f", "f"), ("g", "g")], [])
    assert pairs(programs("f", "g"), programs("g")) == ([("g", "g")], ["f"])
    assert pairs(programs("g"), programs("h", "g", "f")) == ([("g", "g")], ["h", "f"])
    for first, second in ((("f",), ("g", "h")), (("f", "g"), ("h", "i"))):
        with pytest.raises(GraphgenError, match="no program of the same name") as refused:
            diff_modules(programs(*first), programs(*second))
        assert refused.value.help == f"they have {', '.join(first)} and {', '.join(second)}"


PREPARED = """\
module @m level=target {
  weight %w : f32[4,4]
  param %w.prepared : f32[4,4]
  input %x : f32[2,4]
  state %s : f32[4] pack=@s.pack unpack=@s.unpack
  output %y : f32[2,4]
}

func @weights.global {
  arg %w : f32[4,4]
  %0 = transpose(%w) permutation=[1,0] : f32[4,4]
  return w.prepared = %0
}

func @s.pack {
  arg %s : f32[4]
  arg %rank : s32[1]
  %0 = negate(%s) : f32[4]
  return s = %0
}

func @s.unpack {
  arg %s : f32[1,4]
  %0 = negate(%s) : f32[1,4]
  %1 = reshape(%0) shape=[4] : f32[4]
  return s = %1
}

func @main phase=main {
  arg %x : f32[2,4]
  arg %w.prepared : f32[4,4]
  arg %s : f32[4]
  %r = reduce(%w.prepared) dimensions=[0] kind=add : f32[4]
  %b = broadcast_in_dim(%r) shape=[2,4] dimensions=[1] : f32[2,4]
  %y = multiply(%x, %b) : f32[2,4]
  return y = %y
  return s = %s
}
"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("[1,0]", "[0,1]", "transpose: permutation [1,0] / [0,1]"),
        ("%0 = negate(%s) : f32[4]", "%0 = abs(%s) : f32[4]", "negate / abs"),
        ("negate(%s) : f32[1,4]", "abs(%s) : f32[1,4]", "negate / abs"),
    ],
    ids=["weights", "pack", "unpack"],
)
def test_functions_that_prepare_count(old: str, new: str, what: str):
    found = diff_modules(parse(PREPARED), parse(swapped(PREPARED, (old, new))))
    assert not found.same
    assert [change.what for item in found.prepared for change in item.changes] == [what]
    assert all(item.same for item in found.programs)


def test_functions_that_prepare_in_one_module_only():
    without = PREPARED.replace(" pack=@s.pack unpack=@s.unpack", "")
    found = diff_modules(parse(PREPARED), parse(without))
    assert found.module == [
        "state s: pack by a function / none",
        "state s: unpack by a function / none",
    ]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("weight %w : f32[4,4]", "weight %w : bf16[4,4]", "weight w: logical f32[4,4] / bf16[4,4]"),
        ("  input %x", "  weight %x", "x: input / weight"),
    ],
)
def test_rows_of_the_interface_count(old: str, new: str, what: str):
    found = diff_modules(parse(PREPARED), parse(swapped(PREPARED, (old, new))))
    assert what in found.module


def test_other_domains_count_and_a_missing_one_does_not():
    row = "input %x : f32[2,4]"
    stated = parse(swapped(PREPARED, (row, f"{row} domain=[0.0,1.0]")))
    other = parse(swapped(PREPARED, (row, f"{row} domain=[0.0,2.0]")))
    assert diff_modules(stated, other).module == ["input x: domain [0.0,1.0] / [0.0,2.0]"]
    assert diff_modules(parse(PREPARED), stated).same


def test_a_renamed_copy_with_functions_that_prepare_is_equal():
    names = [
        ("%w", "%v"),
        ("w.prepared", "v.prepared"),
        ("%x", "%in"),
        ("s.pack", "p"),
        ("%0", "%z"),
    ]
    assert diff_modules(parse(PREPARED), parse(swapped(PREPARED, *names))).same


def test_a_part_of_a_long_attribute_shows_the_difference():
    one, other = (
        BODY.replace("exponential(%a)", "add(%a, %k)").replace(
            "  %a", f"  %k = constant() value=f32[4]({','.join(map(str, four))}) : f32[4]\n  %a", 1
        )
        for four in ([1.5, *[1.123456789e-20] * 3], [1.5, *[1.123456789e-20] * 2, 2.5])
    )
    (change,) = compared(module(one), module(other)).changes
    assert "2.5" in change.what


def test_changes_of_other_attributes_are_not_one_row():
    body = "".join(
        f"  %{n}x = tanh(%x{n}) : f32[8]  # n.py:1 layers.{n}\n"
        f"  %{n} = slice(%{n}x) start_indices=[0] limit_indices=[2] : f32[2]  # n.py:1 layers.{n}\n"
        f"  %{n}n = negate(%{n}) : f32[2]  # n.py:2 layers.{n}\n"
        for n in range(3)
    )
    ends = "".join(f"  return y{n} = %{n}n\n" for n in range(3))
    rows = "".join(f"  output %y{n} : f32[2]\n" for n in range(3))
    rows += "".join(f"  input %x{n} : f32[8]\n" for n in range(3))
    args = "".join(f"  arg %x{n} : f32[8]\n" for n in range(3))
    text = f"module @m level=target {{\n{rows}}}\n\nfunc @f phase=main {{\n{args}{body}{ends}}}\n"
    starts = iter((1, 1, 3))
    lines = [
        line.replace("[0]", f"[{(at := next(starts))}]").replace("[2] :", f"[{at + 2}] :")
        if "slice" in line
        else line
        for line in text.splitlines()
    ]
    found = compared(parse(text), parse("\n".join(lines) + "\n"))
    assert [len(group.changes) for group in grouped_changes(found)] == [2, 1]
