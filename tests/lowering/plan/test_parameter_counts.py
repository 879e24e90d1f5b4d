"""Parameters of a model, and those of the experts that a token has."""

from __future__ import annotations

import pytest

from graphgen.lowering.plan.parameter_counts import parameter_counts
from tests.passes.sharding.mixture_module import mixture_module


@pytest.mark.parametrize("stacked", [False, True])
def test_a_token_has_two_experts_of_each_mixture(stacked: bool):
    counts = parameter_counts(mixture_module(6, 10, stacked=stacked, layers=3))
    # A router of 6 x 8, and three matrices of 10 x 8 for each expert.
    assert counts.total == 3 * (6 * 8 + 6 * 3 * 10 * 8)
    assert counts.active == 3 * (6 * 8 + 2 * 3 * 10 * 8)


def test_biases_are_those_of_experts_too():
    counts = parameter_counts(mixture_module(6, 10, biases=True))
    assert counts.total - counts.active == 4 * (3 * 10 * 8 + 2 * 10 + 8)
