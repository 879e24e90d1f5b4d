"""The meaning check of numbers of 8 bits and fewer: no rounding, and the same range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import DTYPES, dtype, highest, lowest
from graphgen.ir.small_float import FORMATS
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import prove_equal
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.validate.verdict import Verdict
from graphgen.text import parse

TYPES = [name for name in FORMATS if name != "f8e8m0fnu"] + ["s2", "s4", "s8", "u2", "u4", "u8"]


def program(name: str) -> Module:
    """Two times x, clamped, in a narrow type and back."""
    low, high = float(lowest(dtype(name))), float(highest(dtype(name)))
    return parse(f"""\
module @m level=logical {{
  input %x : f32[12]
  output %y : f32[12]
}}

func @f phase=main {{
  arg %x : f32[12]
  %two = constant() value=f32[](2.0) : f32[]
  %twos = broadcast_in_dim(%two) dimensions=[] shape=[12] : f32[12]
  %scaled = multiply(%x, %twos) : f32[12]
  %low = constant() value=f32[]({low}) : f32[]
  %high = constant() value=f32[]({high}) : f32[]
  %inside = clamp(%low, %scaled, %high) : f32[12]
  %narrow = convert(%inside) dtype={name} : {name}[12]
  %y = convert(%narrow) dtype=f32 : f32[12]
  return y = %y
}}
""")


def calls(largest: float) -> Workload:
    """One call, with numbers of both signs from far inside to ``largest``."""
    x = largest * np.concatenate([np.geomspace(0.01, 1, 6), -np.geomspace(0.012, 1, 6)])
    return Workload({}, (ProgramCall("main", {}, {"x": x.astype(np.float32)}),))


Change = Callable[[Op, Builder], Sequence[Value]]


def drop_clamp(op: Op, b: Builder) -> Sequence[Value]:
    """The number that the clamp was given."""
    return [op.operands[1]]


def clamp_before_scale(op: Op, b: Builder) -> Sequence[Value]:
    """The clamp, and then the scale."""
    low, scaled, high = op.operands
    assert scaled.op is not None
    x, twos = scaled.op.operands
    return [b.multiply(b.clamp(low, x, high), twos)]


def half_the_clamp(op: Op, b: Builder) -> Sequence[Value]:
    """A clamp at half of the ends: so is the range of another type."""
    low, scaled, high = op.operands
    half = b.literal(0.5, dtype("f32"))
    return [b.clamp(b.multiply(low, half), scaled, b.multiply(high, half))]


def scale_after_narrowing(op: Op, b: Builder) -> Sequence[Value]:
    """The narrow x times two; ``op`` is the conversion to floats."""
    inner = op.operands[0].op
    assert inner is not None
    assert inner.operands[0].op is not None
    low, scaled, high = inner.operands[0].op.operands
    assert scaled.op is not None
    x, twos = scaled.op.operands
    narrow = b.convert(b.clamp(low, x, high), inner.result.dtype)
    return [b.multiply(b.convert(narrow, dtype("f32")), twos)]


@dataclass(frozen=True)
class Planted(Pass):
    """One rewrite of the program."""

    name: ClassVar[str] = "planted"
    root: str
    change: Change

    @property
    def budget(self) -> float:
        """The numbers of 2 bits are coarse."""
        return 0.6

    def run(self, module: Module, rewriter: Rewriter) -> None:
        if rewriter.exhausted:
            return
        (function,) = module.programs()
        ops = [op for op in function.block if op.name == self.root]
        b = rewriter.before(function, ops[-1])
        rewriter.replace(function, ops[-1], list(self.change(ops[-1], b)))


def verdict_of(name: str, item: Planted, share: float, *, alone: bool = False) -> Verdict:
    """Of a pass, on numbers that are at most ``share`` of the type's range."""
    largest = share * float(highest(dtype(name)))
    checks = PassChecks(each_rewrite=alone)
    (verdict,) = validate(program(name), [item], calls(largest), checks)
    return verdict


# Types whose conversion clamps by itself, where a clamp at the same ends does nothing.
CLAMPING = ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn")
WRONG = [
    (name, change)
    for name in TYPES
    for change in (drop_clamp, clamp_before_scale, half_the_clamp)
    if change is half_the_clamp or name not in CLAMPING
]


@pytest.mark.parametrize(("name", "change"), WRONG)
def test_a_clamp_that_is_dropped_or_moved_is_caught(name: str, change: Change):
    # Times two it is beyond the range: the same numbers of the program without a clamp are not.
    verdict = verdict_of(name, Planted("clamp", change), 0.9)
    assert not verdict.means_the_same
    assert verdict.guilty is not None
    assert verdict.guilty.root.startswith("%inside = clamp")


@pytest.mark.parametrize("name", CLAMPING)
def test_a_clamp_at_the_ends_of_a_type_that_clamps_may_go(name: str):
    assert verdict_of(name, Planted("clamp", drop_clamp), 0.9).ok


@pytest.mark.parametrize("name", TYPES)
def test_a_scale_moves_over_a_narrowing_within_the_range(name: str):
    verdict = verdict_of(name, Planted("convert", scale_after_narrowing), 0.45)
    assert verdict.means_the_same
    assert verdict.meaning.relative < 1e-12


@pytest.mark.parametrize("name", [name for name in TYPES if DTYPES[name].is_float])
def test_a_scale_does_not_move_over_the_end_of_the_range(name: str):
    assert not verdict_of(name, Planted("convert", scale_after_narrowing), 0.9).means_the_same


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2", "f8e4m3fn", "s8"])
def test_a_rewrite_alone_is_caught_on_numbers_that_the_calls_did_not_have(name: str):
    """The calls have small numbers; boundary values of the rewrite are beyond 57344."""
    verdict = verdict_of(name, Planted("clamp", drop_clamp), 0.1, alone=True)
    assert verdict.means_the_same
    assert not verdict.ok


@pytest.mark.parametrize(
    ("kind", "status"),
    [("bf16", Status.REAL), ("f16", Status.UNDECIDED), ("f8e4m3", Status.UNDECIDED)],
)
def test_no_proof_takes_a_narrowing_for_nothing(kind: str, status: Status):
    """bf16 has the range of f32; f16 ends at 65504, f8e4m3 at 240."""
    there = f"%n = convert(%x) dtype={kind} : {kind}[2]\n  %y = convert(%n) dtype=f32 : f32[2]"
    left, right = (
        parse(
            "module @m level=logical {\n  input %x : f32[2]\n  output %y : f32[2]\n}\n\n"
            f"func @f phase=main {{\n  arg %x : f32[2]\n  {ops}\n  return y = %y\n}}\n"
        ).function("f")
        for ops in (there, "%y = reshape(%x) shape=[2] : f32[2]")
    )
    assert prove_equal(left, right).status is status
    assert prove_equal(left, left).status is Status.PROVED
