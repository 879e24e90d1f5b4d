"""Tokens of ranks that go to the ranks of their experts and back, by an all-to-all each way."""

from __future__ import annotations

from math import prod
from unittest import mock

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate, evaluate_ranks, rank_index
from graphgen.ir import AttrValue, Function, Module, Op, Sharding, Value, dtype, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ir.sharding import parse_sharding
from graphgen.lowering.check.check import check
from graphgen.lowering.check.predicates import Request
from graphgen.lowering.hlo import emit_hlo
from graphgen.models import build, known_shape, read_model_config
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.sharding.expert_exchange import exchange_strategies, exchanged_axes, places
from graphgen.passes.sharding.mesh import Mesh, local_shape
from graphgen.passes.sharding.strategies import Strategy, strategies
from graphgen.passes.spmd import exchanged_experts
from graphgen.passes.spmd.explain_sharding import ExplainSharding
from graphgen.passes.spmd.spmd_ops import EmitContext, emit_part
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles import xla_hlo
from tests.passes.experts.mixtures import KINDS, choices

EXPERTS, CHOSEN, WIDTH, INNER = 8, 2, 3, 4
TP, GRID = Mesh({"tp": 4}), Mesh({"ep": 2, "tp": 2})
CONFIG = {**read_model_config(known_shape("mixtral-8x7b")).mini().to_hf(), "num_hidden_layers": 1}


def mixture(
    tokens: tuple[int, ...], split: str, attrs: dict[str, AttrValue]
) -> tuple[Function, Op]:
    """An op with tokens [B,S,H] that annotations split, in a function of its own."""
    weights = [(INNER, WIDTH), (INNER, WIDTH), (WIDTH, INNER), (INNER,), (INNER,), (WIDTH,)]
    shapes = [(*tokens, WIDTH), *[(*tokens, CHOSEN)] * 2, *[(EXPERTS, *s) for s in weights]]
    function = Function("f")
    with Builder(function) as b:
        args = [
            function.block.add_arg(tensor(s32 if index == 1 else f32, shape), f"a{index}")
            for index, shape in enumerate(shapes)
        ]
        args[0].sharding = parse_sharding(split)
        op = b.emit("experts", args, {"dtype": f32, **attrs})
    function.outputs = [("y", op.result)]
    return function, op


def arrays(op: Op, kind: str, seed: int) -> dict[str, Array]:
    """Random operands, in f64, with choices of a kind."""
    random, tokens = np.random.default_rng(seed), op.operands[0].type.dims[:-1]
    made = {v.name or "": random.standard_normal(v.type.dims) for v in op.operands}
    chosen = choices(kind, prod(tokens), CHOSEN, EXPERTS, seed)
    return {**made, "a1": chosen.reshape(*tokens, CHOSEN).astype(np.int32)}


def exchange_of(op: Op, mesh: Mesh, held: str) -> Strategy:
    """The strategy that exchanges tokens, with experts as in the layout ``held``."""
    (found,) = [
        way
        for way in exchange_strategies(op, mesh, strategies(op, mesh), "all-to-all")
        if way.in_shardings[3].text == held and exchanged_axes(op, way)
    ]
    return found


def part_of(x: Array, layout: Sharding, mesh: Mesh, rank: int) -> Array:
    """The part of a rank; its number has a digit for each axis, of the last the fastest."""
    digits = np.unravel_index(rank, tuple(mesh.axes.values()))
    place = dict(zip(mesh.axes, map(int, digits), strict=True))
    for dim, axes in enumerate(layout.dims):
        for axis in axes:
            x = np.split(x, mesh.axes[axis], dim)[place[axis]]
    return x


