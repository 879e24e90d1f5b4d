"""Norms that are not raised, and the reason."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from tests.passes.raising.test_pattern_rules import SHAPE, composites, lowered


def over_two(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean((1, 2), keepdims=True) + 1e-5)


NOT_ONE_ROW: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "the mean is not one row for all": lambda x, w: over_two(x),
    "the weight is not one row for all": lambda x, w: over_two(x) * w,
}


@pytest.mark.parametrize("reason", NOT_ONE_ROW)
def test_a_norm_over_two_dimensions_is_none(reason: str):
    module = lowered(NOT_ONE_ROW[reason], SHAPE, SHAPE[1:])
    run_pipeline(module, pipeline("imported"), journal=(journal := Journal()))
    assert composites(module) == {}
    assert reason in [miss.why.reason for miss in journal.misses]
