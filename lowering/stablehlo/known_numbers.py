"""Integers of a program that follow from constants alone, such as computed sizes."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Value
from graphgen.lowering.stablehlo.op_row import UnmodelledForm


def numbers_of(value: Value) -> tuple[int, ...]:
    """The integers of a value that depends on constants alone.

    Raises:
        UnmodelledForm: it depends on an argument, or on what cannot be evaluated here.
    """
    from graphgen.eval import evaluate_values

    work, seen = [value], {value}
    while work:
        op = work.pop().op
        if op is None:
            raise UnmodelledForm("a shape that depends on an argument")
        fresh = set(op.operands) - seen
        seen |= fresh
        work += fresh
    try:
        (found,) = evaluate_values({}, [value])
    except GraphgenError as error:
        raise UnmodelledForm(f"a shape computed so that {error.what}") from error
    return tuple([int(item) for item in found.reshape(-1)])
