"""Chains of ops that move elements get shorter, and every element stays the same."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import evaluate, numpy_dtype
from graphgen.eval.arithmetic import widened
from graphgen.ir import Function, Module
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import DTYPES
from graphgen.ir.small_float import FORMATS
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.canonical.simplify_shape import SimplifyShape, keeps
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.workload.value_ranges import random_array
from graphgen.text import parse, print_function


def program(body: str) -> Module:
    return parse(f"module @m level=logical {{\n}}\n\nfunc @f {{\n{body}}}\n")


def simplified(body: str) -> tuple[list[str], Journal]:
    """The lines of the ops that are left, and what was done; numbers are compared on the way."""
    module, journal = program(body), Journal()
    run_pipeline(module, [SimplifyShape(), DeadCodeElimination()], journal=journal)
    same_numbers(program(body), module)
    text = print_function(module.function("f"), locs=False)
    return [line.strip() for line in text.splitlines() if " = " in line and "(" in line], journal


def same_numbers(before: Module, after: Module) -> None:
    function = before.function("f")
    if not all(v.type.static for op in function.block for v in (*op.operands, *op.results)):
        function, made = bound(before), bound(after)
    else:
        made = after.function("f")
    rng = np.random.default_rng(1)
    inputs = {value.name or "": random_array(rng, value.type) for value in function.args}
    wanted, got = evaluate(function, inputs), evaluate(made, inputs)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype
        assert got[name].tobytes() == array.tobytes()


def bound(module: Module) -> Function:
    """The function with B = 3 and S = 5."""
    made = Function("f")
    Cloner(symbols={"B": 3, "S": 5}).function(module.function("f"), made)
    return made


FIRES = {
    "broadcast-of-broadcast": (
        """\
  arg %x : f32[B,1]
  %a = broadcast_in_dim(%x) shape=[B,S,1] dimensions=[0,2] : f32[B,S,1]
  %y = broadcast_in_dim(%a) shape=[2,B,S,4] dimensions=[1,2,3] : f32[2,B,S,4]
  return y = %y
""",
        ["%y = broadcast_in_dim(%x) shape=[2,B,S,4] dimensions=[1,3] : f32[2,B,S,4]"],
    ),
    "broadcast-of-reshape": (
        """\
  arg %x : f32[1,S,4]
  %a = reshape(%x) shape=[S,1,4] : f32[S,1,4]
  %y = broadcast_in_dim(%a) shape=[2,S,3,4] dimensions=[1,2,3] : f32[2,S,3,4]
  return y = %y
""",
        ["%y = broadcast_in_dim(%x) shape=[2,S,3,4] dimensions=[0,1,3] : f32[2,S,3,4]"],
    ),
    "moved-splat": (
        """\
  %c = constant() value=f32[](2.0) : f32[]
  %a = broadcast_in_dim(%c) shape=[B,4] : f32[B,4]
  %b = transpose(%a) permutation=[1,0] : f32[4,B]
  %y = reshape(%b) shape=[4*B] : f32[4*B]
  return y = %y
""",
        [
            "%c = constant() value=f32[](2.0) : f32[]",
            "%y = broadcast_in_dim(%c) shape=[4*B] : f32[4*B]",
        ],
    ),
    "transpose-of-units": (
        """\
  arg %x : f32[B,1,S,4]
  %y = transpose(%x) permutation=[0,2,1,3] : f32[B,S,1,4]
  return y = %y
""",
        ["%y = reshape(%x) shape=[B,S,1,4] : f32[B,S,1,4]"],
    ),
    "slice-of-slice": (
        """\
  arg %x : f32[B,20]
  %a = slice(%x) start_indices=[0,3] limit_indices=[B,18] strides=[1,2] : f32[B,8]
  %y = slice(%a) start_indices=[0,1] limit_indices=[B,8] strides=[1,3] : f32[B,3]
  return y = %y
