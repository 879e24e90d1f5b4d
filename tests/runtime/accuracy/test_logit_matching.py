"""Logit matching on logits made by hand: AWS's formula, forced tokens, rows of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs, expect
from graphgen.runtime.accuracy.logit_matching import compare_logits, forced_logits, match_logits
from graphgen.runtime.accuracy.tolerances import AWS_TOLERANCES, ToleranceMap, tolerance_map

VOCABULARY = 50
LOOSE = tolerance_map({"all": (10, 10)})


def f32(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


class Table:
    """A model whose logits depend on a row's last token and its length; changes are planted."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.logits = random.normal(0, 5, (40, VOCABULARY, VOCABULARY)).astype(np.float32)
        self.fed: list[list[int]] = []
        self.lengths: list[int] = []

    def start(self, prompts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        self.lengths = [len(prompt) for prompt in prompts]
        self.fed = [[] for _ in prompts]
        return self._at([prompt[-1] for prompt in prompts])

    def step(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        self.lengths = [length + 1 for length in self.lengths]
        for row, token in zip(self.fed, tokens, strict=True):
            row.append(token)
        return self._at(tokens)

    def _at(self, last: Sequence[int]) -> npt.NDArray[np.float32]:
        return np.stack(
            [self.logits[n, token] for n, token in zip(self.lengths, last, strict=True)]
        )


PROMPTS = [[3, 4], [7], [1, 2, 9]]


def expected(steps: int = 6) -> ExpectedOutputs:
    return expect(Table(), PROMPTS, steps, with_logits=True)


def test_equal_models_pass_with_no_error():
    result = match_logits(Table(), expected(), AWS_TOLERANCES)
    assert result.passed
    assert result.get_divergence_index() == -1
    assert [(check.step, check.row) for check in result.steps][:4] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
    ]
    assert all(error.error == 0 for check in result.steps for error in check.errors)


def test_the_reference_s_tokens_are_fed_after_a_divergence():
    wanted, model = expected(), Table()
    # Row 1 has one token; at step 2 it has three. Another token becomes the best by far.
    other = (wanted.tokens[1][2] + 1) % VOCABULARY
    model.logits[3, wanted.tokens[1][1], other] += 100
    result = match_logits(model, wanted, LOOSE)
    assert result.get_divergence_index() == 2
    assert [(check.row, check.step) for check in result.steps if not check.passed] == [(1, 2)]
    failed = result.first
    assert failed is not None
    assert (failed.expected_token, failed.actual_token) == (wanted.tokens[1][2], other)
    # What follows is compared with equal inputs, and passes.
    assert model.fed == [row[:-1] for row in wanted.tokens]
    assert len(result.steps) == 18


def test_the_earliest_failure_is_the_divergence_index():
    wanted, model = expected(), Table()
    for row, step in ((0, 4), (2, 1)):
        last = wanted.tokens[row][step - 1]
        model.logits[len(PROMPTS[row]) + step, last] += np.linspace(0, 9, VOCABULARY)
    result = match_logits(model, wanted, AWS_TOLERANCES)
    assert {(check.row, check.step) for check in result.steps if not check.passed} == {
        (0, 4),
        (2, 1),
    }
    assert result.get_divergence_index() == 1
    assert result.to_json()["divergence_index"] == 1
    assert result.largest()["all"].step in (1, 4)


def test_the_error_is_measured_as_awss_tool_does():
    wanted = np.array([10.0, -4, 3, 2, 1, 0, -1, -20], np.float32)
    got = wanted.copy()
    got[3] += 0.08
    got[7] -= 0.08  # no shift: the mean difference is 0
    check = compare_logits(got, wanted, tolerance_map({4: (1e-5, 0.01), "all": (1e-5, 0.01)}))
    four, every = check.errors
    # The best four are 10, 3, 2, 1; -4 is not among them, and -20 sets the scale of all.
    assert four.scale == 10
    assert four.error == pytest.approx(0.08)
    assert four.relative == pytest.approx(0.008)
    assert four.allowed == pytest.approx(1e-5 + 0.01 * 10)
    assert every.scale == 20
    assert check.passed
    assert not compare_logits(got, wanted, tolerance_map({4: (0, 0.007)})).passed


def test_a_constant_shift_is_removed_and_reported():
    wanted = np.random.default_rng(0).normal(0, 3, VOCABULARY).astype(np.float32)
    check = compare_logits(wanted + np.float32(12.5), wanted, AWS_TOLERANCES)
    assert check.passed
    assert check.shift == pytest.approx(12.5)
    assert check.worst.error < 1e-5


def test_entries_at_minus_infinity_are_left_out():
    wanted = np.array([1.0, 5, -np.inf, 2], np.float32)
    got = np.array([1.0, 5, 1e9, 2], np.float32)
    check = compare_logits(got, wanted, AWS_TOLERANCES)
    assert check.passed
    assert (check.expected_token, check.actual_token) == (1, 1)
    # A logit that only the tested model lacks is an error.
    assert not compare_logits(wanted, got, AWS_TOLERANCES).passed


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_actual_logit_that_is_not_a_number_fails(wrong: float):
    wanted = np.linspace(0, 1, 9, dtype=np.float32)
    got = wanted.copy()
    got[4] = wrong
    check = compare_logits(got, wanted, AWS_TOLERANCES)
    assert not check.passed
    assert check.to_json()["errors"] == dict.fromkeys(("5", "50", "1000", "all"), "inf")


def test_logits_of_nothing_but_nan_fail_in_the_divergence_too():
    check = compare_logits(np.full(3, np.nan, np.float32), f32(1, 2, 0), LOOSE)
    assert check.divergence_difference == np.inf
    assert not check.passed


def test_a_top_k_larger_than_the_vocabulary_means_all():
    wanted = f32(3, 2, 1)
    check = compare_logits(wanted, wanted, AWS_TOLERANCES)
    assert [error.scale for error in check.errors] == [3, 3, 3, 3]


def test_a_close_divergence_passes_and_a_wide_one_does_not():
    wanted = f32(5.0, 4.9998, 0)
    close, wide = f32(4.9999, 5.0, 0), f32(4.99, 5.0, 0)
    tolerant: ToleranceMap = tolerance_map({"all": (1, 0)})
    near = compare_logits(close, wanted, tolerant)
    assert near.diverged
    assert near.passed
    assert near.divergence_difference == pytest.approx(1e-4, rel=1e-2)
    assert not compare_logits(wide, wanted, tolerant).passed
    assert compare_logits(wide, wanted, tolerant, divergence_difference_tol=0.02).passed


def test_rows_are_strangers_to_each_other():
    wanted, model = expected(), Table()
    model.logits[1, 7] = np.nan  # only row 1's prompt ends in 7 with one token
    result = match_logits(model, wanted, AWS_TOLERANCES)
    assert {check.row for check in result.steps if not check.passed} == {1}


def test_what_cannot_be_compared_is_refused():
    wanted = expected()
    with pytest.raises(GraphgenError, match="has tokens only"):
        match_logits(Table(), ExpectedOutputs(wanted.prompts, wanted.tokens), LOOSE)
    assert wanted.logits is not None
    with pytest.raises(GraphgenError, match="gives 50 logits, the reference 49"):
        match_logits(
            Table(), ExpectedOutputs(PROMPTS, wanted.tokens, wanted.logits[..., :49]), LOOSE
        )
    with pytest.raises(GraphgenError, match="reference's logits of row 0, step 0"):
        compare_logits(f32(1), f32(np.nan), LOOSE)
    with pytest.raises(GraphgenError, match="not numbers"):
        compare_logits(f32(1), f32(-np.inf), LOOSE)


def test_forced_logits_stop_at_the_step_to_look_at():
    assert len(list(forced_logits(Table(), expected(), last=2))) == 3
