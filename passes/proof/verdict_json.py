"""Verdicts of a proof as JSON, as certificates state them."""

from __future__ import annotations

from graphgen.ir import Module, Role
from graphgen.json_value import Json
from graphgen.passes.proof.refinement_result import Claim, RefinementProof

# Parts of a compilation that proofs of programs are not about.
_ALWAYS = (
    "what XLA and neuronx-cc make of the program's file",
    "the files of weights, and the preparation that runs on them outside of the modules",
    "the order in which a program rounds, where it is equal in real arithmetic only",
)


def verdicts(found: RefinementProof) -> dict[str, Json]:
    """All of a proof: claims, relation, assumptions and the rules that were used."""
    return {
        "complete": found.complete,
        "claims": [claim_json(claim) for claim in found.claims],
        "relation": found.relation,
        "assumptions": [*found.assumptions],
        "rules": [*found.rules],
    }


def claim_json(claim: Claim) -> dict[str, Json]:
    """The verdict on one output or state."""
    return {
        "program": claim.program,
        "output": claim.output,
        "status": str(claim.status),
        "reason": claim.reason or None,
        "pair": [*claim.pair] if any(claim.pair) else None,
        "rounding": [*claim.rounding],
        "counterexample": claim.counterexample or None,
    }


def interface_json(module: Module) -> list[Json]:
    """The relation of each value of the model to what the programs of a rank take or give."""
    return [
        {
            "name": row.name,
            "role": row.role.value,
            "model": row.logical.text,
            "rank": row.physical.text,
            "pack": row.pack or None,
            "unpack": row.unpack or None,
        }
        for row in module.interface.values()
        if row.role is not Role.PARAM
    ]


def not_covered(module: Module) -> list[str]:
    """The parts of a compilation that a proof does not cover, kernels by name."""
    kernels: dict[str, None] = {}
    for function in module.functions.values():
        for op in function.block:
            name = op.attrs.get("kernel") or (op.attrs.get("target") if op.name in _CALLS else None)
            if isinstance(name, str) and name:
                kernels[name] = None
    named = [f"the code of the kernel {name}" for name in sorted(kernels)]
    return [*_ALWAYS, *named]


_CALLS = ("custom_call",)
