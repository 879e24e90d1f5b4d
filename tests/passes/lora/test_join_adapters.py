"""Low-rank terms beside whole products, as the CPU's kernels take them in."""

from __future__ import annotations

import pytest

from graphgen.eval import MEANING
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.ops.control import kernel_of
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.equiv.recorded_run import record
from graphgen.passes.workload.make_workload import make_workload
from tests.passes.lora.test_carried_adapters import adapted, compiled, difference, one_layer
from tests.passes.lora.test_multi_lora import mini

SIZES = "specialize{batch=[3],context=[8],tokens=[8]},cse,fuse-projections"
ADAPTED = "graphgen.adapted_linear"


def fused(targets: str = "") -> Module:
    """One layer of Llama with adapters of some projections, whose products are fused."""
    module = mini("llama")
    named = f",targets=[{targets}]" if targets else ""
    run_pipeline(module, parse_pipeline(f"multi-lora{{max_loras=2,rank=3{named}}},{SIZES}"))
    return module


def configs(module: Module) -> list[str]:
    """The settings of the calls with low-rank terms in each program."""
    return [
        op.attrs.text("config")
        for function in module.programs()
        for op in function.block
        if kernel_of(op) == ADAPTED
    ]


def products(module: Module) -> list[int]:
    """How many products are left in each program, in or out of calls."""
    return [
        sum(op.name == "dot_general" for op in function.block) for function in module.programs()
    ]


@pytest.mark.parametrize("targets", ["", "q_proj,v_proj", "k_proj", "gate_proj"])
def test_joined_terms_give_the_same_numbers(targets: str):
    before = fused(targets)
    after = clone_module(before)
    run_pipeline(after, parse_pipeline("join-adapters,dce"))
    outcomes = [record(each, make_workload(before), MEANING).outcomes for each in (before, after)]
    assert compare(outcomes[0], outcomes[1]).relative <= MEANING_BUDGET
    sums = [op for op in after.function("decode.b3.c8").block if op.name == "concatenate"]
    assert len(sums) >= 1


@pytest.mark.parametrize(
    ("targets", "starts"),
    [("", ["0,4,5", "0", "0,8", "0"]), ("q_proj,v_proj", ["0,5"]), ("up_proj", ["8"])],
)
def test_kernels_take_the_terms_of_a_layer_in(targets: str, starts: list[str]):
    """A call for each group of projections with one input, as without adapters."""
    module = fused(targets)
    plain = clone_module(module)
    run_pipeline(module, parse_pipeline("join-adapters,dce,select-kernels"))
    found = [text.rpartition('"terms":')[2].strip('"}') for text in configs(module)]
    assert found[: len(starts)] == starts
    assert len(found) == len(starts) * len(module.programs())
    assert products(module) == [0] * len(module.programs())
    outcomes = [record(each, make_workload(plain), MEANING).outcomes for each in (plain, module)]
    assert compare(outcomes[0], outcomes[1]).relative <= MEANING_BUDGET


@pytest.mark.parametrize(
    "options",
    [
        {"tp": 2},
        pytest.param({"tp": 4}, marks=pytest.mark.slow),
        {"quantization": "quantize-weights{dtype=int8}"},
    ],
    ids=str,
)
def test_programs_with_kernels_mean_what_the_model_does(options: dict[str, object]):
    """Over ranks, where heads are padded and sums are partial, and beside quantized weights."""
    module, workload = adapted(one_layer())
    made = compiled(module, kernels="on", **options)
    plain = compiled(module, **options)
    assert len(configs(made)) == 4 * len(made.programs())
    assert products(made) == [0] * len(made.programs())
    reference = plain if "quantization" in options else module
    assert difference(reference, made, workload) <= MEANING_BUDGET


def test_terms_of_another_value_are_left():
    """Planted: the terms of k are those of another value, so q, k and v stay as they are."""
    module = fused()
    function = module.function("decode.b3.c8")
    low = next(
        op
        for op in function.block
        if op.name == "dot_general" and (op.operands[1].name or "").endswith("k_proj.lora_A")
    )
    from graphgen.build import Builder

    with Builder(function, before=low, loc=low.loc) as b:
        low.set_operands((b.unary("negate", low.operands[0]), low.operands[1]))
    run_pipeline(module, parse_pipeline("join-adapters,dce,select-kernels"))
    own = [op for op in function.block if kernel_of(op) == ADAPTED]
    assert len(own) == 3
