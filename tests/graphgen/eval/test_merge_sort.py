"""Merge sort by a comparator, against NumPy's stable sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphgen.eval.arithmetic import Array
from graphgen.eval.map_reduce import sorted_by
from graphgen.eval.observer import Columns


def less(mine: Columns, theirs: Columns) -> Sequence[Array]:
    return [a < b for a, b in zip(mine[0], theirs[0], strict=True)]


@pytest.mark.parametrize("size", [*range(10), 16, 17, 31])
def test_every_length_is_sorted_and_equal_elements_keep_their_order(size: int):
    random = np.random.default_rng(size)
    keys = [random.integers(0, 4, (3, size)).astype(np.int32) for _ in range(2)]
    places = [np.broadcast_to(np.arange(size, dtype=np.int32), (3, size)) for _ in range(2)]
    found = sorted_by([keys, places], 1, less)
    for rank in range(2):
        order = np.argsort(keys[rank], 1, kind="stable")
        np.testing.assert_array_equal(found[0][rank], np.take_along_axis(keys[rank], order, 1))
        np.testing.assert_array_equal(found[1][rank], order)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_lines_lie_along_any_dimension(axis: int):
    keys = np.random.default_rng(0).permutation(60).reshape(3, 4, 5)
    ((found,),) = sorted_by([[keys]], axis, less)
    np.testing.assert_array_equal(found, np.sort(keys, axis))
