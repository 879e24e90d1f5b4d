"""Speculation gives the tokens of plain decoding, whatever is proposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.prompt_lookup import PromptLookup
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow
from graphgen.runtime.speculation.speculator import Speculator
from tests.oracles.families import ORACLES, save
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.oracles.tree_proposers import KnownTrees

LENGTH = 4
PLAIN = CompileConfig(
    batch=(1, 3), rows=3, context=(8,), tokens=(12, 16, 32), speculation_length=LENGTH
)
PROMPTS = [[5, 9, 3, 7, 2], [4], [6, 1, 8]]
VOCABULARY = 131


class Known:
    """Proposes known tokens, of which every ``wrong``-th is another one.

    Attributes:
        answers: of each row, the tokens that the target gives.
        wrong: 1 for wrong ones alone, 0 for right ones alone.
    """

    def __init__(self, answers: Sequence[Completion], wrong: int) -> None:
        self.answers = [answer.tokens for answer in answers]
        self.wrong = wrong

    def start(self) -> None:
        pass

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        return [Proposal(self._tokens(row)) for row in rows]

    def _tokens(self, row: SpeculativeRow) -> list[int]:
        right = self.answers[row.number][row.made : row.made + row.wanted]
        right += [0] * (row.wanted - len(right))
        bad = [self.wrong and (row.made + n) % self.wrong == 0 for n in range(row.wanted)]
        return [
            (token + 1) % VOCABULARY if out else token
            for token, out in zip(right, bad, strict=True)
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_llama(path)
    return path


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return open_session(folder, PLAIN)


@pytest.fixture(scope="module")
def draft(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Another model, with one layer and other weights."""
    path = tmp_path_factory.mktemp("draft")
    write_llama(path, num_hidden_layers=1, initializer_range=0.3)
    return open_session(path, PLAIN)


def speculated(
    session: Session, request: GenerationRequest, proposer: Proposer, length: int = LENGTH
) -> tuple[list[Completion], Speculator]:
    """The answers, after a comparison of the rows of the cache with those of plain decoding."""
    speculator = Speculator(proposer, length)
    streamed: list[tuple[int, int]] = []
    done, _ = generate(
        session,
        PROMPTS[: session.rows],
        request,
        lambda row, token: streamed.append((row, token)),
        decode=speculator.decode,
    )
    for number, answer in enumerate(done):
        assert [token for row, token in streamed if row == number] == answer.tokens
        held = len(PROMPTS[number]) + len(answer.tokens) - 1
        assert session.lengths[number] == held
    return done, speculator


@pytest.mark.parametrize("count", [1, 2, 13, 40])
@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_any_proposals_give_the_targets_own_tokens(session: Session, count: int, wrong: int):
    request = GenerationRequest(count)
    plain, _ = generate(session, PROMPTS, request)
    done, speculator = speculated(session, request, Known(plain, wrong))
    assert done == plain
    if count == 40:
        # Up to the last slot: rows of other lengths end at other steps.
        assert [answer.finish_reason for answer in done] == ["length"] * 3
        assert [len(p) + len(a.tokens) for p, a in zip(PROMPTS, done, strict=True)] == [33] * 3
    if count == 13:
        assert speculator.counts.tokens_per_step == pytest.approx(
            {0: 4.0, 1: 1.0}.get(wrong, speculator.counts.tokens_per_step)
        )


@pytest.mark.parametrize("other", [True, False])
def test_a_draft_model_gives_the_targets_own_tokens(
    session: Session, folder: Path, draft: Session, other: bool
):
    request = GenerationRequest(40)
    plain, _ = generate(session, PROMPTS, request)
    proposer = DraftModel(draft if other else open_session(folder, PLAIN), VOCABULARY)
    for _ in range(2):
        done, speculator = speculated(session, request, proposer)
        assert done == plain
        # The model itself proposes what it takes.
        assert other or speculator.counts.acceptance == [1.0] * (LENGTH - 1)


def test_a_draft_with_less_room_proposes_less(session: Session, folder: Path):
    small = open_session(folder, replace(PLAIN, tokens=(12,)))
    request = GenerationRequest(20)
    plain, _ = generate(session, PROMPTS, request)
    done, speculator = speculated(session, request, DraftModel(small, VOCABULARY))
    assert done == plain
    assert 1 < speculator.counts.tokens_per_step < LENGTH


@pytest.mark.parametrize("verified", [0, 2])
def test_a_draft_may_verify_fewer_tokens_or_none(session: Session, folder: Path, verified: int):
    small = open_session(folder, replace(PLAIN, speculation_length=verified))
    request = GenerationRequest(40)
    plain, _ = generate(session, PROMPTS, request)
    done, speculator = speculated(session, request, DraftModel(small, VOCABULARY))
    assert done == plain
    assert speculator.counts.acceptance == [1.0] * (LENGTH - 1)


