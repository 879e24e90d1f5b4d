"""The process that compiles and runs programs of others: requests on standard input."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.compile_file import compiled_file, joined_results, split_arguments
from graphgen.lowering.cpu.given_file import UnfitFileError
from graphgen.lowering.cpu.isolated_run import CODE, MADE, UNFIT, packed, refusal, unpacked
from graphgen.lowering.cpu.program import XlaText
from graphgen.worker_process import answer_requests

# Programs that stay compiled.
_KEPT: Final = 64
_programs: OrderedDict[bytes, pjrt.Executable] = OrderedDict()


def answer(body: bytes) -> bytes:
    """The results of a program on every rank, or the error."""
    head, arrays = unpacked(body)
    try:
        os.environ[CODE] = str(head["code"])
        platform = str(head["platform"])
        if platform:
            pjrt.run_on_platform(platform)
        else:
            pjrt.configure(int(str(head["devices"])))
        return MADE + _run(head, arrays)
    except UnfitFileError as error:
        return UNFIT + error.what.encode()
    except GraphgenError as error:
        return refusal(error)


def _run(head: Mapping[str, object], arrays: Sequence[Array]) -> bytes:
    ranks, partitions = int(str(head["ranks"])), int(str(head.get("partitions", 1)))
    given = arrays[1:]
    executable = _compiled(head, arrays[0].tobytes(), given)
    columns = [given[place : place + ranks] for place in range(0, len(given), ranks)]
    if partitions > 1:
        columns = split_arguments(executable, given, partitions)
    try:
        results = pjrt.launch(executable, [pjrt.put(column) for column in columns])
        made = [np.asarray(part) for column in results for part in column]
        if partitions > 1:
            made = joined_results(executable, made, head)
        repeats = int(str(head["repeats"]))
        if repeats:
            made.append(_recorded(executable, columns, repeats))
    except RuntimeError as error:
        what = f"XLA cannot run the program: {pjrt.first_line(error)}"
        raise GraphgenError("GG0401", what) from error
    return packed({}, made)


def _recorded(
    executable: pjrt.Executable, columns: Sequence[Sequence[Array]], repeats: int
) -> Array:
    """The recording of some runs by XLA's profiler, as bytes."""

    def run() -> None:
        for column in pjrt.launch(executable, [pjrt.put(column) for column in columns]):
            for part in column:
                np.asarray(part)

    return np.frombuffer(pjrt.recorded(run, repeats), np.uint8)


def _compiled(head: Mapping[str, object], data: bytes, given: Sequence[Array]) -> pjrt.Executable:
    """The program of a request, compiled once."""
    ranks = int(str(head["ranks"]))
    said = {name: value for name, value in head.items() if name not in ("repeats", "arrays")}
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode() + data).digest()
    found = _programs.pop(key, None)
    if found is None and "form" in head:
        found = compiled_file(head, data, [array.shape for array in given[::ranks]])
    if found is None:
        text = data if head["binary"] else data.decode()
        found = XlaText(text, bool(head["hlo"]), bool(head["lapack"])).compiled(ranks)
    _programs[key] = found
    if len(_programs) > _KEPT:
        _programs.popitem(last=False)
    return found


if __name__ == "__main__":
    answer_requests(answer)