def run_on_ranks(op: Op, mesh: Mesh, way: Strategy, given: dict[str, Array]) -> list[Array]:
    """What each rank computes with its parts of the operands."""
    part = Function("part")
    rank = part.block.add_arg(tensor(s32, (1,)), "rank")
    parts = [
        part.block.add_arg(tensor(v.dtype, local_shape(mesh, v.type, layout)), v.name or "")
        for v, layout in zip(op.operands, way.in_shardings, strict=True)
    ]
    shapes = [local_shape(mesh, op.result.type, way.out_shardings[0])]
    results = emit_part(EmitContext(Builder(part), mesh, rank), op, parts, way, shapes)
    part.outputs = [("y", results[0])]
    layouts = dict(zip(given, way.in_shardings, strict=True))
    per_rank = [
        {"rank": rank_index(r), **{n: part_of(x, layouts[n], mesh, r) for n, x in given.items()}}
        for r in range(mesh.ranks)
    ]
    return [out["y"] for out in evaluate_ranks(part, per_rank, MEANING)]


CASES = {
    "experts of a rank": (TP, (3, 4), "{-,tp,-}", "{tp,-,-}"),
    "rows": (TP, (4, 3), "{tp,-,-}", "{tp,-,-}"),
    "groups": (GRID, (3, 4), "{-,ep*tp,-}", "{ep,tp,-}"),
    "ranks of a group are far": (GRID, (2, 8), "{-,ep*tp,-}", "{tp,ep,-}"),
    "tokens in another order": (GRID, (1, 8), "{-,tp*ep,-}", "{ep,tp,-}"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("capacity", "modulate"), [(0, "output"), (1, "input"), (2, "output")])
def test_ranks_compute_their_own_tokens(case: str, kind: str, capacity: int, modulate: str):
    mesh, tokens, split, held = CASES[case]
    function, op = mixture(tokens, split, {"capacity": capacity, "modulate": modulate})
    way = exchange_of(op, mesh, held)
    given = arrays(op, kind, seed=capacity)
    wanted = evaluate(function, given, MEANING)["y"]
    for rank, found in enumerate(run_on_ranks(op, mesh, way, given)):
        own = part_of(wanted, way.out_shardings[0], mesh, rank)
        np.testing.assert_allclose(found, own, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("capacity", "room"), [(0, 8), (1, 2), (3, 6), (4, 8), (9, 8)])
def test_buffers_have_room_for_the_worst_case(capacity: int, room: int):
    """Ranks with eight tokens and two experts each."""
    _, op = mixture((4, 8), "{-,tp,-}", {"capacity": capacity})
    way = exchange_of(op, TP, "{tp,-,-}")
    assert places(TP, op, ("tp",), ("tp",)) == (room, 8)
    # Three numbers of four bytes to three other ranks, from each of four, there and back.
    assert way.sent == 4 * 3 * room * WIDTH * 4 * 2
    every = strategies(op, TP)
    offered = exchange_strategies(op, TP, every, "auto")[len(every) :]
    # With room for all tokens an all-gather sends as much.
    assert [exchanged_axes(op, item) for item in offered] == ([("tp",)] if room < 8 else [])
    assert exchange_strategies(op, TP, every, "all-gather") == every


@pytest.mark.parametrize("split", ["{-,ep,-}", "{-,-,tp}", "{ep,tp,-}"])
def test_tokens_that_lie_otherwise_are_gathered(split: str):
    _, op = mixture((4, 8), split, {})
    every = strategies(op, GRID)
    ways = exchange_strategies(op, GRID, every, "all-to-all")
    exchanged = {exchanged_axes(op, way) for way in ways} - {()}
    # Over one axis alone ranks exchange where the other divides nothing.
    assert exchanged == ({("ep",)} if split == "{-,ep,-}" else set())


OPTIONS = "tp=4,moe_ep_degree=2,rules=[prefill:sequence:ep*tp]"


def compiled(options: str) -> Module:
    module = build(CONFIG, dtype("f32"))
    run_pipeline(module, parse(f"small{{{options}}}"))
    return module


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("tp=2,moe_ep_degree=2", "no tokens of a mixture are divided"),
        ("tp=2,rules=[prefill:sequence:tp]", "no tokens of a mixture are divided"),
        ("tp=1", "on one rank, which has all experts"),
    ],
)
def test_an_exchange_that_there_is_not_is_refused(options: str, reason: str):
    with pytest.raises(GraphgenError, match=reason) as caught:
        compiled(f"{options},expert_exchange=all-to-all")
    assert caught.value.code == "GG0302"


