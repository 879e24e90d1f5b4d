"""What is known when compiling becomes the literal NumPy computes, bit by bit."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Function, Literal, Module, dtype
from graphgen.ir.dtype import DTYPES, f32
from graphgen.passes.canonical.fold_constants import FoldConstants
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.text import parse, print_function


def program(body: str, level: str = "logical") -> Module:
    return parse(f"module @m level={level} {{\n}}\n\nfunc @f {{\n{body}}}\n")


def fold(body: str, item: FoldConstants | None = None, level: str = "logical") -> Module:
    module = program(body, level)
    run_pipeline(module, [item or FoldConstants()])
    return module


def literal(module: Module, name: str = "y") -> Literal:
    """The constant that the output ``name`` has become."""
    op = dict(module.function("f").outputs)[name].producer("constant")
    assert op is not None, print_function(module.function("f"))
    return op.attrs.literal("value")


def reasons(body: str, item: FoldConstants, level: str = "logical") -> dict[str, str]:
    """Per op, why it was not folded."""
    module, journal = program(body, level), Journal()
    run_pipeline(module, [item], journal=journal)
    return {miss.root.split()[0]: miss.why.reason for miss in journal.misses}


def test_a_chain_folds_from_its_start():
    module = fold("""\
  %i = iota() dtype=s32 shape=[4] dimension=0 : s32[4]
  %one = constant() value=s32[](1) : s32[]
  %ones = broadcast_in_dim(%one) shape=[4] : s32[4]
  %n = add(%i, %ones) : s32[4]
  %c = convert(%n) dtype=bf16 : bf16[4]
  %y = reshape(%c) shape=[2,2] : bf16[2,2]
  return y = %y
""")
    found = literal(module)
    assert (found.dtype, found.shape) == (dtype("bf16"), (2, 2))
    assert found.values() == [1.0, 2.0, 3.0, 4.0]


SPECIAL = [0x7FC00000, 0x7FC12345, 0xFFC12345, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001]


def test_payloads_infinities_and_signed_zeros_keep_their_bits():
    bits = struct.pack(f"<{len(SPECIAL)}I", *SPECIAL)
    module = fold(f"""\
  %c = constant() value=f32[7](0x{bits.hex()}) : f32[7]
  %y = reshape(%c) shape=[7,1] : f32[7,1]
  %b = bitcast_convert(%c) dtype=u32 : u32[7]
  %n = negate(%c) : f32[7]
  return y = %y
  return b = %b
  return n = %n
""")
    assert literal(module).data == bits
    assert literal(module, "b").data == bits
    flipped = struct.pack(f"<{len(SPECIAL)}I", *[item ^ 0x80000000 for item in SPECIAL])
    assert literal(module, "n").data == flipped


# Operands of types that hold too few numbers for those of the others; sums of them go beyond.
NUMBERS: dict[str, tuple[list[float], list[float]]] = {
    "u2": ([1, 3, 2, 0], [3, 2, 1, 1]),
    "s2": ([1, -2, -1, 0], [1, -2, 1, -1]),
    "f4e2m1fn": ([1, 3, 6, 0.5], [3, 4, 2, -1.5]),
}


@pytest.mark.parametrize("name", [name for name, kind in DTYPES.items() if kind.is_number])
def test_the_literal_is_what_evaluation_gives_in_every_type(name: str):
    function = Function("f")
    b = Builder(function)
    left, right = NUMBERS.get(name, ([1, 3, 7, 6], [3, 5, 2, 5]))
    x, y = b.literal(left, dtype(name)), b.literal(right, dtype(name))
    for op in ("add", "multiply", "divide", "maximum"):
        function.outputs.append((op, b.binary(op, x, y)))
    function.outputs.append(("less", b.compare(x, y, "LT")))
    function.outputs.append(("f32", b.op("convert", x, dtype=f32)))
    function.outputs.append(("sum", b.reduce(x, [0], "add")))
    wanted = evaluate(function, {})
    module = Module("m", functions={"f": function})
    run_pipeline(module, [FoldConstants()])
    assert {op.name for op in function.block} == {"constant"}
    for key, array in wanted.items():
        assert literal(module, key).data == array.tobytes(), key
    assert literal(module, "less").dtype is DTYPES["pred"]


def test_no_algebra_is_done():
    body = """\
  arg %x : f32[2]
  %z = constant() value=f32[2](0.0,0.0) : f32[2]
  %y = add(%x, %z) : f32[2]
  return y = %y
