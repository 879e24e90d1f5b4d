"""How fast does a checkpoint become the weights of eight ranks, beside reading the file at all?

A Llama of about 4 GB in bf16 is written once, of random numbers; then processes take turns on the
file in the page cache: ``cat`` of it, preparation into device buffers for all ranks, the same
tensors cut by safetensors' ``get_slice``, preparation of one rank after the other, of which the
largest anonymous memory is reported, and touching as much memory, below which no copy can be.

Each process has touched and freed that much memory before its clock starts: a virtual machine may
give what is free back to its host, and getting it again can cost many times what a copy does
(``--cold`` leaves that in).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, table, write_json

ROOT = Path(__file__).resolve().parent.parent
TP = 8
LAYERS = 10
CONFIG: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11264,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_CHUNK = 1 << 26
# What is timed, once all that leads to it is there.
Work = Callable[[], object]


def write_checkpoint(folder: Path, config: Mapping[str, object]) -> None:
    """``config.json`` and ``model.safetensors``, of random bits that are small numbers."""
    from graphgen.ir import Role
    from graphgen.ir.dtype import bf16
    from graphgen.models import build

    rows = build(config, bf16).entries(Role.WEIGHT)
    header: dict[str, object] = {}
    at = 0
    for row in rows:
        span = [at, at + row.logical.nbytes]
        header[row.name] = {"dtype": "BF16", "shape": row.logical.dims, "data_offsets": span}
        at = span[1]
    text = json.dumps(header).encode()
    noise = np.random.default_rng(0).integers(0x3C00, 0x3D00, _CHUNK // 2, np.uint16).tobytes()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while at > 0:
            file.write(noise[: min(at, _CHUNK)])
            at -= _CHUNK
    (folder / "config.json").write_text(json.dumps(dict(config)))


def ours(folder: Path) -> Work:
    """Every rank's weights in device buffers."""
    from graphgen.runtime.progress import Silent
    from graphgen.runtime.weights.rank_weights import put_weights

    weights = _opened(folder)

    return lambda: put_weights(weights, Silent())


def one_by_one(folder: Path) -> Work:
    """One rank's weights after the other, each dropped before the next."""
    from graphgen.runtime.weights.rank_weights import rank_arrays

    weights = _opened(folder)

    def work() -> None:
        for rank in range(TP):
            rank_arrays(weights, rank)

    return work


def _opened(folder: Path):
    """The weight programs; what is compiled does not depend on the weights and is not timed."""
    from graphgen.config.compile_config import CompileConfig
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
    from graphgen.runtime.model import build_model
    from graphgen.runtime.weights.rank_weights import RankWeights, read_weight

    checkpoint = open_checkpoint(folder)
    built = build_model(
        checkpoint.config,
        # The peer does not pack weights.
        CompileConfig(dtype="bf16", tp=TP, kernels="off").serving(batch=1, max_len=128),
    )
    return RankWeights(built.module, lambda row: read_weight(checkpoint, row))


def get_slice(folder: Path) -> Work:
    """The same parts of the same tensors by safetensors, joined as ours are, in device buffers."""
    import jax
    from safetensors import safe_open

    def work() -> list[list[jax.Array]]:
        with safe_open(folder / "model.safetensors", framework="np") as file:
            groups = _groups(file.keys())
            # What all ranks hold is read once, as ours is.
            alike = {names[0]: file.get_tensor(names[0]) for names in groups if _alike(names[0])}

            def made(names: list[str], rank: int):
                if names[0] in alike:
                    return alike[names[0]]
                parts = [_part(file.get_slice(name), name, rank) for name in names]
                return np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0])

            return [
                [jax.device_put(made(names, rank), device) for names in groups]
                for rank, device in enumerate(jax.devices()[:TP])
            ]

    return work


def touch(folder: Path) -> Work:
    """As many bytes as the file has, touched by as many threads as there are CPUs."""
    return lambda: _touch((folder / "model.safetensors").stat().st_size)


def _touch(size: int) -> None:
    """Get memory from the system as preparation does, and give it back."""
    from graphgen.runtime.weights.huge_pages import huge_pages

    memory = huge_pages(size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda at: memory[at : at + _CHUNK : 4096].fill(1), range(0, size, _CHUNK)))


_JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def _groups(names: list[str]) -> list[list[str]]:
    """q, k, v and gate, up together; everything else alone."""
    found: dict[str, list[str]] = {}
    for name in names:
        kind = name.split(".")[-2]
        group = next((group for group in _JOINED if kind in group), (kind,))
        members = found.setdefault(name.replace(kind, group[0]), [])
        members.append(name)
        members.sort(key=lambda member, group=group: group.index(member.split(".")[-2]))
    return list(found.values())


def _alike(name: str) -> bool:
    kind = name.split(".")[-2]
    return not (kind.endswith("_proj") or (kind in ("lm_head", "embed_tokens") and VOCAB_SPLIT))


