"""Acceptance of trees keeps the target's distribution (arXiv 2305.09781, 2401.06706)."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.processors import probabilities, process
from graphgen.runtime.speculation.accept import accept
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow
from tests.runtime.speculation.test_accept import DRAWS, WORDS, check, logits_after

PARENTS = [0, 0, 0, 1, 1, 2]


def path_to(node: int, tokens: list[int]) -> list[int]:
    """The tokens between node 0 and a node."""
    return [] if node == 0 else [*path_to(PARENTS[node - 1], tokens), tokens[node - 1]]


@cache
def logits_of(last: int, seed: int) -> np.ndarray:
    """The logits after a token, of the target (seed 1) or of the draft (seed 2)."""
    return logits_after((last,), seed)


@cache
def drafted(last: int, how: Sampling) -> np.ndarray:
    """The draft's distribution after a token."""
    return probabilities(process(logits_of(last, 2), [last], how))


def proposed(rng: np.random.Generator, how: Sampling, kind: str) -> Proposal:
    """Siblings of a draft with other logits: its best, or drawn with or without replacement."""
    tokens, drawn = list[int](), []
    for node, parent in enumerate(PARENTS, 1):
        draft = drafted([3, *path_to(parent, tokens)][-1], how).copy()
        earlier = [tokens[n] for n in range(node - 1) if PARENTS[n] == parent]
        if kind != "with replacement":
            rest = draft.copy()
            rest[earlier] = 0
            # Filters may leave fewer tokens than there are siblings.
            draft = rest / rest.sum() if rest.any() else draft
        best = kind == "certain"
        tokens.append(int(draft.argmax()) if best else int(rng.choice(WORDS, p=draft)))
        drawn.append(draft)
    return Proposal(tokens, () if kind == "certain" else drawn, PARENTS)


def drawn_pairs(how: Sampling, kind: str) -> Counter[tuple[int, int]]:
    """The first two tokens of rows of many seeds."""
    pairs: Counter[tuple[int, int]] = Counter()
    settings = {name: getattr(how, name) for name in ("temperature", "top_k", "top_p")}
    rng = np.random.default_rng(7)
    for seed in range(DRAWS):
        mine = Sampling(do_sample=True, seed=seed, **settings)
        tree = proposed(rng, how, kind)
        row = SpeculativeRow([3], mine, 0, 0, 2)
        tokens = [*tree.tokens]
        after = [logits_of(token, 1) for token in (3, *tokens)]
        _, made = accept(np.stack(after), tree, row)
        if len(made) == 1:
            then = SpeculativeRow([3, *made], mine, 0, 1, 0)
            made += accept(logits_of(made[0], 1)[None], Proposal(), then)[1]
        pairs[made[0], made[1]] += 1
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (Sampling(do_sample=True), "certain"),
        (Sampling(do_sample=True, temperature=0.7, top_k=9), "with replacement"),
        (Sampling(do_sample=True, temperature=1.3, top_p=0.8), "without replacement"),
    ],
)
def test_tokens_and_pairs_have_the_targets_distribution(how: Sampling, kind: str):
    pairs = drawn_pairs(how, kind)
    first = probabilities(process(logits_after((3,), 1), [3], how))
    expected = {
        (a, b): p * q
        for a, p in enumerate(first)
        for b, q in enumerate(probabilities(process(logits_after((a,), 1), [3, a], how)))
    }
    singles = Counter({a: sum(pairs[a, b] for b in range(WORDS)) for a in range(WORDS)})
    check(singles, dict(enumerate(first)))
    check(pairs, expected)


def test_greedy_rows_take_the_longest_path():
    logits = np.eye(WORDS)[[4, 5, 6, 7, 8]]
    row = SpeculativeRow([3], Sampling(), 0, 0, 2)
    assert accept(logits, Proposal([9, 4, 6, 7], parents=[0, 0, 2, 1]), row) == (
        [0, 2, 3],
        [4, 6, 7],
    )
    # The right token is not a child of the path's end.
    assert accept(logits, Proposal([9, 4, 9, 6], parents=[0, 0, 2, 1]), row) == ([0, 2], [4, 6])
    assert accept(logits[:1], Proposal(), row) == ([0], [4])


def test_a_sibling_is_tried_after_a_refused_one():
    how = Sampling(do_sample=True)
    logits = np.full((3, WORDS), -50.0)
    logits[:, 8] = 50.0
    row = SpeculativeRow([3], how, 0, 0, 2)
    assert accept(logits, Proposal([2, 8], parents=[0, 0]), row) == ([0, 2], [8, 8])
    only = [np.eye(WORDS)[2], np.eye(WORDS)[2]]
    assert accept(logits, Proposal([2, 2], only, [0, 0]), row) == ([0], [8])


def test_rows_and_seeds_have_numbers_of_their_own():
    logits = np.zeros((2, WORDS))
    tree = Proposal([4], parents=[0])
    made = {
        (seed, number): tuple(
            accept(
                logits, tree, SpeculativeRow([3], Sampling(do_sample=True, seed=seed), number, 0, 1)
            )[1]
        )
        for seed in range(6)
        for number in range(6)
    }
    assert len(set(made.values())) > 12
