"""A session without a model: the next token is a hash of the tokens that a row holds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.block_table import BlockTable
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
from graphgen.runtime.session.session import RowResults, Session
from graphgen.runtime.session.step_call import Draw
from graphgen.runtime.tokenizer.text_stream import TextStream

VOCABULARY = 11
EOS = 0


def next_token(tokens: Sequence[int]) -> int:
    """The token after a text."""
    digest = hashlib.sha256(bytes(tokens)).digest()
    return digest[0] % VOCABULARY


def answer(
    prompt: Sequence[int],
    new_tokens: int,
    limit: int,
    stop: Sequence[str] = (),
    follows: Callable[[Sequence[int]], int] = next_token,
) -> list[int]:
    """The tokens of a request that is alone."""
    text = list(prompt)
    while True:
        text.append(follows(text))
        made = text[len(prompt) :]
        if made[-1] == EOS or len(made) == new_tokens or len(text) > limit:
            return made
        if cut(text_of(made), stop)[1]:
            return made


def text_of(tokens: Sequence[int]) -> str:
    """The text of tokens: a letter each, but none of the token that ends an answer."""
    return "".join(chr(ord("a") + token) for token in tokens if token != EOS)


def cut(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """A text up to its first stop string, and whether it has one."""
    for end in range(len(text) + 1):
        found = [len(one) for one in stop if text[:end].endswith(one)]
        if found:
            return text[: end - max(found)], True
    return text, False


class Letters:
    """A tokenizer with a letter a token."""

    def stream(
        self,
        after: Sequence[int] = (),
        *,
        skip_special: bool = True,
        kept: Collection[str] = (),
    ) -> TextStream:
        return cast("TextStream", LetterStream())


class LetterStream:
    def push(self, token_id: int) -> str:
        return text_of([token_id])

    def flush(self) -> str:
        return ""


class FakeTable:
    """Programs that take chunks of prompts, ``prompts`` rows each."""

    def __init__(self, chunk: int, prompts: int, limit: int) -> None:
        self._chunk, self._prompts, self._limit = chunk, prompts, limit

    def prompt_programs(self, rows: int, longest: int) -> list[None]:
        if longest > self._limit:
            raise GraphgenError("GG0701", f"a prompt of {longest} tokens is too long")
        return [None]

    def chunk_sizes(self) -> list[int]:
        return [self._chunk] if self._chunk else []

    def batches(self, phase: str) -> list[int]:
        return [1, self._prompts]


class FakeSession:
    """Rows of tokens with the interface that the serving engine uses of a session."""

    draws = False
    input_name = "tokens"
    copies_rows = True
    blocks: BlockTable | None = None
    vocabulary = VOCABULARY
    token_ids = VOCABULARY
    adapters = None
    module = Module("fake", "target")
    programs = ExecutableCache(module, Silent())

    def __init__(
        self,
        rows: int,
        limit: int,
        chunk: int,
        prompts: int,
        *,
        rings: bool = False,
        chooses: bool = False,
    ) -> None:
        self.chooses = chooses
        self.rows, self.limit, self.rings = rows, limit, rings
        self.table = FakeTable(chunk, prompts, limit)
        self.held: list[list[int]] = [[] for _ in range(rows)]
        self.launched: list[list[int]] = []
        self.fails = False
        self.processed = 0
        self.unread: set[int] = set()
        # Tokens by step, for those that are fed before the engine reads them.
        self.chosen: dict[int, list[int]] = {}
        self.steps: list[PendingStep] = []
        self.most_unread = 0
        self.copied: list[tuple[int, int]] = []

    def reset(self) -> None:
        self.held = [[] for _ in range(self.rows)]

    def may_start(self, row: int, position: int) -> bool:
        held = len(self.held[row])
        return position in (0, held) or (position < held and not self.rings)

    def copy_row(self, source: int, target: int) -> None:
        self.copied.append((source, target))
        self.held[target] = list(self.held[source])

    def start(
        self,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        rows: Sequence[int],
        draw: Draw | None = None,
        fed: Mapping[int, DeviceToken] | None = None,
    ) -> PendingStep:
        assert len(set(rows)) == len(rows)
        for place, token in (fed or {}).items():
            assert tokens[place, 0] == 0
            tokens[place, 0] = self.chosen[id(token.step)][token.place]
        logits = np.zeros((len(rows), VOCABULARY), np.float32)
        self.launched.append(list(rows))
        for place, row in enumerate(rows):
            real = positions[place] >= 0
            self.processed += int(real.sum())
            start = int(positions[place][real][0])
            assert self.may_start(row, start)
            self.held[row][start:] = tokens[place][real].tolist()
            assert len(self.held[row]) <= self.limit
            logits[place, self.next_of(row)] = 1
        fails, self.fails = self.fails, False
        results = RowResults(
            {"next_tokens": logits.argmax(1)} if self.chooses else {"logits": logits}
        )

        number = len(self.launched)
        self.unread.add(number)
        self.most_unread = max(self.most_unread, len(self.unread))

        def read() -> RowResults:
            self.unread.discard(number)
            if fails:
                raise RuntimeError("the device is gone")
            return results

        step = PendingStep((), np.asarray(rows, np.int32), read)
        self.chosen[id(step)] = logits.argmax(1).tolist()
        self.steps.append(step)
        return step

    def next_of(self, row: int) -> int:
        """The token after what a row holds."""
        return next_token(self.held[row])

    def answer(self, result: RowResults) -> npt.NDArray[np.float32]:
        made = result.tokens if self.chooses else result.logits
        assert made is not None
        return made.astype(np.float32)


def as_session(fake: FakeSession) -> Session:
    return cast("Session", fake)
