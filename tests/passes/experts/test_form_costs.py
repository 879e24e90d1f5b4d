"""The form that ``auto`` takes, and what it says of those that it does not take."""

from __future__ import annotations

import pytest

from graphgen.ir.dtype import bf16, f32
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.experts.form_costs import BLOCKS, MixtureSizes, form_costs, rates_of
from graphgen.targets import find_target
from tests.passes.experts.mixtures import mixture


def sizes(tokens: int, experts: int = 64, chosen: int = 2, inner: int = 128) -> MixtureSizes:
    return MixtureSizes(tokens, chosen, experts, inner, 256, 2, tokens)


def chosen(given: MixtureSizes, target: str) -> str:
    rates = rates_of(find_target(target), bf16, given.bytes)
    return min(form_costs(given, rates, BLOCKS), key=lambda cost: cost.seconds).form


@pytest.mark.parametrize(
    ("tokens", "experts", "target", "form"),
    [
        (1, 64, "cpu", "selective"),
        (512, 64, "cpu", "blockwise"),
        (1, 64, "trn2", "selective"),
        # Weights that are gathered are moved three times: two of four cost more than all four.
        (1, 4, "trn2", "all"),
        (8, 8, "trn2", "all"),
    ],
)
def test_the_least_cost_is_taken(tokens: int, experts: int, target: str, form: str):
    assert chosen(sizes(tokens, experts), target) == form


def test_a_long_prompt_of_large_experts_is_sorted_on_an_accelerator():
    prompt = MixtureSizes(8192, 2, 64, 1408, 2048, 2, 8192)
    assert chosen(prompt, "trn2") == "blockwise"


def test_a_capacity_bounds_the_work_of_its_buffers():
    rates = rates_of(find_target("trn2"), bf16, 2)
    whole, limited = MixtureSizes(64, 2, 8, 16, 32, 2, 64), MixtureSizes(64, 2, 8, 16, 32, 2, 4)
    by_form = [{c.form: c for c in form_costs(s, rates, BLOCKS)} for s in (whole, limited)]
    assert by_form[0]["capacity"].flops == by_form[0]["all"].flops
    assert by_form[1]["capacity"].flops * 16 == by_form[1]["all"].flops


def test_narrow_products_of_the_cpu_have_eight_rows_at_least():
    rates = rates_of(find_target("cpu"), bf16, 2)
    wide = rates_of(find_target("cpu"), f32, 4)
    one, same = (form_costs(sizes(1), r, (1,))[1].flops for r in (rates, wide))
    assert one == 8 * same


def test_the_journal_has_the_cost_of_every_form():
    journal, module = Journal(), mixture(13, routed=True)
    (report,) = run_pipeline(module, parse_pipeline("dispatch-experts"), journal=journal)
    (made,) = [entry for entry in journal.applications if entry.rule != "scale-product"]
    refused = {m.rule for m in journal.misses if "slower than" in m.why.reason}
    assert refused | {made.rule} == {"all", "selective", "capacity", "blockwise"}
    assert made.gain.startswith(f"{made.rule} ")
    assert all(f"{form} " in report.remarks[0] for form in refused)
    asked = Journal()
    text = "dispatch-experts{form=selective}"
    run_pipeline(mixture(13, routed=True), parse_pipeline(text), journal=asked)
    whys = [miss.why.reason for miss in asked.misses if miss.rule == "blockwise"]
    assert whys == ["form=selective is set"]


def test_a_module_without_experts_is_left_alone():
    module = mixture(4, routed=True)
    run_pipeline(module, parse_pipeline("dispatch-experts"))
    again = run_pipeline(module, parse_pipeline("dispatch-experts"))
    assert (again[0].applications, list(again[0].remarks)) == (0, [])
