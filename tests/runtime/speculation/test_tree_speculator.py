"""Trees of proposals give the tokens of plain decoding, whatever is proposed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.proposal import Proposal
from graphgen.runtime.speculation.tree_speculator import TreeSpeculator, verify_trees
from tests.oracles.families import ORACLES, save
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.oracles.tree_proposers import KnownTrees

NODES = 7
PLAIN = CompileConfig(batch=(1, 3), rows=3, context=(8,), tokens=(12, 16, 32), tree_nodes=NODES)
PROMPTS = [[5, 9, 3, 7, 2], [4], [6, 1, 8]]
KINDS = ("right", "random", "trap")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_llama(path)
    return path


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return open_session(folder, PLAIN)


def speculated(
    session: Session,
    request: GenerationRequest,
    proposer: KnownTrees,
    prompts: list[list[int]] = PROMPTS,
) -> tuple[list[Completion], TreeSpeculator]:
    """The answers; the cache ends with the tokens that they have."""
    speculator = TreeSpeculator(proposer, proposer.nodes)
    streamed: list[tuple[int, int]] = []
    done, _ = generate(
        session,
        prompts,
        request,
        lambda row, token: streamed.append((row, token)),
        decode=speculator.decode,
    )
    for number, answer in enumerate(done):
        assert [token for row, token in streamed if row == number] == answer.tokens
        assert session.lengths[number] == len(prompts[number]) + len(answer.tokens) - 1
    return done, speculator


@pytest.mark.one_in(3)
@pytest.mark.parametrize("count", [1, 2, 13, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_any_tree_gives_the_targets_own_tokens(session: Session, count: int, kind: str):
    request = GenerationRequest(count)
    for prompts in (PROMPTS, PROMPTS[:1]):
        plain, _ = generate(session, prompts, request)
        proposer = KnownTrees(plain, kind, NODES, count)
        done, speculator = speculated(session, request, proposer, prompts)
        assert done == plain
        if count == 40:
            assert [answer.finish_reason for answer in done] == ["length"] * len(prompts)
            ends = [len(p) + len(a.tokens) for p, a in zip(prompts, done, strict=True)]
            assert ends == [33] * len(prompts)
        if count == 13:
            wanted = {"right": (2.5, 7), "random": (1, 4), "trap": (1.5, 3)}[kind]
            assert wanted[0] < speculator.counts.tokens_per_step < wanted[1]


def test_paths_that_are_not_the_front_of_a_tree_are_accepted(session: Session):
    plain, _ = generate(session, PROMPTS, GenerationRequest(25))
    proposer = KnownTrees(plain, "right", NODES)
    speculated(session, GenerationRequest(25), proposer)
    assert any([*path.nodes] != [*range(len(path.nodes))] for path in proposer.seen)


def test_a_token_that_ends_a_row_may_be_inside_a_path(session: Session):
    plain, _ = generate(session, PROMPTS, GenerationRequest(12))
    for place in range(1, 6):
        request = GenerationRequest(12, {plain[0].tokens[place], plain[2].tokens[place + 1]})
        expected, _ = generate(session, PROMPTS, request)
        done, _ = speculated(session, request, KnownTrees(plain, "right", NODES, place))
        assert done == expected


@pytest.mark.parametrize("kind", KINDS)
def test_penalties_and_the_fixed_number_see_the_path(session: Session, kind: str):
    for how in (
        Sampling(repetition_penalty=1.7, no_repeat_ngram_size=2),
        Sampling(do_sample=True, temperature=1.5, deterministic=True),
    ):
        request = GenerationRequest(20, sampling=how)
        plain, _ = generate(session, PROMPTS, request)
        done, _ = speculated(session, request, KnownTrees(plain, kind, NODES))
        assert done == plain


@pytest.mark.parametrize(
    ("family", "variant", "changes"),
    [
        ("llama", "plain", {"tp": 2}),
        ("llama", "plain", {"tp": 2, "kv_cache_quant": True, "kv_cache_dtype": "int8"}),
        ("llama", "plain", {"kv_cache_quant": True}),
        ("llama", "plain", {"page_cache": 4}),
        ("llama", "plain", {"page_cache": 4, "cache_blocks": 26, "tp": 2}),
        ("llama", "plain", {"tp": 2, "sampling": "on-device-sampling"}),
        ("mistral", "a window", {}),
        ("mistral", "a window", {"roll_window_cache": True}),
        ("mistral", "a window", {"roll_window_cache": True, "tp": 2}),
        ("gemma3_text", "plain", {"roll_window_cache": True}),
        ("gpt2", "plain", {}),
        ("bloom", "plain", {}),
        ("bloom", "plain", {"tp": 2}),
    ],
)
@pytest.mark.one_in(15)
def test_tokens_are_the_same_however_the_model_is_compiled(
    family: str, variant: str, changes: dict[str, object], tmp_path: Path
):
    save(ORACLES[family].model(variant, initializer_range=0.3), tmp_path)
    session = open_session(tmp_path, PLAIN.updated(changes))
    request = GenerationRequest(26)
    plain, _ = generate(session, PROMPTS, request)
    for kind in KINDS:
        done, _ = speculated(session, request, KnownTrees(plain, kind, NODES))
        assert done == plain


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_the_logits_of_a_node_are_those_after_its_path(family: str, tmp_path: Path):
    save(ORACLES[family].model("plain", initializer_range=0.3), tmp_path)
    session = open_session(tmp_path, PLAIN)
    trees = [Proposal([9, 4, 7, 2], parents=[0, 0, 2, 1]), Proposal([3], parents=[0])]
    tokens = [[1, 9, 4, 7, 2], [8, 3]]
    session.prefill(PROMPTS)
    made = verify_trees(session, [2, 0], tokens, trees).token_logits
    assert session.lengths.tolist() == [7, 1, 8]
    for row, place, path in ((2, 0, [0, 2, 3]), (2, 0, [0, 1, 4]), (0, 1, [0, 1])):
        session.prefill(PROMPTS)
        for node in path:
            last = [tokens[place][node] if number == row else 0 for number in range(3)]
            again = session.decode(last, [number == row for number in range(3)])
            np.testing.assert_allclose(again[row], made[place, node], rtol=0, atol=2e-5)


def test_programs_of_smaller_trees_are_refused(session: Session):
    speculator = TreeSpeculator(KnownTrees([], "right", NODES + 1), NODES + 1)
    with pytest.raises(GraphgenError, match="verify trees of 7 nodes, not 8"):
        generate(session, PROMPTS, GenerationRequest(9), decode=speculator.decode)
    with pytest.raises(GraphgenError, match="a tree of 1 nodes leaves no token"):
        TreeSpeculator(KnownTrees([], "right", 1), 1)


def test_rows_divided_among_ranks_are_refused(folder: Path):
    changes = {"tp": 2, "heads": "SHARD_OVER_BATCH", "batch": (4,), "rows": 4}
    session = open_session(folder, replace(PLAIN, **changes))
    speculator = TreeSpeculator(KnownTrees([], "right", NODES), NODES)
    with pytest.raises(GraphgenError, match="are divided among ranks") as caught:
        generate(session, PROMPTS, GenerationRequest(9), decode=speculator.decode)
    assert caught.value.code == "GG0304"


def test_trees_that_contradict_themselves_are_refused(session: Session):
    with pytest.raises(GraphgenError, match="node 1 of a tree has the parent 1"):
        Proposal([5, 6], parents=[1, 0])
    with pytest.raises(GraphgenError, match="2 tokens and 1 parents"):
        Proposal([5, 6], parents=[0])
    session.prefill(PROMPTS)
    given, start = [[1, 2, 3]], np.array([[5, 6, 6]])
    for ancestors, positions, what in (
        (np.eye(2)[None], start, r"ancestors \[1,2,2\] for positions \[1,3\]"),
        (np.ones((1, 3, 3)), start, "a node of row 0 reads a later one"),
        (np.eye(3)[None], start, "node 1 of row 0 has position 6 and 0 ancestors"),
    ):
        with pytest.raises(GraphgenError, match=what):
            session.step(given, positions, [0], ancestors=ancestors)


def test_pruned_trees_keep_what_fits():
    tree = Proposal([9, 4, 7, 2, 8], parents=[0, 0, 2, 1, 3])
    assert tree.depths == [0, 1, 1, 2, 2, 3]
    assert tree.pruned(2, 9) == Proposal([9, 4, 7, 2], parents=[0, 0, 2, 1])
    assert tree.pruned(3, 4) == Proposal([9, 4, 7], parents=[0, 0, 2])
    assert tree.pruned(0, 4) == tree.pruned(3, 1) == Proposal([], parents=[])
    assert tree.pruned(3, 6) is tree
