"""Flash decoding: caches divided by slots over the ranks that share key-value heads."""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import MEANING, NATIVE, Array, evaluate
from graphgen.eval.arithmetic import numpy_dtype
from graphgen.exec.session import Runner, Workload
from graphgen.ir import RANK, Function, Module, Op, Role, dtype, tensor
from graphgen.ir.clone import clone_module
from graphgen.ir.dims import Shape
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.ops import Trait, has_trait
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.gqa.slot_groups import grouped_map, slot_ranks
from graphgen.passes.kv_cache.striped_layout import StripedLayout
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.gqa import grouped_model

# Ranks, query heads, key-value heads, slot ranks asked for.
Row = tuple[int, int, int, int]
# One, two and three key-value heads, of which query heads divide or are filled up.
QUICK: list[Row] = [(2, 4, 1, 0), (4, 6, 2, 0), (6, 6, 3, 0)]
# Several key-value heads a group, multi-head attention, and SmolLM2's.
ROWS = [
    *QUICK,
    *[pytest.param(r, marks=pytest.mark.slow) for r in [(4, 9, 3, 0), (8, 4, 4, 2), (9, 9, 3, 0)]],
]
# On at most eight devices.
DEVICES: list[Row] = [(2, 4, 1, 0), (4, 6, 2, 0), (4, 9, 3, 0), (8, 4, 4, 2)]
SLOTS = 17


def whole_model(row: Row) -> Module:
    """Prompts, chunks of them, steps of one token in two buckets and of three tokens to verify."""
    tp, q, kv, _ = row
    module = grouped_model(q, kv, tp=tp, bias=True, size=4)
    sizes = (
        "batch=[3],context=[7],tokens=[8,17],chunk=[4],speculation_length=3,"
        f"slots={SLOTS},in_place=true"
    )
    run_pipeline(module, parse_pipeline(f"canonicalize,specialize{{{sizes}}}"))
    return module


@cache
def outcomes(row: Row) -> tuple[Module, Workload, list[dict[str, Array]], list[dict[str, Array]]]:
    """The model on one rank, calls of it, and what they give: in f64, and as it is."""
    module = whole_model(row)
    script = make_workload(module, seed=2)
    exact = Runner(module, script, arithmetic=MEANING).outcomes()
    return module, script, exact, Runner(module, script).outcomes()


def divided(row: Row) -> Module:
    """The program of a rank."""
    tp, _, _, asked = row
    module = clone_module(outcomes(row)[0])
    flash = f"tp={tp},flash=true,slot_ranks={asked}"
    steps = (
        f"heads{{{flash}}},flash-decoding{{tp={tp},stripes={asked}}},shard{{{flash}}},pad-to-mesh,"
        "partition,merge-collectives"
    )
    run_pipeline(module, parse_pipeline(steps))
    return module


