"""Attention in parts: what is given for each query head lies as the heads do."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.ir.dtype import f32
from tests.graphgen.eval.test_composites import Sizes, normal

HEADS = np.array([0.5, -1.0, 2.0, 0.25, 1.5, 0.0], np.float32)
DISTANCE = np.tile(np.arange(5, dtype=np.float32), (2, 3, 1))


@pytest.mark.parametrize("terms", [(HEADS,), (HEADS, DISTANCE)], ids=["sinks", "slopes"])
def test_numbers_per_head(terms: tuple[np.ndarray, ...]):
    """Two key-value heads with three query heads each."""
    random = np.random.default_rng(4)
    q = normal(random, f32, 2, 3, 6, 8)
    k, v = (normal(random, f32, 2, 5, 2, 8) for _ in range(2))
    mask = np.ones((2, 3, 5), np.bool_)
    case = Sizes(0, f32).case("attention", {"scale": 0.3}, q, k, v, mask, *terms)
    np.testing.assert_allclose(
        case.parts(wide=False)["r0"], case.whole(wide=False)["r0"], rtol=1e-5, atol=1e-6
    )
