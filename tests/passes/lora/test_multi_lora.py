"""The pass ``multi-lora`` on every family: each row is the model with its adapter merged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.adapters import adapter_rows
from graphgen.exec.session import Workload
from graphgen.ir import ADAPTER_IDS, Module, Op, Value, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build
from graphgen.models.first_layers import first_layers
from graphgen.models.registry import BUILT_IN, FAMILIES, family_of
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.equiv.recorded_run import record
from graphgen.passes.validate.merged_adapters import merged_run, without_adapters
from graphgen.passes.workload.make_workload import make_workload
from tests.matrix.axes import config_of
from tests.oracles.family_groups import VARIANTS

SLOTS, RANK = 2, 3
# (a builder, the product with B) -> an op, and what its readers shall read instead.
Plant = Callable[[Builder, Op], tuple[Op, Value]]
FAMILY_NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in VARIANTS))
    for name in FAMILIES
    if name in BUILT_IN
]


def mini(family: str) -> Module:
    """One layer of the mini twin, canonical."""
    known = family_of(config_of(family))
    config = first_layers(known, known.read(config_of(family)).mini().to_hf(), 1)
    module = build(config, dtype("f32"))
    run_pipeline(module, parse_pipeline("canonicalize,unfuse-projections"))
    return module


def adapted(before: Module, targets: str = "") -> tuple[Module, Workload]:
    """The module with adapters, and calls of rows with either adapter and with none."""
    after = clone_module(before)
    named = f",targets=[{targets}]" if targets else ""
    passes = parse_pipeline(f"multi-lora{{max_loras={SLOTS},rank={RANK}{named}}}")
    run_pipeline(after, passes)
    return after, make_workload(after)


def difference(before: Module, after: Module, workload: Workload) -> float:
    """Of the rows and the merged models, relative."""
    wanted = merged_run(before, after, workload, MEANING)
    return compare(wanted.outcomes, record(after, workload, MEANING).outcomes).relative


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_each_row_is_the_model_with_its_adapter_merged(family: str):
    before = mini(family)
    after, workload = adapted(before)
    ids = {int(slot) for call in workload.calls for slot in call.inputs[ADAPTER_IDS]}
    assert ids == {-1, 0, 1}
    assert len(adapter_rows(after)) >= 2
    assert difference(before, after, workload) <= MEANING_BUDGET


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_without_adapters_the_numbers_are_those_of_the_base_model(family: str):
    before = mini(family)
    after, workload = adapted(before)
    none = without_adapters(workload)
    outcomes = [record(module, none, MEANING).outcomes for module in (before, after)]
    assert compare(outcomes[0], outcomes[1]).relative == 0


@pytest.mark.parametrize(
    ("family", "targets"),
    [("llama", "embed_tokens,lm_head"), ("gpt2", "wte,lm_head"), ("gpt_neox", "embed_in")],
)
def test_embeddings_and_heads_have_adapters_where_they_are_named(family: str, targets: str):
    """A head that has the embedding's weight has an adapter of its own."""
    before = mini(family)
    after, workload = adapted(before, targets)
    assert [name.rpartition(".")[2] for name in adapter_rows(after)] == targets.split(",")
    assert difference(before, after, workload) <= MEANING_BUDGET


@pytest.mark.parametrize(
    ("family", "target"),
    [
        ("mixtral", "experts.w1"),
        pytest.param("gpt_oss", "experts.down_proj", marks=pytest.mark.slow),
        pytest.param("llama4_text", "experts.up_proj", marks=pytest.mark.slow),
        pytest.param("dbrx", "experts.v1", marks=pytest.mark.slow),
    ],
)
def test_experts_have_adapters_where_they_are_named(family: str, target: str):
    """One of their projections stands for all three; biases and weighted inputs stay."""
    before = mini(family)
    after, workload = adapted(before, f"q_proj,{target}")
    shapes = [
        pair[0].logical.dims for name, pair in adapter_rows(after).items() if "expert" in name
    ]
    assert [dims[0] for dims in shapes] == [SLOTS] * 3
    assert {dims[2] for dims in shapes} == {RANK}
    assert difference(before, after, workload) <= MEANING_BUDGET


def test_experts_are_not_among_projections_that_no_target_names():
    after, _ = adapted(mini("mixtral"))
    assert not any("experts" in name for name in adapter_rows(after))
    with pytest.raises(GraphgenError, match="targets=w1 names no projection") as raised:
        adapted(mini("mixtral"), "w1")
    assert "experts.w1" in raised.value.help


def test_a_projection_that_the_checkpoint_fuses_has_one_adapter():
    after, _ = adapted(mini("gpt2"), "c_attn")
    ((a, b),) = adapter_rows(after).values()
    assert (a.logical.dims[1], b.logical.dims[2]) == (RANK, RANK)
    assert b.logical.dims[1] == 3 * a.logical.dims[2]


def test_targets_that_name_nothing_are_refused():
    with pytest.raises(GraphgenError, match="targets=qproj names no projection") as raised:
        adapted(mini("llama"), "q_proj,qproj")
    assert "q_proj" in raised.value.help


def test_slots_and_rank_are_positive():
    with pytest.raises(GraphgenError, match="rank=0 must be at least 1"):
        run_pipeline(mini("llama"), parse_pipeline("multi-lora{rank=0}"))


def test_a_second_run_changes_nothing():
    after, _ = adapted(mini("llama"))
    text = str(after)
    run_pipeline(after, parse_pipeline("multi-lora{max_loras=7}"))
    assert str(after) == text


def _scaled_twice(b: Builder, op: Op) -> tuple[Op, Value]:
    twice = b.binary("multiply", op.operands[1], 2.0)
    return op, b.emit(op.name, (op.operands[0], twice), dict(op.attrs)).result


def _first_for_none(b: Builder, op: Op) -> tuple[Op, Value]:
    ids = b.function.arg(ADAPTER_IDS)
    assert ids is not None
    (spread,) = ids.users
    first = b.binary("maximum", ids, 0)
    return spread, b.emit(spread.name, (first,), dict(spread.attrs)).result


def _other_rows(b: Builder, op: Op) -> tuple[Op, Value]:
    turned = b.reverse(op.operands[1], [1])
    return op, b.emit(op.name, (op.operands[0], turned), dict(op.attrs)).result


@pytest.mark.parametrize("plant", [_scaled_twice, _first_for_none, _other_rows])
def test_defects_of_other_systems_are_seen(plant: Plant):
    """A scale that is applied twice, adapter 0 for none, and rows of B in another order."""
    before = mini("llama")
    after, workload = adapted(before)
    lora_b = next(iter(adapter_rows(after).values()))[1].name
    function = after.function("decode")
    op = next(op for op in function.block if function.arg(lora_b) in op.operands)
    # The slots of rows are spread out before the first product that reads them.
    at = op if plant is not _first_for_none else function.block.first
    replaced, value = plant(Builder(function, before=at), op)
    function.replace_uses(replaced.result, value)
    assert difference(before, after, workload) > 1e-3
