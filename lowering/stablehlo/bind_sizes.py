"""Bind the sizes that a StableHLO program leaves open, and read its text again with them.

Sizes that a program computes then follow from constants, and its dynamic ops become ops of static
shapes. A size that depends on an argument's value is bound by that value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from graphgen.ir import Dim, Function, Module, Value
from graphgen.lowering.mlir.mlir_types import is_open
from graphgen.lowering.stablehlo.emit import emit_stablehlo
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.lowering.stablehlo.read_context import BoundArguments

# Of each dynamic op, the place of its first operand that says sizes, and whether all after do.
_SIZES: Final[Mapping[str, int]] = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_conv": 2,
    "stablehlo.dynamic_gather": 2,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_pad": 2,
    "stablehlo.dynamic_reshape": 1,
    "stablehlo.real_dynamic_slice": 1,
    "stablehlo.set_dimension_size": 1,
}


def leaves_sizes_open(module: Module) -> bool:
    """A module of StableHLO whose text leaves sizes open, or computes them."""
    if module.meta.get("format") != "stablehlo":
        return False
    return any(
        is_open(value.type)
        for function in module.functions.values()
        for value in (*function.args, *[result for op in function.block for result in op.results])
    )


def open_sizes(function: Function) -> dict[str, tuple[str, int]]:
    """The symbols of a program's arguments: the argument and the dimension of each."""
    found: dict[str, tuple[str, int]] = {}
    for value in function.args:
        for place, size in enumerate(value.type.shape):
            if not isinstance(size, int):
                found.setdefault(str(size), (value.name or "", place))
    return found


def size_arguments(function: Function) -> list[str]:
    """Scalar integer arguments on whose values sizes depend."""
    work: list[Value] = []
    for op in function.block:
        first = _SIZES.get(op.attrs.text("opcode")) if op.name == "hlo.opaque" else None
        if first is not None:
            work += op.operands[first:]
    seen = set(work)
    while work:
        for value in _read(work.pop()):
            if value not in seen:
                seen.add(value)
                work.append(value)
    return [
        value.name or ""
        for value in function.args
        if value in seen and not value.type.rank and value.type.dtype.is_integer
    ]


def _read(value: Value) -> Iterator[Value]:
    """The values that the numbers of a value depend on; of a size only the type counts."""
    op = value.op
    if op is not None and op.attrs.get("opcode") != "stablehlo.get_dimension_size":
        yield from op.operands


def bind_sizes(
    module: Module, function: Function, sizes: Mapping[str, int], values: Mapping[str, int]
) -> Module:
    """A module of one program with these sizes.

    Args:
        module: its text leaves sizes open.
        function: one of its programs.
        sizes: by the symbols of its arguments, see :func:`open_sizes`.
        values: of its arguments on which sizes depend, see :func:`size_arguments`.

    Raises:
        GraphgenError: GG0105 for sizes that do not go together, GG0103 for an op whose sizes
            depend on data.
    """
    given: dict[str, Sequence[int]] = {}
    for value in function.args:
        if is_open(value.type):
            given[value.name or ""] = [_size(size, sizes) for size in value.type.shape]
    text = emit_stablehlo(module, function)
    return read_stablehlo(text, function.name, BoundArguments(given, values))


def _size(size: Dim, sizes: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else sizes[str(size)]


def has_quantized(module: Module) -> bool:
    """A module of StableHLO with quantized elements."""
    return module.meta.get("format") == "stablehlo" and any(
        value.dtype.is_quantized
        for function in module.functions.values()
        for value in (*function.args, *[result for op in function.block for result in op.results])
    )


def as_plain_integers(module: Module, function: Function) -> Module:
    """A module of one program whose quantized elements are the integers that are stored.

    Raises:
        GraphgenError: GG0103 for an op that has no meaning on quantized elements here.
    """
    bound = BoundArguments({}, {}, plain=True)
    return read_stablehlo(emit_stablehlo(module, function), function.name, bound)
