"""Caches that hold no more than the window, in sessions: the logits and tokens of transformers.

What NxD Inference does by itself for such layers, and gets wrong, is tried here too: prompts of one
token, prompts padded beyond the window, positions that are not those of the padded row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.sessions import open_session

# Windows of 3 and 4 positions. A prompt of one token, one shorter than the window, one that goes
# around many times and crosses into the next bucket while it is answered.
LENGTHS = (1, 3, 126)
STEPS = 6
CASES = [
    ("mistral", "a window", 1, "right"),
    ("mistral", "its own head size", 2, "left"),
    ("mistral", "a window", 3, "right"),
    ("qwen2", "a window", 2, "left"),
    ("qwen3", "a window", 1, "right"),
    ("gemma3_text", "plain", 3, "right"),
    ("gemma3_text", "all slide", 1, "left"),
]


def all_logits(model: PreTrainedModel, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def rings(session: Session) -> set[int]:
    return {row.last for row in session.module.entries(Role.STATE)}


@pytest.mark.parametrize(("family", "variant", "tp", "padding"), CASES)
@pytest.mark.one_in(2)
def test_logits_are_those_of_transformers(
    family: str, variant: str, tp: int, padding: str, tmp_path: Path
):
    model = ORACLES[family].model(variant, initializer_range=0.1)
    save(model, tmp_path)
    settings = CompileConfig(dtype="f32", tp=tp, roll_window_cache=True).serving(
        batch=len(LENGTHS), max_len=256
    )
    session = open_session(tmp_path, settings)
    window = ORACLES[family].variants[variant].get("sliding_window", 4)
    assert window in rings(session)
    random = np.random.default_rng(3)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in LENGTHS]
    wanted = [all_logits(model, text) for text in texts]
    prompts = [text[:size] for text, size in zip(texts, LENGTHS, strict=True)]
    logits = [session.prefill(prompts, padding)]
    for step in range(STEPS):
        column = [text[size + step] for text, size in zip(texts, LENGTHS, strict=True)]
        logits.append(session.decode(column))
    for step, ours in enumerate(logits):
        theirs = np.stack([w[n - 1 + step] for w, n in zip(wanted, LENGTHS, strict=True)])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    # Idle rows keep what they have, and a row that is given a new prompt forgets the old one.
    session.prefill([[], prompts[2][:9], []])
    session.decode([5, texts[1][0], texts[2][0]], [False, True, False])
    ours = session.decode([texts[0][-1]] * 3, [True, False, False])[0]
    again = all_logits(model, [*texts[0], texts[0][-1]])[-1]
    np.testing.assert_allclose(ours, again, rtol=0, atol=1e-4)


def test_states_take_the_share_of_the_window(tmp_path: Path):
    save(ORACLES["gemma3_text"].model(), tmp_path)
    sizes: list[list[int]] = []
    for rolled in (False, True):
        session = open_session(
            tmp_path,
            CompileConfig(dtype="bf16", roll_window_cache=rolled).serving(batch=2, max_len=256),
        )
        names = [row.name for row in session.module.entries(Role.STATE)]
        sizes.append([np.asarray(session.state(name)).nbytes for name in names])
    # Keys and values of a layer with a window of 4, then of one that reads everything.
    assert sizes[1] == [size * 4 // 256 for size in sizes[0][:2]] + sizes[0][2:]


def test_the_engine_gives_the_tokens_of_transformers_from_an_artifact_too(tmp_path: Path):
    model = ORACLES["mistral"].model(
        "a window", vocab_size=301, initializer_range=0.2, eos_token_id=None
    )
    folder, kept = tmp_path / "model", tmp_path / "artifact"
    save(model, folder)
    save_tokenizer(folder)
    first = EngineOptions(CompileConfig.of(roll_window_cache=True), artifact=kept)
    for path, options in ((folder, first), (kept, EngineOptions())):
        engine, prompts = open_engine(
            str(path), options, lambda t: [t.encode("the cat"), t.encode("a mat")], 12, Silent()
        )
        assert rings(engine.session) == {4}
        done = engine.generate(prompts, GenerationRequest(12)).completions
        for prompt, completion in zip(prompts, done, strict=True):
            text = torch.tensor([prompt])
            theirs = model.generate(  # pyright: ignore[reportCallIssue]
                text,
                attention_mask=torch.ones_like(text),
                max_new_tokens=12,
                do_sample=False,
                pad_token_id=0,
            )
            assert completion.tokens == theirs[0, len(prompt) :].tolist()
    reports = [report for report in engine.model.reports if report.name == "roll-window-cache"]
    said = [remark for report in reports for remark in report.remarks]
    assert said == ["the caches of 2 layers hold 4 positions instead of 128"]
    other = tmp_path / "plain"
    open_engine(str(folder), EngineOptions(artifact=other), lambda t: [[1]], 12, Silent())
    with pytest.raises(GraphgenError, match="roll_window_cache False, requested True"):
        open_engine(
            str(other),
            EngineOptions(CompileConfig.of(roll_window_cache=True)),
            lambda t: [[1]],
            12,
            Silent(),
        )