def test_the_exchange_is_of_prompts_and_is_explained():
    module, explained = build(CONFIG, dtype("f32")), ExplainSharding()
    passes = parse(f"small{{{OPTIONS},expert_exchange=all-to-all}}")
    run_pipeline(module, passes, instruments=[explained])
    counts = {f.phase: [op.name for op in f.block].count("all_to_all") for f in module.programs()}
    assert counts == {"prefill": 2, "decode": 0}
    (item,) = [item for item in explained.shown() if "by all-to-all" in item.why]
    assert item.why.startswith("ep*tp: tokens go to the ranks of their experts by all-to-all, room")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("factor", "exchanged"), [("0.25", True), ("1", False)])
def test_bytes_decide(factor: str, exchanged: bool):
    """Two of eight experts of Mixtral 8x7B a token, each of eight ranks with one of them."""
    sizes = read_model_config(known_shape("mixtral-8x7b")).to_hf()
    module = build({**sizes, "num_hidden_layers": 1}, dtype("bf16"))
    ranks = "tp=8,moe_ep_degree=8,rules=[prefill:sequence:tp]"
    prompts = "context=[8192],tokens=[8192]"
    explained, passes = (
        ExplainSharding(),
        parse(f"default{{{ranks},{prompts},capacity_factor={factor}}}"),
    )
    run_pipeline(module, passes, instruments=[explained])
    moved = [item for item in explained.shown() if "by all-to-all" in item.why]
    # Of 1024 tokens of a rank there is room for half: those of one expert, there in 16 bits and
    # back in 32.
    assert [item.sent for item in moved] == ([7 * 512 * 4096 * (2 + 4)] if exchanged else [])


@pytest.mark.parametrize("late", [0, 1])
def test_a_place_that_is_one_too_late_is_found(late: int):
    function, op = mixture((3, 4), "{-,tp,-}", {})
    given = arrays(op, "random", seed=0)
    real = exchanged_experts.placed_tokens

    def shifted(b: Builder, at: Value, kept: Value, count: int, *, choices: bool) -> Value:
        """What a sender puts in its buffers; a receiver has a column of places."""
        moved = at + late if at.shape[1] != 1 else at
        return real(b, moved, kept, count, choices=choices)

    way = exchange_of(op, TP, "{tp,-,-}")
    with mock.patch.object(exchanged_experts, "placed_tokens", shifted):
        parts = run_on_ranks(op, TP, way, given)
    same = np.allclose(np.concatenate(parts, 1), evaluate(function, given, MEANING)["y"])
    assert same is (not late)


@pytest.mark.slow
@pytest.mark.parametrize("factor", ["0", "0.25"])
@pytest.mark.parametrize("options", [OPTIONS, "tp=2,moe_ep_degree=2,rules=[prefill:sequence:tp]"])
def test_every_pass_keeps_what_it_computes(options: str, factor: str):
    module = build(CONFIG, dtype("f32"))
    text = f"{options},expert_exchange=all-to-all,capacity_factor={factor}"
    verdicts = validate(module, parse(f"small{{{text}}}"), make_workload(module, 1))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


@pytest.mark.parametrize("factor", ["0", "0.25"])
@pytest.mark.one_in(2)
def test_neuron_gets_what_its_compiler_takes(factor: str):
    module = compiled(f"{OPTIONS},expert_exchange=all-to-all,target=trn2,capacity_factor={factor}")
    found = check(module, Request("trn2", 2, sdk_next=True))
    assert [item for item in found if item.severity == "error"] == []
    (prefill,) = [function for function in module.programs() if function.phase == "prefill"]
    assert xla_hlo.parsed(emit_hlo(module, prefill)).count(" all-to-all(") == 2
