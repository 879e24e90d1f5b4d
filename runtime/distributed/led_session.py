"""Lead a session from process 0; the other processes repeat its launches."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from secrets import compare_digest, token_hex
from typing import Final, TypeVar

import numpy as np

from graphgen.lowering.cpu.pjrt import start_together
from graphgen.runtime.distributed.process_group import ProcessGroup, current_group
from graphgen.runtime.session.devices import DeviceCall
from graphgen.runtime.session.row_results import Outputs
from graphgen.runtime.session.session import Session

# The last call: the others go on by themselves.
END: Final = "end"
_SIZE = struct.Struct("<I")
# Bytes of the word by which another process shows that it belongs to the launch, and the seconds
# that a connection has to send it.
_SECRET, _SECONDS = 32, 10.0


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

    Attributes:
        port: that the others connect to.
        secret: that they send first.
    """

    def __init__(self, others: int) -> None:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener: Final = socket.create_server(("", 0), family=family, dualstack_ipv6=dual)
        self._others: Final = others
        self._connections: Final[list[socket.socket]] = []
        self.port: Final = int(self._listener.getsockname()[1])
        self.secret: Final = token_hex(_SECRET // 2)

    def accept(self) -> None:
        """Wait until all others are connected; whatever else connects is turned away."""
        while len(self._connections) < self._others:
            connection, _ = self._listener.accept()
            connection.settimeout(_SECONDS)
            try:
                given = _exactly(connection, _SECRET)
            except (OSError, EOFError):
                connection.close()
                continue
            if not compare_digest(given, self.secret.encode()):
                connection.close()
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
        self._listener.close()

    def send(self, call: DeviceCall) -> None:
        """Send a call to all others (OSError where one of them is gone)."""
        data = packed_call(call)
        for connection in self._connections:
            connection.sendall(data)

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections:
            connection.close()


def received_calls(host: str, port: int, secret: str) -> Iterator[DeviceCall]:
    """The calls of process 0 in their order, until it sends the last one.

    Args:
        host: of process 0.
        port, secret: of its :class:`CallSender`.

    Raises:
        OSError, EOFError: where process 0 is gone.
    """
    with socket.create_connection((host.strip("[]"), port)) as connection:
        connection.sendall(secret.encode())
        while (call := _received(connection)).kind != END:
            yield call


def _received(connection: socket.socket) -> DeviceCall:
    (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
    kind, words, kinds = json.loads(_exactly(connection, size))
    arrays: Outputs = {}
    for name, dtype, shape in kinds:
        arrays[name] = array = np.empty(shape, np.dtype(dtype))
        _fill(connection, array.reshape(-1).view(np.uint8).data)
    return DeviceCall(kind, tuple(words), arrays)


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
    sender = CallSender(group.place.count - 1)
    group.shared("calls", json.dumps([sender.port, sender.secret]))
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
    port, secret = json.loads(group.shared("calls", ""))
    host = group.place.address.rpartition(":")[0]
    try:
        for call in received_calls(host, port, secret):
            session.devices.repeat(call)
    except (OSError, EOFError) as error:
        raise group.lost_connection("process 0") from error
