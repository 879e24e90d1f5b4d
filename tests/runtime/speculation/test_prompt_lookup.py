"""Prompt lookup proposes what followed the same tokens before."""

from __future__ import annotations

import pytest

from graphgen.runtime.sampling import GREEDY
from graphgen.runtime.speculation.prompt_lookup import PromptLookup
from graphgen.runtime.speculation.proposal import SpeculativeRow


@pytest.mark.parametrize(
    ("sequence", "longest", "wanted", "found"),
    [
        ([1, 2, 3, 4, 1, 2, 3], 3, 3, [4, 1, 2]),
        # The longest run counts, then the latest place.
        ([7, 2, 9, 1, 2, 8, 5, 1, 2], 2, 2, [8, 5]),
        ([7, 2, 9, 6, 2, 8, 2], 3, 1, [8]),
        # What overlaps the end goes on as far as there are tokens.
        ([5, 5, 5], 2, 4, [5]),
        ([1, 2, 3], 3, 4, []),
        ([1], 3, 4, []),
        ([1, 1], 3, 0, []),
    ],
)
def test_what_followed_the_last_tokens(
    sequence: list[int], longest: int, wanted: int, found: list[int]
):
    rows = [SpeculativeRow(sequence, GREEDY, 0, 0, wanted)]
    (proposal,) = PromptLookup(longest).propose(rows)
    assert proposal.tokens == found
