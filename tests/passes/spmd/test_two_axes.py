"""Models over two axes: found in bounded work, and no worse than over the one that they need."""

from __future__ import annotations

import pytest

from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape
from graphgen.ops import OPS
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.sharding.beam_search import ShardingSearch, _shared_memo
from graphgen.passes.sharding.reshard_planner import _routes
from graphgen.passes.sharding.sharding_plan import make_plans
from graphgen.passes.spmd.partition import Partition
from tests.passes.test_scaling import calls

# What a search may take, in calls of functions; it takes from a half to three quarters of that.
MOST = 7_000_000


def new_search(module: Module) -> ShardingSearch:
    """A search that knows nothing of what others have found."""
    _shared_memo.cache_clear()
    _routes.cache_clear()
    return Partition().search(module)


def annotated(name: str, mesh: str) -> Module:
    module = build(known_shape(name), dtype("bf16"), mini=True)
    sizes = "specialize{batch=[2],context=[8],tokens=[8],in_place=true}"
    text = f"canonicalize,unfuse-projections,{sizes},heads{{tp=4}},shard{{{mesh}}},pad-to-mesh"
    run_pipeline(module, parse_pipeline(text))
    return module


def collectives(module: Module) -> list[int]:
    run_pipeline(module, parse_pipeline("partition,cse,dce"))
    return [sum(OPS[op.name].collective for op in f.ops) for f in module.programs()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-1b", "gpt-j-6b"])
def test_an_axis_that_nobody_asks_for_costs_no_collective(name: str):
    wanted = collectives(annotated(name, "tp=4"))
    assert collectives(annotated(name, "mesh=[dp:2,tp:4]")) == wanted


def test_axes_that_split_everything_together_are_searched_as_one():
    wanted = collectives(annotated("llama-3.1-8b", "tp=4"))
    rules = ",".join(f"{name}:ep*tp" for name in ("heads", "kv_heads", "intermediate", "vocab"))
    module = annotated("llama-3.1-8b", f"mesh=[ep:2,tp:2],rules=[{rules}]")
    search = new_search(module)
    # Three times less than over two axes of their own.
    assert calls(lambda: make_plans(module, search)) < MOST / 6
    assert search.joined == ("ep", "tp")
    assert collectives(module) == wanted


@pytest.mark.parametrize(
    "rules", ["", pytest.param(",rules=[rows:dp,batch:dp]", marks=pytest.mark.slow)]
)
def test_the_search_over_two_axes_is_bounded(rules: str):
    module = annotated("bloom-560m", f"mesh=[dp:2,tp:4]{rules}")
    search = new_search(module)
    made = calls(lambda: make_plans(module, search))
    assert MOST / 3 < made < MOST
