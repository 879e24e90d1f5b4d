"""The meeting of the processes of a launch, before JAX's runtime starts.

JAX's own meeting ends each process by SIGABRT when one of them does not come.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from graphgen.errors import GraphgenError

# Seconds that a line of another process may take, and between two attempts to connect.
_LINE, _PAUSE = 5.0, 0.1
# Characters of the longest line that is read.
_LONGEST = 1000
_HELP = "start all nodes with the same --nnodes, --nproc-per-node, --master-addr and --master-port"


def meet_at(address: str, count: int, index: int, seconds: float) -> None:
    """Wait until all processes have connected to process 0, which names the missing ones.

    A process connects and writes the line ``["graphgen", count, index]``. Process 0 answers to all
    at the same time, by an empty line or by its error.

    Args:
        address: host and port of process 0, which nothing listens at afterwards.
        count: number of processes.
        index: of this one.
        seconds: longest wait.

    Raises:
        GraphgenError: GG0708 when they do not all come, in all that have; GG0705 in process 0 for
            a port that is in use.
    """
    host, _, port = address.rpartition(":")
    if index:
        _come((host.strip("[]"), int(port)), count, index, seconds)
    else:
        _wait_for_others(int(port), address, count, seconds)


@contextmanager
def listening_at(port: int) -> Generator[socket.socket]:
    """A socket that listens at a port of all addresses of this machine (GG0705)."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise GraphgenError(
            "GG0705",
            f"port {port} cannot be listened on: {error.strerror}",
            help="give another --master-port, the same on every node",
        ) from error
    with listener:
        yield listener


def _wait_for_others(port: int, address: str, count: int, seconds: float) -> None:
    came: list[IO[str]] = []
    with listening_at(port) as listener, ExitStack() as stack:
        try:
            missing = set(range(1, count))
            arrivals = _arrivals(listener, stack, seconds)
            while missing:
                stream = next(arrivals, None)
                if stream is None:
                    raise _absent(missing, count, address, seconds)
                place = _introduced(stream)
                if place is not None:
                    came.append(stream)
                    _check(*place, count, missing)
                    missing.remove(place[1])
        except GraphgenError as error:
            _answer(came, error.what)
            raise
        _answer(came, "")


def _arrivals(listener: socket.socket, stack: ExitStack, seconds: float) -> Iterator[IO[str]]:
    """Connections of others, open until the end of ``stack``, that come within ``seconds``."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            connection = stack.enter_context(listener.accept()[0])
        except TimeoutError:
            return
        connection.settimeout(_LINE)
        yield stack.enter_context(connection.makefile("rw", encoding="utf-8"))


def _introduced(stream: IO[str]) -> tuple[int, int] | None:
    """The number of processes that another one knows of, and its index."""
    with suppress(OSError, ValueError):
        match json.loads(stream.readline(_LONGEST)):
            case ["graphgen", int(count), int(index)]:
                return count, index
            case _:
                pass
    return None


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
        help=_HELP,
    )


def _answer(streams: list[IO[str]], text: str) -> None:
    for stream in streams:
        with suppress(OSError):
            stream.write(text[:_LONGEST] + "\n")
            stream.flush()


def _come(address: tuple[str, int], count: int, index: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    with _connected(address, count, index, end, seconds) as connection:
        # Process 0 may have started later, and its answer comes when its own time is over.
        connection.settimeout(seconds + _LINE)
        try:
            with connection.makefile("rw", encoding="utf-8") as stream:
                stream.write(json.dumps(["graphgen", count, index]) + "\n")
                stream.flush()
                answer = stream.readline(_LONGEST + 1)
        except OSError:
            answer = ""
    if answer != "\n":
        what = answer.strip() or f"process 0 of {count} ended before all others had come"
        raise GraphgenError("GG0708", what, help=_HELP)


def _connected(
    address: tuple[str, int], count: int, index: int, end: float, seconds: float
) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address, timeout=max(end - time.monotonic(), 0.001))
        except OSError as error:
            if time.monotonic() + _PAUSE > end:
                host, port = address
                raise GraphgenError(
                    "GG0708",
                    f"process 0 of {count} did not come: nothing answered process {index} at "
                    f"{host}:{port} within {seconds:.0f} s ({error.strerror or error})",
                    help=_HELP,
                ) from error
        time.sleep(_PAUSE)
