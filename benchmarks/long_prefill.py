"""How much memory and time the prefill of a long prompt takes, and how time grows with its length.

A model of SmolLM2's shape with few layers and random weights, compiled for this CPU by the default
pipeline, each length in a process of its own. Time of cores counts what other jobs do not take.
Memory is the resident peak of the launch above what is there before it: weights, caches and the
program itself.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from graphgen.atomic_write import write_whole
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import DTYPES, TILES_AUTO
from graphgen.ir import TensorType, dtype
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.program import CpuProgram, DeviceValue, compile_program
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default

_TOKENS = (2048, 8192, 32768)
_SHAPE = "smollm2-135m"
_STATUS = Path("/proc/self/status")


def compiled(tokens: int, layers: int, element: str, block: str) -> tuple[CpuProgram, list[str]]:
    """The prefill program of one prompt, and what is said of its attention."""
    config = CompileConfig(context=(tokens,), tokens=(tokens,), attention_block=block)
    module = build({**known_shape(_SHAPE), "num_hidden_layers": layers}, dtype(element))
    del module.functions["decode"]
    reports = run_pipeline(module, default(config))
    said = [text for step in reports if step.name == "tile-attention" for text in step.remarks]
    (function,) = module.programs()
    return compile_program(module, function), said


def inputs_of(program: CpuProgram, tokens: int) -> dict[str, DeviceValue]:
    """Random weights, empty caches and a prompt as long as the program takes."""
    random = np.random.default_rng(0)
    given = {
        "tokens": random.integers(0, 1000, (1, tokens), dtype=np.int32),
        "positions": np.arange(tokens, dtype=np.int32)[None],
        "lengths": np.array([tokens], np.int32),
        "seq_ids": np.zeros(1, np.int32),
    }
    placed = {
        name: pjrt.put([given[name] if name in given else _filled(random, kind)])
        for name, kind in program.arguments
    }
    # Memory that XLA allocated is updated in place; a launch copies NumPy's first.
    return {
        name: jax.block_until_ready(jax.numpy.copy(value)) if name in program.states else value
        for name, value in placed.items()
    }


def _filled(random: np.random.Generator, kind: TensorType) -> np.ndarray:
    if not kind.dtype.is_float:
        return np.zeros(kind.dims, kind.dtype.name.replace("u", "uint").replace("s", "int"))
    array = random.standard_normal(kind.dims, dtype=np.float32) / 32
    return array if kind.dtype.name == "f32" else array.astype(ml_dtypes.bfloat16)


def resident(kind: str) -> int:
    """Bytes that this process has (``VmRSS``), or had at most (``VmHWM``)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


def launched(program: CpuProgram, given: dict[str, DeviceValue]) -> tuple[float, float, int]:
    """Seconds of one launch, those of all cores together, and the bytes that it needs at most."""
    # The peak of the compilation is forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    before, start, busy = resident("VmRSS"), time.perf_counter(), time.process_time()
    program.launch(given)["logits"][0].block_until_ready()
    seconds, cores = time.perf_counter() - start, time.process_time() - busy
    return seconds, cores, resident("VmHWM") - before


def row_of(tokens: int, layers: int, element: str, block: str) -> dict[str, object]:
    """Seconds and bytes of the first launch."""
    program, said = compiled(tokens, layers, element, block)
    seconds, cores, peak = launched(program, inputs_of(program, tokens))
    return {
        "case": f"{element}.{tokens}",
        "tokens": tokens,
        "seconds": seconds,
        "core_seconds": cores,
        "peak_bytes": peak,
        "remarks": said,
    }


def exponent(rows: Sequence[dict[str, object]], key: str = "seconds") -> float:
    """The slope of log seconds a token over log tokens, by least squares."""
    x = np.log([float(str(row["tokens"])) for row in rows])
    y = np.log([float(str(row[key])) / float(str(row["tokens"])) for row in rows])
    return float(np.polyfit(x, y, 1)[0]) if len(rows) > 1 else math.nan


def main() -> None:
    """Print a line a length and the exponent, and write rows of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=_TOKENS)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument("--block", default=TILES_AUTO, help="as --attention-block")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    own = ["--layers", str(args.layers), "--dtype", args.dtype, "--block", args.block]
    if args.worker:
        print(json.dumps(row_of(args.tokens[0], args.layers, args.dtype, args.block)))
        return
    rows: list[dict[str, object]] = []
    for tokens in args.tokens:
        worker = [sys.executable, "-m", "benchmarks.long_prefill", "--worker", *own]
        text = subprocess.run(
            [*worker, "--tokens", str(tokens)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        row = json.loads(text.splitlines()[-1])
        rows.append(row)
        each = 1e3 * row["seconds"] / tokens
        cores, peak = 1e3 * row["core_seconds"] / tokens, row["peak_bytes"] / 1e9
        times = f"{each:7.3f} ms a token  {cores:7.3f} ms of a core"
        print(f"{tokens:6} tokens  {times}  {peak:6.3f} GB", *row["remarks"][:1], flush=True)
    powers = exponent(rows), exponent(rows, "core_seconds")
    print("time a token grows with tokens to the power of {:.2f}, of a core {:.2f}".format(*powers))
    if args.json:
        write_whole(args.json, (json.dumps(rows, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
