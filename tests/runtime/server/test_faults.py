"""Clients that leave, launches that fail, and queues that are full."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.engine_thread import EngineEndedError, EngineThread
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from graphgen.runtime.session.session import Session
from tests.runtime.server.served import NAME, OBSERVERS, ROWS, URL, Live, live, service_of
from tests.runtime.server.test_answers import PROMPT, answer

SILENT = 1000


def connect(server: Live, **body: Any) -> socket.socket:
    """A connection that has sent a request for a completion."""
    made = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    data = json.dumps({"model": NAME, "prompt": PROMPT, "ignore_eos": True, **body}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    made.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return made


class Gate:
    """Lets a test stop the session before a launch."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.launches = 0
        # The launch before which it closes by itself.
        self.last: int | None = None
        self.error: Exception | None = None

    def before_launch(self, session: Session, program: str, inputs: object) -> None:
        if self.launches == self.last:
            self.open.clear()
        self.open.wait()
        self.launches += 1
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def after_launch(self, session: Session, program: str) -> None: ...


@pytest.fixture
def gate() -> Any:
    made = Gate()
    OBSERVERS.append(made)
    yield made
    made.open.set()
    OBSERVERS.remove(made)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_frees_its_row_within_a_step(server: Live, gate: Gate, stream: bool):
    scheduler = server.service.thread.engine.scheduler
    connection = connect(server, max_tokens=100, stream=stream)
    if stream:
        assert b"200 OK" in connection.recv(4096)
    while not scheduler.running:
        pass
    gate.open.clear()
    connection.close()
    while server.service.open_choices:
        pass
    before = gate.launches
    gate.open.set()
    server.settle()
    # The step that was under way, and the one that it may have begun meanwhile.
    assert gate.launches - before <= 2
    assert answer_of(server, max_tokens=2)


def answer_of(server: Live, **body: Any) -> str:
    """The text of a completion by a new connection."""
    with connect(server, **body) as connection:
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            data += connection.recv(1 << 16)
    return json.loads(data.partition(b"\r\n\r\n")[2])["choices"][0]["text"]


def test_a_launch_that_fails_is_an_error_and_the_server_goes_on(client: TestClient, gate: Gate):
    whole = answer(client, prompt=PROMPT, max_tokens=6)
    for stream in (False, True):
        gate.error = RuntimeError("secret of the machine")
        body = {"model": NAME, "prompt": PROMPT, "max_tokens": 6, "stream": stream}
        response = client.post("/v1/completions", json=body)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "engine_error"
        assert "secret" not in response.text
    again = answer(client, prompt=PROMPT, max_tokens=6)
    assert again["choices"] == whole["choices"]


def test_an_error_in_the_middle_of_a_stream_is_its_last_event(server: Live, gate: Gate):
    with connect(server, max_tokens=60, stream=True) as connection:
        data = connection.recv(4096)
        gate.error = RuntimeError("the device is gone")
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(4096)
    assert b'"code":"engine_error"' in data
    assert b"[DONE]" not in data


def test_a_full_queue_is_a_429_with_a_time_to_wait(gate: Gate):
    with live(max_queue=1) as server:
        gate.open.clear()
        held = [connect(server, max_tokens=3) for _ in range(ROWS + 1)]
        while server.service.open_choices < ROWS + 1:
            pass
        with connect(server) as refused:
            head = refused.recv(4096).decode()
        assert head.startswith("HTTP/1.1 429")
        assert "retry-after: " in head
        gate.open.set()
        for connection in held:
            assert b"200 OK" in connection.recv(4096)
            connection.close()
        server.settle()
        assert answer_of(server, max_tokens=2)


def test_the_end_of_the_engine_is_seen():
    service = service_of()

    def broken() -> None:
        raise MemoryError

    service.thread = EngineThread(service.thread.engine, broken)
    failed = threading.Event()
    with TestClient(make_application(service, failed.set), base_url=URL) as client:
        assert failed.wait(60)
        assert client.get("/health").status_code == 503
        response = client.post("/v1/completions", json={"model": NAME, "prompt": "a"})
        assert (response.status_code, response.json()["error"]["type"]) == (503, "server_error")


