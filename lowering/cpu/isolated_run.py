"""Runs of programs of others in a child process, whose end becomes an error.

XLA checks what it compiles less than what a file can say: a program of others can end the process
that compiles or runs it. The child keeps its last programs compiled. It is started again for more
devices than it has.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.json_value import parse_json
from graphgen.limits import RUN_SECONDS
from graphgen.lowering.cpu.given_file import GivenFile, UnfitFileError
from graphgen.lowering.cpu.program import WrittenProgram
from graphgen.worker_process import WorkerProcess, read_whole, with_length

# The first byte of an answer: arrays, an error, or why a file is not compiled as it stands.
MADE, REFUSED, UNFIT = b"+", b"-", b"?"
CODE: Final = "GRAPHGEN_XLA_CODE"
_WORKER: Final = "graphgen.lowering.cpu.isolated_worker"
# Signals after which the numbers of a program say nothing, in words.
_SIGNALS: Final = {
    signal.SIGSEGV: "it read or wrote memory that is not its own",
    signal.SIGABRT: "XLA found a state that it does not allow",
    signal.SIGKILL: "the system ended it, as for want of memory",
}


class CompilerCrashError(GraphgenError):
    """The process that compiled and ran a program ended, or took too long."""


@dataclass(slots=True)
class IsolatedRuns:
    """Compiles and runs written programs in a child process.

    Attributes:
        worker: the child.
        devices: virtual devices that the child has.
        platform: of a plugin of JAX whose devices run the programs; empty for the CPU.
    """

    worker: WorkerProcess
    devices: int = 0
    platform: str = ""

    def run(
        self, written: WrittenProgram, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run a program on the arrays of each rank.

        Args:
            written: the program.
            inputs: per rank, arrays by name.

        Raises:
            GraphgenError: GG0401 if XLA refuses the program, ends the process or takes too long,
                GG0402 for a missing argument or another shape, GG1005 for an unknown platform.
            UnfitFileError: the program is a file, and XLA is not given it as it stands.
        """
        return _by_name(written, self._ask(written, inputs, 0))

    def record(
        self, written: WrittenProgram, inputs: Sequence[Mapping[str, Array]], repeats: int
    ) -> tuple[list[dict[str, Array]], bytes]:
        """Run a program as :meth:`run` does, then record ``repeats`` more runs.

        Args:
            written: the program.
            inputs: per rank, arrays by name.
            repeats: number of runs that XLA's profiler records.

        Returns:
            The outputs of each rank, and the ``xplane.pb`` of the profiler.
        """
        *made, recorded = self._ask(written, inputs, repeats)
        return _by_name(written, made), recorded.tobytes()

    def _ask(
        self, written: WrittenProgram, inputs: Sequence[Mapping[str, Array]], repeats: int
    ) -> list[Array]:
        program = written.interface
        columns = program.argument_arrays(inputs)
        devices = program.ranks
        if isinstance(written.text, GivenFile):
            columns = written.text.whole(columns)
            devices = max(devices, written.text.partitions)
        if devices > self.devices:
            self.worker.close()
            self.devices = devices
        request = self._request(written, columns, repeats)
        return ask_for_arrays(self.worker, request, program.name, "XLA")

    def _request(
        self, written: WrittenProgram, columns: Sequence[Sequence[Array]], repeats: int
    ) -> bytes:
        own, data = written.text.request()
        split = isinstance(written.text, GivenFile) and written.text.partitions > 1
        head = {
            **own,
            "ranks": 1 if split else written.interface.ranks,
            "devices": self.devices,
            "code": os.environ.get(CODE, ""),
            "platform": self.platform,
            "repeats": repeats,
        }
        program_text = np.frombuffer(data, np.uint8)
        arrays = [array for column in columns for array in column]
        return with_length(packed(head, [program_text, *arrays]))


def _by_name(written: WrittenProgram, made: Sequence[Array]) -> list[dict[str, Array]]:
    """The outputs of each rank by name, of arrays one output after the other."""
    names, ranks = written.interface.outputs, written.interface.ranks
    if isinstance(written.text, GivenFile) and written.text.partitions > 1:
        # Every rank has the arrays of all partitions.
        return [dict(zip(names, made, strict=True)) for _ in range(ranks)]
    return [
        {name: made[index * ranks + rank] for index, name in enumerate(names)}
        for rank in range(ranks)
    ]


