"""Trees of Medusa against the paper's masks and positions, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.speculation.medusa_tree import (
    MedusaProposer,
    default_tree,
    medusa_tree,
    read_tree,
)
from graphgen.runtime.speculation.proposal import AcceptedPath, Proposal, SpeculativeRow
from tests.oracles.medusa import tree_buffers

SMALL = [[0], [1], [0, 0], [0, 1]]
LARGER = [
    [0],
    [0, 0],
    [1],
    [0, 1],
    [2],
    [0, 0, 0],
    [1, 0],
    [0, 3],
    [3],
    [0, 0, 1],
    [9],
    [0, 0, 0, 0],
]


def test_aws_buffers_of_the_small_tree():
    tree = medusa_tree(SMALL, 4)
    assert tree.paths == ((0,), (1,), (0, 0), (0, 1))
    assert tree.parents == (0, 0, 1, 1)
    assert (tree.nodes, tree.depth) == (5, 2)
    assert tree_buffers(SMALL)[2].tolist() == [0, 1, 2, 11, 12]


@pytest.mark.parametrize("choices", [SMALL, LARGER, default_tree(4).paths])
def test_masks_positions_and_guesses_are_the_papers(choices: list[list[int]]):
    tree = medusa_tree([list(path) for path in choices][::-1], 4)
    mask, positions, places = tree_buffers(choices)
    # Guess b of head d is the number of its place among the candidates.
    proposer, guesses = MedusaProposer(tree), np.arange(40).reshape(1, 1, 4, 10) + 1
    proposer.observe([AcceptedPath(0, [0], [5])], {"medusa_tokens": guesses})
    (proposed,) = proposer.propose([SpeculativeRow([5], Sampling(), 0, 1, 9)])
    assert [0, *proposed.tokens] == places.tolist()
    np.testing.assert_array_equal(proposed.ancestors, mask)
    assert proposed.depths == positions.tolist()


def test_a_row_without_guesses_has_no_tree():
    proposer = MedusaProposer(medusa_tree(SMALL, 2))
    rows = [SpeculativeRow([5], Sampling(), number, 1, 9) for number in range(2)]
    assert proposer.propose(rows) == [Proposal()] * 2
    guesses = np.arange(2 * 3 * 2 * 10).reshape(2, 3, 2, 10)
    paths = [AcceptedPath(1, [0, 2], [7, 8]), AcceptedPath(0, [0], [7])]
    proposer.observe(paths, {"medusa_tokens": guesses})
    made = proposer.propose(rows)
    assert [int(tree.tokens[0]) for tree in made] == [guesses[1, 0, 0, 0], guesses[0, 2, 0, 0]]
    proposer.start()
    assert proposer.propose(rows) == [Proposal()] * 2


def test_a_default_tree_has_the_likely_paths():
    tree = default_tree(2)
    assert tree.paths == (
        (0,),
        (1,),
        (2,),
        (3,),
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 1),
        (2, 0),
        (3, 0),
    )
    assert default_tree(4).depth == 4


@pytest.mark.parametrize(
    ("choices", "what"),
    [
        ([[0], [1, 0]], r"the path \[1, 0\] goes through \[1\], which is missing"),
        ([[0], [0]], r"the path \[0\] is there twice"),
        ([[0], [0, 0], [0, 0, 0]], r"\[0, 0, 0\] needs 3 heads, and there are 2"),
        ([[0], []], r"\[\] is not a path"),
        ([[10]], r"\[10\] is not a path: its numbers are 0 to 9"),
        ([[-1]], r"\[-1\] is not a path"),
        ([["a"]], r"\['a'\] is not a path"),
        ([[True]], r"\[True\] is not a path"),
        ([], r"a tree of \[\] has no path"),
        ({"a": 1}, "has no path"),
        (None, "a tree of None has no path"),
    ],
)
def test_what_is_no_tree_is_refused(choices: object, what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        medusa_tree(choices, 2)
    assert caught.value.code == "GG0705"


def test_a_tree_is_read_from_a_file(tmp_path: Path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(SMALL))
    assert read_tree(path, 2) == medusa_tree(SMALL, 2)
    path.write_text("{")
    with pytest.raises(GraphgenError, match=r"tree\.json cannot be read"):
        read_tree(path, 2)
    with pytest.raises(GraphgenError, match="cannot be read"):
        read_tree(tmp_path / "none.json", 2)
