"""Drafts of EAGLE and EAGLE-3: what they propose, and that the tokens are the target's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.models.eagle import target_layers
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.open_speculator import check_features, eagle_session
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint, is_eagle, is_eagle3
from graphgen.runtime.speculation.eagle_draft import EagleDraft
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow
from graphgen.runtime.speculation.speculator import Speculator
from tests.oracles.eagle import EagleOracle, write_eagle
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

LENGTH = 4
PLAIN = CompileConfig(
    batch=(1, 3), rows=3, context=(8,), tokens=(12, 16, 32), speculation_length=LENGTH
)
PROMPTS = [[5, 9, 3, 7, 2], [4], [6, 1, 8]]
VOCABULARY = 131
KINDS: dict[str, dict[str, Any]] = {
    "EAGLE": {"version": 1},
    "two layers": {"version": 1, "layers": 2, "bias": False},
    "input norm": {"version": 1, "input_norm": True, "own": ["lm_head"], "prefix": "model."},
    "EAGLE-3": {"version": 3, "words": 57, "own": ["lm_head"]},
    "EAGLE-3, all words": {"version": 3, "own": ["embed_tokens", "lm_head"]},
    "frequent words": {"version": 1, "words": 40},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target")
    write_llama(path, num_hidden_layers=4)
    return path


def opened(
    folder: Path, draft: Path, **changes: Any
) -> tuple[Session, EagleDraft, EagleCheckpoint]:
    """The target's session and a draft for it."""
    eagle = EagleCheckpoint(open_checkpoint(draft), open_checkpoint(folder))
    layers = eagle.feature_layers()
    session = open_session(folder, replace(PLAIN.updated(changes), feature_layers=layers))
    check_features(session, eagle)
    return session, proposer_of(session, eagle), eagle


def proposer_of(session: Session, eagle: EagleCheckpoint, **changes: Any) -> EagleDraft:
    log = session.feature_log = FeatureLog()
    drafts = eagle_session(eagle, PLAIN.updated(changes), Silent())
    return EagleDraft(drafts, log, eagle.token_ids)


def oracle_of(eagle: EagleCheckpoint, written: dict[str, np.ndarray]) -> EagleOracle:
    shared = {name: eagle.read(name) for name in ("embed_tokens.weight", "lm_head.weight")}
    return EagleOracle({**written, **shared})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(2)
