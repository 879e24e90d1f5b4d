"""Lead a session from process 0; the other processes repeat its launches."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Final, TypeVar, cast

import numpy as np

from graphgen.json_value import parse_json
from graphgen.lowering.cpu.pjrt import start_together
from graphgen.runtime.distributed.peers import PeerListener, introduce
from graphgen.runtime.distributed.process_group import ProcessGroup, current_group
from graphgen.runtime.distributed.rendezvous import listening_at
from graphgen.runtime.session.devices import DeviceCall
from graphgen.runtime.session.row_results import Outputs
from graphgen.runtime.session.session import Session

# The last call: the others go on by themselves.
END: Final = "end"
_SIZE = struct.Struct("<I")
# Bytes of the longest line of a call, and seconds that process 0 may take to answer.
_LONGEST: Final = 1 << 26
_SECONDS: Final = 600.0
_CALLS: Final = "calls"


def packed_call(call: DeviceCall) -> bytes:
    """A call as bytes: the size of a line of JSON, the line, and the elements of the arrays."""
    arrays = {name: np.ascontiguousarray(array) for name, array in call.arrays.items()}
    # An array without dimensions has one after ascontiguousarray.
    kinds = [(name, array.dtype.name, call.arrays[name].shape) for name, array in arrays.items()]
    line = json.dumps([call.kind, call.words, kinds]).encode()
    return b"".join([_SIZE.pack(len(line)), line, *(array.tobytes() for array in arrays.values())])


class CallSender:
    """Process 0's end of the channel.

    Args:
        others: number of the other processes.
        secret: of the launch; others are turned away.
        listen: the address of this machine to listen at; empty for all.

    Attributes:
        port: that the others connect to.
    """

    def __init__(self, others: int, secret: str, listen: str = "") -> None:
        self._stack: Final = ExitStack()
        self._listener: Final = self._stack.enter_context(listening_at(listen, 0))
        self._others: Final = others
        self._secret: Final = secret
        self._connections: Final[list[socket.socket]] = []
        self.port: Final = int(self._listener.getsockname()[1])

    def accept(self) -> None:
        """Wait until all others are connected."""
        with closing(PeerListener(self._listener, self._secret, _CALLS).peers()) as peers:
            for peer in peers:
                connection = self._stack.enter_context(peer.connection)
                with suppress(OSError):
                    peer.answer("")
                    connection.settimeout(None)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._connections.append(connection)
                if len(self._connections) == self._others:
                    break
        self._listener.close()

    def send(self, call: DeviceCall) -> None:
        """Send a call to all others (OSError where one of them is gone)."""
        data = packed_call(call)
        for connection in self._connections:
            connection.sendall(data)

    def close(self) -> None:
        """End all connections."""
        self._stack.close()


def received_calls(
    host: str, port: int, secret: str, place: tuple[int, int]
) -> Iterator[DeviceCall]:
    """The calls of process 0 in their order, until it sends the last one.

    Args:
        host: of process 0.
        port: of its :class:`CallSender`.
        secret: of the launch.
        place: number of processes, and the index of this one.

    Raises:
        OSError, EOFError: where process 0 is gone, or does not know the secret.
    """
    with socket.create_connection((host.strip("[]"), port)) as connection:
        introduce(connection, secret, _CALLS, place, _SECONDS)
        connection.settimeout(None)
        while (call := _received(connection)).kind != END:
            yield call


def _received(connection: socket.socket) -> DeviceCall:
    (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
    if size > _LONGEST:
        raise ConnectionError(f"a call has {size} bytes")
    try:
        kind, words, kinds = cast(
            "tuple[str, list[str], list[tuple[str, str, list[int]]]]",
            parse_json(_exactly(connection, size)),
        )
        arrays: Outputs = {name: np.empty(shape, np.dtype(type_)) for name, type_, shape in kinds}
        call = DeviceCall(kind, tuple(words), arrays)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ConnectionError(f"a call cannot be read: {error}") from error
    for array in arrays.values():
        _fill(connection, array.reshape(-1).view(np.uint8).data)
    return call


def _exactly(connection: socket.socket, size: int) -> bytes:
    """The next bytes (EOFError if the other end closes before)."""
    data = bytearray(size)
    _fill(connection, memoryview(data))
    return bytes(data)


def _fill(connection: socket.socket, home: memoryview) -> None:
    while home:
        count = connection.recv_into(home)
        if not count:
            raise EOFError
        home = home[count:]


T = TypeVar("T")


def lead(session: Session, work: Callable[[], T]) -> T | None:
    """Do work that uses a session; in a launch process 0 does it, for all processes.

    The other processes launch what it launches, in the same order and with the same inputs, until
    the work is done: they need neither the requests nor the settings that the inputs follow from.

    Args:
        session: the same in all processes.
        work: uses no other programs that the processes share.

    Returns:
        The result of the work; ``None`` in the other processes.

    Raises:
        GraphgenError: GG0708 in a process that has lost another one; what the work raises.
    """
    group = current_group()
    if group is None:
        return work()
    found = lead_of(group, session, work)
    group.finish()
    return found


def lead_of(group: ProcessGroup, session: Session, work: Callable[[], T]) -> T | None:
    """Do work as :func:`lead` does, in a launch that goes on: another session may follow.

    Args:
        group: of the launch.
        session, work: as for :func:`lead`.
    """
    # The work may use devices of process 0 before it launches anything that is shared.
    start_together()
    if group.place.index:
        _follow(group, session)
        return None
    place = group.place
    sender = CallSender(place.count - 1, place.secret, place.listen)
    group.shared("calls", str(sender.port))
    sender.accept()

    def send(call: DeviceCall) -> None:
        try:
            sender.send(call)
        except OSError as error:
            raise group.lost_connection("another process") from error

    session.devices.listener = send
    try:
        found = work()
    finally:
        session.devices.listener = None
    send(DeviceCall(END))
    sender.close()
    return found


def _follow(group: ProcessGroup, session: Session) -> None:
    """Repeat the calls of process 0."""
    place, text = group.place, group.shared("calls", "")
    host = place.address.rpartition(":")[0]
    try:
        port = port_of(text)
        for call in received_calls(host, port, place.secret, (place.count, place.index)):
            session.devices.repeat(call)
    except (OSError, EOFError) as error:
        raise group.lost_connection("process 0") from error


def port_of(text: str) -> int:
    """The port of a text that process 0 should have put into the store (OSError)."""
    if len(text) > 5 or not (text.isascii() and text.isdigit()) or not 0 < int(text) < 1 << 16:
        raise ConnectionError(f"{text!r:.80} is not a port")
    return int(text)
