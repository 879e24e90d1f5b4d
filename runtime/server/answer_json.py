"""The JSON of answers: whole ones, and the chunks of streams."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphgen.json_value import Json
from graphgen.runtime.server.answer_logprobs import LogprobList, logprobs_after
from graphgen.runtime.server.answer_request import AnswerRequest, ServedModel
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.serving.serving_request import Finish, TokenEvent
from graphgen.runtime.tool_calls.answer_reader import (
    AnswerParts,
    AnswerPiece,
    AnswerReader,
    CallPiece,
    ContentPiece,
    ReasoningPiece,
)

# OpenAI's reasons by those of the engine; the others are errors.
REASONS: Mapping[Finish, str] = {
    Finish.EOS: "stop",
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
}


@dataclass(slots=True)
class ChoiceProgress:
    """One choice of an answer.

    Attributes:
        whole: log probabilities of all tokens.
        new: those of the tokens since the last chunk.
        parts: of the text so far.
        tokens: number of new tokens.
        proposed: number of tokens that speculation proposed.
        accepted: those of them that are in the answer.
        reason: OpenAI's reason for the end; ``None`` before it.
        prompt_only: the answer is its echo alone, whose logits came with one token.
        reader: divides the text; ``None`` for content alone.
        named: the answer is the call of a function that the request names.
        pieces: of the last event.
    """

    whole: LogprobList
    new: LogprobList
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    reason: str | None = None
    prompt_only: bool = False
    reader: AnswerReader | None = None
    named: bool = False
    pieces: Sequence[AnswerPiece] = ()
    parts: AnswerParts = field(default_factory=AnswerParts)

    def take(self, event: TokenEvent) -> TokenEvent:
        """Add an event; what an answer has of it."""
        if self.prompt_only:
            ended = Finish.LENGTH if event.finish in REASONS else event.finish
            event = replace(event, token=None, text="", logprobs=None, finish=ended)
        self.tokens += event.token is not None
        self.proposed += event.proposed
        self.accepted += event.accepted
        self._read(event)
        self.whole.take(event)
        self.new.take(event)
        if event.finish is not None:
            self.reason = REASONS.get(event.finish, "error")
            # As at OpenAI, whose answers to a named function end with stop.
            if self.parts.calls and self.reason == "stop" and not self.named:
                self.reason = "tool_calls"
        return event

    def _read(self, event: TokenEvent) -> None:
        """Divide the text of an event."""
        if self.reader is None:
            self.pieces = [ContentPiece(event.text)] if event.text else []
        else:
            self.pieces = self.reader.push(event.text)
            if event.finish in REASONS:
                self.pieces += self.reader.end()
        self.parts.take(self.pieces)

    @property
    def message(self) -> dict[str, Json]:
        """OpenAI's object of a message."""
        parts = self.parts
        made: dict[str, Json] = {
            "role": "assistant",
            "content": parts.content or (None if parts.calls else ""),
            "refusal": None,
        }
        if parts.reasoning:
            made["reasoning_content"] = parts.reasoning
        if parts.calls:
            made["tool_calls"] = [call_json(call) for call in parts.calls]
        return made

    @property
    def text(self) -> str:
        """The text of the answer itself, so far."""
        return self.parts.content


def call_json(call: CallPiece) -> dict[str, Json]:
    """OpenAI's object of a call."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _delta_of(piece: AnswerPiece) -> Json:
    """OpenAI's delta of a piece."""
    if isinstance(piece, ContentPiece):
        return {"content": piece.text}
    if isinstance(piece, ReasoningPiece):
        return {"reasoning_content": piece.text}
    if piece.name:
        return {"tool_calls": [{"index": piece.index, **call_json(piece)}]}
    return {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.arguments}}]}


