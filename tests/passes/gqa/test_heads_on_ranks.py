"""Heads over ranks: every rank count gives the unsharded numbers, and wrong layouts are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import Array, evaluate, rank_index
from graphgen.exec.session import Runner, Workload
from graphgen.ir import RANK, WEIGHTS_RANK, Module, Op, Role, Value
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16, s32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.equiv.deviation import Deviation, compare
from graphgen.passes.gqa.assign_heads import AssignHeads
from graphgen.passes.gqa.head_gather import HeadGather
from graphgen.passes.gqa.head_map import HeadMap
from graphgen.passes.gqa.head_strategies import AUTO, Heads, head_map, serving
from graphgen.passes.sharding.mesh import Mesh
from graphgen.passes.sharding.reshard_ops import ReshardStep
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.gqa import SWEEP, nxdi_maps, specialized_model, tnx_maps

LAYER = "model.layers.0.self_attn"
Row = tuple[int, int, int]
# Layouts of heads; the others divide something else.
BY_HEADS = [
    "auto", "CONVERT_TO_MHA", "REPLICATE_TO_TP_DEGREE", "SHARD_OVER_HEADS", "REPLICATED_HEADS",
]  # fmt: skip


def split(module: Module, tp: int, options: str = "") -> None:
    """To the program of one rank, projections apart."""
    more = f",{options}" if options else ""
    text = f"heads{{tp={tp}{more}}},shard{{tp={tp}}},pad-to-mesh,partition"
    run_pipeline(module, parse_pipeline(text))


def prepared(module: Module) -> None:
    """Projections fused, weights moved out."""
    run_pipeline(module, parse_pipeline("fuse-projections,lift-weights"))


def difference(module: Module, script: Workload, wanted: list[dict[str, Array]]) -> Deviation:
    return compare(wanted, Runner(module, script).outcomes())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("row", SWEEP, ids=str)
@pytest.mark.one_in(9)
def test_every_rank_count_gives_the_unsharded_numbers(row: Row, bias: bool):
    tp, q, kv = row
    whole = specialized_model(q, kv, tp=tp, bias=bias)
    script = make_workload(whole)
    wanted = Runner(whole, script).outcomes()
    served = [name for name in BY_HEADS if name in serving(Heads(tp, q, kv))]
    assert served[:2] == ["auto", "CONVERT_TO_MHA"]
    for strategy in served:
        module = clone_module(whole)
        split(module, tp, f"strategy={strategy}")
        assert module.ranks == tp
        assert difference(module, script, wanted).relative <= 1e-12, strategy
        fused = clone_module(module)
        prepared(fused)
        dots = [[op.name for op in f.ops].count("dot_general") for f in fused.programs()]
        apart = [[op.name for op in f.ops].count("dot_general") for f in module.programs()]
        # Three projections of one value became one, and so did gate and up.
        assert [a - b for a, b in zip(apart, dots, strict=True)] == [3] * 3
        assert difference(fused, script, wanted).relative <= 1e-12, strategy


GATHERED = "ALL_GATHER_HEADS"
# Heads of 8 features, of which up to 8 ranks can make a part each.
GATHERING = [row for row in SWEEP if GATHERED in serving(Heads(*row, 8))]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("row", GATHERING, ids=str)
@pytest.mark.one_in(5)
def test_ranks_that_share_a_head_make_parts_of_it(row: Row, bias: bool):
    tp, q, kv = row
    module = specialized_model(q, kv, tp=tp, bias=bias, size=8)
    script = make_workload(module)
    wanted = Runner(module, script).outcomes()
    split(module, tp, f"strategy={GATHERED}")
    run_pipeline(module, parse_pipeline("gather-heads"))
    together = max(tp // kv, 1)
    for function in module.programs():
        gathers = [op for op in function.ops if op.name == "all_gather"]
        # The logits are brought together as well.
        gathers = [op for op in gathers if op.loc.scope != "lm_head"]
        assert len(gathers) == (2 if together > 1 else 0)
        for op in gathers:
            groups = op.attrs.groups("replica_groups")
            assert {len(group) for group in groups} == {together}
            assert op.operands[0].shape[-1] == 8 // together
    assert difference(module, script, wanted).relative <= 1e-12
    prepared(module)
    assert difference(module, script, wanted).relative <= 1e-12


def test_gathering_applies_to_five_rows_and_says_why_not_elsewhere():
    assert len([row for row in GATHERING if row[0] > row[2]]) >= 5
    module = specialized_model(9, 3, tp=4)
    split(module, 4)
    run_pipeline(module, parse_pipeline("gather-heads"), journal=(journal := Journal()))
    assert journal.applications == []
    miss = journal.nearest("gather-parts", LAYER)
    assert miss is not None
    assert miss.why.reason == "ranks do not take the same blocks in equal groups"


def weights_on_ranks(module: Module, weights: dict[str, Array]) -> list[dict[str, Array]]:
    """What ``@weights.rank`` makes, by checkpoint name, for each rank."""
    function = module.function(WEIGHTS_RANK)
    ranks: list[dict[str, Array]] = []
    for rank in range(module.ranks):
        made = evaluate(function, {**weights, RANK: rank_index(rank)})
        ranks.append({name.removesuffix(".prepared"): array for name, array in made.items()})
    return ranks


def of_heads(array: Array, heads: tuple[int, ...], axis: int, size: int = 2) -> Array:
    """The features of these heads, zeros for -1; by hand."""
    split = np.split(array, array.shape[axis] // size, axis)
    return np.concatenate([split[h] if h >= 0 else 0 * split[0] for h in heads], axis)


@pytest.mark.parametrize("compat", ["nxdi", "tnx"])
@pytest.mark.parametrize("row", SWEEP, ids=str)
@pytest.mark.one_in(3)
def test_weights_lie_as_the_peers_lay_them(row: Row, compat: str):
    tp, q, kv = row
    module = specialized_model(q, kv, tp=tp, bias=True)
    weights = dict(make_workload(module).weights)
    split(module, tp, f"compat={compat}")
    run_pipeline(module, parse_pipeline("lift-weights"))
    made = weights_on_ranks(module, weights)
    chosen = head_map(Heads(tp, q, kv), AUTO, compat).strategy
    q_map, kv_map = nxdi_maps(*row) if compat == "nxdi" else tnx_maps(*row, chosen)
    for rank, arrays in enumerate(made):
        for name, heads in (("q_proj", q_map), ("k_proj", kv_map), ("v_proj", kv_map)):
            count = len(heads) // tp
            mine = heads[rank * count : (rank + 1) * count]
            for kind in ("weight", "bias"):
                key = f"{LAYER}.{name}.{kind}"
                np.testing.assert_array_equal(arrays[key], of_heads(weights[key], mine, 0))
        count = len(q_map) // tp
        mine = q_map[rank * count : (rank + 1) * count]
        key = f"{LAYER}.o_proj.weight"
        np.testing.assert_array_equal(arrays[key], of_heads(weights[key], mine, 1))


def test_a_rank_reads_its_own_heads_and_no_others():
    tp, q, kv = 8, 9, 3
    module = specialized_model(q, kv, tp=tp, bias=True)
    weights = {name: array.copy() for name, array in make_workload(module).weights.items()}
    split(module, tp)
    prepared(module)
    found = head_map(Heads(tp, q, kv))
    clean = weights_on_ranks(module, weights)
    for rank in range(tp):
        mine = found.on_rank(rank)
        others = {key: array.copy() for key, array in weights.items()}
        for name, heads, axis in (
            ("q_proj.weight", mine[0], 0), ("k_proj.weight", mine[1], 0),
            ("v_proj.weight", mine[1], 0), ("q_proj.bias", mine[0], 0),
            ("k_proj.bias", mine[1], 0), ("v_proj.bias", mine[1], 0), ("o_proj.weight", mine[0], 1),
        ):  # fmt: skip
            array = np.moveaxis(others[f"{LAYER}.{name}"], axis, 0)
            for head in range(len(array) // 2):
                if head not in heads:
                    array[2 * head : 2 * head + 2] = np.nan
        made = weights_on_ranks(module, others)[rank]
        for key, array in clean[rank].items():
            if "self_attn" in key:
                np.testing.assert_array_equal(made[key], array)
                assert not np.isnan(array).any()


def test_the_cache_of_405b_has_one_head_a_rank():
    # 8 key-value heads on 64 ranks: every rank keeps the one it reads, and not a byte more.
    module = build(known_shape("llama-3.1-405b"), bf16)
    sizes = "specialize{batch=[1],context=[128],tokens=[128],slots=8192,in_place=true}"
    run_pipeline(module, parse_pipeline(f"canonicalize,{sizes}"))
    split(module, 64)
    rows = module.entries(Role.STATE)
    assert len(rows) == 2 * 126
    assert sum(row.physical.nbytes for row in rows) == 2 * 126 * 8192 * 1 * 128 * 2
    for function in module.programs():
        names = [op.name for op in function.ops]
        # A prefill's sums may be left in parts, which the norms behind them gather again.
        # One more brings together the rows of the embedding.
        scattered = names.count("reduce_scatter")
        # Where they are, one rank has the last token, and sends it to all.
        assert names.count("all_reduce") + scattered == 2 * 126 + 1 + bool(scattered)
        assert function.phase == "prefill" or names.count("all_reduce") == 2 * 126 + 1


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_fewer_ranks_than_key_value_heads(tp: int):
    # NxD Inference fails where tp < KV.
    module = specialized_model(16, 8, tp=8)
    script = make_workload(module)
    wanted = Runner(module, script).outcomes()
    split(module, tp)
    assert difference(module, script, wanted).relative <= 1e-12
    assert {row.physical.shape[2] for row in module.entries(Role.STATE)} == {8 // tp}


def test_an_idle_row_keeps_its_first_position():
    # transformers-neuronx overwrites position 0 of a row that is left out of a step.
    module = specialized_model(9, 3, tp=4)
    script = make_workload(module)
    active = [call.active for call in script.calls]
    split(module, 4)
    outcomes = Runner(module, script).outcomes()
    at = active.index((0, 1))
    row = 2
    for state in module.entries(Role.STATE):
        before, after = outcomes[at - 1][state.name], outcomes[at][state.name]
        np.testing.assert_array_equal(after[row], before[row])
        assert before[row, 0].any()
        assert (np.delete(after, row, 0) != np.delete(before, row, 0)).any()


# Planted: a layout that is wrong for one layer, and what the blame has to say.
def swapped_query(found: HeadMap) -> HeadMap:
    """Rank 1 holds a query head of rank 2, and rank 2 the one of rank 1."""
    return with_map(
        found, "q_map", (len(found.q_map) // found.tp, 2 * len(found.q_map) // found.tp)
    )


def swapped_keys(found: HeadMap) -> HeadMap:
    """Ranks 0 and 2 hold each other's key-value head."""
    return with_map(found, "kv_map", (0, 2))


