"""What a function computes twice it computes once, and nothing else is touched."""

from __future__ import annotations

from graphgen.ir import Module
from graphgen.passes.cleanup.cse import CommonSubexpressions
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.text import parse, print_function, print_module


def program(body: str, level: str = "logical") -> Module:
    return parse(f"module @m level={level} {{\n}}\n\nfunc @f {{\n{body}}}\n")


def after(body: str, level: str = "logical") -> str:
    module = program(body, level)
    run_pipeline(module, [CommonSubexpressions()])
    return print_function(module.function("f"), locs=False)


def test_operands_are_merged_before_their_readers():
    assert (
        after("""\
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %b = negate(%x) : f32[4]
  %c = exponential(%a) : f32[4]
  %d = exponential(%b) : f32[4]
  return c = %c
  return d = %d
""")
        == """\
func @f {
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %c = exponential(%a) : f32[4]
  return c = %c
  return d = %c
}
"""
    )


def test_all_results_of_an_op_are_merged():
    assert (
        after("""\
  arg %p : s32[2]
  %a, %b = rope_table(%p) inv_freq=f32[1](1.0) : f32[2,1], f32[2,1]
  %c, %d = rope_table(%p) inv_freq=f32[1](1.0) : f32[2,1], f32[2,1]
  %y = add(%b, %d) : f32[2,1]
  return y = %y
""")
        == """\
func @f {
  arg %p : s32[2]
  %a, %b = rope_table(%p) inv_freq=f32[1](1.0) : f32[2,1], f32[2,1]
  %y = add(%b, %b) : f32[2,1]
  return y = %y
}
"""
    )


def test_equal_all_reduces_are_one():
    text = after(
        """\
  arg %x : f32[4]
  %a = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[4]
  %b = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[4]
  %c = all_reduce(%x) kind=maximum replica_groups=[[0,1]] : f32[4]
  return a = %a
  return b = %b
  return c = %c
""",
        "sharded",
    )
    assert text.count("all_reduce") == 2
    assert "return b = %a" in text
    assert "return c = %c" in text


def test_what_differs_in_anything_stays():
    bodies = [
        # Zeros of two signs, and one number in two types.
        """\
  %a = constant() value=f32[](0.0) : f32[]
  %b = constant() value=f32[](-0.0) : f32[]
  %c = constant() value=bf16[](0.0) : bf16[]
  return a = %a
  return b = %b
  return c = %c
""",
        # Operands in another order.
        """\
  arg %x : f32[4]
  arg %y : f32[4]
  %a = subtract(%x, %y) : f32[4]
  %b = subtract(%y, %x) : f32[4]
  return a = %a
  return b = %b
""",
        # Asked to lie differently over the mesh.
        """\
  arg %x : f32[4]
  %a = negate(%x) : f32[4]{tp}
  %b = negate(%x) : f32[4]
  return a = %a
  return b = %b
""",
    ]
    for body in bodies:
        assert after(body) == print_function(program(body).function("f"), locs=False)


def test_functions_do_not_share():
    text = """\
module @m level=logical {
}

func @f {
  %a = constant() value=f32[](1.0) : f32[]
  return a = %a
}

func @g {
  %a = constant() value=f32[](1.0) : f32[]
  return a = %a
}
"""
    module = parse(text)
    run_pipeline(module, [CommonSubexpressions()])
    assert [function.block.size for function in module.functions.values()] == [1, 1]


def test_the_first_op_stays_with_its_provenance():
    module = program("""\
  arg %x : f32[4]
  %a = negate(%x) : f32[4]  # model.py:3 layers.0
  %b = negate(%x) : f32[4]  # model.py:9 layers.1
  return b = %b
""")
    journal = Journal()
    run_pipeline(module, [CommonSubexpressions()], journal=journal)
    (op,) = module.function("f").block
    assert repr(op.loc) == "model.py:3 layers.0"
    (entry,) = journal.applications
    assert (entry.rule, entry.loc.line) == ("cse", 9)


def test_fuel_limits_the_merges():
    lines = "".join(f"  %a{i} = negate(%x) : f32[4]\n" for i in range(5))
    module = program(f"  arg %x : f32[4]\n{lines}  return y = %a4\n")
    CommonSubexpressions().run(module, Rewriter("cse", fuel=2))
    assert module.function("f").block.size == 3


def test_many_readers_of_one_value_and_a_long_chain():
    # Every value of the second chain is merged; each merge moves one reader and no more.
    size = 10_000
    first = ["  %a0 = negate(%x) : f32[4]", "  %b0 = negate(%x) : f32[4]"]
    chain = [
        f"  %{side}{i} = exponential(%{side}{i - 1}) : f32[4]"
        for i in range(1, size)
        for side in "ab"
    ]
    wide = [f"  %w{i} = cosine(%x) : f32[4]" for i in range(size)]
    body = "\n".join([*first, *chain, *wide])
    module = program(
        f"  arg %x : f32[4]\n{body}\n  return y = %b{size - 1}\n  return w = %w{size - 1}\n"
    )
    rewriter = Rewriter("cse")
    CommonSubexpressions().run(module, rewriter)
    assert rewriter.applications == size + size - 1
    assert module.function("f").block.size == size + 1


FOREIGN = """\
module @m level=target {
}

func @f {
  arg %x : f32[4]
  %a = hlo.opaque(%x, %x) opcode="rng" results=[f32[4]] : f32[4]
  %b = hlo.opaque(%x, %x) opcode="rng" results=[f32[4]] : f32[4]
  %c = custom_call(%x) target="Dropout" results=[f32[4]] : f32[4]
  %d = custom_call(%x) target="Dropout" results=[f32[4]] : f32[4]
  return a = %a
  return b = %b
  return c = %c
  return d = %d
}
"""


def test_of_what_is_foreign_two_are_two():
    module = parse(FOREIGN)
    run_pipeline(module, [CommonSubexpressions()])
    assert print_module(module) == FOREIGN
