"""The rewrite rule of ``legalize`` that removes a finding."""

from __future__ import annotations

from collections.abc import Mapping

# The id of a rule about the compiler (or an opcode), and the rewrite rules of `legalize` for it.
REWRITES: Mapping[str, str] = {
    "int-dot-trn2": "integer-dot",
    "int64-dot": "integer-dot",
    "coll-int": "integer-sum-over-ranks or integer-extreme-over-ranks",
    "scatter-int-compute": "integer-scatter-add",
    "sra-32": "wide-shift",
    "a2a-dim0": "exchange-along-the-first",
    "a2a-2rank-lnc2": "exchange-of-two",
    "fp8e4m3fn-dot": "widened-f8-dot",
    "gather-disjoint": "gather-of-elements",
    "gather-rows": "gather-of-rows",
    "replica-id": "rank-as-input",
    "partition-id": "rank-as-input",
    "sort-trn2": "front-of-sort or sort-by-kernel",
    "status erf": "erf-by-quotients",
}


def rewrite_of(rule: str, target: str) -> str:
    """The pass that removes a finding and its rule; empty if no rule does."""
    found = REWRITES.get(rule)
    return f"legalize{{target={target}}} ({found})" if found else ""
