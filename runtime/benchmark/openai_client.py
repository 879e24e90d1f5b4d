"""Requests to a server of OpenAI's API, streamed, with the time of each token's arrival."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, cast

import httpx2

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.runtime.benchmark.load_prompts import CountTokens, LoadPrompt
from graphgen.runtime.benchmark.request_metrics import RequestTimes

Endpoint = Literal["chat", "completions"]
# LLMPerf's code of an error without an HTTP status: a dropped connection, a damaged stream.
NO_STATUS = -1
_PATHS: Mapping[Endpoint, str] = {"chat": "chat/completions", "completions": "completions"}
_MESSAGE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The end of one request.

    Attributes:
        start: seconds since the load began.
        times: up to the end of the answer, or to the error.
        error_code: an HTTP status, the code in an event of the stream, or -1; ``None`` without an
            error.
        error_msg: the server's words, or the client's; empty without an error.
        accepted: tokens of the answer that the server's speculation proposed; ``None`` where it
            does not say.
        rejected: tokens that it proposed in vain.
    """

    start: float
    times: RequestTimes
    error_code: int | str | None = None
    error_msg: str = ""
    accepted: int | None = None
    rejected: int | None = None


@dataclass(frozen=True, slots=True)
class Api:
    """A server and a model on it.

    Attributes:
        base: URL up to and with ``/v1``.
        model: name of the model in requests.
        key: bearer key; empty for none.
        endpoint: ``chat`` sends the prompt as the user's message, ``completions`` as it is.
        sampling: further fields of each request; they come before those of the load.
    """

    base: str
    model: str
    key: str = ""
    endpoint: Endpoint = "chat"
    sampling: Mapping[str, Json] = field(default_factory=dict[str, Json])


def api_from_environment(
    model: str, endpoint: Endpoint, sampling: Mapping[str, Json], values: Mapping[str, str]
) -> Api:
    """The server that ``OPENAI_API_BASE`` and ``OPENAI_API_KEY`` name.

    Args:
        model, endpoint, sampling: see :class:`Api`.
        values: the environment variables.

    Raises:
        GraphgenError: GG0705 where the variable is missing or not an http URL.
    """
    base = values.get("OPENAI_API_BASE", "")
    if not base.startswith(("http://", "https://")):
        what = f"is '{base}', not an http URL" if base else "is not set"
        raise GraphgenError(
            "GG0705",
            f"the environment variable OPENAI_API_BASE {what}",
            help="name the server: export OPENAI_API_BASE=http://localhost:8000/v1",
        )
    return Api(base.rstrip("/"), model, values.get("OPENAI_API_KEY", ""), endpoint, sampling)


class _StreamError(Exception):
    """An error within the stream, or a stream without an answer."""

    def __init__(self, message: str, code: int | str = NO_STATUS) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class _Answer:
    """The part of an answer that has arrived."""

    begin: float
    first: float | None = None
    text: list[str] = field(default_factory=list[str])
    usage: Mapping[str, Json] = field(default_factory=dict[str, Json])
    finished: bool = False

    def take(self, content: str) -> None:
        if self.first is None:
            self.first = time.perf_counter()
        self.text.append(content)


