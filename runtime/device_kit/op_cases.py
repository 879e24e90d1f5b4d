"""Programs of single ops: every op for every element type that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import dtype as element_type
from graphgen.ir.dtype import DType, pred
from graphgen.lowering.check.compiler_rules import legality, opcode_of
from graphgen.ops import Trait, ops_with, verify
from graphgen.runtime.device_kit.kit_program import KitProgram, kit_program, some_array
from graphgen.runtime.device_kit.op_uses import OpUse, op_uses
from graphgen.runtime.device_kit.runner.numbers import element_bytes
from graphgen.text import parse
from graphgen.text.grammar import parse_type

_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
# The types of a use that is not made for all: in which type others are summed up, and how many
# bits a truth value has, is defined nowhere.
_ONLY: Mapping[str, Callable[[DType], bool]] = {
    "dot-wide": lambda kind: kind.is_float or kind.is_integer,
    "dot-s32": lambda kind: kind.is_integer,
    "convert-from": lambda kind: not kind.is_complex,
    "bitcast_convert-8": lambda kind: kind is not pred,
}


def kinds() -> tuple[list[str], list[str]]:
    """The element types of the legality table that the IR has: those in use, and rare ones."""
    used: list[str] = []
    rare: list[str] = []
    for name in cast(Mapping[str, object], legality()["dtypes"]):
        try:
            element_type(name)
        except GraphgenError:
            continue
        (used if element_bytes(name) and name != "c128" else rare).append(name)
    return used, rare


def op_programs() -> Iterator[tuple[str, OpUse]]:
    """The name of each case and its use, by op and type; :func:`op_program` makes the program."""
    for use in op_uses(*kinds()):
        takes = _ONLY.get(use.name)
        if takes is None or takes(element_type(use.dtype)):
            yield f"op/{use.name}/{use.dtype}", use


def op_program(name: str, use: OpUse) -> KitProgram | None:
    """The program of a use; ``None`` if the op does not take the type."""
    try:
        module = parse(use.text)
        verify(module)
        function = module.function("f")
        inputs = {f"x{at}": _argument(use, at) for at in range(len(use.operands))}
        opcode = opcode_of(use.op, {})
        return kit_program(name, module, function, inputs, op=opcode, dtype=use.dtype)
    except GraphgenError:
        return None


def _argument(use: OpUse, at: int) -> Array:
    type_ = parse_type(use.operands[at])
    if use.op == "cholesky":
        return (8 * np.eye(4) + np.ones((4, 4))).astype(numpy_dtype(type_.dtype))
    name = f"{use.name} {at}"
    if use.op in _SHIFTS and at == 1:
        return some_array(name, type_, 4)
    if use.op == "clamp":
        bound = np.full(type_.dims, (1, 0, 2)[at]).astype(numpy_dtype(type_.dtype))
        return some_array(name, type_) if at == 1 else bound
    return some_array(
        name, type_, use.below[at], positive=use.op in ops_with(Trait.POSITIVE_DOMAIN)
    )