@dataclass(slots=True)
class AnswerProgress:
    """An answer while it is made.

    Attributes:
        request: the request.
        model: the model.
        choices: by index.
        id: of the answer.
    """

    request: AnswerRequest
    model: ServedModel
    created: int
    choices: list[ChoiceProgress] = field(init=False)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        """Begin the choices."""
        tokenizer = self.model.tokenizer
        rows = zip(self.request.requests, self.request.echoes, strict=True)
        lists = [[logprobs_after(tokenizer, one, echo) for _ in range(2)] for one, echo in rows]
        only, named, make = self.request.prompt_only, self.request.named, self.request.reader
        self.choices = [
            ChoiceProgress(whole, new, prompt_only=only, named=named, reader=make and make())
            for whole, new in lists
        ]
        self.id = f"{'chatcmpl' if self.request.chat else 'cmpl'}-{secrets.token_hex(12)}"

    @property
    def usage(self) -> Json:
        """OpenAI's object of token counts.

        ``completion_tokens_details`` has the proposed tokens of speculation, where there are any.
        """
        new = sum(choice.tokens for choice in self.choices)
        prompts = self.request.prompt_tokens
        return {
            "prompt_tokens": prompts,
            "completion_tokens": new,
            "total_tokens": prompts + new,
            **self._predicted(),
        }

    def _predicted(self) -> dict[str, Json]:
        """OpenAI's counts of predicted tokens, empty without any."""
        proposed = sum(choice.proposed for choice in self.choices)
        accepted = sum(choice.accepted for choice in self.choices)
        counts = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": proposed - accepted,
        }
        return {"completion_tokens_details": counts} if proposed else {}

    def take(self, place: int, event: TokenEvent) -> TokenEvent:
        """Add an event of a choice; what the answer has of it."""
        return self.choices[place].take(event)

    def whole(self) -> Json:
        """The answer as one object."""
        choices = [self._whole(place) for place in range(len(self.choices))]
        kind = "chat.completion" if self.request.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self.usage}

    def opening(self) -> Iterator[Json]:
        """The chunks before any token: the role of each choice, or its echo."""
        for place in range(len(self.choices)):
            if self.request.chat:
                yield self._chunk([self._delta(place, {"role": "assistant", "content": ""}, None)])
            elif self.request.echoes[place]:
                yield self._chunk([self._piece(place, self.request.echoes[place], None)])

    def chunks(self, place: int, event: TokenEvent) -> Iterator[Json]:
        """Add an event; its chunks: new text with its log probabilities, and the end."""
        event, choice = self.take(place, event), self.choices[place]
        new, reason, logprobs = event.text, choice.reason, self._new_logprobs(choice, event)
        if not self.request.chat:
            if new or reason or logprobs:
                yield self._chunk([self._piece(place, new, reason, logprobs)])
            return
        deltas = [_delta_of(piece) for piece in choice.pieces]
        if logprobs and not deltas:
            deltas = [{"content": ""}]
        for delta in deltas:
            yield self._chunk([self._delta(place, delta, None, logprobs)])
            logprobs = None
        if reason:
            yield self._chunk([self._delta(place, {}, reason)])

    def _new_logprobs(self, choice: ChoiceProgress, event: TokenEvent) -> Json:
        """Log probabilities since the last chunk; they wait for the text of their tokens."""
        if not event.text and event.finish is None:
            return None
        made = choice.new.of_chat() if self.request.chat else choice.new.of_completion()
        choice.new.clear()
        return made

    def closing(self) -> Iterator[Json]:
        """The chunk after the last choice has ended: the usage, if it is requested."""
        if self.request.include_usage:
            yield {**self._chunk([]), "usage": self.usage}

    def failed(self, error: ApiError) -> Json:
        """The event of an error in the middle of a stream."""
        return error.to_json()

    def _head(self, kind: str) -> dict[str, Json]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.request.requests[0].adapter or self.model.name,
        }

    def _chunk(self, choices: Sequence[Json]) -> dict[str, Json]:
        kind = "chat.completion.chunk" if self.request.chat else "text_completion"
        usage: dict[str, Json] = {"usage": None} if self.request.include_usage else {}
        return {**self._head(kind), "choices": choices, **usage}

    def _whole(self, place: int) -> Json:
        choice = self.choices[place]
        if not self.request.chat:
            text, logprobs = self.request.echoes[place] + choice.text, choice.whole.of_completion()
            return self._piece(place, text, choice.reason, logprobs)
        return {
            "index": place,
            "message": choice.message,
            "logprobs": choice.whole.of_chat(),
            "finish_reason": choice.reason,
        }

    def _piece(self, place: int, text: str, reason: str | None, logprobs: Json = None) -> Json:
        return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _delta(self, place: int, delta: Json, reason: str | None, logprobs: Json = None) -> Json:
        return {"index": place, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
