"""What the application refuses before an endpoint runs, of known endpoints and new ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from graphgen.errors import GraphgenError
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.request_guard import AllowedHosts, RequestGuard
from graphgen.runtime.server.request_log import FACTS
from graphgen.runtime.server.server_options import ServerOptions
from tests.runtime.server.served import NAME, URL, service_of

JSON = {"content-type": "application/json"}
Headers = Sequence[tuple[bytes, bytes]]


def new_endpoint(seen: list[int], **options: Any) -> TestClient:
    """A server whose only endpoint knows nothing of limits."""

    async def endpoint(request: Request) -> Response:
        seen.append(len(await request.body()))
        return JSONResponse({})

    guard = Middleware(RequestGuard, ServerOptions("m", **options))
    routes = [Route("/new", endpoint, methods=["POST", "GET", "DELETE"])]
    return TestClient(Starlette(routes=routes, middleware=[guard]), base_url=URL)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{}", {}, 200),
        (b"x" * 101, {}, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": ""}, 415),
        (b"{}", {"authorization": "Bearer no"}, 401),
        (b"{}", {"authorization": ""}, 401),
        (b"{}", {"host": "evil.example.com"}, 403),
        (b"{}", {"origin": "http://evil.example.com"}, 403),
        (b"{}", {"origin": "null"}, 403),
        (b"{}", {"origin": URL}, 200),
    ],
)
def test_a_new_endpoint_has_all_limits(content: bytes, headers: dict[str, str], status: int):
    seen: list[int] = []
    client = new_endpoint(seen, api_keys=("k",), max_body=100)
    given = {**JSON, "authorization": "Bearer k", **headers}
    assert client.post("/new", content=content, headers=given).status_code == status
    assert seen == ([len(content)] if status == 200 else [])


def test_a_body_of_an_endpoint_that_reads_none_is_bounded_too():
    seen: list[int] = []
    client = new_endpoint(seen, max_body=100)
    assert client.request("GET", "/new", content=b"x" * 101).status_code == 413
    assert client.get("/new").status_code == 200
    assert client.delete("/new").status_code == 415
    assert seen == [0]


def test_every_endpoint_that_changes_something_is_guarded():
    """Endpoints that were added to the application without a thought of its limits."""
    application = make_application(service_of(max_body=100, api_keys=("k",)))
    with TestClient(application, base_url=URL) as client:
        posts = [route.path for route in application.routes if isinstance(route, Route)]
        for path in posts:
            headers = {**JSON, "authorization": "Bearer k"}
            data = b"x" * 101
            assert client.post(path, content=data, headers=headers).status_code == 413
            headers["host"] = "x"
            assert client.post(path, content=data, headers=headers).status_code == 403


def scope_of(headers: Headers, **more: Any) -> dict[str, Any]:
    return {"type": "http", "path": "/new", "method": "POST", "headers": headers, **more, FACTS: {}}


HOST = (b"host", b"localhost")
TYPE = (b"content-type", b"application/json")


def answered(
    guard: RequestGuard, headers: Headers, messages: Sequence[Mapping[str, Any]]
) -> tuple[int | None, Any]:
    """The status of a request, and its error; after its messages nothing comes any more."""
    sent: list[Any] = []
    waiting = list(messages)

    async def receive() -> Any:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(scope_of(headers), receive, send))
    if not sent:
        return None, None
    return sent[0]["status"], json.loads(sent[1]["body"])


async def echo(scope: Any, receive: Any, send: Any) -> None:
    data = (await receive())["body"]
    await JSONResponse({"got": data.decode()})(scope, receive, send)


def piece(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def test_a_body_that_does_not_come_is_given_up():
    guard = RequestGuard(echo, ServerOptions("m", read_timeout=0.01))
    status, error = answered(guard, [HOST, TYPE], [piece(b"{")])
    assert (status, error["error"]["code"], guard.held) == (408, "timeout", 0)


def test_a_body_without_a_length_is_cut_off_where_it_becomes_too_long():
    guard = RequestGuard(echo, ServerOptions("m", max_body=10))
    # No further message would come: it is refused at the eleventh byte.
    assert answered(guard, [HOST, TYPE], [piece(b"123456"), piece(b"78901")])[0] == 413
    status, body = answered(
        guard, [HOST, TYPE], [piece(b"12"), piece(b"3"), piece(b"", more=False)]
    )
    assert (status, body) == (200, {"got": "123"})
    # A length that is too long is refused before the first byte.
    assert answered(guard, [HOST, TYPE, (b"content-length", b"1" * 5000)], [])[0] == 413


def test_a_client_that_leaves_in_its_body_gets_nothing():
    guard = RequestGuard(echo, ServerOptions("m"))
    gone = {"type": "http.disconnect"}
    assert answered(guard, [HOST, TYPE], [piece(b"{"), gone]) == (None, None)
    assert guard.held == 0


def test_the_bodies_of_all_requests_are_bounded_together():
    guard = RequestGuard(echo, ServerOptions("m", max_body=10))

    async def run() -> list[int]:
        statuses: list[int] = []
        held = asyncio.Event()

        async def endpoint(scope: Any, receive: Any, send: Any) -> None:
            await held.wait()
            await echo(scope, receive, send)

        guard = RequestGuard(endpoint, ServerOptions("m", max_body=10))

        async def ask() -> None:
            messages = [piece(b"0123456789", more=False)]

            async def receive() -> Any:
                return messages.pop()

            async def send(message: Any) -> None:
                statuses.append(message.get("status", 0))

            await guard(scope_of([HOST, TYPE]), receive, send)

        tasks = [asyncio.create_task(ask()) for _ in range(20)]
        while len(statuses) < 2 * 4:
            await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*tasks)
        assert guard.held == 0
        return [status for status in statuses if status]

    assert sorted(asyncio.run(run())) == [200] * 16 + [503] * 4
    assert guard.held == 0


LOCAL = [b"localhost", b"LOCALHOST:8000", b"localhost.", b"127.0.0.1", b"127.9.9.9:1", b"[::1]:80"]
FOREIGN = [b"evil.example.com", b"localhost.evil.com:80", b"10.0.0.1", b"[fe80::1]", b"2130706433"]
MALFORMED = [b"", b":80", b"localhost:", b"localhost:x", b"::1", b"[]", b"localhost:123456"]


def refusal_of(hosts: AllowedHosts, *headers: tuple[bytes, bytes], server: str = "") -> str | None:
    scope = scope_of(headers, server=(server, 8000))
    try:
        hosts.check(scope)
    except Exception as error:
        return getattr(error, "code", None)
    return None


@pytest.mark.parametrize("listening", ["127.0.0.1", "localhost", "::1", "0.0.0.0"])
def test_hosts_are_those_of_loopback(listening: str):
    hosts = AllowedHosts(listening)
    assert {refusal_of(hosts, (b"host", host)) for host in LOCAL} == {None}
    assert {refusal_of(hosts, (b"host", host)) for host in FOREIGN} == {"unknown_host"}
    assert {refusal_of(hosts, (b"host", host)) for host in MALFORMED} == {"invalid_host"}
    assert refusal_of(hosts) == "invalid_host"
    assert refusal_of(hosts, (b"host", b"localhost"), (b"host", b"evil")) == "invalid_host"


def test_other_hosts_are_those_that_are_named():
    hosts = AllowedHosts("10.0.0.7", ("api.example.com", "Second.Example.com"))
    for host in (b"10.0.0.7:1", b"api.example.com", b"second.example.com:443"):
        assert refusal_of(hosts, (b"host", host)) is None
    assert refusal_of(hosts, (b"host", b"third.example.com")) == "unknown_host"
    assert refusal_of(AllowedHosts("127.0.0.1", ("*",)), (b"host", b"any.example.com")) is None
    # A server of all addresses is known by the one that was connected to.
    every = AllowedHosts("0.0.0.0")
    assert refusal_of(every, (b"host", b"10.0.0.9"), server="10.0.0.9") is None
    assert refusal_of(every, (b"host", b"10.0.0.8"), server="10.0.0.9") == "unknown_host"


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("localhost:8000", "http://localhost:8000", None),
        ("localhost", "http://localhost:80", None),
        ("localhost:8000", "http://localhost:3000", "unknown_origin"),
        ("localhost:8000", "http://127.0.0.1:8000", "unknown_origin"),
        ("localhost:8000", "http://localhost:8000.evil.com", "unknown_origin"),
        ("localhost:8000", "localhost:8000", "unknown_origin"),
        ("localhost:8000", "", "unknown_origin"),
        ("127.0.0.1:8000", "https://api.example.com", None),
        ("api.example.com", "https://api.example.com", None),
    ],
)
def test_pages_of_other_origins_are_refused(host: str, origin: str, code: str | None):
    hosts = AllowedHosts("127.0.0.1", ("api.example.com",))
    given = ((b"host", host.encode()), (b"origin", origin.encode()))
    assert refusal_of(hosts, *given) == code


@pytest.mark.parametrize("keys", [("",), ("a", " "), ("\t",), (" a",), ("a\n",), ("ä",)])
def test_a_key_that_is_empty_or_that_no_header_has_is_refused(keys: tuple[str, ...]):
    with pytest.raises(GraphgenError, match="API key") as caught:
        ServerOptions("m", api_keys=keys)
    assert caught.value.code == "GG0705"


def test_a_websocket_is_closed():
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any: ...

    asyncio.run(RequestGuard(echo, ServerOptions(NAME))({"type": "websocket"}, receive, send))
    assert sent == [{"type": "websocket.close"}]