""",
        [
            "%y = slice(%x) start_indices=[0,5] limit_indices=[B,18] strides=[1,6] : f32[B,3]",
        ],
    ),
    "slice-of-broadcast": (
        """\
  arg %x : f32[6,1]
  %a = broadcast_in_dim(%x) shape=[B,6,9] dimensions=[1,2] : f32[B,6,9]
  %y = slice(%a) start_indices=[0,1,2] limit_indices=[B,4,7] : f32[B,3,5]
  return y = %y
""",
        [
            "%0 = slice(%x) start_indices=[1,0] limit_indices=[4,1] : f32[3,1]",
            "%y = broadcast_in_dim(%0) shape=[B,3,5] dimensions=[1,2] : f32[B,3,5]",
        ],
    ),
    "slice-of-concatenate": (
        """\
  arg %a : f32[B,2]
  arg %b : f32[B,6]
  arg %c : f32[B,3]
  %j = concatenate(%a, %b, %c) dimension=1 : f32[B,11]
  %y = slice(%j) start_indices=[0,3] limit_indices=[B,8] strides=[1,2] : f32[B,3]
  %z = slice(%j) start_indices=[0,8] limit_indices=[B,11] : f32[B,3]
  return y = %y
  return z = %z
""",
        ["%y = slice(%b) start_indices=[0,1] limit_indices=[B,6] strides=[1,2] : f32[B,3]"],
    ),
    "concatenate-of-slices": (
        """\
  arg %x : f32[B,9]
  arg %z : f32[B,1]
  %a = slice(%x) start_indices=[0,0] limit_indices=[B,2] : f32[B,2]
  %b = slice(%x) start_indices=[0,2] limit_indices=[B,5] : f32[B,3]
  %c = slice(%x) start_indices=[0,6] limit_indices=[B,9] : f32[B,3]
  %y = concatenate(%z, %a, %b, %c) dimension=1 : f32[B,9]
  return y = %y
""",
        [
            "%c = slice(%x) start_indices=[0,6] limit_indices=[B,9] : f32[B,3]",
            "%0 = slice(%x) start_indices=[0,0] limit_indices=[B,5] : f32[B,5]",
            "%y = concatenate(%z, %0, %c) dimension=1 : f32[B,9]",
        ],
    ),
    "convert-of-convert": (
        """\
  arg %x : bf16[4]
  %a = convert(%x) dtype=f32 : f32[4]
  %y = convert(%a) dtype=f16 : f16[4]
  return y = %y
