"""Heads over ranks on XLA's CPU devices: up to eight ranks that really talk to each other."""

from __future__ import annotations

import pytest

from graphgen.eval import NATIVE, Array
from graphgen.exec.session import Runner, Workload
from graphgen.ir import Module
from graphgen.lowering.cpu import compile_program
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.gqa.head_strategies import AUTO, BY_ROWS, GATHERED, Heads, serving
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.gqa import SWEEP, grouped_model

Row = tuple[int, int, int]
SMALL = [row for row in SWEEP if row[0] <= 8]
# Heads of 8 features: up to 8 ranks can make a part of each.
SIZE = 8
QUICK = [
    ((8, 28, 4), AUTO), ((2, 9, 3), AUTO), ((2, 9, 3), "CONVERT_TO_MHA"),
    ((3, 9, 3), "REPLICATE_TO_TP_DEGREE"), ((2, 9, 3), "SHARD_OVER_HEADS"),
    ((4, 9, 3), "REPLICATED_HEADS"), ((6, 12, 3), GATHERED), ((2, 9, 3), BY_ROWS),
    ((3, 9, 3), BY_ROWS),
]  # fmt: skip


def batch(tp: int, strategy: str) -> int:
    """Rows of a call: with caches by rows more than one a rank."""
    return 2 * tp if strategy == BY_ROWS else 3


def serves(row: Row) -> list[str]:
    """The strategies that serve a row."""
    return serving(Heads(*row, SIZE, batch(row[0], BY_ROWS)))


# Every strategy wherever it serves, with projections apart and fused, with and without biases:
# each row, and each strategy, meets all four of these.
CASES = [
    pytest.param(
        row,
        strategy,
        fused,
        (fused + place + SMALL.index(row)) % 2 == 1,
        marks=() if (row, strategy) in QUICK else pytest.mark.slow,
        id=f"{row}-{strategy}-{'fused' if fused else 'apart'}",
    )
    for row in SMALL
    for place, strategy in enumerate(serves(row))
    for fused in (False, True)
]


def split(module: Module, tp: int, strategy: str) -> None:
    """To the program of one rank, projections apart."""
    shard = f"shard{{tp={tp},by_rows={'true' if strategy == BY_ROWS else 'false'}}}"
    text = f"heads{{tp={tp},strategy={strategy}}},{shard},pad-to-mesh,partition"
    run_pipeline(module, parse_pipeline(text))
    if strategy == GATHERED:
        run_pipeline(module, parse_pipeline("gather-heads"))


def on_devices(module: Module, script: Workload) -> list[dict[str, Array]]:
    """What a partitioned module gives on as many virtual devices as it has ranks."""
    run_pipeline(module, parse_pipeline("lift-weights,legalize,cse,dce"))
    programs = {f.name: compile_program(module, f) for f in module.programs()}
    runner = Runner(
        module,
        script,
        lambda module, function, inputs: programs[function.name].run_numpy(inputs),
        NATIVE,
    )
    return runner.outcomes()


def collectives(module: Module) -> set[str]:
    """The kinds of collectives in its programs."""
    kinds = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    return {op.name for f in module.programs() for op in f.ops if op.name in kinds}


@pytest.mark.parametrize(("row", "strategy", "fused", "bias"), CASES)
@pytest.mark.one_in(9)
def test_devices_give_the_unsharded_numbers(row: Row, strategy: str, fused: bool, bias: bool):
    tp, q, kv = row
    module = grouped_model(q, kv, tp=tp, bias=bias, size=SIZE)
    sizes = f"batch=[{batch(tp, strategy)}],context=[8],tokens=[8,16],in_place=true"
    run_pipeline(module, parse_pipeline(f"canonicalize,specialize{{{sizes}}}"))
    script = make_workload(module)
    wanted = Runner(module, script).outcomes()
    split(module, tp, strategy)
    if fused:
        run_pipeline(module, parse_pipeline("cse,fuse-projections"))
    if strategy == BY_ROWS and q % tp == kv % tp == 0:
        assert "all_to_all" in collectives(module)
    assert compare(wanted, on_devices(module, script)).relative <= 1e-5


def test_the_sweep_has_every_strategy():
    assert {strategy for _, strategy in QUICK} == {name for row in SMALL for name in serves(row)}
    assert all(strategy in serves(row) for row, strategy in QUICK)
