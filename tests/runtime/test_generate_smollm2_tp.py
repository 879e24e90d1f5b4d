"""SmolLM2 over 1 to 8 ranks, on which its 9 query and 3 key-value heads mostly do not divide."""

from __future__ import annotations

from functools import cache

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Role
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from tests.oracles.sessions import open_session
from tests.oracles.smollm2 import smollm2_path

pytestmark = pytest.mark.usefixtures("optimized_code")

NEW = 64
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n: int) -> int:\n    ",
    "Shopping list:\n1. Apples\n2. Bread\n3.",
    "Once upon a time there was a lighthouse",
]
# Key-value heads a rank keeps.
KEPT = {1: 3, 2: 2, 3: 1, 4: 1, 8: 1}


@cache
def answers(tp: int, batch: int) -> list[list[int]]:
    """64 greedy tokens of each prompt."""
    tokenizer = load_tokenizer(smollm2_path())
    # Ranks choose from their parts of the vocabulary.
    chosen = "on-device-sampling" if tp > 1 else ""
    settings = CompileConfig(dtype="f32", tp=tp, sampling=chosen).serving(batch=batch, max_len=128)
    session = open_session(smollm2_path(), settings)
    shapes = {row.physical.shape for row in session.module.entries(Role.STATE)}
    assert shapes == {(batch, 128, KEPT[tp], 64)}
    prompts = [tokenizer.encode(text) for text in PROMPTS[:batch]]
    done, _ = generate(session, prompts, GenerationRequest(NEW))
    return [completion.tokens for completion in done]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("tp", [2, 3, 4, 8])
def test_any_number_of_ranks_gives_the_tokens_of_one(tp: int, batch: int):
    wanted = answers(1, batch)
    assert [len(tokens) for tokens in wanted] == [NEW] * batch
    assert answers(tp, batch) == wanted
