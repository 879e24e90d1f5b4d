"""Registry of ATen ops by family; a program with other ops is refused, with all of them named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Loc
from graphgen.lowering.aten.call import ATEN, Rule
from graphgen.lowering.aten.complex_value import COMPLEX
from graphgen.lowering.aten.rules import (
    complex_numbers,
    convolutions,
    elementwise,
    experts,
    indexing,
    nn,
    pooling,
    products,
    reductions,
    shape,
)

# Importing a module registers its rules; in the order of the table in the documentation.
FAMILIES = {
    "element by element": elementwise,
    "shape": shape,
    "places": indexing,
    "reductions": reductions,
    "products": products,
    "networks": nn,
    "convolutions": convolutions,
    "pooling": pooling,
    "experts": experts,
    "complex numbers": complex_numbers,
}


def rule_of(op: str) -> Rule:
    """Look up the rule of an op that :func:`check_known` has passed."""
    return ATEN[op]


def is_known(op: object) -> bool:
    """Test whether an op of torch (``aten.add.Tensor``) has a rule."""
    name = str(op).removeprefix("aten.")
    return name in ATEN or name in COMPLEX


def family_of(op: str) -> str:
    """Return the family of an op in :data:`FAMILIES`."""
    module = (ATEN.get(op) or COMPLEX[op]).__module__
    return next(name for name, found in FAMILIES.items() if found.__name__ == module)


def check_known(called: Sequence[tuple[str, Loc]], where: str) -> None:
    """Refuse a program with ops without a rule (GG0103): name, count and first place of each."""
    counts = Counter(op for op, _ in called if not is_known(op))
    if not counts:
        return
    first = dict(reversed(called))
    lines = [f"{op}: {count} times, first at {first[op]!r}" for op, count in counts.items()]
    names = ", ".join(counts)
    raise GraphgenError(
        "GG0103",
        f"no rule for {len(counts)} of its ops: {names}",
        where=where,
        note="\n".join(lines),
        help="docs/importing.md names those that are known; run_decompositions() makes simpler "
        "ones of some others",
    )
