"""Trees of EAGLE's drafts: the nodes of the papers, and the target's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.open_speculator import eagle_session
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import GREEDY
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint
from graphgen.runtime.speculation.eagle_draft import EagleDraft
from graphgen.runtime.speculation.eagle_tree import DynamicTree, EagleTree, GrowingTree, StaticTree
from graphgen.runtime.speculation.medusa_tree import medusa_tree
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow
from graphgen.runtime.speculation.tree_speculator import TreeSpeculator
from tests.oracles.eagle import EagleOracle, write_eagle
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.speculation.test_eagle import KINDS, PLAIN, PROMPTS, oracle_of, plain

CHOICES = [[0], [1], [2], [0, 0], [0, 2], [1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 1]]
PLANS = {
    "dynamic": DynamicTree(nodes=9, depth=4, top=3),
    "small": DynamicTree(nodes=4, depth=2, top=2),
    "static": StaticTree(medusa_tree(CHOICES, 3)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target")
    write_llama(path, num_hidden_layers=4)
    return path


def opened(
    folder: Path, draft: Path, plan: Any, **changes: Any
) -> tuple[Session, EagleTree, EagleCheckpoint]:
    eagle = EagleCheckpoint(open_checkpoint(draft), open_checkpoint(folder))
    layers = eagle.feature_layers()
    settings = replace(PLAIN.updated(changes), feature_layers=layers, tree_nodes=plan.nodes)
    session = open_session(folder, settings)
    log = session.feature_log = FeatureLog()
    drafts = eagle_session(eagle, replace(PLAIN, tree_nodes=max(plan.expanded, 2)), Silent())
    return session, EagleTree(EagleDraft(drafts, log, eagle.token_ids), plan), eagle


@pytest.mark.parametrize("kind", ["EAGLE", pytest.param("EAGLE-3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.one_in(3)
def test_any_draft_gives_the_targets_own_tokens(plan: str, kind: str, folder: Path, tmp_path: Path):
    write_eagle(tmp_path / "draft", **KINDS[kind])
    session, proposer, _ = opened(folder, tmp_path / "draft", PLANS[plan])
    speculator = TreeSpeculator(proposer, PLANS[plan].nodes)
    for count in (2, 13, 40):
        expected = plain(session, count)
        for _ in range(2):
            request = GenerationRequest(count)
            done, _ = generate(session, PROMPTS, request, decode=speculator.decode)
            assert done == expected
    assert speculator.counts.proposed[0] > 20


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"tp": 2}, {"batch": (1,), "rows": 1}, {"page_cache": 4}])
def test_however_the_target_is_compiled(changes: dict[str, Any], folder: Path, tmp_path: Path):
    write_eagle(tmp_path / "draft", **KINDS["EAGLE-3"])
    session, proposer, _ = opened(folder, tmp_path / "draft", PLANS["dynamic"], **changes)
    speculator = TreeSpeculator(proposer, PLANS["dynamic"].nodes)
    prompts = PROMPTS[: session.rows]
    done, _ = generate(session, prompts, GenerationRequest(30), decode=speculator.decode)
    assert done == plain(session, 30)


def after_path(
    oracle: EagleOracle, row: SpeculativeRow, features: np.ndarray, path: Sequence[int]
) -> np.ndarray:
    """The logarithms of the oracle's probabilities of its words after a path of words."""
    tokens, x = list(row.sequence[1:]), oracle.joined(features)
    for word in path:
        x = np.concatenate([x, oracle.run(tokens, x)[-1:]])
        tokens.append(oracle.token(word))
    logits = oracle.logits(oracle.run(tokens, x)[-1])
    top = logits - logits.max()
    return top - np.log(np.exp(top).sum())


def dynamic_paths(
    oracle: EagleOracle, row: SpeculativeRow, features: np.ndarray, plan: DynamicTree
) -> set[tuple[int, ...]]:
    """The paths of EAGLE-2's tree, by its paper: expansion, and reranking of all nodes."""
    scores: dict[tuple[int, ...], float] = {}
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(plan.depth):
        made: dict[tuple[int, ...], float] = {}
        for path in frontier:
            logs = after_path(oracle, row, features, path)
            for word in np.argsort(-logs)[: plan.top].tolist():
                made[*path, word] = scores.get(path, 0.0) + float(logs[word])
        scores |= made
        frontier = sorted(made, key=lambda path: -made[path])[: plan.top]
    return set(sorted(scores, key=lambda path: -scores[path])[: plan.nodes - 1])


def paths_of(tree: Proposal) -> set[tuple[int, ...]]:
    made: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens, tree.edges, strict=True):
        made.append((*made[parent], token))
    return set(made[1:])


@pytest.mark.parametrize("kind", ["EAGLE", pytest.param("EAGLE-3", marks=pytest.mark.slow)])
def test_the_dynamic_tree_has_the_nodes_of_the_paper(kind: str, folder: Path, tmp_path: Path):
    written = write_eagle(tmp_path / "draft", **KINDS[kind])
    plan = DynamicTree(nodes=10, depth=3, top=3)
    session, proposer, eagle = opened(folder, tmp_path / "draft", plan)
    oracle = oracle_of(eagle, written)
    first = session.prefill(PROMPTS).argmax(1)
    rows = [
        SpeculativeRow([*prompt, int(token)], GREEDY, number, 1, 8)
        for number, (prompt, token) in enumerate(zip(PROMPTS, first, strict=True))
    ]
    known = [proposer.draft.log.between(n, 0, len(prompt)) for n, prompt in enumerate(PROMPTS)]
    for row, features, tree in zip(rows, known, proposer.propose(rows), strict=True):
        assert features is not None
        wanted = dynamic_paths(oracle, row, features, plan)
        as_tokens = {tuple(oracle.token(word) for word in path) for path in wanted}
        assert paths_of(tree) == as_tokens
        assert len(tree.tokens) == plan.nodes - 1


def test_the_static_tree_has_its_ranks(folder: Path, tmp_path: Path):
    written = write_eagle(tmp_path / "draft")
    plan = PLANS["static"]
    session, proposer, eagle = opened(folder, tmp_path / "draft", plan)
    oracle = oracle_of(eagle, written)
    first = session.prefill(PROMPTS).argmax(1)
    row = SpeculativeRow([*PROMPTS[0], int(first[0])], GREEDY, 0, 1, 8)
    features = proposer.draft.log.between(0, 0, len(PROMPTS[0]))
    assert features is not None
    (tree,) = proposer.propose([row])
    wanted: dict[tuple[int, ...], tuple[int, ...]] = {(): ()}
    for ranks in sorted(map(tuple, CHOICES), key=len):
        above = wanted[ranks[:-1]]
        order = np.argsort(-after_path(oracle, row, features, above))
        wanted[ranks] = (*above, int(order[ranks[-1]]))
    assert paths_of(tree) == {*wanted.values()} - {()}


def test_trees_are_whole_and_ordered_by_joint_probability():
    rng = np.random.default_rng(0)
    plan = DynamicTree(nodes=7, depth=3, top=3)
    tree, fresh = GrowingTree(), [0]
    for level in range(1, plan.depth + 1):
        logs = {node: np.log(rng.dirichlet(np.ones(11))) for node in fresh}
        fresh = plan.grow(tree, level, logs)
        assert len(fresh) == (plan.top if level < plan.depth else 0)
    made = plan.chosen(tree)
    assert len(made.tokens) == 6
    kept = sorted(tree.scores, reverse=True)[:6]
    assert all(a >= b for a, b in pairwise(kept))
    assert kept[-1] >= sorted(tree.scores, reverse=True)[6]
