"""Connections between vLLM's server and replicas on other machines, watched at both ends.

vLLM watches the processes of its own machine: requests to a replica whose machine was lost waited
for ever, and a replica waited for ever for a server that was lost.
"""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

import zmq
from vllm.logger import init_logger
from zmq.utils.monitor import recv_monitor_message

_LOG: Final = init_logger("vllm.graphgen.replica_watch")
# Milliseconds between two beats, and without an answer to one until a connection is lost.
_BEAT, _SILENCE = 2000, 5000
# Milliseconds that a process may take to close the socket itself, where it ends as it should.
_GRACE: Final = 1500
# Seconds until a replica that does not end by a signal is ended.
_END: Final = 5
_FAILED: Final = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_AUTH,
)
# vLLM's message of a replica that has failed.
_DEAD: Final = b"ENGINE_CORE_DEAD"


def watch_replicas() -> None:
    """Watch the connections that this process makes from now on, as a server or a replica."""
    for name, kind in (("core_client", _ServerSockets), ("core", _ReplicaSockets)):
        module: Any = sys.modules.get(f"vllm.v1.engine.{name}")
        if module is not None and not isinstance(module.make_zmq_socket, kind):
            module.make_zmq_socket = kind(module.make_zmq_socket)


class _BeatingContext:
    """A context whose socket sends beats and reports what happens to its connections."""

    def __init__(self, context: Any) -> None:
        self._context: Final = context
        self.events: Any = None

    def socket(self, kind: int) -> Any:
        """A socket of the context."""
        made = self._context.socket(kind)
        made.setsockopt(zmq.HEARTBEAT_IVL, _BEAT)
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE)
        address = f"inproc://graphgen-{id(made)}"
        made.monitor(address, zmq.Event.DISCONNECTED | zmq.Event.MONITOR_STOPPED | sum(_FAILED))
        self.events = zmq.Context.shadow(self._context.underlying).socket(zmq.PAIR)
        self.events.connect(address)
        return made


class _ServerSockets:
    """Makes the sockets of vLLM's server; a lost replica is reported as one that has failed."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make: Final = make
        self._events: Any = None

    def __call__(self, context: Any, path: str, kind: int, **more: Any) -> Any:
        """As vLLM's ``make_zmq_socket``."""
        if kind == zmq.ROUTER and path.startswith("tcp://"):
            beating = _BeatingContext(context)
            made = self._make(beating, path, kind, **more)
            self._events = beating.events
            return made
        made = self._make(context, path, kind, **more)
        if kind == zmq.PULL and self._events is not None:
            # Replicas push to this socket.
            _start(_report, self._events, made.getsockopt(zmq.LAST_ENDPOINT).decode())
            self._events = None
        return made


class _ReplicaSockets:
    """Makes the sockets of a replica, which ends with its server."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make: Final = make

    def __call__(self, context: Any, path: str, kind: int, **more: Any) -> Any:
        """As vLLM's ``make_zmq_socket``."""
        # A socket that lingers is that of the start, which closes when all are ready.
        if kind != zmq.DEALER or "linger" in more or not path.startswith("tcp://"):
            return self._make(context, path, kind, **more)
        beating = _BeatingContext(context)
        made = self._make(beating, path, kind, **more)
        _start(_end, beating.events)
        return made


def _start(run: Callable[..., None], *arguments: Any) -> None:
    Thread(target=run, args=arguments, daemon=True, name="graphgen-replica-watch").start()


def _report(events: Any, output: str) -> None:
    """Fail all requests of the server when a replica is lost, as vLLM does for its own."""
    if not _is_lost(events):
        return
    _LOG.error("A replica on another machine is lost: the server ends.")
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.LINGER, 4000)
        socket.connect(output)
        socket.send(_DEAD)


def _end(events: Any) -> None:
    """End this replica when its server is lost."""
    if not _is_lost(events):
        return
    _LOG.error("The server of this replica is lost: the replica ends.")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END)
    os._exit(1)


def _is_lost(events: Any) -> bool:
    """Wait for a lost connection; False for a socket that is closed."""
    failed = 0
    while True:
        event = recv_monitor_message(events)["event"]
        if event in _FAILED:
            # The connection of a stranger, which is closed then.
            failed += 1
        elif event == zmq.Event.MONITOR_STOPPED:
            events.close(0)
            return False
        elif failed:
            failed -= 1
        else:
            break
    stops = False
    end = time.monotonic() + _GRACE / 1000
    while not stops and events.poll(max(0, int((end - time.monotonic()) * 1000))):
        stops = recv_monitor_message(events)["event"] == zmq.Event.MONITOR_STOPPED
    events.close(0)
    return not stops
