"""What a function computes, without what it is called and where it comes from."""

from __future__ import annotations

import re

from graphgen.ir import Function, Module, Op, Value
from graphgen.ops.control import callees
from graphgen.text.printer import attr_text


def structure(function: Function, module: Module | None = None) -> list[str]:
    """A line for each argument, op and output; values are numbered in program order.

    With a ``module`` the functions that ops run follow each of these.
    """
    numbers: dict[Value, int] = {}
    lines: list[str] = []
    for value in function.args:
        numbers[value] = len(numbers)
        lines.append(f"arg {value.type.text}")
    for op in function.block:
        operands = ",".join(str(numbers[value]) for value in op.operands)
        results = ",".join(result.type.text for result in op.results)
        lines.append(f"{op.name}({operands}){_attrs(op)} : {results}")
        numbers |= {result: len(numbers) + i for i, result in enumerate(op.results)}
        if module is not None:
            for name in callees(op):
                lines += structure(module.function(name), module)
    return [*lines, *[f"return {numbers[value]}" for _, value in function.outputs]]


def _attrs(op: Op) -> str:
    text = attr_text(op)
    for name in callees(op):
        text = text.replace(name, "@")
    # StableHLO has no place for it.
    text = re.sub(r" trip_count=\d+", "", text)
    if op.name == "slice" and set(op.attrs.integers("strides")) == {1}:
        # Strides of 1 may be written out or left out.
        text = text.partition(" strides=")[0]
    return text
