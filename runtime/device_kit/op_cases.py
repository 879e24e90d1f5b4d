"""Programs of single ops: every op for every element type that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import dtype as element_type
from graphgen.lowering.check.compiler_rules import legality, opcode_of
from graphgen.ops import verify
from graphgen.runtime.device_kit.kit_program import KitProgram, kit_program, some_array
from graphgen.runtime.device_kit.op_uses import OpUse, op_uses
from graphgen.runtime.device_kit.runner.numbers import element_bytes
from graphgen.text import parse
from graphgen.text.grammar import parse_type

# Functions that are defined for positive numbers.
_POSITIVE = ("log", "log_plus_one", "sqrt", "rsqrt", "power")
_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")

# Uses whose results drop the imaginary part.
_REAL = ("dot-wide", "dot-s32", "convert-from")


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
        if use.dtype.startswith("c") and use.name in _REAL:
            continue
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
        return (
            np.full(type_.dims, (1, 0, 2)[at]).astype(numpy_dtype(type_.dtype))
            if at != 1
            else (some_array(name, type_))
        )
    return some_array(name, type_, use.below[at], positive=use.op in _POSITIVE)
