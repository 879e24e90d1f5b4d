"""Experts over other groups of ranks in prefill than in decode, and the second copies it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, dtype
from graphgen.lowering.plan.capacity_plan import make_plan
from graphgen.models import build, known_shape, read_model_config
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.sharding.rank_axes import expert_axes
from graphgen.passes.spmd.explain_sharding import ExplainSharding
from graphgen.passes.validate import validate
from graphgen.passes.weights.weight_copies import weight_copies
from graphgen.passes.workload.make_workload import make_workload
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig
from graphgen.targets import accelerator

MINI = read_model_config(known_shape("mixtral-8x7b")).mini().to_hf()
CONFIG = {**MINI, "num_hidden_layers": 1}
SLOW = pytest.mark.slow


def mixtral() -> Module:
    return build(CONFIG, dtype("f32"))


def compiled(text: str) -> Module:
    module = mixtral()
    run_pipeline(module, parse(text))
    return module


@pytest.mark.parametrize("tp", [1, 2, 4, 6, 8, 12, 24])
def test_factors_are_the_ranks_and_give_each_phase_its_groups(tp: int):
    divisors = [n for n in range(1, tp + 1) if tp % n == 0]
    for decode, prefill in product(divisors, divisors):
        made = expert_axes(tp, decode, prefill)
        assert prod(made.axes.values()) == tp
        for groups, (experts, inner) in ((decode, made.decode), (prefill, made.prefill)):
            over = [axis for axis in experts.split("*") if axis != "-"]
            inside = [axis for axis in inner.split("*") if axis != "-"]
            assert sorted([*over, *inside]) == sorted(made.axes) or tp == 1
            assert prod(made.axes[axis] for axis in over) in (groups, tp if tp == 1 else groups)


CASES = [
    (4, 4, 2),
    *(pytest.param(*item, marks=SLOW) for item in ((2, 2, 1), (4, 1, 2), (3, 1, 3), (6, 2, 3))),
    pytest.param(8, 4, 2, marks=SLOW),
]


@pytest.mark.parametrize(("tp", "decode", "prefill"), CASES)
def test_phases_with_other_groups_mean_what_one_rank_computes(tp: int, decode: int, prefill: int):
    module = mixtral()
    groups = f"tp={tp},moe_ep_degree={decode},moe_prefill_ep_degree={prefill}"
    verdicts = validate(module, parse(f"small{{{groups}}}"), make_workload(module, 1))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


def test_experts_are_held_twice_and_nothing_else_is():
    module = compiled("small{tp=4,moe_ep_degree=4,moe_prefill_ep_degree=2}")
    copies = weight_copies(module)
    # Gate, up and down of one layer, each a quarter of all experts on a rank.
    assert len(copies) == 3
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    experts = CONFIG["num_local_experts"]
    assert isinstance(width, int)
    assert isinstance(inner, int)
    assert isinstance(experts, int)
    assert sum(item.bytes for item in copies) == 3 * 4 * experts * width * inner // 4
    assert {name.partition(".")[0] for item in copies for name in item.programs} == {"prefill"}
    assert weight_copies(compiled("small{tp=4,moe_ep_degree=2}")) == []


def test_the_layouts_of_both_phases_are_explained():
    explained = ExplainSharding()
    passes = parse("small{tp=4,moe_ep_degree=4,moe_prefill_ep_degree=2}")
    reports = run_pipeline(mixtral(), passes, instruments=[explained])
    found = {
        (item.function.partition(".")[0], item.sharding): item.why
        for item in explained.shown()
        if item.decided == "rule" and "experts" in item.why
    }
    assert {"{ep*tp,-,-}", "{ep,tp,-}", "{ep,-,tp}"} == {layout for _, layout in found}
    assert "prefill:experts:ep" in found["prefill", "{ep,tp,-}"]
    remarks = [text for report in reports for text in report.remarks]
    assert any("second copies of 3 weights" in text for text in remarks)


def test_a_plan_reports_the_second_copies():
    demand = CompileConfig(dtype="bf16", moe_ep_degree=4, moe_prefill_ep_degree=2)
    device = replace(accelerator("trn2", 0), tp_degrees=(1, 4))
    made = make_plan(CONFIG, device, demand, tp=4)
    (one,) = [item for item in made.degrees if item.tp == 1]
    assert "tp=1 ranks are not" in one.why_not
    assert made.chosen is not None
    assert made.chosen.use is not None
    assert 0 < made.chosen.use.copies < made.chosen.use.weights


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("prefill:slots:tp", "axes of weights alone: state"),
        ("verify:experts:tp", "no program is of phase verify"),
        ("prefill:experts:dp", "mesh axis dp"),
    ],
)
def test_rules_that_cannot_be_of_one_phase(rule: str, why: str):
    with pytest.raises(GraphgenError, match=why) as caught:
        compiled(f"small{{tp=2,rules=[{rule}]}}")
    assert caught.value.code == "GG0304"


@pytest.mark.parametrize(("factor", "most"), [("0", 12), ("0.25", 8)])
def test_the_other_exchange_is_explained(factor: str, most: int):
    explained = ExplainSharding()
    text = f"tp=2,moe_ep_degree=2,rules=[prefill:sequence:tp],capacity_factor={factor}"
    run_pipeline(mixtral(), parse(f"small{{{text}}}"), instruments=[explained])
    (moved,) = [item for item in explained.shown() if "all-to-all" in item.why]
    assert moved.function.startswith("prefill")
    # Three rows of eight tokens, of which a rank has twelve; with a factor of 1/4 each of the four
    # experts of a rank has room for two.
    assert moved.sent % 12 == 0
    assert moved.why.endswith(f"would send {moved.sent // 12 * most:,}")


def test_shared_experts_may_be_whole_on_each_rank():
    config = MoENeuronConfig(
        tp_degree=2, sequence_parallel_enabled=True, shared_experts_sequence_parallel_enabled=True
    )
    rules = compile_settings(config).rules
    sizes = read_model_config(known_shape("qwen1.5-moe-a2.7b")).mini().to_hf()
    module = build(sizes, dtype("f32"))
    passes = parse(f"small{{tp=2,rules=[{','.join(rules)}]}}")
    verdicts = validate(module, passes, make_workload(module, 1))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    explained = ExplainSharding()
    run_pipeline(module, passes, instruments=[explained])
    shared = [item for item in explained.shown() if "shared_expert." in item.at]
    read = [item for item in shared if item.at.startswith("dot_general")]
    # Each rank computes its tokens of a prompt, with the whole weights.
    prompts = [item.sharding for item in read if item.function.startswith("prefill")]
    assert set(prompts) == {"{-,tp,-}"}
    steps = [item.sharding for item in read if item.function.startswith("decode")]
    assert set(steps) == {"{-,-,-}"}
