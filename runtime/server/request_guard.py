"""Check every request before its endpoint runs: host, origin, key, type and size of the body.

Endpoints have nothing to do for it: what is not listed in :data:`OPEN_PATHS` asks for the key, and
a body is handed to an endpoint whole, or not at all.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.server.request_log import FACTS
from graphgen.runtime.server.server_options import ANY_HOST, ServerOptions

# Paths that no key guards: the page, the document, and what probes ask for.
OPEN_PATHS: Final = frozenset({"/", "/openapi.json", "/health", "/ready", "/metrics"})
# Bodies that are received or read at a time hold at most as many bytes as this many of the largest.
_BODIES: Final = 16
# Methods whose requests change something, with a body or without.
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# The key of a :class:`HeldBody` in the ASGI scope.
_HELD: Final = "graphgen.body"
_PORTS: Final = {"http": "80", "https": "443"}


def error_response(error: ApiError) -> JSONResponse:
    """The response of an error."""
    return JSONResponse(error.to_json(), error.status, error.headers)


class HeldBody:
    """The bytes of the bodies of all requests that are counted for one request.

    Args:
        guard: that counts them.
    """

    def __init__(self, guard: RequestGuard) -> None:
        self._guard: Final = guard
        self.size = 0

    def add(self, data: bytes) -> None:
        """Count bytes that have arrived (status 503 where all requests hold too many)."""
        self.size += len(data)
        self._guard.held += len(data)
        if self._guard.held > self._guard.most_held:
            what = "The server holds too many bodies; try again"
            raise ApiError(503, what, code="overloaded", headers={"retry-after": "1"})

    def release(self) -> None:
        """Count them no more."""
        self._guard.held -= self.size
        self.size = 0


def release_body(scope: Scope) -> None:
    """Say that nothing of a request's body is held any more, before its answer is finished.

    Args:
        scope: of the request.
    """
    held = scope.get(_HELD)
    if isinstance(held, HeldBody):
        held.release()


class RequestGuard:
    """Middleware that refuses requests before they reach an endpoint.

    In this order: the host (status 400 or 403) and the origin (403), so that pages of other sites
    cannot reach the server through a browser; the key (401); the content type (415); the bytes of
    the body (413, 503) and the time that they take (408).

    Args:
        app: the application.
        options: of the server.

    Attributes:
        held: bytes of bodies that are being received or read.
        most_held: the most of them.
    """

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app: Final = app
        self._options: Final = options
        self._keys: Final = [key.encode() for key in options.api_keys]
        self._hosts: Final = AllowedHosts(options.host, options.allowed_hosts)
        self.held = 0
        self.most_held: Final = _BODIES * options.max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, or answer with an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        held = HeldBody(self)
        scope[_HELD] = held
        try:
            self._hosts.check(scope)
            self._check_key(scope)
            body = await self._body(scope, receive, held)
            if body is None:
                scope[FACTS]["gone"] = True
                return
            await self._app(scope, _replay(body, receive), send)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        finally:
            held.release()

    def _check_key(self, scope: Scope) -> None:
        if not self._keys or scope["path"] in OPEN_PATHS:
            return
        kind, _, given = _header(scope, b"authorization").partition(b" ")
        # Every key is compared, in constant time.
        known = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        if kind.lower() != b"bearer" or not any(known):
            raise ApiError(
                401,
                "Incorrect API key; send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    async def _body(self, scope: Scope, receive: Receive, held: HeldBody) -> bytearray | None:
        """The bytes of the body; ``None`` where the client has left."""
        kind = _header(scope, b"content-type").partition(b";")[0].strip().lower()
        if scope["method"] in _CHANGING and kind != b"application/json":
            what = "Send the body as 'Content-Type: application/json'"
            raise ApiError(415, what, code="unsupported_media_type")
        length = _header(scope, b"content-length")
        if length.isdigit() and (len(length) > 18 or int(length) > self._options.max_body):
            raise self._too_long()
        data = bytearray()
        try:
            async with asyncio.timeout(self._options.read_timeout):
                while (message := await receive())["type"] == "http.request":
                    piece = message.get("body", b"")
                    held.add(piece)
                    data += piece
                    if len(data) > self._options.max_body:
                        raise self._too_long()
                    if not message.get("more_body", False):
                        return data
        except TimeoutError as error:
            raise ApiError(408, "The body did not arrive in time", code="timeout") from error
        return None

    def _too_long(self) -> ApiError:
        what = f"The body is longer than {self._options.max_body} bytes"
        return ApiError(413, what, code="body_too_large")


def _replay(body: bytearray, receive: Receive) -> Receive:
    """Give an endpoint the whole body at once, then what comes after it."""
    bodies = [body]

    async def receive_whole() -> Message:
        if not bodies:
            return await receive()
        return {"type": "http.request", "body": bytes(bodies.pop()), "more_body": False}

    return receive_whole


def _header(scope: Scope, name: bytes) -> bytes:
    """The first value of a header; empty without one."""
    return next((value for key, value in scope["headers"] if key == name), b"")


class AllowedHosts:
    """The hosts by which clients may name the server.

    A page of another site can make a browser send requests to a server of this machine, also under
    a name of its own that resolves to the machine (DNS rebinding). It cannot choose the host and
    the origin that the browser sends.

    Args:
        listening: the host that the server listens on.
        more: further names and addresses; ``*`` for any.
    """

    def __init__(self, listening: str, more: Sequence[str] = ()) -> None:
        self._any: Final = ANY_HOST in more
        self._named: Final = {_plain(host) for host in more}
        self._own: Final = {"localhost", _plain(listening)}
        # 0.0.0.0 and :: stand for each address of this machine: the one that was connected to.
        self._every: Final = _is_unspecified(listening)

    def check(self, scope: Scope) -> None:
        """Refuse a request for another host, or of a page of another one.

        Raises:
            ApiError: status 400 without one host, 403 for another host or origin.
        """
        given = [value for name, value in scope["headers"] if name == b"host"]
        place = given[0].decode("latin-1") if len(given) == 1 else ""
        host = _host_of(place)
        if not host:
            what = "The request names no host, or more than one, in its header 'Host'"
            raise ApiError(400, what, code="invalid_host")
        if not self._allows(host, scope):
            what = f"The host '{_shown(place)}' is not this server's"
            raise ApiError(
                403, f"{what}; start it with --allowed-hosts for another name", code="unknown_host"
            )
        for origin in (value for name, value in scope["headers"] if name == b"origin"):
            self._check_origin(origin.decode("latin-1"), place)

    def _allows(self, host: str, scope: Scope) -> bool:
        if self._any or host in self._named or host in self._own or _is_loopback(host):
            return True
        server = scope.get("server")
        return self._every and server is not None and host == _plain(server[0])

    def _check_origin(self, origin: str, place: str) -> None:
        """Refuse a page of another host, unless ``--allowed-hosts`` names its host."""
        scheme, found, netloc = origin.partition("://")
        same = found and _with_port(netloc, scheme) == _with_port(place, scheme)
        if not same and _host_of(netloc) not in self._named:
            what = f"The page's origin '{_shown(origin)}' is not this server"
            raise ApiError(403, what, code="unknown_origin")


def _host_of(place: str) -> str:
    """The host of ``HOST`` or ``HOST:PORT``, plain; empty for another text."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, "0"
    bracketed = host.startswith("[") and host.endswith("]")
    if not (port.isascii() and port.isdigit() and len(port) < 6) or (":" in host) != bracketed:
        return ""
    return _plain(host)


def _with_port(place: str, scheme: str) -> tuple[str, str]:
    """Host and port, which is the scheme's where none is given."""
    _, colon, port = place.rpartition(":")
    given = colon and not place.endswith("]")
    return _host_of(place), port if given else _PORTS.get(scheme, "")


def _plain(host: str) -> str:
    """A name in small letters without the dot of the root; an address in its normal form."""
    name = host.strip("[]").lower()
    try:
        found = ip_address(name)
    except ValueError:
        return name.removesuffix(".")
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:200])