""",
        ["%y = convert(%x) dtype=f16 : f16[4]"],
    ),
}


@pytest.mark.parametrize("name", FIRES)
def test_the_rule_fires(name: str):
    body, wanted = FIRES[name]
    lines, journal = simplified(body)
    assert lines == wanted
    assert name in {entry.rule for entry in journal.applications}


DECLINES = {
    "broadcast-of-reshape": [
        (
            "arg %x : f32[2,3]\n%a = reshape(%x) shape=[6] : f32[6]\n"
            "%y = broadcast_in_dim(%a) shape=[2,6] dimensions=[1] : f32[2,6]",
            "the reshape moves more than dimensions of size 1",
        ),
        (
            "arg %x : f32[1,6]\n%a = reshape(%x) shape=[6] : f32[6]\n"
            "%y = broadcast_in_dim(%a) shape=[6,2] dimensions=[0] : f32[6,2]",
            "the result has no place for the dropped dimensions of size 1",
        ),
    ],
    "broadcast-of-broadcast": [
        (
            "arg %x : f32[2]\n%y = broadcast_in_dim(%x) shape=[2,2] dimensions=[0] : f32[2,2]",
            "the operand is not a broadcast",
        )
    ],
    "moved-splat": [
        (
            "arg %x : f32[2]\n%a = broadcast_in_dim(%x) shape=[2,3] dimensions=[0] : f32[2,3]\n"
            "%y = reshape(%a) shape=[6] : f32[6]",
            "the broadcast operand is not a scalar",
        )
    ],
    "transpose-of-units": [
        (
            "arg %x : f32[B,1,S]\n%y = transpose(%x) permutation=[2,1,0] : f32[S,1,B]",
            "dimensions larger than 1 change places",
        )
    ],
    "slice-of-slice": [
        (
            "arg %x : f32[B+4]\n"
            "%a = slice(%x) start_indices=[B] limit_indices=[B+4] : f32[4]\n"
            "%y = slice(%a) start_indices=[0] limit_indices=[4] strides=[2] : f32[2]",
            "a stride over a size that is not known yet",
        )
    ],
    "slice-of-concatenate": [
        (
            "arg %a : f32[2]\narg %b : f32[3]\n%j = concatenate(%a, %b) dimension=0 : f32[5]\n"
            "%y = slice(%j) start_indices=[1] limit_indices=[4] : f32[3]",
            "the slice does not lie in one operand",
        ),
        (
            "arg %a : f32[B]\narg %b : f32[S]\n%j = concatenate(%a, %b) dimension=0 : f32[B+S]\n"
            "%y = slice(%j) start_indices=[1] limit_indices=[4] : f32[3]",
            "the slice does not lie in one operand",
        ),
    ],
    "concatenate-of-slices": [
        (
            "arg %x : f32[5]\n%a = slice(%x) start_indices=[0] limit_indices=[2] : f32[2]\n"
            "%b = slice(%x) start_indices=[3] limit_indices=[5] : f32[2]\n"
            "%y = concatenate(%a, %b) dimension=0 : f32[4]",
            "no two operands are neighboring slices of one value",
        ),
        (
            "arg %x : f32[2,4]\n"
            "%a = slice(%x) start_indices=[0,0] limit_indices=[1,2] : f32[1,2]\n"
            "%b = slice(%x) start_indices=[1,2] limit_indices=[2,4] : f32[1,2]\n"
            "%y = concatenate(%a, %b) dimension=1 : f32[1,4]",
            "no two operands are neighboring slices of one value",
        ),
    ],
    "convert-of-convert": [
        (
            "arg %x : f32[2]\n%a = convert(%x) dtype=bf16 : bf16[2]\n"
            "%y = convert(%a) dtype=f32 : f32[2]",
            "bf16 does not hold every value of f32",
        ),
        (
            "arg %x : s8[2]\n%a = convert(%x) dtype=f32 : f32[2]\n"
            "%y = convert(%a) dtype=u8 : u8[2]",
            "u8 does not hold every value of s8",
        ),
    ],
}


@pytest.mark.parametrize(
    ("rule", "index"), [(r, i) for r in DECLINES for i in range(len(DECLINES[r]))]
)
def test_the_rule_declines_and_says_why(rule: str, index: int):
    text, reason = DECLINES[rule][index]
    body = "".join(f"  {line}\n" for line in text.splitlines()) + "  return y = %y\n"
    lines, journal = simplified(body)
    assert not journal.applications
    assert any(
        m.rule == rule and m.root.startswith("%y") and m.why.reason == reason
        for m in journal.misses
    )
    assert lines


def test_symbols_cancel_where_a_concatenation_is_cut():
    lines, _ = simplified("""\
  arg %a : f32[B]
  arg %b : f32[4]
  %j = concatenate(%a, %b) dimension=0 : f32[B+4]
  %y = slice(%j) start_indices=[B+1] limit_indices=[B+3] : f32[2]
  return y = %y
""")
    assert lines == ["%y = slice(%b) start_indices=[1] limit_indices=[3] : f32[2]"]


def test_a_symbolic_size_may_be_less_than_the_slice_needs():
    _, journal = simplified("""\
  arg %a : f32[B]
  arg %b : f32[S]
  %j = concatenate(%a, %b) dimension=0 : f32[B+S]
  %y = slice(%j) start_indices=[B+1] limit_indices=[B+3] : f32[2]
  return y = %y
