"""Imported mixtures of experts over ranks: their weights are split, and their routers are whole."""

from __future__ import annotations

import pytest

import graphgen as gg
from graphgen.ir import Value
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.pipelines import parse
from graphgen.passes.spmd.explain_sharding import ExplainSharding
from graphgen.text import parse as parse_text

F32 = gg.dtype("f32")
TOKENS, WIDTH, EXPERTS, INNER, WORDS = 6, 8, 4, 12, 10


def mixture(*, weight_first: bool = False) -> gg.Module:
    """Tokens through a router of two out of four experts, and a head over the vocabulary."""
    module = gg.Module("mixture", "canonical")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        ids = b.input("ids", gg.dtype("s32"), (TOKENS,))
        x = b.embedding(b.weight("embed", F32, (WORDS, WIDTH)), ids)
        scores = b.dot(x, b.weight("router", F32, (EXPERTS, WIDTH)))
        best, at = b.top_k(scores, 2)
        experts = b.iota(gg.dtype("s32"), (TOKENS, 2, EXPERTS), 2)
        chosen = b.compare(b.broadcast_in_dim(at, experts.shape, [0, 1]), experts, "EQ")
        spread = b.broadcast_in_dim(best, experts.shape, [0, 1])
        gates = b.reduce(b.select(chosen, spread, b.full(0.0, spread.type)), [1], "add")
        up = b.weight("up", F32, (EXPERTS, WIDTH, INNER))
        down = b.weight("down", F32, (EXPERTS, INNER, WIDTH))
        hidden = b.silu(_product(b, x, up, 1, 1, weight_first=weight_first))
        hidden = b.transpose(hidden, [1, 2, 0]) if weight_first else hidden
        out = _by_expert(b, hidden, down, weight_first=weight_first)
        y = x + b.dot_general(gates, out, ([1], [0]), ([0], [1]))
        b.output("logits", b.dot(y, b.weight("head", F32, (WORDS, WIDTH))))
    gg.verify(module)
    return module


def _product(
    b: gg.Builder, x: Value, weight: Value, x_dim: int, dim: int, *, weight_first: bool
) -> Value:
    """[T,D] and [E,D,F] to [T,E,F], or to [E,F,T]."""
    if weight_first:
        return b.dot_general(weight, x, ([dim], [x_dim]))
    return b.dot_general(x, weight, ([x_dim], [dim]))


def _by_expert(b: gg.Builder, hidden: Value, down: Value, *, weight_first: bool) -> Value:
    """Hidden [T,E,F], or [F,T,E], and [E,F,D] to [E,T,D]."""
    if weight_first:
        made = b.dot_general(down, hidden, ([1], [0]), ([0], [2]))
        return b.transpose(made, [0, 2, 1])
    return b.dot_general(hidden, down, ([2], [1]), ([1], [0]))


@pytest.mark.parametrize("weight_first", [False, True])
@pytest.mark.parametrize("tp", [2, 4])
def test_experts_are_split_and_the_router_is_whole(tp: int, weight_first: bool):
    before, after = (mixture(weight_first=weight_first) for _ in range(2))
    explained = ExplainSharding()
    passes = parse(f"default{{tp={tp}}}")
    run_pipeline(after, passes, instruments=[explained])
    lies = {reason.value: reason.sharding for reason in explained.shown()}
    assert (lies["%up"], lies["%down"]) == ("{-,-,tp}", "{-,tp,-}")
    assert lies["%router"] == "{-,-}"
    assert equivalent(before, after).equal
    (program,) = after.programs()
    # That of the logits.
    assert [op.name for op in program.ops].count("all_gather") == 1


def test_rules_of_default_split_by_experts():
    before, after = mixture(), mixture()
    run_pipeline(after, parse("default{tp=2,rules=[up:{tp,-,-},down:{tp,-,-}]}"))
    (program,) = after.programs()
    assert [value.type.dims for value in program.args if "up" in (value.name or "")] == [(2, 8, 12)]
    assert equivalent(before, after).equal


TABLE = """\
module @m level=canonical {
  input %x : f32[4,8]
  input %at : s32[4]
  weight %table : f32[6,8,8]
  output %y : f32[4,8]
}

func @main phase=main {
  arg %x : f32[4,8]
  arg %at : s32[4]
  arg %table : f32[6,8,8]
  %w = take(%table, %at) dimension=0 : f32[4,8,8]
  %y = dot_general(%x, %w) lhs_batch_dims=[0] rhs_batch_dims=[0] lhs_contracting_dims=[1] \
rhs_contracting_dims=[1] dtype=f32 : f32[4,8]
  return y = %y
}
"""


def test_weights_that_stay_whole_are_reported_with_a_rule():
    module = parse_text(TABLE)
    (report, *_) = run_pipeline(module, parse("shard{tp=2},partition"), journal=Journal())
    (remark,) = report.remarks
    assert remark.startswith("100 % of the weights are whole on each rank")
    assert "table f32[6,8,8]; rules=[table:{tp,-,-}] would split one" in remark


CHOICE = """\
module @m level=canonical {
  input %x : f32[1,8]
  weight %table : f32[400,8]
  output %best : f32[1,3]
}

func @main phase=main {
  arg %x : f32[1,8]
  arg %table : f32[400,8]
  %y = dot_general(%x, %table) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,400]
  %best, %at = top_k(%y) k=3 : f32[1,3], s32[1,3]
  return best = %best
}
"""


def test_what_top_k_gathers_is_priced():
    explained = ExplainSharding()
    passes = parse("shard{tp=2,rules=[table:{tp,-}]},partition{latency=0}")
    run_pipeline(parse_text(CHOICE), passes, instruments=[explained])
    sent = [reason.sent for reason in explained.shown() if reason.at == "top_k"]
    # Three numbers and three places of a row, to the other rank.
    assert sent == [3 * (4 + 4), 0]
