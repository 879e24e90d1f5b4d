"""Connections: their number, the time of a header, failed accepts, and the address."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from graphgen.errors import GraphgenError
from graphgen.runtime.server.connections import (
    AcceptFailures,
    BoundedProtocol,
    bound_sockets,
    bounded_protocol,
    check_address,
)
from tests.runtime.server.served import live
from tests.runtime.server.test_faults import answer_of, wait_for

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def test_half_open_connections_do_not_keep_others_out():
    with live(connections=20) as server:
        half = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(60)]
        for connection in half[-20:]:
            connection.sendall(HEAD)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
            one.sendall(HEAD + b"\r\n")
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
        assert answer_of(server, max_tokens=1)
        assert len(server.server.server_state.connections) <= 20
        # The oldest have given way.
        closed = [received(connection) for connection in half[:40]]
        assert closed == [b""] * 40
        for connection in half:
            connection.close()


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


class Timers:
    """An event loop's timers, which a test fires."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.open: list[tuple[Any, Callable[[], None]]] = []

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:
        timers = self

        class Timer:
            def cancel(self) -> None:
                timers.open = [row for row in timers.open if row[0] is not self]

        made = Timer()
        self.open.append((made, function))
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


class Written(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close
    pause_reading = resume_reading = lambda self: None


async def connected() -> tuple[BoundedProtocol, Timers, Written]:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None)
    config.load()
    timers, transport = Timers(asyncio.get_running_loop()), Written()
    made = bounded_protocol()(config, ServerState(), {}, timers)  # pyright: ignore[reportArgumentType]
    made.connection_made(transport)
    return made, timers, transport


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_byte_now_and_then_does_not_extend_the_time_of_a_header():
    async def run() -> None:
        made, timers, transport = await connected()
        (first,) = timers.open
        for byte in HEAD:
            made.data_received(bytes([byte]))
            assert timers.open == [first]
        first[1]()
        assert transport.closed

    asyncio.run(run())


def test_a_whole_header_ends_the_time_and_the_next_one_has_its_own():
    async def run() -> None:
        made, timers, transport = await connected()
        made.data_received(HEAD + b"\r\n")
        assert timers.open == []
        await settle()
        assert transport.data.endswith(b"ok\r\n0\r\n\r\n")
        # Between two requests.
        (idle,) = timers.open
        made.data_received(HEAD[:5])
        (second,) = timers.open
        assert second is not idle
        made.data_received(HEAD[5:])
        assert timers.open == [second]
        second[1]()
        assert transport.closed

    asyncio.run(run())


def test_a_body_after_its_answer_does_not_hold_the_connection():
    async def run() -> None:
        made, timers, transport = await connected()
        made.data_received(HEAD + b"Content-Length: 100\r\n\r\nx")
        await settle()
        assert transport.data.endswith(b"ok\r\n0\r\n\r\n")
        made.data_received(b"x")
        (first,) = timers.open
        made.data_received(b"x")
        assert timers.open == [first]
        first[1]()
        assert transport.closed

    asyncio.run(run())


def test_failed_accepts_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    failures = AcceptFailures(lambda: now[0])
    loop = asyncio.new_event_loop()
    others: list[Any] = []
    monkeypatch.setattr(loop, "default_exception_handler", others.append)
    lacks = {"socket": object(), "exception": OSError(errno.EMFILE, "Too many open files")}
    caplog.set_level(logging.INFO, "graphgen.server")
    for second in range(120):
        now[0] = second / 2
        for _ in range(500):
            failures(loop, lacks)
    assert [vars(r)["facts"] for r in caplog.records] == [
        {"error": "Too many open files", "failures": 1}
    ]
    now[0] = 60.0
    failures(loop, lacks)
    assert len(caplog.records) == 2
    assert not others
    failures(loop, {"exception": ValueError("a defect")})
    assert len(others) == 1
    loop.close()


def test_a_server_handles_failed_accepts(caplog: pytest.LogCaptureFixture):
    with live() as server:
        loop = server.service.thread._loop  # pyright: ignore[reportPrivateUsage]
        assert loop is not None
        error = OSError(errno.ENFILE, "Too many open files in system")
        context: Any = {"message": "x", "socket": object(), "exception": error}
        for _ in range(3):
            loop.call_soon_threadsafe(loop.call_exception_handler, context)
        wait_for(lambda: "cannot be accepted" in caplog.text)
    assert caplog.text.count("cannot be accepted") == 1
    assert not any(record.exc_info for record in caplog.records)


def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(GraphgenError, match="--port") as caught:
            check_address("127.0.0.1", port)
    assert caught.value.code == "GG0705"
    check_address("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no host", "x" * 300, "a..b", "\0"])
def test_an_address_of_another_machine_is_refused(host: str):
    with pytest.raises(GraphgenError, match="cannot listen") as caught:
        check_address(host, 0)
    assert caught.value.code == "GG0705"


def test_all_addresses_of_a_host_have_one_port():
    sockets = bound_sockets("localhost", 0)
    ports = {one.getsockname()[1] for one in sockets}
    for one in sockets:
        one.close()
    assert len(ports) == 1


def test_the_address_is_tried_before_the_model_is_opened(tmp_path: Path):
    from tests.graphgen.cli.conftest import error

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        # There is no such model, which would be refused next.
        shown = error("serve", tmp_path / "none.gguf", "--port", port)
    assert "error[GG0705]" in shown
    assert f"--port {port}" in shown
