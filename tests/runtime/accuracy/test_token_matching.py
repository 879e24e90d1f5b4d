"""Token matching: the first step that differs, row by row."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.token_matching import match_tokens


def test_equal_tokens_pass():
    result = match_tokens([[1, 2], [3]], [[1, 2], [3]])
    assert result.passed
    assert result.get_divergence_index() == -1


def test_the_first_difference_is_named():
    result = match_tokens([[1, 2, 3], [4, 5, 6]], [[1, 2, 9], [4, 8, 6]])
    assert [row.step for row in result.rows] == [2, 1]
    assert result.get_divergence_index() == 1
    first = result.first
    assert first is not None
    assert first.row == 1
    json = first.to_json()
    assert (json["expected_token"], json["actual_token"]) == (5, 8)


@pytest.mark.parametrize(("expected", "actual"), [([1, 2], [1]), ([1], [1, 2])])
def test_a_shorter_row_differs_at_its_end(expected: list[int], actual: list[int]):
    assert match_tokens([expected], [actual]).get_divergence_index() == 1


def test_later_tokens_may_be_left_out():
    assert match_tokens([[1, 2, 3]], [[1, 2, 4]], most=2).passed


def test_other_numbers_of_rows_are_refused():
    with pytest.raises(GraphgenError, match="2 rows of tokens, but 1 are expected"):
        match_tokens([[1]], [[1], [2]])
