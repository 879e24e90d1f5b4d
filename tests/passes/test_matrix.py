"""Every feature for every family: each cell is validated pass by pass; docs/families.md is it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphgen.ir import dtype
from graphgen.models import SHAPES, build, known_shape
from graphgen.models.registry import FAMILIES
from passes.core import Pass, parse_pipeline
from passes.debug import script_for, validate
from passes.pipelines import Buckets, default

BUCKETS = Buckets((3,), (8,), (8, 16))
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


def smallest() -> dict[str, str]:
    """For each family the known shape with the fewest layers."""
    found: dict[str, str] = {}
    for name in SHAPES:
        config = known_shape(name)
        found.setdefault(str(config["model_type"]), name)
    return found


SHAPE = smallest()


def pipeline(feature: str) -> list[Pass]:
    tp, quantize, front, behind = FEATURES[feature]
    quantized = parse_pipeline(quantize)[0] if quantize else None
    middle = default(BUCKETS, tp=tp, quantize=quantized)
    return [*parse_pipeline(front), *middle, *parse_pipeline(behind)]


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_feature_keeps_what_the_family_means(family: str, feature: str):
    module = build(known_shape(SHAPE[family]), dtype("f32"), mini=True)
    verdicts = validate(module, pipeline(feature), script_for(module, seed=3))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def test_no_family_is_left_out():
    assert set(SHAPE) == set(FAMILIES)


def page() -> str:
    head = ["family", *FEATURES]
    rows = [[f"`{family}`", *["yes"] * len(FEATURES)] for family in FAMILIES]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return INTRODUCTION + "\n".join(lines) + "\n"


INTRODUCTION = """\
# Every feature for every family

Each cell is a test of `tests/passes/test_matrix.py`: the mini twin of a model of that family goes
through the default pipeline with the feature, and after every pass prefill, ragged decode steps and
caches are compared in float64 with what they were before it, and in the program's own types within
what the pass declares. Projections are fused in every cell. This page is written by the same file,
and a cell that is no test cannot stand on it.

"""


def test_the_page_says_what_is_tested():
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