def test_a_client_that_leaves_while_the_thread_ends_is_no_error():
    service = service_of()
    application = make_application(service)
    body = json.dumps({"model": NAME, "prompt": PROMPT, "ignore_eos": True, "stream": True})
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = "/v1/completions"
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    messages: list[Any] = [{"type": "http.request", "body": body.encode()}]
    sent: list[Any] = []

    async def run() -> None:
        left = asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if not left.is_set():
                service.thread.stop()
                left.set()

        service.thread.start(lambda: None)
        await application(scope, receive, send)

    asyncio.run(run())
    assert sent[0]["status"] == 200
    assert not service.open_choices


def test_what_is_cancelled_when_the_thread_ends_is_left_alone():
    thread = service_of().thread
    request = ServingRequest("a", (1, 2), 100)

    async def run() -> None:
        thread.start(lambda: None)
        group = thread.submit([request])
        await group.accepted()
        thread.stop()
        thread.cancel(group)
        with pytest.raises(EngineEndedError, match="the engine has ended"):
            thread.submit([request])
        ends = [event.finish async for _, event in group.events() if event.finish is not None]
        assert ends == [Finish.ERROR]

    asyncio.run(run())


def test_an_answer_that_takes_too_long_is_a_504():
    with TestClient(make_application(service_of(request_timeout=1e-6)), base_url=URL) as client:
        response = client.post("/v1/completions", json={"model": NAME, "prompt": "a"})
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")


def test_connections_that_send_nothing_are_closed_and_keep_others_from_nothing():
    with live(idle_seconds=1) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        assert answer_of(server, max_tokens=2)
        for connection in silent:
            connection.settimeout(60)
            assert connection.recv(1) == b""
            connection.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow both ends of a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * SILENT + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine allows {hard} open files, not {needed}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def memory() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="files and memory are those of /proc")
@pytest.mark.usefixtures("many_files")
def test_a_thousand_silent_connections_leave_nothing_behind():
    with live(idle_seconds=8) as server:
        assert answer_of(server, max_tokens=2)
        state, taken = server.server.server_state, list[int]()
        wait_for(lambda: not state.connections)
        before = open_files()
        for _ in range(3):
            with ExitStack() as silent:
                held = [
                    silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                    for _ in range(SILENT)
                ]
                assert answer_of(server, max_tokens=2)
                assert len(state.connections) >= SILENT
                assert open_files() >= before + 2 * SILENT
                for connection in held:
                    connection.settimeout(60)
                    assert connection.recv(1) == b""
            wait_for(lambda: not state.connections and open_files() == before)
            taken.append(memory())
        assert answer_of(server, max_tokens=2)
    # The first thousand may leave room for the next ones, which leave nothing.
    assert taken[2] - taken[0] < 4 << 20


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_answers_that_outlast_the_drain_end_without_a_traceback(
    gate: Gate, caplog: pytest.LogCaptureFixture, stream: bool
):
    with live(drain_timeout=0.2) as server:
        gate.last = 3
        connection = connect(server, max_tokens=100, stream=stream)
        wait_for(lambda: not gate.open.is_set())
        data = connection.recv(4096) if stream else b""
        server.server.should_exit = True
        wait_for(lambda: "drain timeout" in caplog.text)
        gate.open.set()
        while piece := connection.recv(4096):
            data += piece
        connection.close()
        server.settle()
    assert b'"code":"cancelled"' in data
    assert data.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 503")
    assert not any(record.exc_info for record in caplog.records)
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert lines == ["the drain timeout has passed: open answers end"]


def test_a_client_that_never_sends_its_body_is_cut_off_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
):
    with live(drain_timeout=0.1) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        connection.sendall(f"{head}Content-Length: 99\r\n\r\n{{".encode())
        wait_for(lambda: bool(server.server.server_state.tasks))
        server.server.should_exit = True
        while connection.recv(4096):
            pass
        connection.close()
    assert "drain timeout" in caplog.text
    assert not any(record.exc_info for record in caplog.records)


def test_a_reader_that_is_slow_keeps_no_row(server: Live):
    connection = connect(server, max_tokens=100, stream=True)
    server.settle()
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data += connection.recv(64)
    connection.close()
    assert data.count(b"data: ") > 10
