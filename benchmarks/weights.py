"""How fast does a checkpoint become the weights of eight ranks, beside reading the file at all?

A Llama of about 4 GB in bf16 is written once, of random numbers; then four processes take turns on
the file in the page cache: ``cat`` of it, preparation into device buffers for all ranks, the same
tensors cut by safetensors' ``get_slice``, and preparation of one rank after the other, of which the
largest anonymous memory is reported.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, table, write_json

ROOT = Path(__file__).resolve().parent.parent
TP = 8
CONFIG: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11264,
    "num_hidden_layers": 10,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_CHUNK = 1 << 26


def write_checkpoint(folder: Path) -> None:
    """``config.json`` and ``model.safetensors``, of random bits that are small numbers."""
    from graphgen.ir import Role
    from graphgen.ir.dtype import bf16
    from graphgen.models import build

    rows = build(CONFIG, bf16).entries(Role.WEIGHT)
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
    (folder / "config.json").write_text(json.dumps(CONFIG))


def ours(folder: Path) -> None:
    """Every rank's weights in device buffers."""
    weights, module = _prepared(folder)
    from runtime.progress import Silent
    from runtime.weights import put_weights

    placed = put_weights(weights, Silent())
    assert len(placed) > module


def one_by_one(folder: Path) -> None:
    """One rank's weights after the other, each dropped before the next."""
    from runtime.weights import rank_arrays

    weights, _ = _prepared(folder)
    for rank in range(TP):
        rank_arrays(weights, rank)


def _prepared(folder: Path):
    """The preparation, and how many layers there are at least."""
    from lowering.cpu.pjrt import configure
    from runtime.checkpoint.open import open_checkpoint
    from runtime.model import Settings, build_model
    from runtime.weights import RankWeights, read_weight

    configure(TP)
    checkpoint = open_checkpoint(folder)
    built = build_model(checkpoint.config, Settings("bf16", 1, 128, TP))
    return RankWeights(built.module, lambda row: read_weight(checkpoint, row)), 10


def get_slice(folder: Path) -> None:
    """The same parts of the same tensors by safetensors, joined as ours are, in device buffers."""
    import jax
    from safetensors import safe_open

    from lowering.cpu.pjrt import configure

    configure(TP)
    with safe_open(folder / "model.safetensors", framework="np") as file:
        for rank, device in enumerate(jax.devices()):
            held: list[object] = []
            for names in _groups(file.keys()):
                parts = [_part(file.get_slice(name), name, rank) for name in names]
                array = np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0])
                held.append(jax.device_put(array, device))


def _groups(names: list[str]) -> list[list[str]]:
    """q, k, v and gate, up together; everything else alone."""
    found: dict[str, list[str]] = {}
    for name in names:
        kind = name.split(".")[-2]
        joined = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv"}
        joined |= {"gate_proj": "gate_up", "up_proj": "gate_up"}
        found.setdefault(name.replace(kind, joined.get(kind, kind)), []).append(name)
    return list(found.values())


def _part(view, name: str, rank: int):
    shape = view.get_shape()
    kind = name.split(".")[-2]
    if kind in ("o_proj", "down_proj"):
        size = shape[1] // TP
        return view[:, rank * size : (rank + 1) * size]
    if kind.endswith("_proj") or (kind in ("lm_head", "embed_tokens") and VOCAB_SPLIT):
        size = shape[0] // TP
        return view[rank * size : (rank + 1) * size]
    return view[:]


# Whether a rank holds a part of the vocabulary or all of it, as in our own programs.
VOCAB_SPLIT = False
SIDES: dict[str, Callable[[Path], None]] = {
    "ours": ours,
    "one-by-one": one_by_one,
    "get_slice": get_slice,
}


def measure(side: str, folder: Path) -> dict[str, float]:
    """Seconds of one side, the imports it needs left out, and its largest anonymous memory."""
    import jax

    import runtime.engine  # noqa: F401

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", TP)
    jax.devices()
    peak, done = [_anonymous()], threading.Event()
    before = peak[0]

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    SIDES[side](folder)
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return {"seconds": seconds, "anonymous_mb": (peak[0] - before) / 1e6}


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def in_fresh_process(side: str, folder: Path) -> dict[str, float]:
    """Measure in a process of its own; ``cat`` is one already."""
    file = folder / "model.safetensors"
    if side == "cat":
        start = time.perf_counter()
        with open("/dev/null", "wb") as nowhere:
            subprocess.run(["cat", str(file)], stdout=nowhere, check=True)
        return {"seconds": time.perf_counter() - start, "anonymous_mb": 0.0}
    command = [sys.executable, "-m", "benchmarks.weights", "--child", side, "--folder", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout)


def compare(folder: Path, best_of: int) -> list[Row]:
    """All sides by turns, best of several."""
    sides = ("cat", *SIDES)
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    in_fresh_process("cat", folder)
    for _ in range(best_of):
        for side in sides:
            runs[side].append(in_fresh_process(side, folder))
    best = {side: min(found, key=lambda run: run["seconds"]) for side, found in runs.items()}
    gigabytes = (folder / "model.safetensors").stat().st_size / 1e9
    extra = {"gb": gigabytes, "anonymous_mb": best["ours"]["anonymous_mb"]}
    alone = {"gb": gigabytes, "anonymous_mb": best["one-by-one"]["anonymous_mb"]}
    seconds = {side: run["seconds"] for side, run in best.items()}
    return [
        Row("all ranks", seconds["ours"], "cat of the file", seconds["cat"], extra),
        Row("all ranks", seconds["ours"], "safetensors get_slice", seconds["get_slice"], extra),
        Row("one by one", seconds["one-by-one"], "cat of the file", seconds["cat"], alone),
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Seconds from a checkpoint to the weights of eight ranks."
    )
    parser.add_argument("--best-of", type=int, default=3, metavar="N", help="runs of each side")
    parser.add_argument("--folder", type=Path, help="keep the checkpoint there (default: nowhere)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.child, given.folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "config.json").exists():
            print("writing the checkpoint ...", file=sys.stderr)
            write_checkpoint(folder)
        rows = compare(folder, given.best_of)
    print(table(rows, ("gb", "anonymous_mb")))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
