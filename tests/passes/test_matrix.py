"""Every feature for every family: each cell is validated pass by pass; docs/families.md is it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.compile_config import CompileConfig
from graphgen.ir import Module, Role, dtype
from graphgen.models import SHAPES, build, known_shape
from graphgen.models.family_registry import FAMILIES
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.verify import make_workload, validate

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
PAGE = Path(__file__).parents[2] / "docs" / "families.md"
INT8, F8 = "quantize-weights", "quantize-weights{dtype=f8e4m3,scheme=per_tensor_symmetric}"
SAMPLED = "canonicalize,on-device-sampling{output_logits=true}"

# Feature: ranks, the pass that quantizes, passes in front, passes behind. Projections are fused and
# caches are ragged in every cell.
FEATURES: dict[str, tuple[int, str, str, str]] = {
    "one rank": (1, "", "", ""),
    "tp 2": (2, "", "", ""),
    "tp 3": (3, "", "", ""),
    "int8": (1, INT8, "", ""),
    "int8, tp 3": (3, INT8, "", ""),
    "f8 a tensor": (1, F8, "", ""),
    "on-device sampling": (1, "", SAMPLED, ""),
    "sampling, tp 3": (3, "", SAMPLED, ""),
    "outlined": (2, "", "", "outline-layers"),
}
# Of families with a window: where it is smaller than the caches, they hold no more than it.
ROLLED = "rolled caches, tp 2"


def smallest() -> dict[str, str]:
    """For each family the known shape with the fewest layers."""
    found: dict[str, str] = {}
    for name in SHAPES:
        config = known_shape(name)
        found.setdefault(str(config["model_type"]), name)
    return found


SHAPE = smallest()


def pipeline(feature: str) -> list[Pass]:
    if feature == ROLLED:
        return default(replace(BUCKETS, tp=2, roll_window_cache=True))
    tp, quantize, front, behind = FEATURES[feature]
    middle = default(replace(BUCKETS, tp=tp, quantization=quantize))
    return [*parse_pipeline(front), *middle, *parse_pipeline(behind)]


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_feature_keeps_what_the_family_means(family: str, feature: str):
    module = build(known_shape(SHAPE[family]), dtype("f32"), mini=True)
    verdicts = validate(module, pipeline(feature), make_workload(module, seed=3))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


# Where a window is for the configuration to choose.
CHOSEN: dict[str, dict[str, object]] = {
    family: {"use_sliding_window": True, "max_window_layers": 1} for family in ("qwen2", "qwen3")
}


def with_window(family: str) -> Module:
    """A mini of a family with a window of the last positions, where the family has one."""
    config = {**known_shape(SHAPE[family]), **CHOSEN.get(family, {})}
    return build(config, dtype("f32"), mini=True)


def windowed() -> dict[str, bool]:
    """Whether a family's mini has layers that read less than the longest bucket."""
    found: dict[str, bool] = {}
    for family in FAMILIES:
        module = with_window(family)
        masks = [op for f in module.programs() for op in f.ops if op.name == "attention_mask"]
        found[family] = any(0 < op.attrs.integer("window") < 16 for op in masks)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_caches_are_rolled_where_there_is_a_window(family: str):
    module = with_window(family)
    verdicts = validate(module, pipeline(ROLLED), make_workload(module, seed=3))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, pipeline(ROLLED))
    assert any(row.last for row in module.entries(Role.STATE)) == windowed()[family]


def test_no_family_is_left_out():
    assert set(SHAPE) == set(FAMILIES)


def page() -> str:
    head = ["family", *FEATURES, ROLLED]
    rows = [
        [f"`{family}`", *["yes"] * len(FEATURES), "yes" if windows else "no window"]
        for family, windows in windowed().items()
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return INTRODUCTION + "\n".join(lines) + "\n"


INTRODUCTION = """\
# Every feature for every family

Each cell is a test of `tests/passes/test_matrix.py`: the mini twin of a model of that family goes
through the default pipeline with the feature, and after every pass prefill, ragged decode steps and
caches are compared in float64 with what they were before it, and in the program's own types within
what the pass declares. Projections are fused in every cell. Where layers read a window of the last
positions, `default{roll_window_cache=true}` lets their caches hold no more than it; in families
without one the test is that nothing changes. This page is written by the same file, and a cell that
is no test cannot stand on it.

"""


def test_the_page_says_what_is_tested():
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
