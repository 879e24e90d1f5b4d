"""Estimate a layer-by-layer validation before it starts: bytes read, time and memory."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from graphgen.analysis import inlined
from graphgen.analysis.layers import scope_of
from graphgen.analysis.work import work_of
from graphgen.exec.session import Workload, program_of
from graphgen.ir import Module, Role
from graphgen.ir.clone import bind_function
from graphgen.passes.layerwise.streamed_array import TILE
from graphgen.passes.layerwise.weight_sources import KEPT_BYTES

# Memory of Python, NumPy and the graphs of a model, and of the tiles and activations of a layer.
_BASE_BYTES = 1200 << 20
# Times that making a random element of a weight and reading it take longer than converting it.
_MAKING = 3
# Runs of a layer that a pass has changed: before and after it, in float64 and in its own types.
# Mostly the outcome of the pass before is known.
_RUNS = 2


@dataclass(frozen=True, slots=True)
class LayerEstimate:
    """Cost of a validation.

    Attributes:
        weight_bytes: of all weights; each is read once for the inputs of the layers.
        flops: of one run of all calls.
        seconds: about how long it takes on this machine, if each pass changes all layers alike.
        memory: bytes at the peak, about.
    """

    weight_bytes: int
    flops: int
    seconds: float
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.weight_bytes / 1e9:.1f} GB of weights, {self.flops / 1e9:.0f} GFLOP a run of "
            f"all layers; about {_duration(self.seconds)} and {self.memory / 1e9:.1f} GB of memory"
        )


def estimate(module: Module, workload: Workload, passes: int) -> LayerEstimate:
    """The estimate for a module, its calls, and a number of passes.

    Args:
        module: before any pass.
        workload: the calls.
        passes: of which each is taken to change every layer, and all layers in the same way.
    """
    flops = Counter[str]()
    for call in workload.calls:
        function = inlined(module, program_of(module, call))
        sizes = {name: size for name, size in call.dims.items() if isinstance(size, int)}
        for op in bind_function(function, sizes).block:
            work = work_of(op).flops
            flops[scope_of(op)] += work if isinstance(work, int) else 0
    rows = module.entries(Role.WEIGHT)
    elements = sum(row.logical.size for row in rows if isinstance(row.logical.size, int))
    held = sum(row.logical.nbytes for row in rows)
    layers = max(len(flops) - 1, 1)
    # A pass runs what is outside of layers, and one layer of those that are alike.
    share = min(1.0, (flops[""] + flops.total() / layers) / max(flops.total(), 1))
    per_element, per_flop = _speed()
    once = elements * per_element * len(workload.calls) + flops.total() * per_flop
    seconds = once * (1 + passes * _RUNS * share)
    memory = _BASE_BYTES + min(KEPT_BYTES, held) + _streams(module, workload, layers)
    return LayerEstimate(held, flops.total(), seconds, memory)


def _streams(module: Module, workload: Workload, layers: int) -> int:
    """Bytes of the residual stream between all layers, for all calls."""
    widths = [row.logical.dims[-1] for row in module.entries(Role.WEIGHT) if row.logical.rank == 1]
    width = Counter(widths).most_common(1)[0][0] if widths else 0
    tokens = sum(
        call.inputs["positions"].size for call in workload.calls if "positions" in call.inputs
    )
    return layers * tokens * width * 4


def _speed() -> tuple[float, float]:
    """Seconds to convert an element of a weight, and seconds a flop, on this machine."""
    stored, left = np.ones((TILE // 1024, 1024), np.float32), np.ones((16, 1024))
    best = [float("inf")] * 2
    for _ in range(3):
        start = time.perf_counter()
        tile = stored.astype(np.float64)
        middle = time.perf_counter()
        np.matmul(left, tile.T)
        end = time.perf_counter()
        best = [min(best[0], middle - start), min(best[1], end - middle)]
    return best[0] / TILE * _MAKING, best[1] / (2 * 16 * TILE)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
