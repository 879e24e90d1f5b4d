"""The search for ladders against every subset of the candidates."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.lowering.plan.ladder_search import best_ladders, binned, ladder_seconds

NUMBERS = st.integers(0, 20)


def by_hand(buckets: tuple[int, ...], lengths: dict[int, int], time: dict[int, int]) -> int:
    """Each length alone in the smallest bucket that takes it."""
    return sum(n * time[min(b for b in buckets if b >= size)] for size, n in lengths.items())


@given(st.data())
def test_no_subset_of_the_candidates_is_faster(data: st.DataObject):
    sizes = sorted(data.draw(st.sets(st.integers(1, 30), min_size=1, max_size=7)))
    lengths = data.draw(st.dictionaries(st.integers(1, sizes[-1]), NUMBERS, max_size=12))
    # Times need not grow with the bucket.
    time = {size: data.draw(NUMBERS) for size in sizes}
    counts = [lengths.get(size, 0) for size in range(sizes[-1] + 1)]
    calls = binned(counts, sizes)
    assert sum(calls) == sum(lengths.values())
    seconds = [time[size] for size in sizes]
    found = best_ladders(sizes, calls, seconds, 8)
    assert len(found) == len(sizes)
    for most, ladder in enumerate(found, 1):
        subsets = [
            (*chosen, sizes[-1])
            for count in range(min(most, len(sizes)))
            for chosen in combinations(sizes[:-1], count)
        ]
        assert len(ladder.buckets) <= most
        assert ladder.buckets[-1] == sizes[-1]
        assert ladder.seconds == min(by_hand(subset, lengths, time) for subset in subsets)
        assert ladder.seconds == by_hand(ladder.buckets, lengths, time)
        assert ladder.seconds == ladder_seconds(ladder.buckets, sizes, calls, seconds)


def test_a_further_bucket_that_saves_nothing_is_not_taken():
    found = best_ladders([128, 256, 512], [0, 7, 0], [1.0, 2.0, 4.0], 3)
    assert [ladder.buckets for ladder in found] == [(512,), (256, 512), (256, 512)]
    assert [ladder.seconds for ladder in found] == [28.0, 14.0, 14.0]


def test_calls_without_a_bucket_cannot_be_counted():
    # The last candidate takes the longest call: a shorter one would lose calls without a word.
    assert binned([0, 1, 1, 1], [2, 3]) == [2, 1]
    assert ladder_seconds([3], [2, 3], [2, 1], [5.0, 7.0]) == pytest.approx(21.0)
