"""Lead a session from process 0; the other processes repeat its launches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from graphgen.lowering.cpu.pjrt import start_together
from graphgen.runtime.distributed.call_channel import END, CallSender, received_calls
from graphgen.runtime.distributed.process_group import ProcessGroup, current_group
from graphgen.runtime.launching.session_devices import DeviceCall
from graphgen.runtime.session import Session

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
