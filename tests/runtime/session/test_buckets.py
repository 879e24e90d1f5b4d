"""Buckets: a complete ladder, the smallest that holds a size, and an error above the largest."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.config.bucket_ladder import powers
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.session.buckets import bucket_limit, choose_bucket

sizes = st.integers(1, 1 << 20)


@given(sizes, sizes)
def test_a_ladder_climbs_by_doubling_and_ends_at_the_largest(largest: int, smallest: int):
    steps = powers(largest, smallest)
    assert steps[-1] == largest
    assert all(low < high <= 2 * low for low, high in pairwise(steps))
    assert all(step == smallest << index for index, step in enumerate(steps[:-1]))


@given(sizes, st.data())
def test_choose_takes_the_smallest_that_is_not_too_small(largest: int, data: st.DataObject):
    steps = powers(largest)
    size = data.draw(st.integers(0, largest))
    bucket = choose_bucket(data.draw(st.permutations(steps)), size, "a prompt")
    assert bucket in steps
    assert size <= bucket
    assert not [step for step in steps if size <= step < bucket]
    # At most twice what is needed, above the smallest.
    assert bucket <= max(2 * size, steps[0])


@given(sizes, st.integers(1, 1 << 20))
def test_choose_never_cuts_off(largest: int, more: int):
    with pytest.raises(GraphgenError) as caught:
        choose_bucket(powers(largest), largest + more, "a prompt")
    assert caught.value.code == "GG0701"
    # What the help names would have been enough.
    wanted = int(caught.value.help.rsplit(" ", 1)[1])
    assert choose_bucket(powers(wanted), largest + more, "a prompt") <= wanted


@given(sizes, sizes)
def test_up_to_is_a_power_of_two_or_the_limit(size: int, limit: int):
    bucket = bucket_limit(size, limit)
    assert bucket == limit or (bucket >= size and bucket.bit_count() == 1 and bucket >= 128)
    assert bucket <= limit
    assert bucket < 2 * size or bucket <= 128


def test_examples():
    assert powers(1000) == (128, 256, 512, 1000)
    assert powers(128) == (128,)
    assert powers(129) == (128, 129)
    assert powers(5) == (5,)
    assert CompileConfig().serving(batch=1, max_len=512).tokens == (128, 256, 512)
    assert [choose_bucket((128, 256), size, "a prompt") for size in (0, 128, 129, 256)] == [
        128,
        128,
        256,
        256,
    ]
    with pytest.raises(GraphgenError) as caught:
        powers(0)
    assert str(caught.value) == "error[GG0705]: the largest bucket must be at least 1, not 0"
