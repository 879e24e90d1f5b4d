"""Connections between the processes of a launch, each with a proof of its secret.

All other connections are of strangers: they are closed and have no effect. The secret is never
sent. The listening process sends a random text (a line); the other one sends its purpose, the
number of processes, its index, a random text of its own and the HMAC-SHA-256 of all that; the
answer is a line with the HMAC-SHA-256 of both random texts and the answer.
"""

from __future__ import annotations

import hmac
import re
import selectors
import socket
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final, cast

# Seconds that a line of another process may take.
LINE_SECONDS: Final = 5.0
# Connections without a line so far: of more the oldest is closed.
MOST_SILENT: Final = 64
# Characters of the longest answer, and bytes of the longest line.
LONGEST: Final = 1000
_LINE: Final = 4 * LONGEST + 100
_NONCE = re.compile(rb"[0-9a-f]{32}\n")
_PEER = re.compile(rb"(graphgen ([a-z]+) ([0-9]{1,6}) ([0-9]{1,6}) [0-9a-f]{32}) ([0-9a-f]{64})\n")
_ANSWER = re.compile(rb"([0-9a-f]{64}) (.*)\n")


def _proof(secret: str, *parts: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"\n".join(parts), "sha256").hex().encode()


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process of the launch.

    Attributes:
        connection: to it.
        count, index: number of processes that it knows of, and its own.
        secret: of the launch.
        exchange: the random text that it was sent, and its line.
    """

    connection: socket.socket
    count: int
    index: int
    secret: str = field(repr=False)
    exchange: bytes = field(repr=False)

    def answer(self, text: str) -> None:
        """Send a line of at most :data:`LONGEST` characters (OSError)."""
        line = " ".join(text.split("\n"))[:LONGEST].encode()
        proof = _proof(self.secret, b"answer", self.exchange, line)
        self.connection.sendall(proof + b" " + line + b"\n")


@dataclass(slots=True)
class _Pending:
    """A connection without a line so far."""

    nonce: bytes
    end: float
    line: bytearray = field(default_factory=bytearray)


class PeerListener:
    """A listening socket that accepts peers only.

    Args:
        listener: the socket; the caller closes it.
        secret: of the launch.
        purpose: of the connections, a word.
    """

    def __init__(self, listener: socket.socket, secret: str, purpose: str) -> None:
        self._listener: Final = listener
        self._secret: Final = secret
        self._purpose: Final = purpose.encode()
        self._pending: Final[dict[socket.socket, _Pending]] = {}
        self._selector: Final = selectors.DefaultSelector()

    def peers(self, seconds: float = float("inf")) -> Generator[Peer]:
        """Peers in the order in which they come, within ``seconds``.

        The caller closes their connections; those of strangers are closed here.
        """
        end = time.monotonic() + seconds
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            while (left := end - time.monotonic()) > 0:
                for key, _ in self._selector.select(self._wait(left)):
                    if key.fileobj is self._listener:
                        self._admit()
                        continue
                    peer = self._received(cast("socket.socket", key.fileobj))
                    if peer is not None:
                        yield peer
                self._close_late()
        finally:
            for pending in [*self._pending]:
                self._close(pending)
            self._selector.close()

    def _wait(self, left: float) -> float | None:
        """Seconds until something has to be done; ``None`` for no limit."""
        ends = [pending.end - time.monotonic() for pending in self._pending.values()]
        wait = min([left, *ends])
        return None if wait == float("inf") else max(wait, 0.0)

    def _admit(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # Such as too many open files: those of strangers are what can be spared.
            if self._pending:
                self._close(next(iter(self._pending)))
            else:
                time.sleep(0.1)
            return
        if len(self._pending) >= MOST_SILENT:
            self._close(next(iter(self._pending)))
        connection.setblocking(False)
        nonce = token_hex(16).encode()
        try:
            connection.send(nonce + b"\n")
        except OSError:
            connection.close()
            return
        self._pending[connection] = _Pending(nonce, time.monotonic() + LINE_SECONDS)
        self._selector.register(connection, selectors.EVENT_READ)

    def _received(self, connection: socket.socket) -> Peer | None:
        """The peer that a connection has shown to be, once its line is there."""
        pending = self._pending.get(connection)
        if pending is None:
            # Closed for another one since the selector has named it.
            return None
        data = b""
        with suppress(OSError):
            data = connection.recv(_LINE)
        pending.line += data
        if data and b"\n" not in data and len(pending.line) < _LINE:
            return None
        line = bytes(pending.line)
        found = _PEER.fullmatch(line)
        if found is not None and found[2] == self._purpose:
            proof = _proof(self._secret, b"come", pending.nonce, found[1])
            if hmac.compare_digest(proof, found[5]):
                self._forget(connection)
                connection.setblocking(True)
                connection.settimeout(LINE_SECONDS)
                exchange = pending.nonce + b"\n" + line
                return Peer(connection, int(found[3]), int(found[4]), self._secret, exchange)
        self._close(connection)
        return None

    def _close_late(self) -> None:
        now = time.monotonic()
        for connection in [each for each, pending in self._pending.items() if pending.end <= now]:
            self._close(connection)

    def _forget(self, connection: socket.socket) -> None:
        del self._pending[connection]
        self._selector.unregister(connection)

    def _close(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()


def introduce(
    connection: socket.socket, secret: str, purpose: str, place: tuple[int, int], seconds: float
) -> str:
    """Show to the other end of a connection that this process belongs to its launch.

    Args:
        connection: to a :class:`PeerListener`.
        secret: of the launch.
        purpose: of the connection.
        place: number of processes, and the index of this one.
        seconds: that the answer may take.

    Returns:
        The answer.

    Raises:
        OSError: the other end closes, is silent, or does not know the secret.
    """
    connection.settimeout(LINE_SECONDS)
    nonce = _line(connection)
    if _NONCE.fullmatch(nonce) is None:
        raise ConnectionError("the other end is not of a launch")
    count, index = place
    words = f"graphgen {purpose} {count} {index} {token_hex(16)}".encode()
    line = words + b" " + _proof(secret, b"come", nonce[:-1], words) + b"\n"
    connection.sendall(line)
    connection.settimeout(seconds)
    found = _ANSWER.fullmatch(_line(connection))
    said = nonce + line
    if found is None or not hmac.compare_digest(
        _proof(secret, b"answer", said, found[2]), found[1]
    ):
        raise ConnectionError("the other end does not know the secret of the launch")
    return found[2].decode(errors="replace")


def _line(connection: socket.socket) -> bytes:
    """The next line, byte by byte: what follows it is not read (OSError)."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = connection.recv(1)
        if not data or len(line) >= _LINE:
            raise ConnectionError("the other end has closed the connection")
        line += data
    return bytes(line)
