"""Text that the target wrote itself, and the features of its tokens, by its own programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.tokenizer.tokenizer import Tokenizer

ROWS = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt and its answer.

    Attributes:
        tokens: n + 1 token ids, prompt first.
        prompt: number of those that are the prompt's.
        features: f32 [n,E], of all tokens but the last.
    """

    tokens: list[int]
    prompt: int
    features: npt.NDArray[np.float32]


def encoded(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """The tokens of prompts as messages of a user."""
    return [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in prompts]


def open_target(
    model: str, length: int, layers: Sequence[int], new_tokens: int, rows: int = ROWS
) -> Engine:
    """The engine of a target that returns features, for so many rows at once."""
    # Products of so many rows are faster by XLA than by the kernels.
    compiled = CompileConfig.of(
        speculation_length=length, feature_layers=tuple(layers), kernels="off"
    )
    most = 64 + new_tokens
    options = EngineOptions(compiled, batch=rows, max_len=most, context=(64,), tokens=(most,))
    engine, _ = open_engine(model, options, lambda _: [[0]], new_tokens, Silent())
    return engine


def collect(engine: Engine, prompts: Sequence[str], new_tokens: int) -> list[Answer]:
    """Answers to all prompts: every second one drawn at a temperature, the others greedy."""
    log = engine.session.feature_log = FeatureLog()
    given = encoded(engine.tokenizer, prompts)
    found: list[Answer] = []
    for start in range(0, len(given), ROWS):
        part = given[start : start + ROWS]
        how = [
            Sampling(do_sample=n % 2 == 1, temperature=0.7, seed=start + n)
            for n in range(len(part))
        ]
        request = GenerationRequest(new_tokens, engine.tokenizer.eos_ids, sampling=how)
        done = engine.generate(part, request).completions
        for row, (prompt, answer) in enumerate(zip(part, done, strict=True)):
            tokens = [*prompt, *answer.tokens]
            features = log.between(row, 0, len(tokens) - 1)
            assert features is not None
            found.append(Answer(tokens, len(prompt), features.copy()))
    engine.session.feature_log = None
    return found


def save(path: Path, answers: Sequence[Answer]) -> None:
    """Write answers to one ``.npz`` file."""
    np.savez(
        path,
        tokens=np.concatenate([np.asarray(a.tokens, np.int32) for a in answers]),
        sizes=np.array([len(a.tokens) for a in answers]),
        prompts=np.array([a.prompt for a in answers]),
        features=np.concatenate([a.features for a in answers]),
    )


def load(path: Path) -> list[Answer]:
    """The answers of :func:`save`."""
    with np.load(path) as held:
        tokens, sizes, prompts = held["tokens"], held["sizes"], held["prompts"]
        features = held["features"]
    ends = np.cumsum(sizes)
    return [
        Answer(
            tokens[end - size : end].tolist(),
            int(prompt),
            features[end - size - n : end - n - 1],
        )
        for n, (size, end, prompt) in enumerate(zip(sizes, ends, prompts, strict=True))
    ]
