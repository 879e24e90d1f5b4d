"""Adapters go with what later passes make of projections; what other systems get wrong is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.eval import MEANING
from graphgen.exec.adapters import resident_rows
from graphgen.exec.session import Workload
from graphgen.ir import ADAPTER_RANK, Function, Module, Op, Role, dtype
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import s32
from graphgen.models import build
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.equiv.recorded_run import record
from graphgen.passes.pipelines import default
from graphgen.passes.workload.make_workload import WorkloadSizes, make_workload
from tests.passes.lora.test_multi_lora import mini
from tests.runtime.session.lora_checkpoint import CONFIG

# One program of each phase, small.
SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


def one_layer(heads: int = 9, kv_heads: int = 3) -> Module:
    """One layer; four ranks have to pad heads: 9 over 3 keep their order, 6 over 2 do not."""
    counts = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": 48}
    module = build({**CONFIG, **counts, "num_hidden_layers": 1}, dtype("f32"))
    run_pipeline(module, parse_pipeline("canonicalize,unfuse-projections"))
    return module


def adapted(module: Module) -> tuple[Module, Workload]:
    run_pipeline(module, parse_pipeline("multi-lora{max_loras=2,rank=3}"))
    return module, make_workload(module, sizes=WorkloadSizes(3, 8, 8, 16))


def compiled(module: Module, **options: object) -> Module:
    """The programs of a rank, whose adapters are those that the module has."""
    made = clone_module(module)
    config = SMALL.updated({"max_loras": 2, "max_lora_rank": 3, **options})
    run_pipeline(made, default(config))
    return made


def difference(one: Module, other: Module, workload: Workload) -> float:
    outcomes = [record(module, workload, MEANING).outcomes for module in (one, other)]
    return compare(outcomes[0], outcomes[1]).relative


def steps(module: Module, name: str, last: str) -> Iterator[tuple[Function, Op]]:
    """Ops of a kind in ``@adapter.rank`` that read the tensors of a projection directly."""
    function = module.function(ADAPTER_RANK)
    for op in function.block:
        if op.name == name and (op.operands[0].name or "").endswith(last):
            yield function, op


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (6, 2)])
def test_padded_heads_have_their_rows_of_b_and_columns_of_a(heads: int, kv_heads: int):
    """N8: Q padding is applied to B of q_proj and to A of o_proj, on four ranks."""
    module, workload = adapted(one_layer(heads, kv_heads))
    ranks = compiled(module, tp=4)
    assert difference(module, ranks, workload) <= MEANING_BUDGET
    takes = [
        op for last in ("q_proj.lora_B", "o_proj.lora_A") for _, op in steps(ranks, "take", last)
    ]
    assert len(takes) == 2


@pytest.mark.parametrize("last", ["q_proj.lora_B", "o_proj.lora_A", "k_proj.lora_B"])
def test_heads_that_are_not_laid_out_are_seen(last: str):
    """Planted: the heads of an adapter in the model's order, with zeros after them."""
    module, workload = adapted(one_layer(6, 2))
    ranks = compiled(module, tp=4)
    function, take = next(steps(ranks, "take", last))
    dim, block = take.attrs.integer("dimension"), take.attrs.integer("block")
    heads = take.operands[0].type.dims[dim] // block
    (count,) = take.operands[1].type.dims
    with Builder(function, before=take, loc=take.loc) as b:
        rank = function.arg("rank")
        assert rank is not None
        plain = b.literal(list(range(count)), s32)
        first = b.broadcast_in_dim(b.reshape(rank, ()) * count, (count,), [])
        there = b.compare(first + plain, b.full(heads, plain.type), "LT")
        order = b.select(there, first + plain, b.full(-1, plain.type))
        made = b.emit("take", (take.operands[0], order), dict(take.attrs)).result
    function.replace_uses(take.result, made)
    assert difference(module, ranks, workload) > 1e-3


def test_fused_projections_keep_their_adapters():
    """N8: adapters of q, k and v are there where the products are one, and so are gate and up."""
    module, workload = adapted(mini("llama"))
    fused = compiled(module)
    names = {row.name for row in fused.entries(Role.PARAM)}
    assert any("q_proj-k_proj-v_proj" in name for name in names)
    assert any("gate_proj-up_proj" in name for name in names)
    assert difference(module, fused, workload) <= MEANING_BUDGET


