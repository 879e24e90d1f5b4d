"""Server-sent events, and answers that end when their client is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from graphgen.json_value import Json

_Result = TypeVar("_Result")

DONE = b"data: [DONE]\n\n"
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Proxies such as nginx must not collect events.
    (b"x-accel-buffering", b"no"),
)


def event_bytes(value: Json) -> bytes:
    """One event with a JSON value, and its name where the value has a type."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return name + b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


class ClientGoneError(Exception):
    """The client has closed its connection."""


async def unless_gone(receive: Receive, work: Awaitable[_Result]) -> _Result:
    """Do some work until it is done or the client has closed its connection.

    Args:
        receive: of ASGI, after the body has been read.
        work: is cancelled when the client is gone.

    Returns:
        The result of the work.

    Raises:
        ClientGoneError: the client left before the end.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return await task
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """A response of events, as an ASGI application.

    Args:
        events: the bytes of each event.
        headers: names and values, beside those of every stream.
    """

    def __init__(self, events: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        self._events = events
        self._headers = [(k.encode(), v.encode()) for k, v in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        head = {"status": 200, "headers": [*_HEADERS, *self._headers]}
        await send({"type": "http.response.start", **head})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
