"""An OpenAI server in a thread: answers and faults by a script, on the loopback only."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphgen.json_value import Json

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = "answer"


def event(content: str = "", finish: str | None = None, **more: Json) -> bytes:
    delta: dict[str, Json] = {"content": content} if content else {}
    choice: dict[str, Json] = {"index": 0, "delta": delta, "text": content, "finish_reason": finish}
    return data(json.dumps({"choices": [choice], **more}))


def data(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


def status(code: int, text: str) -> bytes:
    # Without the second line a client may send its next request into the connection that ends.
    head = f"HTTP/1.1 {code} X\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    return (head + text).encode()


# What the server does with a request, by name. A fault is written as it is, and the connection is
# then closed.
FAULTS: dict[str, bytes | Sequence[bytes]] = {
    "429": status(429, '{"error": {"message": "too many requests"}}'),
    "500": status(500, "an internal error"),
    "dropped": [event("one ")],
    "refused": [data('{"error": {"message": "out of rows", "code": 503}}')],
    "malformed": [event("one "), data("{not json")],
    "no-choices": [data('{"id": 7}')],
    "not-a-stream": status(200, "{}"),
    "closed": b"",
}


@dataclass(slots=True)
class FakeServer:
    """The script, and what was seen.

    Attributes:
        script: what to do with request number i, modulo its length; a key of FAULTS or ANSWER.
        usage: whether answers end with the server's counts where they are asked for.
        gap: seconds between tokens.
        hang: whether answers never end.
        predicted: accepted and rejected tokens of speculation in those counts.
        bodies, keys: of the requests, in order.
        most: requests at a time.
    """

    script: Sequence[str] = (ANSWER,)
    usage: bool = True
    gap: float = 0.0
    hang: bool = False
    predicted: tuple[int, int] | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    most: int = 0
    port: int = 0
    on_request: Callable[[int], None] = lambda _: None
    _open: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def __enter__(self) -> FakeServer:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if not await self._request(head.decode().split("\r\n"), reader, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _request(
        self, head: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = json.loads(await reader.readexactly(int(fields["content-length"])))
        number = len(self.bodies)
        self.bodies.append(body)
        self.paths.append(head[0])
        self.keys.append(fields.get("authorization", ""))
        self._open += 1
        self.most = max(self.most, self._open)
        self.on_request(number)
        try:
            return await self._act(self.script[number % len(self.script)], body, writer)
        finally:
            self._open -= 1

    async def _act(self, action: str, body: dict[str, Json], writer: asyncio.StreamWriter) -> bool:
        if action != ANSWER:
            fault = FAULTS[action]
            writer.write(fault if isinstance(fault, bytes) else HEAD + chunked(fault))
            await writer.drain()
            return False
        writer.write(HEAD)
        await writer.drain()
        count = body["max_tokens"]
        assert isinstance(count, int)
        for _ in range(count):
            await asyncio.sleep(self.gap)
            writer.write(chunked([event("word ")]))
            await writer.drain()
        while self.hang:
            await asyncio.sleep(0.01)
            # Fails when the client has gone.
            writer.write(chunked([b": wait\n\n"]))
            await writer.drain()
        writer.write(chunked([event(finish="length"), *self._usage(body, count), data("[DONE]")]))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _usage(self, body: dict[str, Json], count: int) -> list[bytes]:
        if not self.usage or "stream_options" not in body:
            return []
        counts: dict[str, Json] = {"prompt_tokens": 1000, "completion_tokens": count}
        if self.predicted:
            accepted, rejected = self.predicted
            counts["completion_tokens_details"] = {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": rejected,
            }
        return [data(json.dumps({"choices": [], "usage": counts}))]


def chunked(parts: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
