"""The form of a decomposition, and how one is written down as a function of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import Attrs, Function, Op, Value

# Appends simple ops through the builder and returns the composite's results.
Decomposition = Callable[[Builder, Sequence[Value], Attrs], Sequence[Value]]


def decompose(op: Op, decomposition: Decomposition) -> Function:
    """A function of the operands' types whose outputs are what ``op`` computes.

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