def collectives(function: Function) -> list[Op]:
    return [op for op in function.ops if has_trait(op, Trait.COLLECTIVE)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_ranks_give_the_numbers_of_one(row: Row):
    module, (_, script, wanted, _) = divided(row), outcomes(row)
    tp, _, kv, _ = row
    count = slot_ranks(outcomes(row)[0], tp, row[3])
    own = -(-SLOTS // count)
    shapes = {state.physical.dims for state in module.entries(Role.STATE)}
    assert shapes == {(3, own, kv * count // tp, 4)}
    assert compare(wanted, Runner(module, script, arithmetic=MEANING).outcomes()).relative <= 1e-9


def crossing(module: Module, function: Function) -> tuple[str, ...]:
    """The collectives of the StableHLO of a program, without names: their kinds and types."""
    lines = emit_stablehlo(module, function, locs=False).splitlines()
    found = [line.split(" = ")[1] for line in lines if "replica_groups" in line]
    assert found
    return tuple([re.sub(r"%\w+", "%", line) for line in found])


@pytest.mark.parametrize(
    "row",
    [(6, 6, 3, 0), *[pytest.param(r, marks=pytest.mark.slow) for r in DEVICES]],
    ids=str,
)
def test_devices_give_the_numbers_of_one(row: Row):
    module, (_, script, _, wanted) = divided(row), outcomes(row)
    run_pipeline(module, parse_pipeline("cse,fuse-projections,lift-weights,legalize,cse,dce"))
    assert len({crossing(module, f) for f in module.programs() if f.phase == "decode"}) == 1
    programs = {f.name: compile_program(module, f) for f in module.programs()}
    runner = Runner(
        module,
        script,
        lambda module, function, inputs: programs[function.name].run_numpy(inputs),
        NATIVE,
    )
    assert compare(wanted, runner.outcomes()).relative <= 1e-5


def of_group(function: Function, kinds: set[tuple[str, Shape]]) -> list[Op]:
    """The collectives of attention."""
    return [op for op in collectives(function) if (op.name, op.operands[0].shape) in kinds]


def received(op: Op, n: int) -> int:
    """Bytes that each of n ranks receives, in a ring."""
    size = op.operands[0].type.nbytes
    return size * (n - 1) if op.name == "all_gather" else size * (n - 1) // n


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_queries_maxima_sums_and_outputs_cross_links_and_no_cache(row: Row):
    module = divided(row)
    tp, q, kv, asked = row
    n = slot_ranks(outcomes(row)[0], tp, asked)
    heads = len(grouped_map(tp, n, q, kv).q_map) * n // tp
    every: dict[str, list[tuple[str, Shape]]] = {}
    for function in module.programs():
        tokens = function.dims["S"]
        assert isinstance(tokens, int)
        moved = [(op.name, op.operands[0].shape) for op in collectives(function)]
        queries, rows = (3, tokens, heads // n, 4), (1, 2, 3, tokens, heads)
        outputs = (3, tokens, heads, 4)
        of_attention = {("all_gather", queries), ("all_gather", rows), ("reduce_scatter", outputs)}
        assert of_attention <= set(moved)
        # The rest is of the embedding, of the two sums of a layer, and of the logits.
        assert {len(shape) for _, shape in set(moved) - of_attention} <= {2, 3}
        every[function.name] = moved
        # What a rank receives, by the formula of the guide: f32 numbers of 4 features a head.
        numbers = [received(op, n) for op in of_group(function, of_attention)]
        formula = 2 * (n - 1) * 3 * tokens * heads * 4 * 4 // n + (n - 1) * 3 * tokens * heads * 8
        assert sum(numbers) == formula
    # What crosses links is as long as the tokens of a call, whatever is attended to.
    short, long = [found for name, found in every.items() if name.startswith("decode")]
    assert short == long


def test_slots_are_dealt_out_one_by_one():
    split = divided((6, 6, 3, 0))
    row = split.entries(Role.STATE)[0]
    whole = np.arange(math.prod(row.logical.dims), dtype=np.float32).reshape(row.logical.dims)
    for rank in range(6):
        given = {"whole": whole, RANK: np.array([rank], np.int32)}
        part = evaluate(split.function(row.pack), given)["part"]
        head, stripe = rank // 2, rank % 2
        own = whole[:, stripe::2, head : head + 1]
        np.testing.assert_array_equal(part[:, : own.shape[1]], own)


@pytest.mark.parametrize(("name", "absent"), [("f32", 0), ("s32", -1), ("u8", 0), ("pred", 0)])
def test_slots_that_are_added_hold_what_masks_exclude(name: str, absent: int):
    kind, layout = dtype(name), StripedLayout(2)
    b = Builder(Function("f"))
    x = b.argument(tensor(kind, (3, 5)), "x")
    striped = layout.striped(b, x, 1)
    b.function.outputs = [("striped", striped), ("plain", layout.plain(b, striped, 1, 5))]
    given = np.arange(1, 16).reshape(3, 5).astype(numpy_dtype(kind))
    found = evaluate(b.function, {"x": given})
    filled = np.pad(given, [(0, 0), (0, 1)], constant_values=absent)
    np.testing.assert_array_equal(found["striped"], filled[:, [0, 2, 4, 1, 3, 5]])
    np.testing.assert_array_equal(found["plain"], given)
