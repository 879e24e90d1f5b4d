"""Count outputs and states of whole compilations that are proved, and the reasons of the others.

    python -m benchmarks.proofs                             # every family, target and rank count
    python -m benchmarks.proofs --only llama,gpt2 --ranks 1,2 --targets cpu --json proofs.json

Each row is a family's small twin, compiled by the default pipeline with small buckets, compared
with the model: ``graphgen prove``. Seconds are of CPU time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from graphgen.atomic_write import write_whole
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16
from graphgen.models import build
from graphgen.models.registry import BUILT_IN, FAMILIES
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import Claim
from tests.matrix.axes import config_of

# family, target, ranks, proved, real, open, seconds, reasons (with the first place of each).
Result = Mapping[str, object]
COLUMNS = ("proved", "real", "open", "seconds")


def measured(family: str, target: str, ranks: int, *, model: Module | None = None) -> Result:
    """Prove one compilation."""
    model = build(config_of(family), bf16, mini=True) if model is None else model
    head = {"family": family, "target": target, "ranks": ranks}
    module = clone_module(model)
    try:
        run_pipeline(module, parse(f"small{{tp={ranks},target={target}}}"))
    except GraphgenError as error:
        return {**head, "refused": error.code}
    start = time.process_time()
    found = prove_refinement(model, module)
    seconds = time.process_time() - start
    reasons = Counter(claim.reason for claim in found.open)
    first = {claim.reason: _place(claim) for claim in reversed(found.open)}
    return {
        **head,
        "proved": len(found.having(Status.PROVED)),
        "real": len(found.having(Status.REAL)),
        "open": len(found.open),
        "seconds": round(seconds, 2),
        "reasons": dict(reasons),
        "places": first,
    }


def _place(claim: Claim) -> str:
    pair = " | ".join(claim.pair) if any(claim.pair) else ""
    return f"@{claim.program} {claim.output} {pair}".strip()


def table(results: Sequence[Result]) -> Iterator[str]:
    """A line for each family, the total, and the reasons, the most frequent first."""
    done = [result for result in results if "open" in result]
    width = max([len(str(result["family"])) for result in done], default=6)
    yield "  ".join(["family".ljust(width), *[f"{name:>7}" for name in COLUMNS]])
    families = dict.fromkeys(str(result["family"]) for result in done)
    for family in (*families, "total"):
        rows = [r for r in done if family in ("total", r["family"])]
        sums = [sum(float(str(r[name])) for r in rows) for name in COLUMNS]
        cells = [f"{value:7.0f}" for value in sums[:-1]] + [f"{sums[-1]:7.1f}"]
        yield "  ".join([family.ljust(width), *cells])
    reasons: Counter[str] = Counter()
    places: dict[str, str] = {}
    for result in done:
        found, where = result["reasons"], result["places"]
        assert isinstance(found, dict)
        assert isinstance(where, dict)
        reasons.update(found)
        case = f"{result['family']}.{result['target']}.{result['ranks']}"
        places = {**{why: f"{case} {place}" for why, place in where.items()}, **places}
    for reason, count in reasons.most_common():
        yield f"{count:5d}  {reason} ({places[reason]})"


def main() -> None:
    """Print the table; write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="families, with commas")
    parser.add_argument("--targets", default="cpu,trn2")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--json", type=Path, help="file for the rows")
    args = parser.parse_args()
    chosen = [f for f in args.only.split(",") if f] or [f for f in FAMILIES if f in BUILT_IN]
    results: list[Result] = []
    for family in chosen:
        model = build(config_of(family), bf16, mini=True)
        for target in args.targets.split(","):
            for ranks in map(int, args.ranks.split(",")):
                results.append(measured(family, target, ranks, model=model))
                print(json.dumps(results[-1]), flush=True)
    print("\n".join(table(results)))
    if args.json is not None:
        write_whole(args.json, (json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
