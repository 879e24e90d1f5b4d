"""The array [B,3] of NxD Inference: what it means, and every refusal."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.sampling.sampling_params import (
    prepare_sampling_params,
    settings_of_params,
    validate_sampling_params,
)


def test_one_value_is_for_all_rows():
    made = prepare_sampling_params(2, top_k=[50, 5], top_p=[0.5, 1.0], temperature=[0.75])
    np.testing.assert_array_equal(made, np.array([[50, 0.5, 0.75], [5, 1, 0.75]], np.float32))
    assert made.dtype == np.float32
    plain = prepare_sampling_params(batch_size=2, top_k=5, top_p=0.9, temperature=1.0)
    np.testing.assert_array_equal(plain, np.array([[5, 0.9, 1]] * 2, np.float32))
    np.testing.assert_array_equal(prepare_sampling_params(3), np.ones((3, 3), np.float32))


def test_one_row_is_for_all_rows():
    made = validate_sampling_params([[50, 0.5, 0.75]], 3, 256)
    np.testing.assert_array_equal(made, np.tile(np.array([50, 0.5, 0.75], np.float32), (3, 1)))


def test_values_at_the_ends_of_their_ranges():
    given = [[-1, 1.0, 1.0], [0, 1e-6, 0.0], [256, 1.0, 1e30]]
    np.testing.assert_array_equal(
        validate_sampling_params(given, 3, 256), np.array(given, np.float32)
    )
    assert validate_sampling_params([[100_000, 1, 1]], 1, 0).shape == (1, 3)


def test_each_row_becomes_settings():
    made = settings_of_params([[50, 0.5, 0.75], [-1, 1, 1], [7, 0.5, 0]], 3, 256, seed=3)
    assert made == [
        Sampling(do_sample=True, global_topk=256, top_k=50, top_p=0.5, temperature=0.75, seed=3),
        Sampling(do_sample=True, global_topk=256, seed=3),
        GREEDY,
    ]


@pytest.mark.parametrize("top_k", [0, -1])
def test_all_tokens_at_temperature_zero_is_greedy(top_k: int):
    # NxD Inference refuses one of them, and divides by zero for the other.
    assert settings_of_params([[top_k, 1, 0]]) == [GREEDY]


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ([50, 0.5, 0.75], r"sampling_params has the shape \(3,\), not \(2, 3\)"),
        ([[[1, 1, 1]]], r"has the shape \(1, 1, 3\), not \(2, 3\)"),
        ([[1, 1]], r"has the shape \(1, 2\), not \(2, 3\)"),
        ([[1, 1, 1, 1]], r"has the shape \(1, 4\), not \(2, 3\)"),
        ([[1, 1, 1]] * 3, r"has the shape \(3, 3\), not \(2, 3\)"),
        (np.zeros((0, 3)), r"has the shape \(0, 3\), not \(2, 3\)"),
        ([[1, 1, 1], [1, 1]], "not an array of numbers"),
        ([["a", 1, 1]], "not an array of numbers"),
        (None, "sampling_params is None, not an array of numbers"),
        ([[1, 1, 1], [2.5, 1, 1]], "row 1: top_k is 2.5, expected -1 or an integer >= 0"),
        ([[-2, 1, 1]], "row 0: top_k is -2, expected -1 or an integer >= 0"),
        ([[257, 1, 1]], r"row 0: top_k is 257, not in \[0, 256\]"),
        ([[float("nan"), 1, 1]], "row 0: top_k is nan, expected -1 or an integer >= 0"),
        ([[1, 0, 1]], r"row 0: top_p is 0, expected a number in \(0, 1\]"),
        ([[1, -0.5, 1]], r"row 0: top_p is -0.5, expected a number in \(0, 1\]"),
        ([[1, 1.5, 1]], r"row 0: top_p is 1.5, expected a number in \(0, 1\]"),
        ([[1, 1, 1], [1, float("nan"), 0]], r"row 1: top_p is nan, expected a number in \(0, 1\]"),
        ([[1, 1, -1]], "row 0: temperature is -1, expected a number >= 0"),
        ([[1, 1, float("inf")]], "row 0: temperature is inf, not 0 or in"),
    ],
)
def test_a_wrong_array_is_refused(params: object, what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        validate_sampling_params(params, 2, 256)
    assert caught.value.code == "GG0705"


def test_lists_fit_the_batch():
    with pytest.raises(GraphgenError, match="top_p has 3 values for a batch of 2"):
        prepare_sampling_params(2, top_p=[1, 1, 1])
    with pytest.raises(GraphgenError, match=r"temperature has the shape \(1, 1\) for a batch"):
        prepare_sampling_params(2, temperature=np.ones((1, 1)))  # pyright: ignore[reportArgumentType]
