"""Forms of low-rank terms: the same numbers, and the form that costs less for each program."""

from __future__ import annotations

import pytest

from graphgen.eval import MEANING
from graphgen.ir import ADAPTER_IDS, Module
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.equiv.recorded_run import record
from graphgen.passes.lora.low_rank_term import GATHERED, MASKED, TermSizes, term_costs
from graphgen.passes.workload.make_workload import make_workload
from graphgen.targets import find_target
from tests.passes.lora.test_multi_lora import mini

SIZES = "specialize{batch=[3],context=[8],tokens=[8]},cse"


def specialized(family: str) -> Module:
    module = mini(family)
    run_pipeline(module, parse_pipeline(f"multi-lora{{max_loras=2,rank=3}},{SIZES}"))
    return module


@pytest.mark.parametrize("form", [MASKED, GATHERED])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2_moe"])
def test_each_form_gives_the_same_numbers(family: str, form: str):
    """Of rows with either adapter and without one; Qwen2-MoE's shared expert has tokens of all."""
    before = specialized(family)
    after = clone_module(before)
    run_pipeline(after, parse_pipeline(f"adapter-forms{{form={form}}},cse,dce"))
    workload = make_workload(before)
    assert {int(slot) for call in workload.calls for slot in call.inputs[ADAPTER_IDS]} == {-1, 0, 1}
    outcomes = [record(module, workload, MEANING).outcomes for module in (before, after)]
    assert compare(outcomes[0], outcomes[1]).relative <= MEANING_BUDGET
    takes = sum(op.name == "take" for op in after.function("decode.b3.c8").ops)
    assert (takes > 0) == (form == GATHERED)


@pytest.mark.parametrize(
    ("rows", "values", "slots", "target", "form"),
    [
        # A step of eight rows with as many adapters reads each once.
        (8, 8, 8, "cpu", MASKED),
        (8, 8, 8, "trn2", MASKED),
        # One row of many adapters reads one of them.
        (1, 1, 64, "trn2", GATHERED),
        # A long prompt would be multiplied by all of them.
        (1, 2048, 8, "cpu", GATHERED),
        (1, 2048, 8, "trn2", GATHERED),
    ],
)
def test_the_form_follows_from_the_sizes(
    rows: int, values: int, slots: int, target: str, form: str
):
    sizes = TermSizes(rows, values, slots, 16 * (576 + 1536), bf16, 2)
    costs = term_costs(sizes, find_target(target))
    assert min(costs, key=lambda cost: cost.seconds).form == form
