"""Values at the boundary of a rewrite: what each spread draws, and how often."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from graphgen.ir import tensor
from graphgen.ir.dtype import dtype
from graphgen.passes.validate.boundary_values import Spread, draw_array, samples

INTEGERS = tensor(dtype("s32"), (2, 9))


def form(array: np.ndarray) -> str:
    """The order or the range of an array of integers."""
    steps = np.diff(array, axis=-1)
    if (steps == 1).all():
        return "forth"
    if (steps == -1).all():
        return "back"
    assert array.min() >= 0
    assert array.max() < 8
    return "below 3" if array.max() < 3 else "below 8"


def test_integers_are_in_order_or_small():
    draws = [draw_array(np.random.default_rng(n), INTEGERS, Spread.ORDINARY) for n in range(400)]
    counts = Counter(form(array) for array in draws)
    assert set(counts) == {"forth", "back", "below 3", "below 8"}
    ordered = counts["forth"] + counts["back"]
    assert abs(ordered - 200) < 30
    assert all(abs(counts[name] - 100) < 30 for name in ("forth", "back", "below 3"))
    assert {int(array.min()) for array in draws if form(array).startswith("below")} >= {0}
    in_order = [array for array in draws if form(array) in ("forth", "back")]
    assert {int(start) for array in in_order for start in array.min(axis=-1)} == {0, 1, 2}


@pytest.mark.parametrize(("kind", "low"), [("s32", -2), ("u32", 0)])
def test_adversarial_integers_may_be_negative_where_the_type_has_a_sign(kind: str, low: int):
    type_ = tensor(dtype(kind), (500,))
    drawn = draw_array(np.random.default_rng(0), type_, Spread.ADVERSARIAL)
    assert (int(drawn.min()), int(drawn.max())) == (low, 8)


def test_sizes_are_different_then_all_1_then_alike_then_long():
    sizes = [sample.sizes for sample in samples(["B", "S", "C", "R", "M", "N"], {"R": 6})]
    distinct = [dict(item) for item in dict.fromkeys(tuple(each.items()) for each in sizes)]
    assert distinct == [
        {"B": 2, "S": 3, "C": 5, "R": 6, "M": 7, "N": 4},
        {"B": 1, "S": 1, "C": 1, "R": 6, "M": 1, "N": 1},
        {"B": 3, "S": 4, "C": 4, "R": 6, "M": 8, "N": 3},
        {"B": 2, "S": 3, "C": 300, "R": 6, "M": 301, "N": 4},
    ]
