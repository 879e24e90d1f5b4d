"""The endpoints that answer prompts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.runtime.lora.loaded_adapters import LoadedAdapters
from graphgen.runtime.server.answer_json import REASONS, AnswerProgress
from graphgen.runtime.server.answer_request import AnswerRequest, ServedModel
from graphgen.runtime.server.api_error import ApiError, refusal
from graphgen.runtime.server.engine_thread import EngineEndedError, EngineThread, RequestGroup
from graphgen.runtime.server.event_stream import (
    DONE,
    ClientGoneError,
    EventStream,
    event_bytes,
    unless_gone,
)
from graphgen.runtime.server.request_guard import error_response, release_body
from graphgen.runtime.server.request_log import FACTS, LOG
from graphgen.runtime.server.response_json import ResponseProgress
from graphgen.runtime.server.server_metrics import ServerMetrics
from graphgen.runtime.server.server_options import ServerOptions
from graphgen.runtime.serving.serving_request import Finish, ServingRequest, TokenEvent

# Bodies above this, and grammars, are read by as many threads of their own: smaller requests
# do not wait for them.
_LARGE_BODY = 16 << 10
_READERS = 2
_LONGEST_WAIT = 60


@dataclass(slots=True)
class Service:
    """All that endpoints share.

    Attributes:
        thread: of the engine.
        model: that is served.
        options: of the server.
        metrics: of the server.
        open_choices: choices of requests that are not answered yet.
        adapters: that requests may name as their model; ``None`` for none.
        readers: threads that read large bodies and grammars.
    """

    thread: EngineThread
    model: ServedModel
    options: ServerOptions
    metrics: ServerMetrics
    open_choices: int = 0
    adapters: LoadedAdapters | None = None
    readers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_READERS, thread_name_prefix="reading")
    )

    def admit(self, choices: int) -> None:
        """Count choices as open, or refuse them (status 429 with Retry-After, 503)."""
        if self.thread.failure is not None:
            raise ApiError(503, "The engine has ended", code="engine_failed")
        rows = self.thread.engine.scheduler.pool.rows
        most = len(rows) + self.options.max_queue
        if choices > most:
            what = f"{choices} choices in one request are more than this server's {most}"
            raise ApiError(400, what, param="n", code="invalid_value")
        if self.open_choices + choices > most:
            waits = self.metrics.answer_seconds * self.options.max_queue / len(rows)
            seconds = min(max(math.ceil(waits), 1), _LONGEST_WAIT)
            raise ApiError(
                429,
                f"The queue of {self.options.max_queue} is full; try again in {seconds} s",
                code="queue_full",
                headers={"retry-after": str(seconds)},
            )
        self.open_choices += choices


# Makes an answer request of a body.
ReadBody = Callable[[Json, ServedModel], AnswerRequest]


@dataclass(slots=True)
class AnswerEndpoint:
    """One endpoint, as an ASGI application.

    Args:
        service: what endpoints share.
        read: makes requests of bodies.
    """

    service: Service
    read: ReadBody

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        try:
            asked = await self._request(Request(scope, receive))
            release_body(scope)
            self.service.admit(len(asked.requests))
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        except (ClientDisconnect, ClientGoneError):
            scope[FACTS]["gone"] = True
            return
        answer = _OpenAnswer(self.service, asked, scope, receive, send)
        try:
            await unless_gone(receive, answer.send())
        except ClientGoneError:
            scope[FACTS]["gone"] = True
        finally:
            self.service.open_choices -= len(asked.requests)
            answer.end()

    async def _request(self, request: Request) -> AnswerRequest:
        data = await request.body()
        # Template, tokenizer and grammar are of the checkpoint, and may take any time: the event
        # loop and the answers to small requests go on meanwhile.
        forms = b"response_format" in data or b"tool_choice" in data or b"schema" in data
        heavy = len(data) > _LARGE_BODY or forms
        pool = self.service.readers if heavy else None
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(pool, self._read, data)
        return await unless_gone(request.receive, reading)

    def _read(self, data: bytes) -> AnswerRequest:
        """The requests of a body (in a thread)."""
        asked = self.read(read_json(data), self.service.model)
        options, most = self.service.options, max(len(r.prompt) for r in asked.requests)
        if options.max_prompt and most > options.max_prompt:
            what = f"A prompt has {most} tokens, and this server takes {options.max_prompt}"
            raise ApiError(400, what, code="context_length_exceeded")
        if not options.log_prompts:
            return asked
        decode = self.service.model.tokenizer.decode
        # Choices share prompts.
        texts = {r.prompt: "" for r in asked.requests}
        texts = {prompt: decode(prompt, skip_special=False) for prompt in texts}
        return replace(asked, logged=tuple(texts[r.prompt] for r in asked.requests))


def read_json(data: bytes) -> Json:
    """The JSON value of a body (status 400 for another text)."""
    try:
        return cast(Json, parse_json(data, finite=True))
    except ValueError as error:
        reason = str(error)
        what = f"The body is not JSON: {reason[:200]}"
        raise ApiError(400, what, code="invalid_json") from error


@dataclass(slots=True)
class _OpenAnswer:
    """The answer to one admitted request."""

    service: Service
    asked: AnswerRequest
    scope: Scope
    receive: Receive
    to_client: Send
    progress: AnswerProgress = field(init=False)
    _group: RequestGroup | None = None
    _times: dict[int, float] = field(default_factory=dict[int, float])

    def __post_init__(self) -> None:
        made = AnswerProgress if self.asked.response is None else ResponseProgress
        self.progress = made(self.asked, self.service.model, int(time.time()))

    async def send(self) -> None:
        """Submit the requests, and send their answer."""
        try:
            events = self._events()
            async with aclosing(events):
                if self.asked.stream:
                    # The first event decides the status.
                    first = await anext(events)
                    stream = EventStream(self._stream(first, events), {})
                    await stream(self.scope, self.receive, self.to_client)
                    return
                async for place, event in events:
                    self.progress.take(place, event)
            response = JSONResponse(self.progress.whole())
        except ApiError as error:
            response = error_response(error)
        await response(self.scope, self.receive, self.to_client)

    def end(self) -> None:
        """Cancel what is not finished, and note the facts of the answer."""
        facts: dict[str, Json] = self.scope[FACTS]
        facts |= {
            "stream": self.asked.stream,
            "choices": len(self.asked.requests),
            "prompt_tokens": self.asked.prompt_tokens,
            "new_tokens": sum(choice.tokens for choice in self.progress.choices),
            "finish": [choice.reason for choice in self.progress.choices],
        }
        if proposed := sum(choice.proposed for choice in self.progress.choices):
            accepted = sum(choice.accepted for choice in self.progress.choices)
            facts |= {"proposed_tokens": proposed, "accepted_tokens": accepted}
        if self.service.options.log_prompts:
            facts["prompts"] = [*self.asked.logged]
            facts["answers"] = [choice.text for choice in self.progress.choices]
        if self._group is None:
            return
        if any(choice.reason is None for choice in self.progress.choices):
            self.service.thread.cancel(self._group)
        else:
            self.service.metrics.answered(time.monotonic() - self._group.arrived)

    async def _events(self) -> AsyncGenerator[tuple[int, TokenEvent]]:
        """Submit; the events of the choices, without errors.

        Raises:
            ApiError: the engine refuses the request, or an answer ends with an error.
        """
        try:
            self._group = self.service.thread.submit(self._with_deadline())
            await self._group.accepted()
        except GraphgenError as error:
            raise refusal(error) from error
        except EngineEndedError as error:
            raise ApiError(503, str(error), code="engine_failed") from error
        self.service.metrics.prompt(self.asked.prompt_tokens)
        async with aclosing(self._group.events()) as events:
            async for place, event in events:
                self._note_time(place, event)
                if event.finish is not None and event.finish not in REASONS:
                    raise _failure(event)
                yield place, event

    def _with_deadline(self) -> tuple[ServingRequest, ...]:
        seconds = self.service.options.request_timeout
        if not seconds:
            return self.asked.requests
        end = time.monotonic() + seconds
        return tuple(replace(request, deadline=end) for request in self.asked.requests)

    def _note_time(self, place: int, event: TokenEvent) -> None:
        if event.token is None or self._group is None:
            return
        now = time.monotonic()
        if place in self._times:
            self.service.metrics.next_token(now - self._times[place])
        else:
            self.service.metrics.first_token(now - self._group.arrived)
            self.scope[FACTS].setdefault("first_token", round(now - self._group.arrived, 6))
        self._times[place] = now

    async def _stream(
        self, first: tuple[int, TokenEvent], events: AsyncIterator[tuple[int, TokenEvent]]
    ) -> AsyncIterator[bytes]:
        """The bytes of each event; an error is the last one."""
        for chunk in self.progress.opening():
            yield event_bytes(chunk)
        for chunk in self.progress.chunks(*first):
            yield event_bytes(chunk)
        try:
            async for place, event in events:
                for chunk in self.progress.chunks(place, event):
                    yield event_bytes(chunk)
        except ApiError as error:
            yield event_bytes(self.progress.failed(error))
            return
        for chunk in self.progress.closing():
            yield event_bytes(chunk)
        if self.asked.response is None:
            yield DONE


def _failure(event: TokenEvent) -> ApiError:
    if event.finish is Finish.DEADLINE:
        return ApiError(504, "The answer was not finished in time", code="timeout")
    if event.finish is Finish.CANCELLED:
        return ApiError(503, "The answer was cancelled", code="cancelled")
    if event.finish is Finish.REFUSED:
        return ApiError(400, event.error, param="response_format", code="invalid_json_schema")
    # Only the log has the exception, whose text may name files of this machine.
    LOG.error("an answer ended with an error", extra={"facts": {"error": event.error}})
    return ApiError(500, "The engine failed while it made this answer", code="engine_error")
