"""SmolLM2 in f32 and bf16: the tokens and logits of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.ir import Entry
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.session.session import Session
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
from graphgen.runtime.weights.rank_weights import read_weight
from tests.oracles.llama import all_logits
from tests.oracles.sessions import open_session
from tests.oracles.smollm2 import arrays_model, reference_model, smollm2_path, smollm2_session

pytestmark = pytest.mark.usefixtures("optimized_code")

NEW = 32
TEXT = (Path(__file__).parents[1] / "data" / "lighthouse.txt").read_text(encoding="utf-8")
PROMPTS = {
    "plain": "The capital of France is",
    "code": "def fibonacci(n: int) -> int:\n    ",
    "list": "Shopping list:\n1. Apples\n2. Bread\n3.",
    "multi-byte": "日本語の文章です。Größe, naïve café — 🦙 and 한국어:",
    "long": TEXT[:1500],
}


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(smollm2_path())


def prompt(name: str) -> list[int]:
    if name == "chat":
        question = "Explain in two sentences what a compiler does."
        return tokenizer().encode_chat([{"role": "user", "content": question}])
    return tokenizer().encode(PROMPTS[name])


NAMES = [*PROMPTS, "chat"]
QUICK = ("chat",)


@cache
def answer(name: str) -> list[int]:
    """Greedy tokens of ours, alone in a batch of 1."""
    (done,), _ = generate(smollm2_session("f32", 1, 512), [prompt(name)], GenerationRequest(NEW))
    return done.tokens


def test_the_long_prompt_is_long():
    assert 300 < len(prompt("long")) < 512 - NEW


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES]
)
def test_f32_greedy_tokens_and_logits_are_those_of_transformers(name: str):
    # One pass of the oracle over prompt and answer: where each token is the oracle's choice after
    # all before it, the answer is the oracle's greedy answer.
    start = prompt(name)
    wanted = all_logits(arrays_model(), [*start, *answer(name)])[len(start) - 1 :]
    assert len(answer(name)) == NEW
    assert answer(name) == wanted[:NEW].argmax(-1).tolist()
    session = smollm2_session("f32", 1, 512)
    session.reset()
    np.testing.assert_allclose(session.prefill([start])[0], wanted[0], atol=1e-3, rtol=0)
    for step, token in enumerate(answer(name)[:16], 1):
        np.testing.assert_allclose(session.decode([token])[0], wanted[step], atol=1e-3, rtol=0)


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_f32_greedy_tokens_are_those_of_transformers_own_gguf_loading(name: str):
    import torch

    given = torch.tensor([prompt(name)])
    out = reference_model().generate(  # pyright: ignore[reportCallIssue]
        given,
        attention_mask=torch.ones_like(given),
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert out[0, given.shape[1] :].tolist() == answer(name)


def rounded(checkpoint: Checkpoint, row: Entry) -> Array:
    return read_weight(checkpoint, row).astype(ml_dtypes.bfloat16).astype(np.float32)


def forced(session: Session, rows: Sequence[Sequence[int]], start: int) -> Array:
    """f32 [steps, rows, V]: the logits after each token of the rows from ``start`` on."""
    logits = [session.prefill([row[:start] for row in rows])]
    columns = list(zip(*rows, strict=True))[start:]
    return np.stack([*logits, *(session.decode(column) for column in columns)])


@cache
def rounded_session() -> Session:
    """f32 arithmetic on weights that bf16 can hold."""
    return open_session(
        smollm2_path(), CompileConfig(dtype="f32").serving(batch=8, max_len=256), rounded
    )


def gaps(logits: Array) -> Array:
    """How far the best logit is above the second."""
    best = np.partition(logits, -2, axis=-1)
    return best[..., -1] - best[..., -2]


@pytest.mark.slow
def test_bf16_chooses_the_tokens_of_f32_with_the_same_weights():
    # Teacher-forced on a text the model did not write, so that both see the same past.
    ids = tokenizer().encode(TEXT)
    size = len(ids) // 8
    rows = [ids[start:end] for start, end in pairwise(range(0, 8 * size + 1, size))]
    exact = forced(rounded_session(), rows, 8)
    differs = forced(smollm2_session("bf16", 8, 256), rows, 8).argmax(-1) != exact.argmax(-1)
    forks = np.sort(gaps(exact)[differs])
    assert differs.size >= 1000
    # Which near-ties turn depends on how the processor sums products of bf16.
    assert differs.mean() <= 0.02, f"{differs.sum()} of {differs.size}: gaps {forks}"
    # What rounding turns are near-ties; a clear choice is never lost.
    assert (forks < 0.25).all(), f"gaps {forks}"
