"""How weights get from an artifact's file into memory, and what each way costs at every token.

SmolLM2 in bf16 is compiled into an artifact once. Then its weights are read into huge pages and
checked, as ``graphgen generate`` does it, read without a check, and mapped without a copy; each set
takes part in alternating decode steps. The rates of other checksums are measured on the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.cold_start import answered
from benchmarks.rows import Row, table, write_json
from graphgen.eval import Array, rank_index
from graphgen.ir import RANK
from graphgen.lowering.cpu.pjrt import configure, put
from graphgen.runtime.artifact import Artifact, open_artifact
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.aligned_safetensors import read_header
from graphgen.runtime.weights.huge_pages import huge_pages
from graphgen.runtime.weights.presharded import rank_file
from graphgen.runtime.weights.weight_checks import checksum
from graphgen.runtime.weights.weight_reader import read_aligned

SUMS: Mapping[str, Callable[[Array], object]] = {
    "rows and columns": checksum,
    "zlib.crc32": lambda data: zlib.crc32(data.data),
    "SHA-256": lambda data: hashlib.sha256(data.data).digest(),
    "BLAKE2b": lambda data: hashlib.blake2b(data.data).digest(),
}


def _views(path: Path, data: Array) -> dict[str, Array]:
    """The tensors in the bytes of a whole file."""
    return {
        tensor.name: data[tensor.start : tensor.start + tensor.nbytes]
        .view(tensor.dtype)
        .reshape(tensor.shape)
        for tensor in read_header(path)
    }


def mapped(path: Path) -> dict[str, Array]:
    """The tensors in a mapping of the file, whose pages are all entered."""
    with path.open("rb") as file:
        flags = mmap.MAP_PRIVATE | mmap.MAP_POPULATE
        memory = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
    return _views(path, np.frombuffer(memory, np.uint8))


def unchecked(path: Path) -> dict[str, Array]:
    """The tensors in huge pages, read by one thread without a check."""
    size = path.stat().st_size
    data = huge_pages(size)
    with path.open("rb", buffering=0) as file:
        done = 0
        while done < size and (count := file.readinto(data[done:].data)):
            done += count
    return _views(path, data)


WAYS = {"read and checked": read_aligned, "read": unchecked, "mapped": mapped}


def compare_ways(artifact: Artifact, rounds: int) -> list[Row]:
    """Seconds to load, and the best decode step with what was loaded."""
    path, programs = rank_file(artifact.path, 0), artifact.programs(Silent())
    used = {value.name for function in programs.module.programs() for value in function.args}
    sessions: dict[str, Session] = {}
    loads = dict.fromkeys(WAYS, float("inf"))
    steps = dict.fromkeys(WAYS, float("inf"))
    for way, load in WAYS.items():
        for _ in range(3):
            start = time.perf_counter()
            arrays = load(path)
            loads[way] = min(loads[way], time.perf_counter() - start)
        given = {**arrays, RANK: rank_index(0)}  # pyright: ignore[reportPossiblyUnboundVariable]
        weights = {name: put([array]) for name, array in given.items() if name in used}
        sessions[way] = Session(programs, weights)
        sessions[way].prefill([[1, 2, 3]])
        sessions[way].decode([4])
    for _ in range(rounds):
        for way, session in sessions.items():
            start = time.perf_counter()
            session.decode([4])
            steps[way] = min(steps[way], time.perf_counter() - start)
    return [
        Row(f"{what}, {way}", seconds[way], "read and checked", seconds["read and checked"], {})
        for what, seconds in (("load", loads), ("decode step", steps))
        for way in WAYS
    ]


def compare_sums(data: Array) -> list[Row]:
    """Seconds of each checksum of the bytes."""
    best = dict.fromkeys(SUMS, float("inf"))
    for _ in range(3):
        for name, make in SUMS.items():
            start = time.perf_counter()
            for at in range(0, len(data), 1 << 20):
                make(data[at : at + (1 << 20)])
            best[name] = min(best[name], time.perf_counter() - start)
    first = next(iter(SUMS))
    return [
        Row(f"checksum, {name}", seconds, first, best[first], {"gb_s": len(data) / seconds / 1e9})
        for name, seconds in best.items()
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="decode steps of each")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    given = parser.parse_args()
    if given.alone:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "artifact")
        answered("smollm2", "--dtype", "bf16", "--artifact", model)
        configure(1)
        artifact = open_artifact(Path(model))
        rows = compare_ways(artifact, given.rounds)
        rows += compare_sums(np.fromfile(rank_file(artifact.path, 0), np.uint8))
    print(table(rows, ("gb_s",)))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
