"""Whether a copy of the front of a row pays."""

from __future__ import annotations

import pytest

from graphgen.runtime.serving.row_pool import worth_copying


@pytest.mark.parametrize(
    ("most", "kept", "pays"),
    [
        # All but the last token of 20: that saves a launch.
        (19, 18, True),
        (18, 17, False),
        (19, 19, False),
        # Eight tokens pay for themselves.
        (10, 2, True),
        (10, 3, False),
    ],
)
def test_a_copy_pays_from_some_tokens_on_or_where_it_saves_a_launch(
    most: int, kept: int, pays: bool
):
    assert worth_copying(most, kept, 20, worth=8) is pays
