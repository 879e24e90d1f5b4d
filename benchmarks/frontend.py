"""How long from a config to StableHLO text, beside tracing and lowering the same model in JAX.

Ours is ``build``, the default pipeline with the verifier after every pass, and the text. JAX's is
``trace``, ``lower`` and ``as_text`` of the plain Llama in ``benchmarks/peers/jax_llama.py``. No
weight is read or allocated and nothing is compiled. Every measurement is a fresh process, so no
cache of either side is warm; imports are over before the clock starts, and so is the start of JAX's
CPU client. Seconds are CPU seconds, the best of several runs, ours and the peer's by turns.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import LlamaConfig, build, known_shape, read_llama
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.pipelines import default

if TYPE_CHECKING:
    from benchmarks.peers.jax_llama import Llama

Config = Mapping[str, object]
ROOT = Path(__file__).resolve().parent.parent
# Tokens of a prefill call, and slots either phase attends to.
BUCKET = 2048
# An op with a result, on whatever line; the `stablehlo.return` of a region has none.
SHRINKING = ("cse", "fuse-projections", "tile-attention")
FUNCTION = re.compile(r"func\.func \w+ @(\w+)(.*?)(?=func\.func |\Z)", re.DOTALL)
CALL = re.compile(r"= call @(\w+)\(")
OP = re.compile(r'^\s*%\S+ = "?stablehlo\.', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Work:
    """What one process measures.

    Attributes:
        side: ``graphgen``, ``jax``, or ``default`` for graphgen with every pass of the default
            pipeline.
        model: a name :func:`graphgen.models.known_shape` knows.
        phase: ``decode`` (one token) or ``prefill`` (2048 tokens), both of one row.
        layers: how many; 0 for as many as the model has.
    """

    side: str
    model: str
    phase: str
    layers: int = 0

    def config(self) -> Config:
        """The ``config.json`` with the number of layers replaced."""
        config = known_shape(self.model)
        return {**config, "num_hidden_layers": self.layers} if self.layers else config


@dataclass(frozen=True, slots=True)
class Case:
    """Two works side by side."""

    name: str
    ours: Work
    peer: Work
    peer_name: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What a process found.

    Attributes:
        cpu_s: CPU seconds of all threads, from config to text.
        wall_s: the same on the wall.
        ops: StableHLO ops in the text.
        parts: CPU seconds of each step.
    """

    cpu_s: float
    wall_s: float
    ops: int
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


