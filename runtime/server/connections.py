"""Listen on an address, and bound the connections: their number, and the time of a header."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import time
from asyncio import Transport
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from graphgen.errors import GraphgenError
from graphgen.runtime.server.request_log import LOG

# Connections that wait to be accepted; as many are accepted at a time.
BACKLOG: Final = 512
# Open files that the process asks for, and connections that it has at most.
_FILES: Final = 1 << 16
_MOST: Final = 4096
# Errors of accept() by which the machine or the process lacks something.
_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Seconds between two lines of the log about them.
_MINUTE: Final = 60.0


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a time for each whole header, and a bound of the connections.

    Where there are more connections than allowed, the one that has been without a request for the
    longest is closed, so that clients who send nothing do not keep others out.

    Attributes:
        most: number of connections.
        held: the connections, from the oldest to the newest.
        idle: those without a request, from the one that has been for the longest.
    """

    most: ClassVar[int] = _MOST
    held: ClassVar[dict[BoundedProtocol, None]]
    idle: ClassVar[dict[BoundedProtocol, None]]
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start the time of the first header."""
        super().connection_made(transport)
        self.held[self] = None
        self._start()
        self._follow()
        while len(self.held) > self.most:
            self._give_way()

    def data_received(self, data: bytes) -> None:
        """Start the time of the next header with its first byte."""
        super().data_received(data)
        if self._waits and self._timer is None:
            self._start()
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """True where no whole header has come since the last answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _start(self) -> None:
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _follow(self) -> None:
        if self._waits:
            if self in self.held:
                self.idle.setdefault(self)
            return
        self.idle.pop(self, None)
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget(self) -> None:
        self._stop()
        self.held.pop(self, None)
        self.idle.pop(self, None)

    def _give_way(self) -> None:
        """Close the connection that matters least: if all have requests, the newest."""
        one = next(iter(self.idle), None) or next(reversed(self.held))
        one._forget()
        one.transport.abort()


def bounded_protocol(most: int = _MOST) -> type[BoundedProtocol]:
    """The protocol of one server, whose connections it counts.

    Args:
        most: number of connections.
    """
    own: dict[str, object] = {"most": most, "held": {}, "idle": {}}
    return type("ServerProtocol", (BoundedProtocol,), own)


def allow_connections() -> int:
    """Raise the limit of open files; the number of connections that it has room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    # Those that are accepted at a time come on top; the model has files of its own.
    return min(_MOST, max(most - 2 * BACKLOG, most // 2))


class AcceptFailures:
    """Handles errors of the event loop; those of accept() are logged once a minute.

    asyncio tries again a second after such an error, but reports it for each connection that waits.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._next = -float("inf")
        self.count = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        """Take one error."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _LACKS or "socket" not in context:
            loop.default_exception_handler(dict(context))
            return
        self.count += 1
        if self._clock() >= self._next:
            self._next = self._clock() + _MINUTE
            facts = {"error": error.strerror, "failures": self.count}
            LOG.warning("connections cannot be accepted", extra={"facts": facts})


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """A socket on each address of a host, which do not listen yet.

    Args:
        host: a name or an address of this machine.
        port: 0 for any free one, which all have.

    Raises:
        GraphgenError: GG0705 for a host that this machine does not have, and a port in use.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unusable(host, port, reason or str(error)) from error
    with ExitStack() as opened:
        made: list[socket.socket] = []
        for family, kind, protocol, _, address in dict.fromkeys(found):
            if port == 0 and made:
                address = (address[0], made[0].getsockname()[1], *address[2:])
            one = opened.enter_context(socket.socket(family, kind, protocol))
            # A port whose last connections are being closed is free.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                one.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and len(found) > 1:
                    # A name such as localhost may have an address that the machine has not.
                    continue
                raise _unusable(host, port, error.strerror or str(error)) from error
            made.append(one)
        if not made:
            raise _unusable(host, port, "this machine has none of its addresses")
        opened.pop_all()
    return made


def check_address(host: str, port: int) -> None:
    """Refuse an address that the server cannot listen on, before the model is loaded.

    Raises:
        GraphgenError: as of :func:`bound_sockets`.
    """
    sockets = bound_sockets(host, port)
    try:
        for one in sockets:
            # Another server that listens is seen only here.
            one.listen(1)
    except OSError as error:
        raise _unusable(host, port, error.strerror or str(error)) from error
    finally:
        for one in sockets:
            one.close()


def _unusable(host: str, port: int, reason: str) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"the server cannot listen on --host {host} --port {port}: {reason}",
        help="give an address of this machine, and a free port, or 0 for any",
    )
