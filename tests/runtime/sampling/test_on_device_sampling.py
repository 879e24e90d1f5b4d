"""Inputs of programs that choose tokens: a row of settings and a random number a sequence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.choose_token import number_for
from graphgen.runtime.sampling.on_device_sampling import below_one, draw_of
from graphgen.runtime.session.session import Session

DRAWN = Sampling(do_sample=True, top_k=5, top_p=0.5, temperature=0.7, top_p_min_tokens=3, seed=4)


def session(*, draws: bool = True, keeps: bool = False) -> Session:
    return cast(Session, SimpleNamespace(rows=3, draws=draws, keeps=keeps))


def test_only_sequences_that_sample_get_a_random_number():
    draw = draw_of(session(), [DRAWN, Sampling()], [2, 9])
    assert draw is not None
    assert draw.random.dtype == np.float32
    assert draw.random.tolist() == [np.float32(number_for(DRAWN, 0, 2)), 0.0, 0.0]
    assert draw.params[0].tolist() == pytest.approx([5, 0.5, 0.7], rel=1e-5)
    assert draw.params[1:].tolist() == [[1, 1, 0], [1, 1, 0]]
    assert draw.kept is None


def test_the_least_number_of_tokens_is_an_input_of_some_programs():
    draw = draw_of(session(keeps=True), [Sampling(), DRAWN], [0, 0])
    assert draw is not None
    assert draw.kept is not None
    assert draw.kept.tolist() == [1, 3, 1]


def test_programs_that_do_not_sample_get_nothing():
    assert draw_of(session(draws=False), [DRAWN], [0]) is None


def test_random_numbers_stay_below_one():
    found = below_one(np.array([0.0, 0.5, 1 - 2**-40]))
    assert found.tolist() == [0.0, 0.5, 1 - 2**-24]
