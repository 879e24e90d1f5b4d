"""Acceptance of drawn tokens keeps the target's distribution (arXiv 2211.17192, 2302.01318)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.choose_token import DRAFTING, draw, uniform
from graphgen.runtime.sampling.processors import probabilities, process
from graphgen.runtime.speculation.accept import accept
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow

WORDS = 17
DRAWS = 50_000


def logits_after(tokens: tuple[int, ...], seed: int) -> np.ndarray:
    """The logits of a model that looks at the last token alone."""
    return np.random.default_rng([seed, *tokens[-1:]]).normal(size=WORDS) * 1.5


def proposed(seed: int, how: Sampling, certain: bool) -> Proposal:
    """Two tokens of a draft with other logits, drawn with the numbers of a seed."""
    tokens: list[int] = []
    drawn = []
    for place in range(2):
        scores = process(logits_after((3, *tokens), 2), tokens, how)
        number = uniform(seed, 0, place, DRAFTING)
        tokens.append(int(scores.argmax()) if certain else draw(scores, number))
        drawn.append(probabilities(scores))
    return Proposal(tokens, () if certain else drawn)


def drawn_pairs(how: Sampling, certain: bool) -> Counter[tuple[int, int]]:
    """The first two tokens of rows of many seeds."""
    pairs: Counter[tuple[int, int]] = Counter()
    settings = {name: getattr(how, name) for name in ("temperature", "top_k", "top_p")}
    for seed in range(DRAWS):
        mine = Sampling(do_sample=True, seed=seed, **settings)
        proposal = proposed(seed, mine, certain)
        row = SpeculativeRow([3], mine, 0, 0, 2)
        sequences = [(3, *proposal.tokens[:n]) for n in range(3)]
        made = accept(np.stack([logits_after(s, 1) for s in sequences]), proposal, row)[1]
        if len(made) == 1:
            # The next step begins with the target's own token.
            then = SpeculativeRow([3, *made], mine, 0, 1, 0)
            made += accept(logits_after((3, *made), 1)[None], Proposal(), then)[1]
        pairs[made[0], made[1]] += 1
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "certain"),
    [
        (Sampling(do_sample=True), True),
        (Sampling(do_sample=True, temperature=0.7, top_k=9), False),
        (Sampling(do_sample=True, temperature=1.3, top_p=0.8), False),
    ],
)
def test_tokens_and_pairs_have_the_targets_distribution(how: Sampling, certain: bool):
    pairs = drawn_pairs(how, certain)
    first = probabilities(process(logits_after((3,), 1), [3], how))
    expected = {
        (a, b): p * q
        for a, p in enumerate(first)
        for b, q in enumerate(probabilities(process(logits_after((a,), 1), [3, a], how)))
    }
    singles = Counter({a: sum(pairs[a, b] for b in range(WORDS)) for a in range(WORDS)})
    check(singles, dict(enumerate(first)))
    check(pairs, expected)


def check(found: Counter, expected: dict) -> None:
    """A chi-square test at a level of 1e-4; rare outcomes are put together."""
    rare = [key for key, p in expected.items() if 0 < p * DRAWS < 10]
    assert not any(found[key] for key, p in expected.items() if p == 0)
    common = [key for key, p in expected.items() if p * DRAWS >= 10]
    counts = [found[key] for key in common] + [sum(found[key] for key in rare)]
    wanted = [expected[key] * DRAWS for key in common] + [
        sum(expected[key] for key in rare) * DRAWS
    ]
    pairs = [(c, w) for c, w in zip(counts, wanted, strict=True) if w > 0]
    statistic = sum((c - w) ** 2 / w for c, w in pairs)
    assert statistic < chi2.ppf(1 - 1e-4, len(pairs) - 1), statistic


def test_the_check_sees_another_distribution():
    with pytest.raises(AssertionError):
        check(Counter({0: DRAWS // 2 + 600, 1: DRAWS // 2 - 600}), {0: 0.5, 1: 0.5})


def test_greedy_rows_take_the_targets_tokens():
    logits = np.eye(WORDS)[[4, 5, 6]]
    row = SpeculativeRow([3], Sampling(), 0, 0, 2)
    assert accept(logits, Proposal([4, 5]), row)[1] == [4, 5, 6]
    assert accept(logits, Proposal([4, 9]), row)[1] == [4, 5]
    assert accept(logits[:1], Proposal(), row)[1] == [4]


def test_a_token_that_the_draft_never_draws_may_be_drawn():
    how = Sampling(do_sample=True)
    logits = np.full((2, WORDS), -50.0)
    logits[:, 8] = 50.0
    only_two = np.zeros(WORDS)
    only_two[2] = 1.0
    made = accept(logits, Proposal([2], [only_two]), SpeculativeRow([3], how, 0, 0, 1))[1]
    assert made == [8]


def test_a_smaller_vocabulary_of_the_draft_is_part_of_the_targets():
    how = Sampling(do_sample=True)
    logits = np.zeros((2, WORDS))
    small = np.full(5, 0.2)
    made = accept(logits, Proposal([2], [small]), SpeculativeRow([3], how, 0, 0, 1))[1]
    assert all(0 <= token < WORDS for token in made)
