"""The processes that share the ranks of a program, through JAX's distributed runtime.

One process without :func:`join_processes`, which has all ranks.
"""

# jaxlib carries no types; this file and pjrt.py are where that ends.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from graphgen.errors import GraphgenError


@dataclass(slots=True)
class _Joined:
    """Number of processes and index of this one."""

    count: int = 1
    index: int = 0


_joined = _Joined()


def count() -> int:
    """Number of processes that run the program."""
    return _joined.count


def index() -> int:
    """The index of this process."""
    return _joined.index


def local_ranks(ranks: int) -> range:
    """The ranks of this process, of ``ranks`` that the processes share (GG0705 for a remainder)."""
    share, rest = divmod(ranks, _joined.count)
    if rest or not share:
        raise GraphgenError(
            "GG0705",
            f"{_joined.count} processes cannot share {ranks} rank{'s' * (ranks > 1)} equally",
            help="let the number of ranks, --tp, be a multiple of the number of processes",
        )
    return range(_joined.index * share, (_joined.index + 1) * share)


def join_processes(address: str, count: int, index: int, seconds: int) -> KeyValueStore:
    """Wait for all processes; works once, before JAX is used.

    Args:
        address: host and port of the coordinator, which is in process 0.
        count: number of processes.
        index: of this one.
        seconds: longest wait.

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
        )
    except RuntimeError as error:
        raise GraphgenError(
            "GG0708",
            f"process {index} of {count} did not meet the others at {address}: "
            f"{str(error).splitlines()[0]}",
            help="start all nodes with the same --nnodes, --master-addr and --master-port",
        ) from error
    _joined.count, _joined.index = count, index
    return KeyValueStore(cast(Any, distributed.global_state.client))


def leave_processes() -> None:
    """End JAX's distributed runtime, once no process waits for another one."""
    import jax

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