def test_a_prompt_may_fill_the_largest_bucket_of_the_draft(session: Session, draft: Session):
    prompts = [[5, 9, 3, 7, 2, 1, 1, 8], [4], [6, 1]]
    request = GenerationRequest(12)
    plain, _ = generate(session, prompts, request)
    speculator = Speculator(DraftModel(draft, VOCABULARY), LENGTH)
    done, _ = generate(session, prompts, request, decode=speculator.decode)
    assert done == plain


def test_a_token_that_ends_a_row_may_be_in_the_middle_of_a_step(session: Session):
    plain, _ = generate(session, PROMPTS, GenerationRequest(12))
    for place in range(1, 6):
        request = GenerationRequest(12, {plain[0].tokens[place], plain[2].tokens[place + 1]})
        expected, _ = generate(session, PROMPTS, request)
        done, _ = speculated(session, request, Known(plain, 0))
        assert done == expected


def test_prompt_lookup_gives_the_targets_own_tokens(session: Session):
    request = GenerationRequest(27)
    plain, _ = generate(session, PROMPTS, request)
    done, _ = speculated(session, request, PromptLookup(2))
    assert done == plain


def test_penalties_see_the_tokens_before_them(session: Session):
    how = Sampling(repetition_penalty=1.7, no_repeat_ngram_size=2)
    request = GenerationRequest(25, sampling=how)
    plain, _ = generate(session, PROMPTS, request)
    done, _ = speculated(session, request, Known(plain, 3))
    assert done == plain


def test_the_fixed_number_draws_the_same_tokens(session: Session):
    how = Sampling(do_sample=True, temperature=1.5, deterministic=True)
    request = GenerationRequest(25, sampling=how)
    plain, _ = generate(session, PROMPTS, request)
    done, speculator = speculated(session, request, Known(plain, 0))
    assert done == plain
    assert speculator.counts.tokens_per_step > 3


@pytest.mark.one_in(12)
@pytest.mark.parametrize(
    ("family", "variant", "changes"),
    [
        ("llama", "plain", {"tp": 2}),
        ("llama", "plain", {"verify_batch": (2,), "verify_lengths": (2,)}),
        ("llama", "plain", {"tp": 3, "kv_cache_quant": True, "kv_cache_dtype": "int8"}),
        ("llama", "plain", {"kv_cache_quant": True}),
        ("llama", "plain", {"page_cache": 8}),
        ("llama", "plain", {"tp": 2, "sampling": "on-device-sampling"}),
        ("llama", "plain", {"dtype": "bf16"}),
        ("mistral", "a window", {"roll_window_cache": True}),
        ("mistral", "a window", {"roll_window_cache": True, "tp": 2}),
        ("gemma3_text", "plain", {"roll_window_cache": True}),
        ("gpt2", "plain", {}),
        ("bloom", "plain", {}),
    ],
)
def test_tokens_are_the_same_however_the_model_is_compiled(
    family: str, variant: str, changes: dict[str, object], tmp_path: Path
):
    oracle = ORACLES[family]
    save(oracle.model(variant, initializer_range=0.3), tmp_path)
    session = open_session(tmp_path, PLAIN.updated(changes))
    request = GenerationRequest(26)
    plain, _ = generate(session, PROMPTS, request)
    for wrong in (0, 3):
        done, _ = speculated(session, request, Known(plain, wrong))
        assert done == plain
    if "page_cache" not in changes:
        done, _ = speculated(session, request, DraftModel(session_like(tmp_path), VOCABULARY))
        assert done == plain


def session_like(folder: Path) -> Session:
    """The same model on one rank, with rings where it has windows."""
    return open_session(folder, replace(PLAIN, roll_window_cache=True))


def test_the_logits_of_a_step_that_verifies_are_those_of_single_steps(session: Session):
    given = [[1, 2, 3, 4], [7], []]
    session.prefill(PROMPTS)
    made = session.step(*packed(given, session.lengths.tolist()), verify=True).token_logits
    assert session.lengths.tolist() == [9, 2, 3]
    session.take_back(np.array([6, 1, 3]))
    for place in range(1, 4):
        again = session.decode([given[0][place], 7, 0], [True, place == 1, False])
        np.testing.assert_allclose(again[0], made[0, place], rtol=0, atol=1e-5)
        if place == 1:
            np.testing.assert_allclose(again[1], made[1, 0], rtol=0, atol=1e-5)


def test_programs_that_verify_fewer_tokens_are_refused(session: Session):
    speculator = Speculator(PromptLookup(), LENGTH + 1)
    with pytest.raises(GraphgenError, match="verify 4 tokens a row, not 5"):
        generate(session, PROMPTS, GenerationRequest(9), decode=speculator.decode)
    with pytest.raises(GraphgenError, match="a speculation length of 1 leaves no token"):
        Speculator(PromptLookup(), 1)


def test_a_proposer_of_trees_is_refused_for_lines(session: Session):
    request = GenerationRequest(13)
    plain, _ = generate(session, PROMPTS, request)
    with pytest.raises(GraphgenError, match="a proposer of trees cannot propose lines") as caught:
        speculated(session, request, KnownTrees(plain, "random", LENGTH))
    assert caught.value.code == "GG0705"