class OpenAIClient:
    """An open connection pool to a server; an asynchronous context manager.

    Args:
        api: the server and the model.
        count_tokens: tokens of an answer; without it requests ask the server to count
            (``stream_options``), and events with text count as tokens where it gives none.
        epoch: ``time.perf_counter()`` at the beginning of the load.
    """

    def __init__(self, api: Api, count_tokens: CountTokens | None, epoch: float) -> None:
        self._api, self._count, self._epoch = api, count_tokens, epoch
        headers = {"Authorization": f"Bearer {api.key}"} if api.key else {}
        unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        # The load ends by its own time limit, never by that of a read.
        self._http = httpx2.AsyncClient(headers=headers, timeout=None, limits=unlimited)

    async def __aenter__(self) -> OpenAIClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def send(self, prompt: LoadPrompt) -> RequestOutcome:
        """Send one request and read its answer; errors are part of the outcome."""
        answer = _Answer(time.perf_counter())
        code: int | str | None = None
        message = ""
        try:
            code, message = await self._stream(prompt, answer)
        except _StreamError as fault:
            code, message = fault.code, str(fault)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.SSEError, httpx2.StreamError) as error:
            code, message = NO_STATUS, f"{type(error).__name__}: {error}"
        times = self._times(prompt, answer, time.perf_counter())
        start = answer.begin - self._epoch
        details = answer.usage.get("completion_tokens_details")
        accepted, rejected = (
            value if isinstance(details, dict) and type(value := details.get(name)) is int else None
            for name in ("accepted_prediction_tokens", "rejected_prediction_tokens")
        )
        text = message[:_MESSAGE_CHARACTERS]
        return RequestOutcome(start, times, code, text, accepted, rejected)

    async def _stream(self, prompt: LoadPrompt, answer: _Answer) -> tuple[int | None, str]:
        """Fill ``answer``; returns the status and text of an HTTP error."""
        url = f"{self._api.base}/{_PATHS[self._api.endpoint]}"
        async with self._http.stream("POST", url, json=self._body(prompt)) as response:
            if response.status_code != 200:
                return response.status_code, (await response.aread()).decode("utf-8", "replace")
            async for data in _events(response):
                _take_event(data, answer)
        if not answer.finished:
            raise _StreamError("the stream ended before the answer did")
        return None, ""

    def _body(self, prompt: LoadPrompt) -> dict[str, Json]:
        given: dict[str, Json] = {"model": self._api.model, "stream": True}
        if self._api.endpoint == "chat":
            given["messages"] = [{"role": "user", "content": prompt.text}]
        else:
            given["prompt"] = prompt.text
        if self._count is None:
            given["stream_options"] = {"include_usage": True}
        return {**given, "max_tokens": prompt.output_tokens, **self._api.sampling}

    def _times(self, prompt: LoadPrompt, answer: _Answer, end: float) -> RequestTimes:
        seconds = end - answer.begin
        first = seconds if answer.first is None else answer.first - answer.begin
        if self._count is not None:
            made = self._count("".join(answer.text)) if answer.text else 0
            return RequestTimes(prompt.input_tokens, made, first, seconds)
        made = _counted(answer.usage, "completion_tokens", len(answer.text))
        given = _counted(answer.usage, "prompt_tokens", prompt.input_tokens)
        return RequestTimes(given, made, first, seconds)


def _counted(usage: Mapping[str, Json], key: str, otherwise: int) -> int:
    value = usage.get(key)
    return value if type(value) is int else otherwise


async def _events(response: httpx2.Response) -> AsyncIterator[str]:
    """The data of each event of a stream."""
    async for event in httpx2.EventSource(response):
        yield event.data


def _take_event(data: str, answer: _Answer) -> None:
    """Add an event to an answer; raises :class:`_StreamError` for an error and for other data."""
    if data == "[DONE]":
        answer.finished = True
        return
    try:
        found: object = parse_json(data)
    except ValueError as error:
        raise _StreamError(f"an event is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _StreamError("an event is not a JSON object")
    event = cast("dict[str, Json]", found)
    fault = event.get("error")
    if fault is not None:
        raise _server_fault(fault)
    usage = event.get("usage")
    if isinstance(usage, dict):
        answer.usage = usage
    _take_choices(event.get("choices"), answer)


def _take_choices(choices: Json, answer: _Answer) -> None:
    if not isinstance(choices, list):
        raise _StreamError("an event has no choices")
    for choice in choices:
        if not isinstance(choice, dict):
            raise _StreamError("a choice of an event is not a JSON object")
        if choice.get("finish_reason") is not None:
            answer.finished = True
        delta = choice.get("delta")
        content = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        if isinstance(content, str) and content:
            answer.take(content)


def _server_fault(fault: Json) -> _StreamError:
    """The error that an event carries: its message and its code."""
    if not isinstance(fault, dict):
        return _StreamError(str(fault))
    code = fault.get("code")
    return _StreamError(
        str(fault.get("message", fault)), code if isinstance(code, int | str) else NO_STATUS
    )