def ask_for_arrays(worker: WorkerProcess, request: bytes, name: str, compiler: str) -> list[Array]:
    """The arrays of the answer to a request.

    Args:
        worker: whom to ask.
        request: as :func:`packed` makes it, with its length.
        name: of the program, for errors.
        compiler: for errors, too.

    Raises:
        GraphgenError: the child's, or GG0401 where it ended or took too long.
        UnfitFileError: the child did not give a file to XLA.
    """
    answer = worker.ask(request, read_whole, RUN_SECONDS.most)
    if not answer and worker.took_too_long:
        raise CompilerCrashError(
            "GG0401",
            f"@{name} was not compiled and run by {compiler} in {RUN_SECONDS.most} seconds",
            help=f"--limits {RUN_SECONDS.name}=N allows more; graphgen minify finds the ops",
        )
    if not answer:
        raise _ended(worker.ended_by, name, compiler)
    if answer[:1] == UNFIT:
        raise UnfitFileError("GG0401", answer[1:].decode())
    if answer[:1] == REFUSED:
        said = cast("Mapping[str, str]", parse_json(answer[1:]))
        raise GraphgenError(said["code"], said["what"], note=said["note"], help=said["help"])
    return unpacked(answer[1:])[1]


def refusal(error: GraphgenError) -> bytes:
    """An error as the answer of a child."""
    said = {"code": error.code, "what": error.what, "note": error.note, "help": error.help}
    return REFUSED + json.dumps({key: text or "" for key, text in said.items()}).encode()


def packed(head: Mapping[str, object], arrays: Sequence[Array]) -> bytes:
    """A JSON object and arrays as bytes."""
    from graphgen.eval.arithmetic import name_of

    kinds = [[name_of(array.dtype), list(array.shape)] for array in arrays]
    described = json.dumps({**head, "arrays": kinds}).encode()
    parts = [np.ascontiguousarray(array).tobytes() for array in arrays]
    return b"".join([len(described).to_bytes(8, "little"), described, *parts])


def unpacked(body: bytes) -> tuple[Mapping[str, object], list[Array]]:
    """The JSON object and the arrays that :func:`packed` was given."""
    from graphgen.eval import numpy_dtype
    from graphgen.ir import dtype

    at = 8 + int.from_bytes(body[:8], "little")
    head = cast("Mapping[str, object]", parse_json(body[8:at]))
    arrays: list[Array] = []
    for name, shape in cast("list[tuple[str, list[int]]]", head["arrays"]):
        kind = np.dtype(numpy_dtype(dtype(name)))
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(body, kind, count, at).reshape(shape).copy())
        at += count * kind.itemsize
    return head, arrays


def _ended(number: int, name: str, compiler: str) -> CompilerCrashError:
    """The error for a program that ended its process."""
    reason = f"signal {number}"
    with suppress(ValueError):
        known = signal.Signals(number)
        reason = f"{known.name}: {_SIGNALS.get(known, signal.strsignal(number) or '')}"
    if not number:
        reason = "it exited"
    return CompilerCrashError(
        "GG0401",
        f"@{name} ended the process in which {compiler} compiled and ran it ({reason})",
        help="graphgen run --on numpy computes it without one; graphgen triage finds the ops",
    )


# -P: otherwise the current folder comes first on the path.
ISOLATED: Final = IsolatedRuns(WorkerProcess(lambda: (sys.executable, "-P", "-m", _WORKER)))
_platforms: dict[str, IsolatedRuns] = {}


def isolated_on(platform: str) -> IsolatedRuns:
    """The child process for the devices of a plugin of JAX."""
    if platform not in _platforms:
        worker = WorkerProcess(lambda: (sys.executable, "-P", "-m", _WORKER))
        _platforms[platform] = IsolatedRuns(worker, platform=platform)
    return _platforms[platform]
