"""Caches by rows: every rank has all heads of its rows, whatever the calls are like.

transformers-neuronx is right with it only for single tokens, as many rows as ranks and equal
starts; here prompts are ragged, a row is idle, and there are more rows than ranks.
"""

from __future__ import annotations

import re

import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.gqa.head_strategies import Heads, serving
from graphgen.passes.pipelines import parse
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.gqa import SWEEP, grouped_model

Row = tuple[int, int, int]
NAME = "SHARD_OVER_BATCH"
# Two rows a rank, heads of 64 features as in the table of the guide.
SERVED = [row for row in SWEEP if NAME in serving(Heads(*row, 64, 2 * row[0]))]
SMALL = [row for row in SERVED if row[0] <= 8]


def specialized(row: Row, *, bias: bool) -> Module:
    tp, q, kv = row
    module = grouped_model(q, kv, tp=tp, bias=bias, size=64)
    sizes = f"batch=[{2 * tp}],context=[8],tokens=[8,16],in_place=true"
    run_pipeline(module, parse_pipeline(f"canonicalize,specialize{{{sizes}}}"))
    return module


def test_it_serves_five_rows_of_the_sweep():
    assert len(SMALL) >= 5
    assert (4, 71, 1) in SMALL
    assert (8, 71, 71) in SMALL


@pytest.mark.one_in(6)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=() if row[0] <= 16 else pytest.mark.slow) for row in SERVED],
    ids=str,
)
def test_rows_over_ranks_give_the_unsharded_numbers(row: Row, bias: bool):
    tp, _, kv = row
    whole = specialized(row, bias=bias)
    script = make_workload(whole, seed=1)
    wanted = Runner(whole, script, arithmetic=MEANING).outcomes()
    module = clone_module(whole)
    steps = f"heads{{tp={tp},strategy={NAME}}},shard{{tp={tp},by_rows=true}},pad-to-mesh,partition"
    run_pipeline(module, parse_pipeline(steps))
    caches = [state.physical.dims for state in module.entries(Role.STATE)]
    assert {(dims[0], dims[2]) for dims in caches} == {(2, kv)}
    assert compare(wanted, Runner(module, script, arithmetic=MEANING).outcomes()).relative <= 1e-9
    run_pipeline(module, parse_pipeline("cse,fuse-projections,lift-weights"))
    assert compare(wanted, Runner(module, script, arithmetic=MEANING).outcomes()).relative <= 1e-9


def test_heads_are_exchanged_for_rows_and_back():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, parse(f"default{{tp=2,heads={NAME},batch=[4],context=[8],tokens=[8]}}"))
    for function in module.programs():
        names = [op.name for op in function.ops]
        # Queries, keys and values of two layers there, what is attended to back.
        assert names.count("all_to_all") == 2 * 4
        splits = [op.operands[0].shape[0] for op in function.ops if op.name == "attention"]
        assert set(splits) <= {2}


SIZES = "specialize{batch=[4],context=[8],tokens=[8],in_place=true}"


@pytest.mark.parametrize(
    ("before", "rules", "what", "advice"),
    [
        ("canonicalize", "", "k_cache f32[R,M,2,8] cannot be split along R, which", "in_place="),
        (SIZES, "logits:{tp,-}", "logits f32[B,257] leaves whole along B", "leave out the rule"),
    ],
)
def test_what_is_no_number_yet_is_refused(before: str, rules: str, what: str, advice: str):
    module = build(known_shape("smollm2-135m"), f32, mini=True)
    steps = f"{before},shard{{tp=2,by_rows=true,rules=[{rules}]}},pad-to-mesh,partition"
    with pytest.raises(GraphgenError, match=re.escape(what)) as caught:
        run_pipeline(module, parse_pipeline(steps))
    assert caught.value.code == "GG0304"
    assert advice in (caught.value.help or "")
