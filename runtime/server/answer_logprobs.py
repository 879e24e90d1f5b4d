"""Log probabilities in OpenAI's two formats, for completions and for chats."""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.json_value import Json
from graphgen.runtime.serving.request_choice import TokenLogprobs
from graphgen.runtime.serving.serving_request import ServingRequest, TokenEvent
from graphgen.runtime.tokenizer.tokenizer import Tokenizer

# OpenAI's value for probabilities that are too small for a number.
_LEAST = -9999.0
# A token, the whole characters of the text before it, and its log probabilities.
_Row = tuple[int, int, TokenLogprobs | None]


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


@dataclass(slots=True)
class LogprobList:
    """The log probabilities of the tokens of one choice, or of one chunk of it.

    Attributes:
        tokenizer: gives the bytes of a token.
        offset: whole characters of the text before the next token.
        prompt: the tokens that the text begins with; their rows come with the first event.
    """

    tokenizer: Tokenizer
    offset: int
    prompt: tuple[int, ...] = ()
    _rows: list[_Row] = field(default_factory=list[_Row])
    _utf8: codecs.IncrementalDecoder = field(default_factory=_decoder)

    def take(self, event: TokenEvent) -> None:
        """Add the tokens of an event that have log probabilities."""
        if event.prompt_logprobs is not None:
            special = frozenset(self.tokenizer.special_ids.values())
            for token, found in zip(self.prompt, (None, *event.prompt_logprobs), strict=True):
                self._rows.append((token, self.offset, found))
                # A special token, such as BOS, is not in the text.
                data = b"" if token in special else self.tokenizer.token_bytes(token)
                self.offset += len(self._utf8.decode(data))
        if event.token is not None and event.logprobs is not None:
            self._rows.append((event.token, self.offset, event.logprobs))
            self.offset += len(self._utf8.decode(self.tokenizer.token_bytes(event.token)))

    def clear(self) -> None:
        """Begin the next chunk."""
        self._rows.clear()

    def of_completion(self) -> Json:
        """The form of ``/v1/completions``: four lists; ``None`` without a token."""
        if not self._rows:
            return None
        return {
            "tokens": [self.tokenizer.token_text(token) for token, _, _ in self._rows],
            "token_logprobs": [_number(row.chosen) if row else None for _, _, row in self._rows],
            "top_logprobs": [self._top(row) if row else None for _, _, row in self._rows],
            "text_offset": [offset for _, offset, _ in self._rows],
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
            for token, _, row in self._rows
            if row is not None
        ]
        return {"content": rows, "refusal": None}

    def _top(self, row: TokenLogprobs) -> Mapping[str, Json]:
        # Of tokens with the same text the most probable one counts.
        return {self.tokenizer.token_text(one): _number(p) for one, p in reversed(row.top)}

    def _entry(self, token: int, value: float) -> dict[str, Json]:
        data = list(self.tokenizer.token_bytes(token))
        return {
            "token": self.tokenizer.token_text(token),
            "logprob": _number(value),
            "bytes": data,
        }


def logprobs_after(tokenizer: Tokenizer, request: ServingRequest, echo: str) -> LogprobList:
    """An empty list for one choice, whose text begins with ``echo``."""
    if request.prompt_logprobs is None:
        return LogprobList(tokenizer, len(echo))
    return LogprobList(tokenizer, 0, request.prompt)


def _number(value: float) -> float:
    return max(value, _LEAST) if math.isfinite(value) else _LEAST
