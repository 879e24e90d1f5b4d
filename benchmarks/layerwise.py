"""Layer-by-layer validation of real models: is it small, is it fast, does it find a planted bug?

Runs the default pipeline on a published shape with random weights and, behind it, a pass that
rounds one product of one layer to bf16. Each model runs in a process of its own. Prints JSON::

    python -m benchmarks.layerwise --model llama-3.1-8b --bug-layer 17
    python -m benchmarks.layerwise --model llama-3.1-405b --layers 1 --bug-layer 0
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from graphgen.passes.core import Pass

CHILD = "GRAPHGEN_BENCHMARK_CHILD"


def main() -> None:
    """Run one model and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--bug-layer", type=int, default=17)
    parser.add_argument("--pipeline", default="default")
    given = parser.parse_args()
    if os.environ.get(CHILD):
        print(json.dumps(run(given.model, given.layers, given.bug_layer, given.pipeline)))
        return
    environment = {**os.environ, CHILD: "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.layerwise", *sys.argv[1:]]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(ran.stdout)
    found["peak_rss_gb"] = round(used.ru_maxrss / 1e6, 2)
    found["cpu_seconds"] = round(used.ru_utime + used.ru_stime)
    print(json.dumps(found, indent=2))


def run(model: str, layers: int | None, bug_layer: int, pipeline: str) -> dict[str, object]:
    """Validate one model; returns verdicts, seconds, and the layer and rewrite at fault."""
    from graphgen.cli.shared_options import load_pipeline
    from graphgen.ir import dtype
    from graphgen.models import build, known_shape
    from graphgen.passes.layerwise.layer_estimate import estimate
    from graphgen.passes.layerwise.segment_run import SegmentRunner, calls_without_weights
    from graphgen.passes.layerwise.validate_layers import validate_layers
    from graphgen.passes.layerwise.weight_sources import RandomWeights

    start = time.monotonic()
    module = build(known_shape(model), dtype("bf16"), layers=layers)
    passes = [*load_pipeline(pipeline, small=True), rounding_bug(f"model.layers.{bug_layer}")]
    workload = calls_without_weights(module, 0)
    expected = estimate(module, workload, len(passes))
    source = RandomWeights(0)

    def tell(step: str) -> None:
        print(f"{time.monotonic() - start:7.0f} s  {step}", file=sys.stderr, flush=True)

    verdicts = validate_layers(module, passes, SegmentRunner(workload, source), on_step=tell)
    last = verdicts[-1].layers
    return {
        "model": model,
        "layers": layers,
        "estimate": str(expected),
        "seconds": round(time.monotonic() - start),
        "elements_read": source.meter.read,
        "verdicts": {
            f"{number} {verdict.pass_text}": {
                "state": verdict.state,
                "meaning": verdict.meaning.relative,
                "rounding": verdict.rounding.relative,
                "layers_run": list(verdict.layers.run) if verdict.layers else [],
            }
            for number, verdict in enumerate(verdicts, 1)
        },
        "bug_found_in": [item.label for item in last.wrong] if last else [],
        "guilty": str(verdicts[-1].guilty),
    }


def rounding_bug(layer: str) -> Pass:
    """A pass that rebuilds all down projections of decode programs, one through bf16."""
    from graphgen.build import Builder
    from graphgen.ir import Module, Op, Value
    from graphgen.ir import dtype as element
    from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, rule

    scope = f"{layer}.mlp.down_proj"

    @rule("dot_general")
    def rebuild(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        if not op.loc.scope.endswith("mlp.down_proj") or "rounding-bug" in op.loc.via:
            return no_match("it is another product", op.result)
        made = b.emit(op.name, op.operands, dict(op.attrs)).result
        if op.loc.scope != scope:
            return [made]
        return [b.convert(b.convert(made, element("bf16")), op.result.dtype)]

    @dataclass(frozen=True)
    class RoundingBug(Pass):
        """Rebuild products, one of them wrongly."""

        name: ClassVar[str] = "rounding-bug"

        def run(self, module: Module, rewriter: Rewriter) -> None:
            """Apply the rule to the programs of one token."""
            for function in module.programs():
                if function.phase == "decode":
                    rewriter.apply_rules(function, [rebuild])

    return RoundingBug()


if __name__ == "__main__":
    main()
