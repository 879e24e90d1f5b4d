"""The JSON of ``/v1/responses``: an object with items, and the events of its stream."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.json_value import Json
from graphgen.runtime.server.answer_json import AnswerProgress
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.serving.serving_request import TokenEvent
from graphgen.runtime.tool_calls.answer_reader import AnswerPiece, CallPiece, ContentPiece


@dataclass(slots=True)
class _Item:
    """An item of the output: a message, reasoning, or a call."""

    kind: str
    text: str = ""
    call: CallPiece | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    def part(self, text: str) -> dict[str, Json]:
        """The content of a message or of reasoning."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def json(self, status: str, *, empty: bool = False) -> dict[str, Json]:
        """The item; ``empty`` before any text of it."""
        head: dict[str, Json] = {"type": self.kind, "status": status}
        if self.call is not None:
            return {
                **head,
                "id": f"fc_{self.id}",
                "call_id": self.call.id,
                "name": self.call.name,
                "arguments": "" if empty else self.text,
            }
        content: list[Json] = [] if empty else [self.part(self.text)]
        if self.kind == "reasoning":
            return {**head, "id": f"rs_{self.id}", "summary": [], "content": content}
        return {**head, "id": f"msg_{self.id}", "role": "assistant", "content": content}

    @property
    def of_kind(self) -> str:
        """The name of the item's events."""
        names = {"reasoning": "reasoning_text", "message": "output_text"}
        return f"response.{names.get(self.kind, 'function_call_arguments')}"


@dataclass(slots=True)
class ResponseProgress(AnswerProgress):
    """An answer of ``/v1/responses`` while it is made."""

    _items: list[_Item] = field(default_factory=list[_Item])
    _number: int = 0

    def __post_init__(self) -> None:
        """Begin it."""
        AnswerProgress.__post_init__(self)
        self.id = f"resp_{secrets.token_hex(12)}"

    def take(self, place: int, event: TokenEvent) -> TokenEvent:
        """Add an event; its pieces become parts of items."""
        made = AnswerProgress.take(self, place, event)
        for piece in self.choices[place].pieces:
            self._item_of(piece).text += _text_of(piece)
        return made

    def _item_of(self, piece: AnswerPiece) -> _Item:
        """The item of a piece: the last one, or a new one."""
        last = self._items[-1] if self._items else None
        if isinstance(piece, CallPiece):
            if piece.name:
                self._items.append(_Item("function_call", call=piece))
            return self._items[-1]
        kind = "message" if isinstance(piece, ContentPiece) else "reasoning"
        if last is None or last.kind != kind:
            self._items.append(_Item(kind))
        return self._items[-1]

    def whole(self) -> Json:
        """The answer as one object."""
        return self._response(self._status)

    @property
    def _status(self) -> str:
        reason = self.choices[0].reason
        return "incomplete" if reason == "length" else "completed" if reason else "in_progress"

    def _response(self, status: str) -> dict[str, Json]:
        done = status != "in_progress"
        last = len(self._items) - 1
        # The item that is cut is not complete.
        states = [status if place == last else "completed" for place in range(len(self._items))]
        items: Sequence[Json] = [
            item.json(state) for item, state in zip(self._items, states, strict=True)
        ]
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self.request.requests[0].adapter or self.model.name,
            "output": items if done else [],
            "usage": self._usage() if done else None,
            "metadata": {},
            **(self.request.response or {}),
        }

    def _usage(self) -> Json:
        new, prompt = self.choices[0].tokens, self.request.prompt_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": new,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + new,
        }

    def opening(self) -> Iterator[Json]:
        """The events before any token."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, {"response": self._response("in_progress")})

    def chunks(self, place: int, event: TokenEvent) -> Iterator[Json]:
        """Add an event; those of its items."""
        AnswerProgress.take(self, place, event)
        for piece in self.choices[place].pieces:
            before = len(self._items)
            item = self._item_of(piece)
            if len(self._items) > before:
                if before:
                    yield from self._ends(before - 1)
                yield from self._begins(before)
            text = _text_of(piece)
            item.text += text
            if text:
                yield self._event(f"{item.of_kind}.delta", {**self._at(-1), **_delta(item, text)})

    def closing(self) -> Iterator[Json]:
        """The events after the last token."""
        if self._items:
            yield from self._ends(len(self._items) - 1)
        status = self._status
        yield self._event(f"response.{status}", {"response": self._response(status)})

    def _begins(self, place: int) -> Iterator[Json]:
        item = self._items[place]
        shown: Json = item.json("in_progress", empty=True)
        yield self._event("response.output_item.added", {"output_index": place, "item": shown})
        if item.call is None:
            part = {**self._at(place), "content_index": 0, "part": item.part("")}
            yield self._event("response.content_part.added", part)

    def _ends(self, place: int) -> Iterator[Json]:
        item, last = self._items[place], place == len(self._items) - 1
        if item.call is not None:
            facts: dict[str, Json] = {"name": item.call.name, "arguments": item.text}
            yield self._event(f"{item.of_kind}.done", {**self._at(place), **facts})
        else:
            logs: dict[str, Json] = {"logprobs": []} if item.kind == "message" else {}
            text = {**self._at(place), "content_index": 0, "text": item.text, **logs}
            yield self._event(f"{item.of_kind}.done", text)
            part = {**self._at(place), "content_index": 0, "part": item.part(item.text)}
            yield self._event("response.content_part.done", part)
        state = self._status if last and self.choices[0].reason else "completed"
        done: Json = item.json(state)
        yield self._event("response.output_item.done", {"output_index": place, "item": done})

    def _at(self, place: int) -> dict[str, Json]:
        """The names of an item in events."""
        place %= len(self._items)
        shown = self._items[place].json("in_progress", empty=True)
        return {"item_id": shown["id"], "output_index": place}

    def _event(self, kind: str, facts: Mapping[str, Json]) -> dict[str, Json]:
        number, self._number = self._number, self._number + 1
        return {"type": kind, "sequence_number": number, **facts}

    def failed(self, error: ApiError) -> Json:
        """The event of an error in the middle of a stream."""
        facts = {"code": error.code, "message": error.message, "param": error.param}
        return self._event("error", facts)


def _delta(item: _Item, text: str) -> dict[str, Json]:
    if item.call is not None:
        return {"delta": text}
    logs: dict[str, Json] = {"logprobs": []} if item.kind == "message" else {}
    return {"content_index": 0, "delta": text, **logs}


def _text_of(piece: AnswerPiece) -> str:
    return piece.arguments if isinstance(piece, CallPiece) else piece.text
