"""What a function computes twice it computes once, and nothing else is touched."""

from __future__ import annotations

from graphgen.ir import Module
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.text import parse


def program(body: str, level: str = "logical") -> Module:
    return parse(f"module @m level={level} {{\n}}\n\nfunc @f {{\n{body}}}\n")


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