""")
    assert not journal.applications


def test_there_and_back_is_nothing():
    lines, _ = simplified("""\
  arg %x : bf16[B,6]
  %a = convert(%x) dtype=f32 : f32[B,6]
  %b = convert(%a) dtype=bf16 : bf16[B,6]
  %c = slice(%b) start_indices=[0,0] limit_indices=[B,2] : bf16[B,2]
  %d = slice(%b) start_indices=[0,2] limit_indices=[B,6] : bf16[B,4]
  %e = concatenate(%c, %d) dimension=1 : bf16[B,6]
  %f = reshape(%e) shape=[1,B,6] : bf16[1,B,6]
  %y = reshape(%f) shape=[B,6] : bf16[B,6]
  return y = %y
""")
    assert lines == []


REAL = [name for name in DTYPES if not DTYPES[name].is_complex]


@pytest.mark.parametrize("narrow", REAL)
@pytest.mark.parametrize("wide", REAL)
@pytest.mark.one_in(5)
def test_a_type_keeps_another_when_every_value_comes_back(narrow: str, wide: str):
    a, b = numpy_dtype(DTYPES[narrow]), numpy_dtype(DTYPES[wide])
    if narrow == "pred":
        values = np.array([False, True])
    elif DTYPES[narrow].bits < 8 and DTYPES[narrow].is_integer:
        values = np.arange(1 << DTYPES[narrow].bits).astype(a)
    elif a.itemsize <= 2:
        values = np.arange(1 << DTYPES[narrow].bits).astype(f"u{a.itemsize}").view(a)
    else:
        # Ends of the range, and numbers that need every bit of the significand.
        one = a.type(1)
        ends = np.iinfo(a) if DTYPES[narrow].is_integer else np.finfo(a)
        nearly = ends.max - one if DTYPES[narrow].is_integer else one + ends.eps  # pyright: ignore
        values = np.array([ends.min, ends.max, nearly, 0], a)
    with np.errstate(all="ignore"):
        middle = widened(values).astype(b)
        back = widened(middle).astype(a)
        finite = ~np.isnan(values.astype(np.float64))
        same = bool(np.all(back[finite] == values[finite]))
        # Wrapping around twice also comes back: the middle value must be the same number.
        exact = [
            int(m) == int(v)
            if np.isfinite(float(v)) and float(v).is_integer() and np.isfinite(float(m))
            else True
            for m, v in zip(
                widened(middle[finite]).tolist(), widened(values[finite]).tolist(), strict=True
            )
        ]
    found = keeps(DTYPES[narrow], DTYPES[wide])
    if narrow in FORMATS and wide in FORMATS and narrow != wide:
        # Nothing is said between two small formats.
        assert not found
    else:
        assert found == (same and all(exact))


def test_a_long_chain_is_looked_at_a_few_times_an_op():
    size = 20_000
    chain = ["  %a0 = slice(%x) start_indices=[1] limit_indices=[20001] : f32[20000]"]
    chain += [
        f"  %a{i} = slice(%a{i - 1}) start_indices=[1] limit_indices=[{size + 1 - i}]"
        f" : f32[{size - i}]"
        for i in range(1, size)
    ]
    module = program(
        "  arg %x : f32[20001]\n" + "\n".join(chain) + f"\n  return y = %a{size - 1}\n"
    )
    journal = Journal()
    run_pipeline(module, [SimplifyShape(), DeadCodeElimination()], journal=journal, verify=0)
    tried = len(journal.misses) + len(journal.of_pass("simplify-shape"))
    # Five rules look at a slice; each op is seen when it is reached and when it is made.
    assert tried <= 3 * 5 * size
    assert module.function("f").block.size == 1


def test_many_slices_of_many_joined_values():
    size = 5_000
    args = [f"  arg %x{i} : f32[2]" for i in range(size)]
    names = ", ".join(f"%x{i}" for i in range(size))
    cut = [
        f"  %y{i} = slice(%j) start_indices=[{2 * i}] limit_indices=[{2 * i + 1}] : f32[1]"
        for i in range(size)
    ]
    body = "\n".join([*args, f"  %j = concatenate({names}) dimension=0 : f32[{2 * size}]", *cut])
    module = program(f"{body}\n  return y = %y{size - 1}\n")
    rewriter = Rewriter("simplify-shape")
    SimplifyShape().run(module, rewriter)
    assert rewriter.applications == size