"""
    assert reasons(body, FoldConstants()) == {"%y": "an operand is not constant"}


def test_the_miss_names_the_value_that_is_not_constant():
    module, journal = (
        program("  arg %x : f32[2]\n  %y = negate(%x) : f32[2]\n  return y = %y\n"),
        (Journal()),
    )
    run_pipeline(module, [FoldConstants()], journal=journal)
    assert journal.misses[0].why.at is module.function("f").arg("x")


def test_the_limit_is_on_the_result():
    body = """\
  %c = constant() value=f32[](2.0) : f32[]
  %a = broadcast_in_dim(%c) shape=[64] : f32[64]
  %b = broadcast_in_dim(%c) shape=[65] : f32[65]
  %s = broadcast_in_dim(%c) shape=[B] : f32[B]
  return a = %a
  return b = %b
  return s = %s
"""
    assert reasons(body, FoldConstants()) == {
        "%b": "it has 65 elements, more than 64",
        "%s": "its size is not known yet",
    }
    assert "%b" not in reasons(body, FoldConstants(max_elements=65))
    with pytest.raises(GraphgenError, match="max_elements=0 must be at least 1"):
        fold(body, FoldConstants(max_elements=0))


def test_composites_and_collectives_stay():
    body = """\
  %c = constant() value=f32[2](1.0,2.0) : f32[2]
  %a = silu(%c) : f32[2]
  %b = all_reduce(%c) kind=add replica_groups=[[0,1]] : f32[2]
  return a = %a
  return b = %b
"""
    assert reasons(body, FoldConstants(), "sharded") == {
        "%a": "silu is a composite, which other passes want to see whole",
        "%b": "all_reduce talks to the other ranks",
    }


def test_exact_folds_only_what_means_the_same_unrounded():
    body = """\
  %a = constant() value=f32[](1.0) : f32[]
  %b = constant() value=f32[](3.0) : f32[]
  %third = divide(%a, %b) : f32[]
  %sum = add(%a, %b) : f32[]
  %narrow = convert(%third) dtype=bf16 : bf16[]
  return third = %third
  return sum = %sum
  return narrow = %narrow
"""
    assert reasons(body, FoldConstants(exact=True)) == {
        "%third": "it is rounded",
        "%narrow": "an operand is not constant",
    }
    module = fold(body)
    third = np.float32(1) / np.float32(3)
    assert literal(module, "third").values() == [third]
    assert literal(module, "narrow").values() == [0.333984375]


def test_every_op_is_tried_once_unless_an_operand_changed():
    # A chain of 20,000 ops, and 10,000 readers of one constant.
    chain = [f"  %a{i} = negate(%{f'a{i - 1}' if i else 'c'}) : f32[2]" for i in range(20_000)]
    wide = [f"  %w{i} = add(%c, %x) : f32[2]" for i in range(10_000)]
    body = "\n".join(["  %c = constant() value=f32[2](1.0,2.0) : f32[2]", *chain, *wide])
    module = program(f"  arg %x : f32[2]\n{body}\n  return y = %a19999\n")
    journal = Journal()
    rewriter = Rewriter("fold-constants", journal)
    FoldConstants().run(module, rewriter)
    assert rewriter.applications == 20_000
    assert len(journal.misses) == 10_000
    assert literal(module).values() == [1.0, 2.0]
