"""What an engine is to ``compare.py``. Only the standard library: every environment imports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

# A token and its logit.
Rival = tuple[int, float]


class UnsupportedError(Exception):
    """An engine cannot run a case; the message says why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One setting.

    Attributes:
        weights: ``f32``, ``bf16``, ``int8`` or ``int4``: how weights are held.
        batch: rows.
        prompt: tokens a row before the first new one.
    """

    weights: str
    batch: int
    prompt: int

    @property
    def name(self) -> str:
        """As printed, e.g. ``bf16.b1.p128``."""
        return f"{self.weights}.b{self.batch}.p{self.prompt}"

    @property
    def slots(self) -> int:
        """Tokens that a row of a cache holds."""
        return 2 * self.prompt


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The same weights in the forms that engines read.

    Attributes:
        checkpoint: the file as it was published.
        gguf: paths of GGUF files by ``Case.weights``.
        folder: a folder of Hugging Face's form, in float32.
        quantized: folders of quantized checkpoints by ``Case.weights``.
    """

    checkpoint: str
    gguf: dict[str, str]
    folder: str
    quantized: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn took and gave.

    Attributes:
        prefill_s: seconds until the first token of every row is known.
        steps_s: seconds of each step after it; a step is one token for each row.
        tokens: the greedy tokens of each row, one more than steps.
        rivals: the best tokens with their logits at each place of ``tokens``; empty where an engine
            does not tell.
    """

    prefill_s: float
    steps_s: list[float]
    tokens: list[list[int]]
    rivals: list[list[list[Rival]]] = field(default_factory=list[list[list[Rival]]])


class Engine(Protocol):
    """One engine, in a process of its own that has nothing else to do.

    Attributes:
        version: as printed, e.g. ``llama.cpp 0.3.36``.
    """

    @property
    def version(self) -> str:
        """The name and version, as printed."""
        ...

    def open(self, case: Case, files: ModelFiles, threads: int) -> None:
        """Get ready for turns of a case, and drop what the last one needed.

        Raises:
            UnsupportedError: where the engine has no such case.
        """
        ...

    def turn(self, prompts: Sequence[Sequence[int]], steps: int) -> Turn:
        """Process prompts of ``Case.prompt`` tokens with an empty cache, then decode greedily."""
        ...

    def nats(self, windows: Sequence[Sequence[int]]) -> float:
        """Sum of -log p(token | earlier tokens of its window), all but each first token.

        Raises:
            UnsupportedError: where the engine does not give logits of a whole text.
        """
        ...
