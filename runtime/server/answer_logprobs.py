"""Log probabilities in OpenAI's two formats, for completions and for chats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.json_value import Json
from graphgen.runtime.serving.request_choice import TokenLogprobs
from graphgen.runtime.serving.serving_request import TokenEvent
from graphgen.runtime.tokenizer.tokenizer import Tokenizer

# OpenAI's value for probabilities that are too small for a number.
_LEAST = -9999.0


@dataclass(slots=True)
class LogprobList:
    """The log probabilities of the tokens of one choice, or of one chunk of it.

    Attributes:
        tokenizer: gives the text of a token.
        offset: characters of the texts of earlier tokens.
    """

    tokenizer: Tokenizer
    offset: int
    _rows: list[tuple[int, TokenLogprobs]] = field(default_factory=list[tuple[int, TokenLogprobs]])

    def take(self, event: TokenEvent) -> None:
        """Add the token of an event, if it has log probabilities."""
        if event.token is not None and event.logprobs is not None:
            self._rows.append((event.token, event.logprobs))

    def clear(self) -> None:
        """Begin the next chunk."""
        self.offset += sum(len(self._text(token)) for token, _ in self._rows)
        self._rows.clear()

    def of_completion(self) -> Json:
        """The form of ``/v1/completions``: four lists; ``None`` without a token."""
        if not self._rows:
            return None
        texts = [self._text(token) for token, _ in self._rows]
        offsets = [self.offset + sum(map(len, texts[:n])) for n in range(len(texts))]
        return {
            "tokens": texts,
            "token_logprobs": [_number(row.chosen) for _, row in self._rows],
            "top_logprobs": [self._top(row) for _, row in self._rows],
            "text_offset": offsets,
        }

    def of_chat(self) -> Json:
        """The form of ``/v1/chat/completions``: an object a token; ``None`` without one."""
        if not self._rows:
            return None
        rows: Sequence[Json] = [
            {
                **self._entry(token, row.chosen),
                "top_logprobs": [self._entry(one, value) for one, value in row.top],
            }
            for token, row in self._rows
        ]
        return {"content": rows, "refusal": None}

    def _top(self, row: TokenLogprobs) -> Mapping[str, Json]:
        # Tokens with the same text, such as parts of a character: the most probable one counts.
        return {self._text(one): _number(value) for one, value in reversed(row.top)}

    def _entry(self, token: int, value: float) -> dict[str, Json]:
        text = self._text(token)
        # A part of a character has no text of its own.
        known = "\ufffd" not in text
        data = list(text.encode()) if known else None
        return {"token": text, "logprob": _number(value), "bytes": data}

    def _text(self, token: int) -> str:
        return self.tokenizer.decode([token], skip_special=False)


def _number(value: float) -> float:
    return max(value, _LEAST) if math.isfinite(value) else _LEAST