def test_programs_give_the_logits_and_features_of_the_papers(
    kind: str, folder: Path, tmp_path: Path
):
    written = write_eagle(tmp_path / "draft", **KINDS[kind])
    eagle = EagleCheckpoint(open_checkpoint(tmp_path / "draft"), open_checkpoint(folder))
    oracle = oracle_of(eagle, written)
    width = eagle.config["feature_size"]
    assert isinstance(width, int)
    random = np.random.default_rng(3)
    tokens = random.integers(0, VOCABULARY, 9)
    features = random.normal(size=(9, width)).astype(np.float32)
    logits, states = oracle.after(tokens.tolist(), features)
    for tp in (1, 2):
        session = eagle_session(eagle, replace(PLAIN, tp=tp), Silent())
        first = session.step([tokens[:6]], [np.arange(6)], [1], features=[features[:6]])
        second = session.step(
            [tokens[6:]], [np.arange(6, 9)], [1], verify=True, features=[features[6:]]
        )
        assert first.logits is not None
        ours = np.concatenate([first.logits, second.token_logits[0]])
        np.testing.assert_allclose(ours, logits[5:], rtol=0, atol=2e-4)
        ours = np.concatenate([m.outputs["next_features"][0] for m in (first, second)])
        np.testing.assert_allclose(ours, states, rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(3)
def test_proposals_are_those_of_the_papers(kind: str, folder: Path, tmp_path: Path):
    written = write_eagle(tmp_path / "draft", **KINDS[kind])
    session, draft, eagle = opened(folder, tmp_path / "draft")
    checked = Checked(draft, oracle_of(eagle, written), eagle)
    done, speculator = speculated(session, checked)
    assert done == plain(session)
    assert checked.seen > 20
    assert speculator.counts.proposed[:1] > [9]


class Checked:
    """Compares what a draft proposes with the oracle's proposals, from the same features."""

    def __init__(self, draft: EagleDraft, oracle: EagleOracle, eagle: EagleCheckpoint) -> None:
        self.draft, self.oracle, self.ids = draft, oracle, eagle.token_ids
        self.features: dict[int, np.ndarray] = {}
        self.seen = 0

    def start(self) -> None:
        self.features = {}
        self.draft.start()

    def propose(self, rows: list[SpeculativeRow]) -> list[Proposal]:
        for row in rows:
            size, log = len(row.sequence) - 1, self.draft.log
            begin = log.starts[row.number]
            new = log.between(row.number, begin, size)
            if new is not None:
                held = self.features.get(row.number, new[:0])[:begin]
                self.features[row.number] = np.concatenate([held, new])
        made = self.draft.propose(rows)
        for row, proposal in zip(rows, made, strict=True):
            if proposal.tokens:
                wanted = self.oracle.propose(
                    row.sequence, self.features[row.number], len(proposal.tokens)
                )
                words = wanted if self.ids is None else [int(self.ids[word]) for word in wanted]
                assert proposal.tokens == words
                self.seen += len(words)
        return made


def plain(session: Session, count: int = 40, **how: Any) -> list[Completion]:
    log, session.feature_log = session.feature_log, None
    done, _ = generate(session, PROMPTS[: session.rows], GenerationRequest(count, **how))
    session.feature_log = log
    return done


def speculated(
    session: Session, proposer: Any, count: int = 40, **how: Any
) -> tuple[list[Completion], Speculator]:
    speculator = Speculator(proposer, LENGTH)
    request = GenerationRequest(count, **how)
    done, _ = generate(session, PROMPTS[: session.rows], request, decode=speculator.decode)
    return done, speculator


@pytest.mark.one_in(15)
@pytest.mark.parametrize("kind", ["EAGLE", "EAGLE-3"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch": (1,), "rows": 1},
        {"tp": 2},
        {"quantization": "quantize-weights{scheme=per_channel_symmetric}"},
        {"kv_cache_quant": True, "kv_cache_dtype": "int8"},
        {"page_cache": 4},
        {"tp": 2, "sampling": "on-device-sampling"},
        {"context": (4,), "chunk": (4,)},
    ],
    ids=str,
)
def test_any_draft_gives_the_targets_own_tokens(
    kind: str, changes: dict[str, Any], folder: Path, tmp_path: Path
):
    write_eagle(tmp_path / "draft", **KINDS[kind])
    session, draft, _ = opened(folder, tmp_path / "draft", **changes)
    for count in (1, 2, 13, 40):
        expected = plain(session, count)
        # Twice: what the draft holds of a sequence serves again.
        for _ in range(2):
            done, _ = speculated(session, draft, count)
            assert done == expected
    ends = {expected[0].tokens[3], expected[-1].tokens[5]}
    done, _ = speculated(session, draft, eos_ids=ends)
    assert done == plain(session, eos_ids=ends)


@pytest.mark.slow
def test_a_draft_with_less_room_or_other_ranks_proposes_too(folder: Path, tmp_path: Path):
    write_eagle(tmp_path / "draft")
    session, _, eagle = opened(folder, tmp_path / "draft")
    expected = plain(session)
    for changes in ({"tokens": (12,)}, {"tp": 2}, {"speculation_length": 2}, {"context": (4,)}):
        done, speculator = speculated(session, proposer_of(session, eagle, **changes))
        assert done == expected
        assert speculator.counts.proposed[0] > 5


def test_tokens_drawn_with_a_fixed_number_are_the_same(folder: Path, tmp_path: Path):
    how = Sampling(do_sample=True, temperature=1.5, deterministic=True)
    write_eagle(tmp_path / "draft", **KINDS["EAGLE-3"])
    session, draft, _ = opened(folder, tmp_path / "draft")
    done, _ = speculated(session, draft, sampling=how)
    assert done == plain(session, sampling=how)


def test_drawn_proposals_have_the_drafts_distribution_over_the_targets_tokens(
    folder: Path, tmp_path: Path
):
    how = Sampling(do_sample=True, temperature=1.5, seed=4)
    write_eagle(tmp_path / "draft", **KINDS["EAGLE-3"])
    session, draft, eagle = opened(folder, tmp_path / "draft")
    first = session.prefill(PROMPTS).argmax(1)
    rows = [
        SpeculativeRow([*p, int(t)], how, n, 1, 3)
        for n, (p, t) in enumerate(zip(PROMPTS, first, strict=True))
    ]
    known = set(np.asarray(eagle.token_ids).tolist())
    for proposal in draft.propose(rows):
        assert len(proposal.tokens) == len(proposal.probabilities) == 3
        for token, drawn in zip(proposal.tokens, proposal.probabilities, strict=True):
            assert drawn.shape == (VOCABULARY,)
            assert drawn.sum() == pytest.approx(1)
            assert set(np.flatnonzero(drawn).tolist()) <= known
            assert drawn[token] > 0


def test_published_drafts_are_recognized(folder: Path, tmp_path: Path):
    for kind, third in (("EAGLE", False), ("input norm", False), ("EAGLE-3", True)):
        write_eagle(tmp_path / kind, **KINDS[kind])
        checkpoint = open_checkpoint(tmp_path / kind)
        assert (is_eagle(checkpoint), is_eagle3(checkpoint)) == (True, third)
    assert not is_eagle(open_checkpoint(folder))
    assert target_layers(1, 30) == (30,)
    assert target_layers(3, 32) == (2, 16, 29)


def test_drafts_of_other_models_are_refused(folder: Path, tmp_path: Path):
    write_eagle(tmp_path / "wide", hidden_size=64)
    target = open_checkpoint(folder)
    with pytest.raises(GraphgenError, match=r"takes 64 numbers .* this model has 32"):
        EagleCheckpoint(open_checkpoint(tmp_path / "wide"), target)
    write_eagle(tmp_path / "words", vocab_size=140, own=["embed_tokens", "lm_head"])
    with pytest.raises(GraphgenError, match="has 140 tokens, the model 131"):
        EagleCheckpoint(open_checkpoint(tmp_path / "words"), target)
    write_eagle(tmp_path / "third", **KINDS["EAGLE-3"])
    third = EagleCheckpoint(open_checkpoint(tmp_path / "third"), target)
    with pytest.raises(GraphgenError, match=r"takes features of 96 numbers .* return 0"):
        check_features(open_session(folder, PLAIN), third)


def test_a_row_whose_features_are_not_there_is_proposed_nothing(folder: Path, tmp_path: Path):
    write_eagle(tmp_path / "draft")
    session, draft, _ = opened(folder, tmp_path / "draft")
    session.feature_log = None
    done, speculator = speculated(session, draft)
    assert done == plain(session)
    assert speculator.counts.tokens_per_step == 1