def _part(view, name: str, rank: int):
    shape = view.get_shape()
    if name.split(".")[-2] in ("o_proj", "down_proj"):
        size = shape[1] // TP
        return view[:, rank * size : (rank + 1) * size]
    size = shape[0] // TP
    return view[rank * size : (rank + 1) * size]


# Whether a rank holds a part of the vocabulary or all of it, as in our own programs.
VOCAB_SPLIT = True
SIDES: dict[str, Callable[[Path], Work]] = {
    "ours": ours,
    "one-by-one": one_by_one,
    "get_slice": get_slice,
    "touch": touch,
}


@dataclass(frozen=True)
class How:
    """The circumstances of a measurement.

    Attributes:
        cold: with memory nobody touched before.
        alone: at a real-time priority, so that other work on the machine waits meanwhile.
    """

    cold: bool = False
    alone: bool = False

    @property
    def arguments(self) -> list[str]:
        """The same on the command line."""
        return ["--cold"] * self.cold + ["--alone"] * self.alone

    @contextmanager
    def clock(self) -> Iterator[None]:
        """What is timed happens here; threads and processes started here have the priority too."""
        if not self.alone:
            yield
            return
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        try:
            yield
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def measure(side: str, folder: Path, how: How) -> dict[str, float]:
    """Seconds of one side, of the wall clock and of the CPUs, and its largest anonymous memory."""
    import jax

    import graphgen.runtime.engine  # noqa: F401
    from graphgen.lowering.cpu.pjrt import configure

    configure(TP)
    jax.devices()
    work = SIDES[side](folder)
    if not how.cold:
        _touch((folder / "model.safetensors").stat().st_size * 5 // 4)
    before, done = _anonymous(), threading.Event()
    peak = [before]

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with how.clock():
        start, cpu = time.perf_counter(), time.process_time()
        work()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    done.set()
    watcher.join()
    return {"seconds": seconds, "cpu_s": cpu, "anonymous_mb": (peak[0] - before) / 1e6}


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def in_fresh_process(side: str, folder: Path, how: How) -> dict[str, float]:
    """Measure in a process of its own; ``cat`` is one already."""
    file = folder / "model.safetensors"
    if side == "cat":
        with open("/dev/null", "wb") as nowhere, how.clock():
            start, cpu = time.perf_counter(), os.times()
            subprocess.run(["cat", str(file)], stdout=nowhere, check=True)
            seconds, now = time.perf_counter() - start, os.times()
        spent = now.children_user + now.children_system - cpu.children_user - cpu.children_system
        return {"seconds": seconds, "cpu_s": spent, "anonymous_mb": 0.0}
    command = [sys.executable, "-m", "benchmarks.weights", "--child", side, "--folder", str(folder)]
    command += how.arguments
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout)


def compare(folder: Path, best_of: int, how: How) -> list[Row]:
    """All sides by turns, best of several."""
    sides = ("cat", *SIDES)
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    in_fresh_process("cat", folder, how)
    for _ in range(best_of):
        for side in sides:
            runs[side].append(in_fresh_process(side, folder, how))
    best = {side: min(found, key=lambda run: run["seconds"]) for side, found in runs.items()}
    size = (folder / "model.safetensors").stat().st_size / 1e9

    def row(case: str, side: str, peer: str, other: str) -> Row:
        mine, theirs = best[side], best[other]
        extra = {"gb": size, "anonymous_mb": mine["anonymous_mb"], "cpu_s": mine["cpu_s"]}
        return Row(
            case, mine["seconds"], peer, theirs["seconds"], {**extra, "peer_cpu_s": theirs["cpu_s"]}
        )

    return [
        row("all ranks", "ours", "cat of the file", "cat"),
        row("all ranks", "ours", "touching as much memory", "touch"),
        row("all ranks", "ours", "safetensors get_slice", "get_slice"),
        row("one by one", "one-by-one", "cat of the file", "cat"),
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Seconds from a checkpoint to the weights of eight ranks."
    )
    parser.add_argument("--best-of", type=int, default=3, metavar="N", help="runs of each side")
    parser.add_argument("--folder", type=Path, help="keep the checkpoint there (default: nowhere)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument("--layers", type=int, default=LAYERS, metavar="N", help="a smaller file")
    parser.add_argument("--cold", action="store_true", help="with memory nobody touched before")
    parser.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    how = How(given.cold, given.alone)
    if given.child:
        print(json.dumps(measure(given.child, given.folder, how)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "config.json").exists():
            print("writing the checkpoint ...", file=sys.stderr)
            write_checkpoint(folder, {**CONFIG, "num_hidden_layers": given.layers})
        rows = compare(folder, given.best_of, how)
    print(table(rows, ("gb", "anonymous_mb", "cpu_s", "peer_cpu_s")))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
