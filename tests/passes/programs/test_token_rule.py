"""The reference of sampling in programs: that of the host; which other tokens are right."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.passes.programs.token_rule import TokenRule
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.choose_token import draw
from graphgen.runtime.sampling.processors import process

ROWS, VOCABULARY = 24, 37
RNG = np.random.default_rng(5)
SMOOTH = 3 * RNG.standard_normal((ROWS, VOCABULARY))
# Many equal scores.
STEPS = np.round(SMOOTH * 2) / 2
PARAMS = np.stack(
    [
        RNG.choice([0, 1, 3, 10, 36, 37, 90], ROWS),
        RNG.choice([0.05, 0.3, 0.8, 0.97, 2.0], ROWS),
        RNG.choice([0, 0.3, 1.0, 1.7], ROWS),
    ],
    1,
).astype(np.float32)
RULES = (
    TokenRule(True, 0),
    TokenRule(True, 7),
    TokenRule(True, 0, top_p_min_tokens=True),
    TokenRule(),
)


def drawn(seed: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed).random(ROWS).astype(np.float32)
    least = np.arange(ROWS, dtype=np.int32) % 5
    return {"sampling_params": PARAMS, "random": numbers, "top_p_min_tokens": least}


@pytest.mark.parametrize("candidates", [0, 7])
def test_it_draws_the_tokens_of_the_host(candidates: int):
    for seed in range(6):
        given = drawn(seed)
        for kept in (False, True):
            found = TokenRule(True, candidates, top_p_min_tokens=kept).chosen(SMOOTH, given)
            for row, (top_k, top_p, temperature) in enumerate(PARAMS.tolist()):
                least = int(given["top_p_min_tokens"][row]) if kept else 1
                how = Sampling(
                    do_sample=True,
                    top_k=int(top_k),
                    top_p=min(top_p, 1.0),
                    temperature=temperature,
                    global_topk=candidates,
                    top_p_min_tokens=max(least, 1),
                )
                scores = process(SMOOTH[row], [], how)
                number = float(given["random"][row])
                wanted = draw(scores, number) if temperature else int(SMOOTH[row].argmax())
                assert found[row] == wanted, (seed, row)


@pytest.mark.parametrize("scores", [SMOOTH, STEPS], ids=["smooth", "ties"])
def test_every_token_that_scores_nearby_imply_is_admitted(scores: np.ndarray):
    for seed in range(6):
        rng, given = np.random.default_rng(seed), drawn(seed)
        for reach in (1e-9, 1e-3, 0.1, 1.0):
            others = scores + rng.uniform(-reach, reach, scores.shape)
            for rule in RULES:
                tokens = rule.chosen(others, given)
                assert rule.admits(scores, given, tokens, reach * 1.0001, 1e-12).all()


@pytest.mark.parametrize("scores", [SMOOTH, STEPS], ids=["smooth", "ties"])
def test_no_other_token_is_admitted_where_scores_stay(scores: np.ndarray):
    given = drawn(3)
    for rule in RULES:
        wanted = rule.chosen(scores, given)
        assert rule.admits(scores, given, wanted, 0.0, 1e-12).all()
        for step in range(1, VOCABULARY):
            others = (wanted + step) % VOCABULARY
            assert not rule.admits(scores, given, others, 0.0, 1e-12).any()


def test_equal_scores_go_by_id_unless_they_may_have_moved():
    scores = np.array([[1.0, 3, 3, 0]])
    assert TokenRule().chosen(scores, {}).tolist() == [1]
    assert not TokenRule().admits(scores, {}, np.array([2]), 0.0, 1e-9)[0]
    assert TokenRule().admits(scores, {}, np.array([2]), 1e-9, 1e-9)[0]
    assert not TokenRule().admits(scores, {}, np.array([0]), 1e-9, 1e-9)[0]


def test_the_number_next_to_the_end_of_a_token_admits_both():
    scores = np.log([[0.5, 0.3, 0.2]])
    given = {
        "sampling_params": np.array([[0, 2, 1]], np.float32),
        "random": np.array([0.5]),
    }
    rule = TokenRule(True, 0)
    for token, near, far in ((0, True, False), (1, True, True), (2, False, False)):
        assert rule.admits(scores, given, np.array([token]), 0.0, 1e-6)[0] == near
        moved = replace_number(given, 0.5 + 1e-3)
        assert rule.admits(scores, moved, np.array([token]), 0.0, 1e-6)[0] == far


def replace_number(given: dict[str, np.ndarray], number: float) -> dict[str, np.ndarray]:
    return {**given, "random": np.array([number])}


def test_half_is_drawn_without_an_input():
    given = {"sampling_params": PARAMS}
    found = TokenRule(True, 0, deterministic=True).chosen(SMOOTH, given)
    halves = {**given, "random": np.full(ROWS, 0.5)}
    np.testing.assert_array_equal(found, RULES[0].chosen(SMOOTH, halves))
