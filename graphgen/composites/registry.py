"""Registry of decompositions: composite op -> builder of simple ops; and their instantiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import Attrs, Function, Op, Value

# Appends simple ops through the builder and returns the composite's results.
Decomposition = Callable[[Builder, Sequence[Value], Attrs], Sequence[Value]]

DECOMPOSITIONS: dict[str, Decomposition] = {}


def decomposition(build: Decomposition) -> Decomposition:
    """Register ``build`` as the decomposition of the composite of the same name."""
    DECOMPOSITIONS[build.__name__] = build
    return build


def decompose(op: Op, decomposition: Decomposition) -> Function:
    """A function with the operand types of ``op`` that computes its results.

    Composites inside the decomposition stay as they are.
    """
    function = Function(f"{op.name}.body")
    args = [
        function.block.add_arg(value.type, f"a{index}") for index, value in enumerate(op.operands)
    ]
    with Builder(function, loc=op.loc) as b:
        results = decomposition(b, args, op.attrs)
    function.outputs = [(f"r{index}", value) for index, value in enumerate(results)]
    return function
