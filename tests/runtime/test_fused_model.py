"""Fused programs give the tokens of plain decoding, or draws of the model's own distribution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.fused_model import FusedDraft, JoinedCheckpoint, build_fused_model
from graphgen.runtime.weights.rank_weights import put_weights, weights_of
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

LENGTH = 4
CONFIG = CompileConfig(
    batch=(3,),
    rows=3,
    context=(8,),
    tokens=(12, 16, 32),
    speculation_length=LENGTH,
    sampling="on-device-sampling",
)
PROMPTS = [[5, 9, 3, 7, 2], [4], [6, 1, 8]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, a random draft of one layer, and a draft that is the model."""
    made = {name: tmp_path_factory.mktemp(name) for name in ("model", "other")}
    write_llama(made["model"])
    write_llama(made["other"], num_hidden_layers=1, initializer_range=0.3)
    return {**made, "same": made["model"]}


def fused(model: Path, draft: Path, config: CompileConfig) -> Session:
    target, other = open_checkpoint(model), open_checkpoint(draft)
    built = build_fused_model(target.config, config, other.config)
    both = JoinedCheckpoint(target, FusedDraft(other, other.config)).of(built.module)
    check_checkpoint(both, built.module)
    weights = put_weights(weights_of(both, built.module), Silent())
    return Session(ExecutableCache(built.module, Silent()), weights)


CASES = {
    "plain": CONFIG,
    "ranks": replace(CONFIG, tp=2),
    "one row": replace(CONFIG, batch=(1,), rows=1),
    "quantized": replace(CONFIG, quantization="quantize-weights", kv_cache_quant=True),
    "half": replace(
        CONFIG, sampling="on-device-sampling{do_sample=true,deterministic=true}", dtype="f32"
    ),
}


@pytest.mark.parametrize("draft", ["same", "other"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(11)
def test_fused_programs_give_the_targets_own_tokens(
    folders: dict[str, Path], case: str, draft: str
):
    config, prompts = CASES[case], PROMPTS[: CASES[case].rows]
    how = Sampling(do_sample=case == "half", deterministic=case == "half")
    plain = open_session(folders["model"], replace(config, speculation_length=0))
    session = fused(folders["model"], folders[draft], config)
    for count in (1, 2, 13, 40):
        request = GenerationRequest(count, sampling=how)
        wanted, _ = generate(plain, prompts, request)
        done, _ = generate(session, prompts, request)
        assert done == wanted
        assert session.lengths.tolist() == plain.lengths.tolist()
    # A row that ends inside a step.
    ends = [wanted[0].tokens[5]]
    request = GenerationRequest(30, eos_ids=ends, sampling=how)
    assert generate(session, prompts, request)[0] == generate(plain, prompts, request)[0]


def test_a_draft_of_another_vocabulary_proposes_what_both_have(
    folders: dict[str, Path], tmp_path: Path
):
    write_llama(tmp_path, vocab_size=200, num_hidden_layers=1)
    session = fused(folders["model"], tmp_path, CONFIG)
    plain = open_session(folders["model"], replace(CONFIG, speculation_length=0))
    request = GenerationRequest(20)
    assert generate(session, PROMPTS, request)[0] == generate(plain, PROMPTS, request)[0]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_drawn_tokens_have_the_models_distribution(tmp_path: Path):
    """Tokens and pairs of tokens of many rows, against the exact probabilities (chi-square)."""
    words, rows = 17, 100
    model, other = tmp_path / "model", tmp_path / "draft"
    for path, seed in ((model, 0), (other, 1)):
        path.mkdir()
        write_llama(path, vocab_size=words, num_hidden_layers=1, initializer_range=0.2 + seed * 0.1)
    config = replace(
        CONFIG,
        batch=(rows,),
        rows=rows,
        tokens=(12,),
        sampling="on-device-sampling{do_sample=true,global_topk=0}",
    )
    session = fused(model, other, config)
    plain = open_session(model, replace(config, speculation_length=0, sampling=""))
    pairs = np.zeros((2, words, words))
    how = Sampling(do_sample=True, temperature=1.5, top_k=9, top_p=0.95)
    for seed in range(500):
        request = GenerationRequest(4, sampling=[replace(how, seed=seed)] * rows)
        done, _ = generate(session, [[3, 1, 4]] * rows, request)
        tokens = np.array([answer.tokens for answer in done])
        for place in range(2):
            np.add.at(pairs[place], (tokens[:, place], tokens[:, place + 1]), 1)
    expected = _pairs(plain, words, how)
    for place in range(2):
        assert _chi_square(pairs[place].ravel(), expected[place].ravel()) < 4
        assert _chi_square(pairs[place].sum(1), expected[place].sum(1)) < 4


def _pairs(session: Session, words: int, how: Sampling) -> np.ndarray:
    """Probabilities [2,words,words] of two tokens that follow each other, at places 0 and 1."""
    from graphgen.runtime.sampling.processors import probabilities, process

    def after(tokens: list[list[int]]) -> np.ndarray:
        found: list[np.ndarray] = []
        for start in range(0, len(tokens), session.rows):
            part = tokens[start : start + session.rows]
            session.reset()
            given = [*part, *[[]] * (session.rows - len(part))]
            logits = session.prefill(given)[: len(part)]
            found += [probabilities(process(x, t, how)) for x, t in zip(logits, part, strict=True)]
        return np.array(found)

    prompt, each = [3, 1, 4], range(words)
    first = after([prompt])[0]
    second = after([[*prompt, a] for a in each])
    third = after([[*prompt, a, b] for a in each for b in each]).reshape(words, words, words)
    pair = first[:, None] * second
    return np.stack([pair, np.einsum("ab,abc->bc", pair, third)])


def _chi_square(counts: np.ndarray, shares: np.ndarray) -> float:
    """Distance of the statistic from its mean, in its standard deviations."""
    expected = shares / shares.sum() * counts.sum()
    assert counts[expected < 1e-9].sum() == 0
    often = expected > 5
    seen = np.append(counts[often], counts[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    kept = wanted > 1e-9
    found = ((seen[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()
    freedom = kept.sum() - 1
    return float((found - freedom) / np.sqrt(2 * freedom))