def with_map(found: HeadMap, which: str, places: tuple[int, int]) -> HeadMap:
    heads = list(found.q_map if which == "q_map" else found.kv_map)
    first, second = places
    heads[first], heads[second] = heads[second], heads[first]
    return replace(found, **{which: tuple(heads)})


@dataclass(frozen=True)
class WrongMap(AssignHeads):
    """The pass with its check left out, wrong in the second layer."""

    wrong: ClassVar[Callable[[HeadMap], HeadMap]]

    def _map(self, op: Op, slots: int) -> HeadMap:
        found = super()._map(op, slots)
        return type(self).wrong(found) if "layers.1" in op.loc.scope else found


@pytest.mark.parametrize("wrong", [swapped_query, swapped_keys])
def test_a_wrong_map_is_caught_and_blamed(
    wrong: Callable[[HeadMap], HeadMap], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(WrongMap, "wrong", staticmethod(wrong), raising=False)
    module = specialized_model(9, 3, tp=4, layers=2)
    verdict = found_wrong(module, WrongMap(tp=4))
    assert verdict.guilty is not None
    assert verdict.guilty.rule == "lay-out-heads"
    assert verdict.guilty.loc.scope == "model.layers.1.self_attn"


def test_a_zero_head_that_is_not_zero_is_caught_and_blamed(monkeypatch: pytest.MonkeyPatch):
    def inverse(move: HeadGather, count: int) -> HeadGather:
        """Selects the first head instead of zeros."""
        return replace(move, blocks=tuple([max(b, 0) for b in right(move, count).blocks]))

    right = HeadGather.inverse
    monkeypatch.setattr(HeadGather, "inverse", inverse)
    # A zero query head beside a real key-value head: attention makes something of it.
    verdict = found_wrong(specialized_model(14, 2, tp=4), AssignHeads(tp=4))
    assert verdict.guilty is not None
    assert verdict.guilty.rule == "take-behind"
    assert verdict.guilty.loc.scope == f"{LAYER}.o_proj"


def test_the_key_value_heads_of_another_rank_are_caught(monkeypatch: pytest.MonkeyPatch):
    # The map is right, but every rank takes its neighbor's part of it.
    from graphgen.passes.sharding import reshard_ops
    from graphgen.passes.spmd import partition, partitioner

    def emit_step(b: Builder, mesh: Mesh, rank: Value, value: Value, step: ReshardStep) -> Value:
        if value.type.rank == 1 and value.dtype is s32:
            rank = b.binary("subtract", 3, rank)
        return right(b, mesh, rank, value, step)

    right = reshard_ops.emit_step
    module = specialized_model(9, 3, tp=4)
    run_pipeline(module, parse_pipeline("heads{tp=4},shard{tp=4},pad-to-mesh"))
    monkeypatch.setattr(partitioner, "emit_step", emit_step)
    verdict = found_wrong(module, partition.Partition())
    assert verdict.meaning.relative > 1e-3


def found_wrong(module: Module, item: Pass):
    (verdict,) = validate(module, [item], make_workload(module))
    assert not verdict.means_the_same
    return verdict


def test_the_right_pass_is_not_blamed():
    module = specialized_model(9, 3, tp=4, layers=2)
    (verdict,) = validate(module, [AssignHeads(tp=4)], make_workload(module))
    assert verdict.ok
    assert verdict.guilty is None
