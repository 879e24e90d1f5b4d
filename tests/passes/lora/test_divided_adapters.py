"""Both factors of adapters over ranks: equal numbers, and a share of the bytes on each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate.validate import validate
from graphgen.passes.workload.make_workload import workload_for

RULE = "adapters:tp"
EMBEDDING = ("q_proj", "down_proj", "embed_tokens")
# A model and options for each layout of ranks and each kind of factor.
CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a rank that divides": ("llama-3.1-8b", {"tp": 2}),
    "a rank below the ranks": ("llama-3.1-8b", {"tp": 8}),
    "an input that does not divide": ("llama-3.1-8b", {"tp": 3}),
    "joined projections": ("gpt2", {"tp": 2}),
    "a table": ("smollm2-135m", {"tp": 2, "lora_target_modules": EMBEDDING}),
    "experts": (
        "mixtral-8x7b",
        {"tp": 2, "lora_target_modules": ("experts.w1", "q_proj"), "moe_ep_degree": 2},
    ),
    "slots over ranks": ("smollm2-135m", {"tp": 4, "flash_decoding": True}),
    "prompts over ranks": ("llama-3.1-8b", {"tp": 4, "cp_degree": 2}),
    "tokens over ranks": ("llama-3.1-8b", {"tp": 2, "rules": ("prefill:sequence:tp",)}),
}


def sizes_of(name: str, *, divided: bool = True) -> CompileConfig:
    options = dict(CASES[name][1])
    rules = (*options.pop("rules", ()), *((RULE,) if divided else ()))
    sizes = CompileConfig(batch=(2,), context=(8,), tokens=(8,), max_loras=3, max_lora_rank=4)
    return sizes.updated({**options, "rules": rules})


def mini(name: str) -> Module:
    return build(known_shape(CASES[name][0]), dtype("f32"), mini=True)


# In `make test`: one of each layout that the rule gives.
QUICK = ("a rank that divides", "a table", "joined projections")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES],
)
def test_ranks_compute_what_one_does(name: str):
    module, passes = mini(name), default(sizes_of(name))
    verdicts = validate(module, passes, workload_for(module, passes, seed=1))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def layouts(name: str, *, divided: bool = True) -> dict[str, str]:
    """The layouts of one layer's factors, by projection and factor; empty for whole ones."""
    module = mini(name)
    run_pipeline(module, default(sizes_of(name, divided=divided)))
    return {
        ".".join(row.name.split(".")[-2:]): row.sharding.text if row.sharding else ""
        for row in module.entries(Role.SLOTTED)
    }


def test_the_factor_that_is_whole_otherwise_is_divided_along_its_inputs():
    name = "a rank that divides"
    plain, divided = layouts(name, divided=False), layouts(name)
    changed = {key: value for key, value in divided.items() if value != plain[key]}
    columns = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    assert changed == {f"{column}.lora_A": "{-,-,tp}" for column in columns}
    assert {plain[key] for key in changed} == {""}


def test_a_rank_that_does_not_divide_leaves_outputs_to_divide():
    divided = layouts("a rank below the ranks")
    assert divided["o_proj.lora_B"] == divided["down_proj.lora_B"] == "{-,tp,-}"
    assert layouts("a rank that divides")["o_proj.lora_B"] == ""


def test_what_does_not_divide_or_is_looked_up_stays_whole():
    assert layouts("an input that does not divide")["q_proj.lora_A"] == ""
    table = layouts("a table")
    assert (table["embed_tokens.lora_A"], table["q_proj.lora_A"]) == ("", "{-,-,tp}")


def test_a_sum_of_low_rank_values_joins_the_ranks():
    """One for the projections of one input, in each of two layers."""
    name = "a rank that divides"
    counts: list[Counter[str]] = []
    for divided in (False, True):
        module = mini(name)
        run_pipeline(module, default(sizes_of(name, divided=divided)))
        (step,) = [function for function in module.programs() if function.phase == "decode"]
        counts.append(Counter(op.name for op in step.ops))
    assert counts[1]["all_reduce"] - counts[0]["all_reduce"] == 2 * 2
    assert counts[1]["all_gather"] == counts[0]["all_gather"]


def test_without_adapters_there_is_nothing_to_divide():
    module = mini("a rank that divides")
    sizes = CompileConfig(batch=(2,), context=(8,), tokens=(8,), tp=2, rules=(RULE,))
    run_pipeline(module, default(sizes))
    assert not module.entries(Role.SLOTTED)


def test_an_axis_of_another_mesh_is_refused():
    module = mini("a rank that divides")
    steps = "multi-lora,specialize{batch=[2],context=[8],tokens=[8]},shard{tp=2,rules=[adapters:x]}"
    with pytest.raises(GraphgenError, match="speaks of mesh axis x") as caught:
        run_pipeline(module, parse_pipeline(steps))
    assert caught.value.code == "GG0304"
