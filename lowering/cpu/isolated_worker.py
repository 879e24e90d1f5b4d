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
from graphgen.lowering.cpu.isolated_run import CODE, MADE, packed, refusal, unpacked
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
    except GraphgenError as error:
        return refusal(error)


def _run(head: Mapping[str, object], arrays: Sequence[Array]) -> bytes:
    ranks = int(str(head["ranks"]))
    executable = _compiled(head, arrays[0].tobytes(), ranks)
    given = arrays[1:]
    columns = [given[place : place + ranks] for place in range(0, len(given), ranks)]
    try:
        results = pjrt.launch(executable, [pjrt.put(column) for column in columns])
        made = [np.asarray(part) for column in results for part in column]
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


def _compiled(head: Mapping[str, object], data: bytes, ranks: int) -> pjrt.Executable:
    """The program of a request, compiled once."""
    said = [head[key] for key in ("ranks", "hlo", "binary", "code")]
    key = hashlib.sha256(json.dumps(said).encode() + data).digest()
    found = _programs.pop(key, None)
    if found is None:
        text = data if head["binary"] else data.decode()
        found = XlaText(text, bool(head["hlo"]), bool(head["lapack"])).compiled(ranks)
    _programs[key] = found
    if len(_programs) > _KEPT:
        _programs.popitem(last=False)
    return found


if __name__ == "__main__":
    answer_requests(answer)
