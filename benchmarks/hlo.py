"""How long a program takes to become HLO bytes and to come back, beside jaxlib's conversions.

The program is the decode step of Llama-3.1-405B on one of 64 ranks: 126 layers, two query heads and
one copy of a key-value head a rank. Ours is ``emit_hlo`` from the IR, then ``read_hlo`` and the
verifier, with locations. The peer is jaxlib: StableHLO text of the same program to an
HloModuleProto, and its own proto to StableHLO bytecode. Every measurement is a fresh process, so no
cache is warm; seconds are CPU seconds, the best of several runs.
"""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default

RANKS = 64
ROOT = Path(__file__).resolve().parent.parent
_T = TypeVar("_T")


def decode_step(layers: int) -> Module:
    """The decode program of one rank of 64, ready to be lowered."""
    config = {**known_shape("llama-3.1-405b")}
    if layers:
        config["num_hidden_layers"] = layers
    module = build(config, dtype("bf16"), phases=("decode",))
    run_pipeline(module, default(CompileConfig(context=(2048,), tokens=(2048,), tp=RANKS)))
    return module


def timed(work: Callable[[], _T]) -> tuple[_T, float]:
    """What ``work`` gives, and the CPU seconds of all threads it took."""
    gc.collect()
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def measure(layers: int) -> dict[str, float]:
    """Seconds of each step, in this process, and what was measured."""
    module = decode_step(layers)
    (program,) = module.programs()
    proto, emit = timed(lambda: emit_hlo(module, program))

    def read() -> Module:
        found = read_hlo(proto)
        verify(found)
        return found

    back, come = timed(read)
    text = emit_stablehlo(module, program)
    ops = back.op_count()
    del back
    from jax._src.lib import _jax

    jaxlib: Any = _jax
    theirs, peer_emit = timed(
        lambda: jaxlib.mlir.mlir_module_to_xla_computation(text).as_serialized_hlo_module_proto()
    )
    _, peer_come = timed(lambda: jaxlib.mlir.hlo_to_stablehlo(theirs))
    return {
        "emit": emit, "read": come, "peer_emit": peer_emit, "peer_read": peer_come,
        "ops": ops, "bytes": len(proto), "peer_bytes": len(theirs),
    }  # fmt: skip


def fresh(layers: int) -> dict[str, float]:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.hlo", "--measure", "--layers", str(layers)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def rows(runs: list[dict[str, float]], name: str) -> list[Row]:
    """The best of each step, ours beside jaxlib's."""
    best = {key: min(run[key] for run in runs) for key in runs[0]}
    facts = {"ops": int(best["ops"]), "bytes": int(best["bytes"])}
    peer = f"jaxlib {version('jaxlib')}"
    return [
        Row(f"{name}.emit", best["emit"], peer, best["peer_emit"], facts),
        Row(f"{name}.read", best["read"], peer, best["peer_read"], facts),
    ]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="fresh processes (default 3)")
    parser.add_argument("--layers", type=int, default=0, help="layers; 0 for all 126")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.layers)))
        return
    found = rows([fresh(options.layers) for _ in range(options.runs)], f"405b.decode.tp{RANKS}")
    print(table(found, ("ops", "bytes")))
    if options.json:
        write_json(found, options.json)


if __name__ == "__main__":
    main()
