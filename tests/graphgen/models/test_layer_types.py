"""Types of the layers that small models have in place of all."""

from __future__ import annotations

import pytest

from graphgen.models.layer_types import FULL, SLIDING, ends, kinds


@pytest.mark.parametrize(
    ("types", "two", "one_of_each"),
    [
        ((FULL,), (FULL,), (FULL,)),
        ((FULL,) * 3, (FULL, FULL), (FULL, FULL)),
        ((SLIDING, SLIDING, FULL, SLIDING), (SLIDING, FULL), (SLIDING, FULL)),
    ],
)
def test_a_small_model_has_the_types_of_the_large_one(
    types: tuple[str, ...], two: tuple[str, ...], one_of_each: tuple[str, ...]
):
    assert ends(types) == two
    assert kinds(types) == one_of_each
