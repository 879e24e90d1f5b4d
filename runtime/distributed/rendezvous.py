"""The meeting of the processes of a launch, before JAX's runtime starts.

JAX's own meeting ends each process by SIGABRT when one of them does not come.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.distributed.peers import LINE_SECONDS, Peer, PeerListener, introduce

# Seconds between two attempts to connect.
_PAUSE: Final = 0.1
# Times that process 0 may close a connection without an answer: a stranger may be in the way.
_TRIES: Final = 20
_HELP = "start all nodes with the same --nnodes, --nproc-per-node, --master-addr and --master-port"
_MEET: Final = "meet"


def meet_at(
    address: str, count: int, index: int, seconds: float, secret: str, listen: str = ""
) -> None:
    """Wait until all processes have connected to process 0, which names the missing ones.

    Process 0 answers to all at the same time, by an empty line or by its error. Who does not know
    the secret is not counted, whatever it sends.

    Args:
        address: host and port of process 0, which nothing listens at afterwards.
        count: number of processes.
        index: of this one.
        seconds: longest wait.
        secret: of the launch.
        listen: of process 0, the address of this machine that it listens at; empty for all.

    Raises:
        GraphgenError: GG0708 when they do not all come, in all that have; GG0705 in process 0 for
            a port that is in use.
    """
    host, _, port = address.rpartition(":")
    if index:
        _come((host.strip("[]"), int(port)), (count, index), seconds, secret)
        return
    with listening_at(listen, int(port)) as listener:
        _wait_for_others(PeerListener(listener, secret, _MEET), address, count, seconds)


@contextmanager
def listening_at(host: str, port: int) -> Generator[socket.socket]:
    """A socket that listens at a port of one address of this machine, or of all (GG0705).

    Args:
        host: the address; empty for all.
        port: 0 for any that is free.
    """
    dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise GraphgenError(
            "GG0705",
            f"port {port} cannot be listened on: {error.strerror}",
            help="give another --master-port, the same on every node",
        ) from error
    with listener:
        yield listener


def _wait_for_others(listener: PeerListener, address: str, count: int, seconds: float) -> None:
    came: list[Peer] = []
    with ExitStack() as stack:
        try:
            missing = set(range(1, count))
            peers = stack.enter_context(closing(listener.peers(seconds)))
            while missing:
                peer = next(peers, None)
                if peer is None:
                    raise _absent(missing, count, address, seconds)
                stack.enter_context(peer.connection)
                came.append(peer)
                _check(peer.count, peer.index, count, missing)
                missing.remove(peer.index)
        except GraphgenError as error:
            _answer(came, error.what)
            raise
        _answer(came, "")


def _check(its_count: int, its_index: int, count: int, missing: set[int]) -> None:
    if its_count != count:
        raise GraphgenError(
            "GG0708",
            f"process {its_index} was started as one of {its_count}, process 0 as one of {count}",
            help=_HELP,
        )
    if its_index not in missing:
        raise GraphgenError(
            "GG0708",
            f"two processes are process {its_index} of {count}",
            help="give each node another --node-rank, from 0 on",
        )


def _absent(missing: set[int], count: int, address: str, seconds: float) -> GraphgenError:
    plural, names = "es" * (len(missing) > 1), ", ".join(map(str, sorted(missing)))
    return GraphgenError(
        "GG0708",
        f"process{plural} {names} of {count} did not come to {address} within {seconds:.0f} s",
        help=f"{_HELP}, and the same secret",
    )


def _answer(peers: list[Peer], text: str) -> None:
    for peer in peers:
        with suppress(OSError):
            peer.answer(text)


def _come(address: tuple[str, int], place: tuple[int, int], seconds: float, secret: str) -> None:
    end, tries = time.monotonic() + seconds, 0
    while True:
        with _connected(address, place, end, seconds, closed=tries > 0) as connection:
            try:
                # Process 0 may have started later: it answers when its own time is over.
                wait = seconds + LINE_SECONDS
                answer = introduce(connection, secret, _MEET, place, wait)
            except OSError as error:
                tries += 1
                if tries == _TRIES or time.monotonic() + _PAUSE > end:
                    raise _turned_away(address, place, str(error)) from error
                time.sleep(_PAUSE)
                continue
        if answer:
            raise GraphgenError("GG0708", answer, help=_HELP)
        return


def _turned_away(address: tuple[str, int], place: tuple[int, int], reason: str) -> GraphgenError:
    (host, port), (count, index) = address, place
    return GraphgenError(
        "GG0708",
        f"process {index} of {count} was turned away at {host}:{port}: {reason}",
        help="give every node the same secret: GRAPHGEN_LAUNCH_SECRET, or --secret-file",
    )


def _connected(
    address: tuple[str, int], place: tuple[int, int], end: float, seconds: float, *, closed: bool
) -> socket.socket:
    """A connection to process 0.

    Args:
        address: of process 0.
        place: number of processes, and the index of this one.
        end: when the wait is over.
        seconds: of the whole wait.
        closed: there was one before, which has been closed.
    """
    count, index = place
    while True:
        try:
            return socket.create_connection(address, timeout=max(end - time.monotonic(), 0.001))
        except OSError as error:
            if closed:
                what = f"process 0 of {count} ended before all others had come"
                raise GraphgenError("GG0708", what, help=_HELP) from error
            if time.monotonic() + _PAUSE > end:
                host, port = address
                raise GraphgenError(
                    "GG0708",
                    f"process 0 of {count} did not come: nothing answered process {index} at "
                    f"{host}:{port} within {seconds:.0f} s ({error.strerror or error})",
                    help=_HELP,
                ) from error
        time.sleep(_PAUSE)
