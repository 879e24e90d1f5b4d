"""The processes of a launch as one of them sees them: inputs shared, programs compared, ends."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from hashlib import sha256
from importlib.metadata import version
from typing import Final, cast

from graphgen.analysis import fingerprint
from graphgen.analysis.stage_chain import stage_count
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import parse_json
from graphgen.lowering.cpu.processes import (
    ALIVE,
    KeyValueStore,
    join_processes,
    leave_processes,
    share_ranks,
)
from graphgen.runtime.distributed.process_watch import FAILURES, ProcessWatch
from graphgen.runtime.distributed.rendezvous import meet_at
from graphgen.version import __version__

# By name; a value is compared and shown as text.
Record = Mapping[str, str]
# Texts longer than this are shown by their hash.
_SHOWN = 40


def record_of(
    config: Mapping[str, object], weights: str, settings: CompileConfig, module: Module
) -> Record:
    """Versions, hashes of weights and programs, and each value of the configurations.

    Args:
        config: of the model, as in ``config.json``.
        weights: the checkpoint's fingerprint.
        settings: of the compilation.
        module: the programs.
    """
    asked = {f"option {name}": _text(value) for name, value in settings.values().items()}
    named = {f"config.json {name}": _text(value) for name, value in config.items()}
    return {
        "version of graphgen": __version__,
        "version of jaxlib": version("jaxlib"),
        **asked,
        **named,
        "hash of the weights": weights[:16],
        "hash of the programs": fingerprint(module)[:16],
    }


def _record(text: str, index: int) -> Record:
    """The record of a text that a process has put into the store (GG0709)."""
    found = _parsed(text, index)
    if not isinstance(found, dict):
        raise _unreadable(text, index)
    return {name: str(value) for name, value in cast("dict[str, object]", found).items()}


def _parsed(text: str, index: int) -> object:
    """The JSON that a process has put into the store, which strangers can write to (GG0709)."""
    try:
        return parse_json(text)
    except ValueError:
        raise _unreadable(text, index) from None


def _unreadable(text: str, index: int) -> GraphgenError:
    return GraphgenError(
        "GG0709",
        f"the words of process {index} cannot be read: {text!r:.80}",
        help="see that nothing but the launch reaches the port of --master-addr",
    )


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def require_agreement(records: Sequence[Record]) -> None:
    """Refuse records that differ (GG0709), naming the first differences.

    Args:
        records: of each process.
    """
    names = {name: None for record in records for name in record}
    parted: list[str] = []
    for name in names:
        values = [record.get(name, "missing") for record in records]
        others = [index for index, value in enumerate(values) if value != values[0]]
        if others:
            other = others[0]
            parted.append(
                f"{name}: {_shown(values[0])} in process 0, {_shown(values[other])} in process "
                + ", ".join(str(index) for index in others if values[index] == values[other])
            )
    if parted:
        rest = f"; and {len(parted) - 3} more" if len(parted) > 3 else ""
        raise GraphgenError(
            "GG0709",
            f"the processes do not run the same program: {'; '.join(parted[:3])}{rest}",
            help="give every node the same files, the same options and the same installation",
        )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"sha256 {sha256(text.encode()).hexdigest()[:12]}"


# The variable by which ``graphgen launch`` gives a process its place; see :class:`LaunchPlace`.
PLACE = "GRAPHGEN_LAUNCH"
# AWS's variable of the ranks of a node.
_LOCAL_RANKS = "NEURON_LOCAL_TP"
# Seconds between the ends of the first process and of the last one.
_LAST = 60.0
# Seconds after which the watch knows about a process that has been silent for too long.
_KNOWN = 3.0
_SET_DEATH_SIGNAL = 1


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """A process of a launch.

    Attributes:
        address: host and port of the coordinator.
        count, index: number of processes, and this one.
        nodes: machines, which have as many processes each, in order.
        silence: seconds without a sign of life after which a process is lost.
        start: seconds to wait for the processes to start.
        listen: the address of this machine that process 0 listens at; empty for all.
        secret: by which the processes know each other.
    """

    address: str
    count: int
    index: int
    nodes: int
    silence: float
    start: int
    listen: str = ""
    secret: str = field(default="", repr=False)

    @property
    def node(self) -> int:
        """The machine of this process."""
        return self.index * self.nodes // self.count

    def text(self) -> str:
        """The value of the variable."""
        return json.dumps(astuple(self))


class ProcessGroup:
    """The processes of a launch.

    Args:
        store: of all processes.
        place: of this one.
        on_lost: as for :class:`ProcessWatch`.
    """

    def __init__(
        self, store: KeyValueStore, place: LaunchPlace, on_lost: Callable[[GraphgenError], None]
    ) -> None:
        self.place: Final = place
        # As the user has set it: it follows each model afterwards.
        self.stated_ranks: Final = os.environ.get(_LOCAL_RANKS)
        self._store: Final = store
        self._compared = 0
        self._given: Final = Counter[str]()
        self._watch: Final = ProcessWatch(store, place.count, place.index, place.silence, on_lost)
        self._watch.start()

    def shared(self, name: str, value: str) -> str:
        """The value that process 0 gave, at the same use of a name."""
        self._given[name] += 1
        key = f"graphgen/inputs/{name}-{self._given[name]}"
        if self.place.index == 0:
            self._store.set(key, value)
            return value
        return self._store.wait(key, ALIVE)

    def shared_values(self, name: str, values: Sequence[object]) -> list[object]:
        """The values that process 0 gave, as many; otherwise as :meth:`shared` (GG0709)."""
        text = self.shared(name, json.dumps([*values]))
        found = _parsed(text, 0)
        if isinstance(found, list) and len(rows := cast("list[object]", found)) == len(values):
            return rows
        raise _unreadable(text, 0)

    def agree(self, name: str, record: Record) -> None:
        """Compare records of all processes; each of them raises the same error (GG0709).

        Several models of a launch are compared one after the other, in the same order everywhere.
        """
        self._compared += 1
        place, name = self.place, f"{name}-{self._compared}"
        key = f"graphgen/{name}"
        self._store.set(f"{key}/{place.index}", json.dumps(record))
        texts = [self._store.wait(f"{key}/{other}", ALIVE) for other in range(place.count)]
        # Process 0 keeps the records: it waits until everyone has read them.
        self._store.barrier(f"graphgen-{name}", ALIVE)
        try:
            require_agreement([_record(text, index) for index, text in enumerate(texts)])
        except GraphgenError:
            self._watch.stop()
            raise

    def finish(self) -> None:
        """End together with the other processes (GG0708 where one of them does not end)."""
        try:
            self._store.barrier("graphgen-finish", _LAST)
        except RuntimeError as error:
            raise GraphgenError(
                "GG0708",
                f"the other processes did not end within {_LAST:.0f} s",
                help="the processes parted: run with one process, and report it if that ends",
            ) from error
        self._watch.stop()
        leave_processes()

    def lost_connection(self, whom: str) -> GraphgenError:
        """The error (GG0708) about a connection that has ended, unless the watch knows more.

        Args:
            whom: at the other end.
        """
        time.sleep(self.place.silence + _KNOWN)
        return GraphgenError(
            "GG0708",
            f"the connection to {whom} of the launch has ended",
            help="see what the others reported, and start all processes again",
        )

    def fail(self, reason: str, status: int) -> None:
        """Report to the others why this process ends; it ends without waiting for them.

        Args:
            reason: a line.
            status: the exit status.
        """
        with suppress(RuntimeError):
            self._store.set(f"{FAILURES}/{self.place.index}", reason)
        self._watch.stop()

        def leave() -> None:
            sys.stdout.flush()
            sys.stderr.flush()
            if self.place.index == 0:
                # The others learn the reason from the coordinator, which ends with this process.
                time.sleep(1.2)
            os._exit(status)

        atexit.register(leave)


# Of the launch that this process belongs to.
_groups: list[ProcessGroup] = []


def current_group() -> ProcessGroup | None:
    """The launch that this process belongs to, within :func:`launched`."""
    return _groups[-1] if _groups else None


def current_place() -> LaunchPlace | None:
    """The place of this process in its launch, if it belongs to one."""
    return _groups[-1].place if _groups else None


def agree_on_program(
    config: Mapping[str, object],
    fingerprint: Callable[[], str],
    settings: CompileConfig,
    module: Module,
) -> None:
    """In a launch: compare what the processes run, before any weight is loaded.

    Args:
        config: of the model, as in ``config.json``.
        fingerprint: gives that of the weights' checkpoint.
        settings: of the compilation.
        module: the programs.

    Raises:
        GraphgenError: GG0709 if they differ, GG0705 for ranks that they cannot share.
    """
    for group in _groups:
        stages = stage_count(module)
        share_ranks(module.ranks, stages)
        state_local_ranks(group.stated_ranks, module.ranks * stages // group.place.nodes)
        group.agree("program", record_of(config, fingerprint(), settings, module))


def state_local_ranks(stated: str | None, ranks: int) -> None:
    """Set AWS's variable of the ranks of this node.

    Args:
        stated: the value that the user has set; ``None`` without one.
        ranks: of this node.

    Raises:
        GraphgenError: GG0705 if the user has set another number.
    """
    if stated not in (None, str(ranks)):
        raise GraphgenError(
            "GG0705",
            f"NEURON_LOCAL_TP={stated}, but this node has {ranks} ranks of the model",
            help="unset it, or change --tp, --nnodes or --nproc-per-node",
        )
    os.environ[_LOCAL_RANKS] = str(ranks)


@contextmanager
def launched(on_lost: Callable[[GraphgenError], None]) -> Generator[ProcessGroup | None]:
    """Belong to a launch while the block runs, in a process that ``graphgen launch`` started.

    Args:
        on_lost: as for :class:`ProcessWatch`.

    Yields:
        ``None`` in any other process.

    Raises:
        GraphgenError: GG0708 when a process is lost or the processes do not meet.
    """
    if PLACE not in os.environ:
        yield None
        return
    place = LaunchPlace(*json.loads(os.environ[PLACE]))
    end_with_parent()
    _keep_stdout()
    where = (place.address, place.count, place.index, place.start)
    meet_at(*where, place.secret, place.listen)
    store = join_processes(*where, place.listen)
    group = ProcessGroup(store, place, on_lost)
    _groups.append(group)
    try:
        yield group
    except GraphgenError as error:
        group.fail(f"it ended with {error.code}, {error.what}", 1)
        raise
    except RuntimeError as error:
        if "gloo" in str(error).lower():
            # A process at the other end of a connection is gone: the watch will know which.
            time.sleep(place.silence + _KNOWN)
        group.fail(f"it ended with {type(error).__name__}", 70)
        raise
    except BaseException as error:
        group.fail(f"it ended with {type(error).__name__}", 70)
        raise
    finally:
        _groups.pop()


def end_with_parent() -> None:
    """Have Linux kill this process when the one that started it ends in any way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _keep_stdout() -> None:
    """Keep standard output to Python alone: gloo writes remarks to it."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