class Laps:
    """CPU seconds from one call to the next, by name."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._last = time.process_time()

    def __call__(self, name: str) -> None:
        """End the lap ``name`` and begin the next."""
        now = time.process_time()
        self.parts[name] = now - self._last
        self._last = now


def cases() -> list[Case]:
    """Each model in each phase against JAX, then half of the layers against all of them.

    In the last rows the peer is graphgen itself: the ratio says what twice the layers cost, and
    what 61 layers with 256 experts cost beside 126 dense ones.
    """
    peer = f"jax {version('jax')}"
    out = [
        Case(f"{model}.{phase}", Work("graphgen", model, phase), Work("jax", model, phase), peer)
        for model in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")
        for phase in ("decode", "prefill")
    ]
    half, whole = (Work("graphgen", "llama-3.1-405b", "decode", layers) for layers in (63, 126))
    full = [
        Case(
            f"llama-3.1-405b.{phase}.all-passes",
            Work("default", "llama-3.1-405b", phase),
            Work("jax", "llama-3.1-405b", phase),
            peer,
        )
        for phase in ("decode", "prefill")
    ]
    mixtures = [
        Case(
            f"deepseek-v3.{phase}.all-passes",
            Work("default", "deepseek-v3", phase),
            Work("default", "llama-3.1-405b", phase),
            "ours, llama-3.1-405b",
        )
        for phase in ("decode", "prefill")
    ]
    halves = Case("llama-3.1-405b.decode.63-layers", half, whole, "ours, 126 layers")
    return [*out, *full, halves, *mixtures]


def passes_of(side: str) -> list[Pass]:
    """The pipeline of a side of ours; ``graphgen`` leaves out what makes programs smaller.

    The plain JAX program is written out as the model is, with three dots for q, k and v: beside it
    goes a program with as many ops.
    """
    passes = default(CompileConfig(context=(BUCKET,), tokens=(BUCKET,)))
    return passes if side == "default" else [p for p in passes if p.name not in SHRINKING]


def graphgen_text(
    config: Config, phase: str, lap: Callable[[str], None], side: str = "graphgen"
) -> str:
    """StableHLO of one program, through the passes, with a location behind each op."""
    module = build(config, dtype("bf16"), phases=(phase,))
    lap("build")
    run_pipeline(module, passes_of(side))
    lap("passes")
    (program,) = module.programs()
    text = emit_stablehlo(module, program)
    lap("emit")
    return text


def jax_text(config: Config, phase: str, lap: Callable[[str], None]) -> str:
    """StableHLO of the same computation in plain JAX, as ``as_text`` prints it by default."""
    from benchmarks.peers.jax_llama import lowerable

    call, arguments = lowerable(
        jax_model(read_llama(config)),
        batch=1,
        active=1 if phase == "decode" else BUCKET,
        attended=BUCKET,
    )
    lap("arguments")
    traced = call.trace(*arguments)
    lap("trace")
    lowered = traced.lower()
    lap("lower")
    text = lowered.as_text()
    lap("text")
    return text


def jax_model(config: LlamaConfig) -> Llama:
    """The same model for the plain JAX program."""
    from benchmarks.peers.jax_llama import Llama

    return Llama(
        config.hidden_size,
        config.intermediate_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.vocab_size,
        config.rms_norm_eps,
        tuple(map(float, config.rope_frequencies().values())),
    )


def count_ops(text: str) -> int:
    """Ops with a result that a StableHLO text runs: calls are counted as what they call.

    JAX moves ``silu`` and ``where`` into functions; XLA inlines them again.
    """
    bodies = dict(FUNCTION.findall(text))

    def count(name: str) -> int:
        body = bodies[name]
        return len(OP.findall(body)) + sum(count(callee) for callee in CALL.findall(body))

    return count("main")


def measure(work: Work) -> Measured:
    """Run once in this process, which has to be a fresh one."""
    if work.side == "jax":
        _start_jax()
    run = jax_text if work.side == "jax" else partial(graphgen_text, side=work.side)
    gc.collect()
    wall, cpu, laps = time.perf_counter(), time.process_time(), Laps()
    text = run(work.config(), work.phase, laps)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    return Measured(cpu_s, wall_s, count_ops(text), laps.parts)


def _start_jax() -> None:
    """Import JAX and the peer, start the CPU client, and lower ``x + 1`` for its lazy imports."""
    import jax

    import benchmarks.peers.jax_llama  # noqa: F401

    jax.devices()
    jax.jit(lambda x: x + 1).trace(jax.ShapeDtypeStruct((), "float32")).lower().as_text()


def in_fresh_process(work: Work) -> Measured:
    """Measure in a Python process of its own."""
    command = [sys.executable, "-m", "benchmarks.frontend", "--child", json.dumps(asdict(work))]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"error: measuring {work} failed with status {ran.returncode}")
    return Measured(**json.loads(ran.stdout))


def compare(case: Case, best_of: int) -> Row:
    """The best of several runs of either side, by turns."""
    ours: list[Measured] = []
    peer: list[Measured] = []
    for _ in range(best_of):
        ours.append(in_fresh_process(case.ours))
        peer.append(in_fresh_process(case.peer))
    extra: dict[str, int | float | str] = {}
    best: list[Measured] = []
    for side, runs in (("ours", ours), ("peer", peer)):
        fastest = min(runs, key=lambda run: run.cpu_s)
        best.append(fastest)
        extra[f"{side}_ops"] = fastest.ops
        extra[f"{side}_wall_s"] = min(run.wall_s for run in runs)
        extra |= {f"{side}_{part}_s": seconds for part, seconds in fastest.parts.items()}
    return Row(case.name, best[0].cpu_s, case.peer_name, best[1].cpu_s, extra)


def main() -> None:
    """The command line."""
    known = {case.name: case for case in cases()}
    parser = argparse.ArgumentParser(
        description="CPU seconds from a config to StableHLO text, beside JAX."
    )
    parser.add_argument("--best-of", type=int, default=5, metavar="N", help="runs of each side")
    parser.add_argument("--only", action="append", choices=known, help="may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(asdict(measure(Work(**json.loads(given.child))))))
        return
    if given.best_of < 1:
        parser.error("--best-of needs at least one run")
    rows: list[Row] = []
    for name in given.only or known:
        print(f"measuring {name} ...", file=sys.stderr)
        rows.append(compare(known[name], given.best_of))
    print(table(rows, ("ours_ops", "peer_ops", "ours_wall_s", "peer_wall_s")))
    if given.json:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
