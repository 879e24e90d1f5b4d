"""The processes that share the ranks of a program, through JAX's distributed runtime.

One process without :func:`join_processes`, which has all ranks.
"""

# jaxlib carries no types; this file and pjrt.py are where that ends.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import ctypes
import socket
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from graphgen.errors import GraphgenError

# Seconds to wait for other processes: as long as they give signs of life.
ALIVE = 7 * 24 * 3600.0


@dataclass(slots=True)
class _Joined:
    """Number of processes, index of this one, and the ranks that they share.

    Attributes:
        count, index: as above.
        stages: of a pipeline, each with as many ranks.
        each: ranks of a process, in all stages; 0 while it is not known.
        store: of all processes.
        met: number of times that they have met.
    """

    count: int = 1
    index: int = 0
    stages: int = 1
    each: int = 0
    store: KeyValueStore | None = None
    met: int = 0


_joined = _Joined()
_ALONE: ContextVar[bool] = ContextVar("_ALONE", default=False)


@contextmanager
def alone() -> Generator[None]:
    """Compile, place and launch on devices of this process only in a ``with`` block."""
    before = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(before)


def count() -> int:
    """Number of processes that run the program."""
    return 1 if _ALONE.get() else _joined.count


def index() -> int:
    """The index of this process."""
    return _joined.index


def in_stages() -> bool:
    """True if the processes share the stages of a pipeline: a program is not in all of them."""
    return count() > 1 and _joined.stages > 1


def share_ranks(ranks: int, stages: int = 1) -> int:
    """Divide ``ranks`` of each of ``stages`` among the processes (GG0705 for a remainder).

    Returns:
        The number of ranks of a process.
    """
    share, rest = divmod(ranks * stages, _joined.count)
    if rest or not share:
        of = f" of {stages} stages" if stages > 1 else ""
        more = " times the number of stages, --pp-degree," if stages > 1 else ""
        raise GraphgenError(
            "GG0705",
            f"{_joined.count} processes cannot share {ranks * stages} "
            f"rank{'s' * (ranks * stages > 1)}{of} equally",
            help=f"let the number of ranks, --tp,{more} be a multiple of the number of processes",
        )
    _joined.stages, _joined.each = stages, share
    return share


def local_ranks(ranks: int, first: int = 0) -> range:
    """The ranks of this process among ``ranks``, such as those of a stage.

    Without :func:`share_ranks` they are all that the processes share (GG0705 for a remainder).

    Args:
        ranks: how many.
        first: number of ranks of the stages before.

    Returns:
        Of the ``ranks`` those that are here, from 0 on.
    """
    if count() == 1:
        return range(ranks)
    each = share_of(ranks)
    begin = _joined.index * each - first
    return range(min(max(begin, 0), ranks), max(min(begin + each, ranks), 0))


def share_of(ranks: int) -> int:
    """The number of this process's ranks in all stages, of ``ranks`` if nothing has stated it."""
    if count() == 1:
        return ranks
    return _joined.each or share_ranks(ranks)


def process_of(rank: int) -> int:
    """The process that has a rank, counted over all stages."""
    return rank // _joined.each


def meet() -> None:
    """Wait for all processes, which may take different times to compile.

    The first collective of some ranks gives up after 30 seconds without the others.
    """
    if _joined.store is not None and not _ALONE.get():
        _joined.met += 1
        _joined.store.barrier(f"graphgen-meet-{_joined.met}", ALIVE)


def join_processes(
    address: str, count: int, index: int, seconds: int, listen: str = ""
) -> KeyValueStore:
    """Wait for all processes; works once, before JAX is used.

    Args:
        address: host and port of the coordinator, which is in process 0.
        count: number of processes.
        index: of this one.
        seconds: longest wait.
        listen: of process 0, the address that the coordinator listens at; empty for all.

    Raises:
        GraphgenError: GG0708 when they do not all come.
    """
    import jax
    from jax._src import distributed

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            address,
            count,
            index,
            local_device_ids=[],
            cluster_detection_method="deactivate",
            initialization_timeout=seconds,
            coordinator_bind_address=_bound(listen, address) if listen else None,
        )
    except RuntimeError as error:
        raise GraphgenError(
            "GG0708",
            f"process {index} of {count} did not meet the others at {address}: "
            f"{str(error).splitlines()[0]}",
            help="start all nodes with the same --nnodes, --master-addr and --master-port",
        ) from error
    client = cast(Any, distributed.global_state.client)
    _listen_towards(address, client)
    _joined.count, _joined.index = count, index
    _joined.store = KeyValueStore(client)
    return _joined.store


def _bound(listen: str, address: str) -> str:
    """Host and port that the coordinator listens at."""
    host = f"[{listen}]" if ":" in listen else listen
    return f"{host}:{address.rpartition(':')[2]}"


def _listen_towards(address: str, client: Any) -> None:
    """Have gloo listen at the address of this machine that the coordinator is reached from.

    By itself it takes the one that the machine's name has there, which is often a loopback.

    Args:
        address: host and port of the coordinator.
        client: jaxlib's.
    """
    from jax._src import xla_bridge
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage]

    host, _, port = address.rpartition(":")
    family, kind, _, _, there = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    # Datagrams: nothing is sent.
    with socket.socket(family, kind) as way:
        way.connect(there)
        mine = str(way.getsockname()[0])
    made = cast(Any, _jax).make_gloo_tcp_collectives(client, hostname=mine)
    factory = partial(cast(Any, xla_bridge).make_cpu_client, collectives=made)
    cast(Any, xla_bridge).register_backend_factory("cpu", factory, priority=0, fail_quietly=False)


def leave_processes() -> None:
    """End JAX's distributed runtime, once no process waits for another one.

    The coordinator's server stays until its process ends: gRPC aborts when the request of another
    process that leaves arrives while the server is destroyed.
    """
    import jax
    from jax._src import distributed

    state = cast(Any, distributed.global_state)
    if state.service is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(state.service))
        state.service = None
    jax.distributed.shutdown()


class KeyValueStore:
    """Small values that the coordinator keeps for all processes.

    Args:
        client: jaxlib's.

    Raises:
        RuntimeError: of any method, when the coordinator does not answer or the time is over.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def set(self, key: str, value: str) -> None:
        """Set the value of a key, for the first time or again."""
        self._client.key_value_set(key, value, allow_overwrite=True)

    def wait(self, key: str, seconds: float) -> str:
        """The value of a key, once there is one."""
        return str(self._client.blocking_key_value_get(key, int(seconds * 1000)))

    def folder(self, key: str) -> dict[str, str]:
        """The values of keys within ``key``, by the rest of their names."""
        found = cast("list[tuple[str, str]]", self._client.key_value_dir_get(key + "/"))
        return {name.rsplit("/", 1)[-1]: value for name, value in found}

    def barrier(self, name: str, seconds: float) -> None:
        """Wait until all processes are here; a name can be used once."""
        self._client.wait_at_barrier(name, int(seconds * 1000))
