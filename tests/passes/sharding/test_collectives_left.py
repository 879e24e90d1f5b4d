"""What partition leaves behind: nothing to merge or to move, and every divided op on its part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Function, Module, Op, dtype
from graphgen.models import build, known_shape
from graphgen.ops import OPS
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import parse as pipeline
from graphgen.text import parse
from tests.oracles.minis import MINIS

BUCKETS = CompileConfig(batch=(2,), context=(8,), tokens=(8,))


def split(name: str, tp: int) -> Module:
    module = build(known_shape(name), dtype("bf16"), mini=True)
    run_pipeline(module, pipeline(f"default{{tp={tp}}}", BUCKETS))
    return module


def mergeable(function: Function) -> Iterator[str]:
    """Collectives that one could do instead, or that could send less by standing elsewhere."""
    seen: set[tuple[object, ...]] = set()
    for op in function.ops:
        if op.name == "add":
            sums = [value.producer("all_reduce") for value in op.operands]
            if all(sums) and len({sent.attrs for sent in sums if sent}) == 1:
                yield f"a sum of sums over ranks: {op!r}"
        if not OPS[op.name].collective:
            continue
        key = (op.name, op.attrs, op.operands)
        if key in seen:
            yield f"sent twice: {op!r}"
        seen.add(key)
        yield from _moves(op)


def _moves(op: Op) -> Iterator[str]:
    readers = list(op.result.users)
    narrow = [
        r for r in readers if r.name == "convert" and r.result.dtype.bits < op.result.dtype.bits
    ]
    if op.name == "all_gather" and readers and len(narrow) == len(readers):
        yield f"sent wide and read narrow: {op!r}"
    cut = [r for r in readers if r.name == "dynamic_slice" and r.operands[0] is op.result]
    if op.name in ("all_reduce", "all_gather") and readers and len(cut) == len(readers):
        yield f"made whole and read in parts: {op!r}"


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", MINIS)
@pytest.mark.one_in(6)
def test_no_collective_is_left_to_merge_or_to_move(name: str, tp: int):
    for function in split(name, tp).programs():
        assert list(mergeable(function)) == []


MERGEABLE = """\
module @m level=target mesh=tp:2 {
}

func @f {
  arg %x : f32[4]
  %a = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[4]
  %n = negate(%x) : f32[4]
  %b = all_reduce(%n) kind=add replica_groups=[[0,1]] : f32[4]
  %s = add(%a, %b) : f32[4]
  %g = all_gather(%x) dimension=0 replica_groups=[[0,1]] : f32[8]
  %c = convert(%g) dtype=bf16 : bf16[8]
  %h = all_gather(%x) dimension=0 replica_groups=[[0,1]] : f32[8]
  return s = %s
  return c = %c
  return h = %h
}
"""


def test_the_search_for_them_can_find_some():
    found = list(mergeable(parse(MERGEABLE).function("f")))
    assert [what.partition(":")[0] for what in found] == [
        "a sum of sums over ranks",
        "sent wide and read narrow",
        "sent twice",
    ]


CHAIN = """\
module @m level=canonical {
  input %x : f32[4,8]
  weight %a : f32[8,8]
  weight %b : f32[8,8]
  output %y : f32[4,8]
}

func @f phase=decode {
  arg %x : f32[4,8]
  arg %a : f32[8,8]
  arg %b : f32[8,8]
  %0 = dot_general(%x, %a) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,8]
  %1 = exponential(%0) : f32[4,8]
  %2 = reshape(%1) shape=[4,4,2] : f32[4,4,2]
  %3 = transpose(%2) permutation=[1,0,2] : f32[4,4,2]
  %4 = transpose(%3) permutation=[1,0,2] : f32[4,4,2]
  %5 = reshape(%4) shape=[4,8] : f32[4,8]
  %6 = dot_general(%5, %b) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,8]
  %y = tanh(%6) : f32[4,8]
  return y = %y
}
"""


@pytest.mark.parametrize(
    ("rules", "sizes"),
    [
        # By features: everything up to the second product is half; that one sums over ranks.
        ("a:{tp,-},b:{-,tp}", [16, 16, 16, 16, 16, 16, 32, 32]),
        # By rows: every op is half, and nothing is sent.
        ("x:{tp,-},y:{tp,-},a:{-,-},b:{-,-}", [16, 16, 16, 16, 16, 16, 16, 16]),
    ],
)
def test_an_op_divided_along_what_it_keeps_runs_on_its_part(rules: str, sizes: list[int]):
    module = parse(CHAIN)
    run_pipeline(module, parse_pipeline(f"shard{{tp=2,rules=[{rules}]}},partition"))
    names = [op.name for op in parse(CHAIN).function("f").ops]
    ops = [op for op in module.function("f").ops if op.name in set(names)]
    # A reshape to a scalar is the rank's number.
    assert [op.result.type.size for op in ops if op.result.type.rank] == sizes
