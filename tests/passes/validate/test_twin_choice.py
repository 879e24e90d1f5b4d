"""The wide twin is chosen where a pipeline touches ids, positions, caches or heads."""

from __future__ import annotations

from functools import cache

import pytest

from graphgen.ir import Module, dtype
from graphgen.ir.dtype import u8
from graphgen.models import build, known_shape
from graphgen.models.twins import TwinName
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.validate import validate
from graphgen.passes.validate.twin_choice import twins_for
from graphgen.passes.workload.make_workload import WorkloadSizes, make_workload
from graphgen.passes.workload.value_ranges import RealisticNumbers
from tests.oracles.planted_bugs import NO_BUGS, Bug, Planted, changed, model


@cache
def twin(name: TwinName) -> Module:
    return build(known_shape("llama-3.1-8b"), dtype("f32"), twin=name)


def touched(text: str) -> tuple[str, ...]:
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), twin="mini")
    run_pipeline(module, parse_pipeline(text), journal=(journal := Journal()))
    assert journal.applications or journal.copies or not text
    return twins_for(journal)


@pytest.mark.parametrize(
    ("text", "twins"),
    [
        ("", ("mini",)),
        ("fuse-projections", ("mini", "wide")),
        ("specialize{batch=[2],context=[8],tokens=[8]}", ("mini", "wide")),
        ("shard{tp=2},pad-to-mesh,partition", ("mini", "wide")),
        ("quantize-weights", ("mini",)),
    ],
)
def test_twins_are_chosen_by_what_is_touched(text: str, twins: tuple[str, ...]):
    assert touched(text) == twins


def test_ids_of_eight_bits_show_in_a_wide_twin_only():
    narrow = changed(1, lambda ids, b: b.convert(b.convert(ids, u8), ids.dtype))
    bug = Bug("ids-u8", "embedding", "prefill", "model", narrow)
    found = {}
    for name in ("mini", "wide"):
        module = twin(name)
        workload = make_workload(module, 0, WorkloadSizes(2, 4, 4, 8))
        (verdict,) = validate(module, [Planted(bug)], workload)
        found[name] = verdict.ok
    assert found == {"mini": True, "wide": False}


def test_a_softmax_without_its_maximum_shows_with_saturating_scores_only():
    bug = next(bug for bug in NO_BUGS if bug.name == "maximum-kept")
    module, item = model(bug.after), Planted(bug)
    (plain,) = validate(module, [item], make_workload(module, 3))
    assert plain.ok
    (realistic,) = validate(module, [item], make_workload(module, 3, source=RealisticNumbers()))
    assert (realistic.means_the_same, realistic.within_budget) == (True, False)
    assert realistic.guilty is not None
    assert realistic.guilty.rule == "maximum-kept"