def test_rows_of_another_projection_are_seen():
    """Planted: k reads the rows of B that are q's, in a fused tensor of GPT-2."""
    module, workload = adapted(mini("gpt2"))
    wrong = clone_module(module)
    function = wrong.function("decode")
    cuts = [
        op
        for op in function.block
        if op.name in ("slice", "reshape", "transpose")
        and any("c_attn.lora_B" in (value.name or "") for value in op.operands)
    ]
    slices = [op for op in function.block if op.name == "slice" and _reads(op, cuts)]
    assert len(slices) >= 3
    function.replace_uses(slices[1].result, slices[0].result)
    assert difference(module, module, workload) == 0
    assert difference(module, wrong, workload) > 1e-3


def _reads(op: Op, cuts: list[Op]) -> bool:
    """True for an op of the preparation of B, directly or through one that moves numbers."""
    return op in cuts or op.operands[0].op in cuts


@pytest.mark.parametrize(
    "quantization", ["quantize-weights", "quantize-weights{dtype=f8e4m3}"], ids=["int8", "fp8"]
)
def test_adapters_lie_beside_quantized_weights(quantization: str):
    """The weights are narrow, the adapters are as they were."""
    module, workload = adapted(mini("llama"))
    narrow = compiled(module, quantization=quantization, tp=2)
    kinds = {row.physical.dtype.bits for row in narrow.entries(Role.SLOTTED)}
    assert kinds == {32}
    assert any(row.physical.dtype.bits == 8 for row in narrow.entries(Role.PARAM))
    assert difference(module, narrow, workload) <= MEANING_BUDGET


@pytest.mark.parametrize(
    "options",
    [
        {"tp": 4, "moe_ep_degree": 2},
        pytest.param({"tp": 2, "quantization": "quantize-weights"}, marks=pytest.mark.slow),
        pytest.param(
            {"tp": 2, "moe_ep_degree": 2, "moe_prefill_ep_degree": 1}, marks=pytest.mark.slow
        ),
        pytest.param({"outline": True, "target": "trn2", "tp": 2}, marks=pytest.mark.slow),
        pytest.param(
            {
                "tp": 2,
                "moe_ep_degree": 2,
                "rules": ("prefill:sequence:tp",),
                "expert_exchange": "all-to-all",
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_experts_of_a_rank_have_their_adapters(options: dict[str, object]):
    """A rank has the matrices of its experts and inner features, for all slots."""
    module = mini("mixtral")
    passes = "multi-lora{max_loras=2,rank=3,targets=[q_proj,experts.w1]}"
    run_pipeline(module, parse_pipeline(passes))
    workload = make_workload(module, sizes=WorkloadSizes(3, 8, 8, 16))
    ranks = compiled(module, **options)
    parts = [row for row in resident_rows(ranks) if "experts.w1.lora_B" in row.name]
    assert parts
    _, count, inner, _ = module.interface[
        "model.layers.0.block_sparse_moe.experts.w1.lora_B"
    ].logical.dims
    for row in parts:
        assert row.physical.dims[1] * row.physical.dims[2] * ranks.ranks == count * inner
    assert difference(module, ranks, workload) <= MEANING_BUDGET


def test_no_collective_is_added():
    """The term of a row-parallel projection is part of the sum that is there anyway."""
    counts: list[int] = []
    for module in (one_layer(), adapted(one_layer())[0]):
        made = clone_module(module)
        run_pipeline(made, default(SMALL.updated({"tp": 4})))
        counts.append(sum("all_" in op.name for op in made.function("decode.b3.c8").ops))
    assert counts[0] == counts[1] > 0


def test_layers_with_adapters_are_outlined():
    """Layers are one function, which takes the adapters of each."""
    module = build({**CONFIG, "num_hidden_layers": 3}, dtype("f32"))
    run_pipeline(module, parse_pipeline("canonicalize,unfuse-projections"))
    with_adapters, workload = adapted(module)
    outlined = compiled(with_adapters, outline=True)
    calls = [op for op in outlined.function("decode.b3.c8").ops if op.name == "call"]
    assert len(calls) == 3
    assert len({op.attrs.text("to_apply") for op in calls}) == 1
    assert difference(with_adapters, outlined, workload) <= MEANING_BUDGET
