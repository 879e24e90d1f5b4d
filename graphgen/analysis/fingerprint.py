"""Fingerprint a module's computation; value names and source lines do not change it.

The fingerprint is SHA-256 over a text of its own: the interface and the functions with their
names, and every op with its values numbered in program order. So it depends on no name of a value
inside a function, on no source line, on no path and no process; any other change changes it, the
order of arguments, outputs and ops included. The module's name, its free text and the level it is
at are not part of what it computes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from graphgen.ir import Entry, Function, Module, Op, Value
from graphgen.text.printer import annotation_text, attr_text


def fingerprint(module: Module) -> str:
    """64 hexadecimal digits for a module.

    Args:
        module: well formed, as the verifier leaves it.
    """
    digest = hashlib.sha256()
    digest.update(",".join(f"{axis}:{size}" for axis, size in module.mesh.items()).encode())
    for row in module.interface.values():
        digest.update(f"\n{_row(row)}".encode())
    for function in module.functions.values():
        digest.update(f"\n@{function.name}\n".encode())
        digest.update("\n".join(_lines(function)).encode())
    return digest.hexdigest()


def function_fingerprint(function: Function) -> str:
    """64 hexadecimal digits for one function, whatever it is called."""
    return hashlib.sha256("\n".join(_lines(function)).encode()).hexdigest()


def _row(row: Entry) -> str:
    layout = row.sharding.text if row.sharding else ""
    types = f"{row.logical.text} {row.physical.text}"
    last = f" last={row.last}" if row.last else ""
    domain = f" domain={row.domain.text}" if row.domain is not None else ""
    return f"{row.role.value} {row.name} {types} {row.pack} {row.unpack} {layout}{last}{domain}"


def _lines(function: Function) -> Iterator[str]:
    """A line for the head, and one for each argument, op and output."""
    dims = ",".join(f"{name}={size}" for name, size in function.dims.items())
    yield f"{function.phase} {{{dims}}}{annotation_text(function.annotations)}"
    numbers: dict[Value, str] = {}
    for value in function.args:
        numbers[value] = str(len(numbers))
        yield f"{value.name} {_type(value)}{annotation_text(value.annotations)}"
    for op in function.block:
        yield _op(op, numbers)
    for name, value in function.outputs:
        yield f"{name} {numbers[value]}"


def _op(op: Op, numbers: dict[Value, str]) -> str:
    operands = ",".join([numbers[value] for value in op.operands])
    for result in op.results:
        numbers[result] = str(len(numbers))
    if len(op.results) == 1:
        types = _type(op.results[0])
    else:
        types = " ".join([_type(result) for result in op.results])
    return f"{op.name}{attr_text(op)}{annotation_text(op.annotations)}({operands}){types}"


def _type(value: Value) -> str:
    return value.type.text + value.sharding.text if value.sharding else value.type.text
