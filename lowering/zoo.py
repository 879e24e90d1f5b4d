"""The lowered form of every known model: what must not change when a change should change nothing.

The twins of all models are lowered for one and for two ranks, for the CPU and for an accelerator.
What a model or a target refuses is part of what is compared. Run as a program, this file prints the
result for the packages it finds, which may be those of another revision.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import bf16
from graphgen.models import SHAPES, build, known_shape
from lowering.stablehlo import emit_stablehlo
from passes.core import run_pipeline
from passes.pipelines import Buckets, default

SIDES = ((1, "cpu"), (2, "cpu"), (2, "trn2"))
BUCKETS = Buckets(batch=(2,), context=(8,), tokens=(8, 16))


def lowered(name: str, tp: int, target: str) -> Mapping[str, str]:
    """The StableHLO of every program of a model's twin, or the code of the error, by program."""
    try:
        module = build(known_shape(name), bf16, mini=True)
        run_pipeline(module, default(BUCKETS, tp=tp, target=target))
        return {f.name: emit_stablehlo(module, f, locs=False) for f in module.programs()}
    except GraphgenError as error:
        return {"": f"refused: {error.code}"}


def zoo(models: Sequence[str]) -> dict[str, str]:
    """The text of every program of the models: ``llama-3.1-8b tp=2 cpu @prefill`` and so on."""
    return {
        f"{name} tp={tp} {target} @{program}": text
        for name in models
        for tp, target in SIDES
        for program, text in lowered(name, tp, target).items()
    }


def main() -> None:
    """Print as JSON what :func:`zoo` finds of the models named, or of all."""
    # Those that another revision does not know have nothing to be compared with.
    known = [name for name in sys.argv[1:] or SHAPES if name in SHAPES]
    json.dump(zoo(known), sys.stdout)


if __name__ == "__main__":
    main()
