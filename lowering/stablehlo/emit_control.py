"""How calls, loops and choices are written in StableHLO: what they run are functions of their own.

The region of a loop or a choice is one call, so each function is written once, whoever runs it, and
its lines have the places of its ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Op, TensorType, Value, tensor
from graphgen.ir.dtype import pred
from graphgen.lowering.stablehlo.types import string, type_text
from graphgen.ops.control import branch_operands, callees


def callee_symbol(name: str) -> str:
    """A function that is called; none is mistaken for the entry ``@main``."""
    return f"@{string(f'call.{name}')}"


def _types(values: Sequence[Value]) -> str:
    return ", ".join([type_text(value.type) for value in values])


def call(op: Op, out: str, x: Sequence[str]) -> str:
    """A call."""
    callee = callee_symbol(op.attrs.text("to_apply"))
    types = f"({_types(op.operands)}) -> ({_types(op.results)})"
    return f"{out} = func.call {callee}({', '.join(x)}) : {types}"


def while_(op: Op, out: str, x: Sequence[str]) -> str:
    """A loop; the arguments of its regions are its state."""
    first = out.split(", ")[0]
    state = [f"%$s{i}.{first[1:]}" for i in range(len(x))]
    types = [value.type for value in op.operands]
    pairs = zip(state, types, strict=True)
    head = f"^bb0({', '.join([f'{name}: {type_text(type_)}' for name, type_ in pairs])}):"
    condition, body = callees(op)
    regions = [
        _region(first, condition, state, types, [type_text(tensor(pred))], head),
        _region(first, body, state, types, [type_text(type_) for type_ in types], head),
    ]
    shape = f"({_types(op.operands)}) -> ({_types(op.results)})"
    return f'{out} = "stablehlo.while"({", ".join(x)}) ({", ".join(regions)}) : {shape}'


def conditional(op: Op, out: str, x: Sequence[str]) -> str:
    """A choice; its regions read what they need from outside."""
    first = out.split(", ")[0]
    names = list(x[1:])
    gives = [type_text(value.type) for value in op.results]
    regions: list[str] = []
    for name, given in zip(callees(op), branch_operands(op), strict=True):
        reads, names = names[: len(given)], names[len(given) :]
        regions.append(_region(first, name, reads, [value.type for value in given], gives))
    kind = "if" if op.operands[0].dtype is pred else "case"
    shape = f"({_types(op.operands[:1])}) -> ({', '.join(gives)})"
    return f'{out} = "stablehlo.{kind}"({x[0]}) ({", ".join(regions)}) : {shape}'


def _region(
    out: str,
    name: str,
    reads: Sequence[str],
    types: Sequence[TensorType],
    gives: Sequence[str],
    head: str = "",
) -> str:
    """A region that calls the function ``name``."""
    made = [f"%$r{i}.{out[1:]}" for i in range(len(gives))]
    taken = ", ".join([type_text(type_) for type_ in types])
    given = ", ".join(gives)
    called = f"func.call {callee_symbol(name)}({', '.join(reads)}) : ({taken}) -> ({given})"
    lines = [
        *([f"      {head}"] if head else []),
        f"        {', '.join(made)} = {called}",
        f"        stablehlo.return {', '.join(made)} : {given}",
    ]
    return "\n".join(["{", *lines, "    }"])
