"""Print IR text: one op per line, with the user's names and provenance after ``#``.

The text is the IR's file format (``.gg``): ``parse(print_module(m))`` prints the same text again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from graphgen.ir import Attrs, AttrValue, Entry, Function, Module, Op, TensorType, Value
from graphgen.ir.attrs import EMPTY
from graphgen.ir.loc import UNKNOWN, Loc
from graphgen.ops import Attr, op_def
from graphgen.text.grammar import NAME, format_attr, format_string

_attr_text: dict[tuple[str, Attrs], str] = {}


def print_module(module: Module, *, locs: bool = True) -> str:
    """The text of a module.

    Args:
        module: the module.
        locs: append the provenance comment to each op.
    """
    lines = _head(module)
    for function in module.functions.values():
        lines.append("")
        lines += _function(function, locs)
    return "\n".join(lines) + "\n"


def _head(module: Module) -> list[str]:
    mesh = ",".join(f"{axis}:{size}" for axis, size in module.mesh.items())
    head = f"module @{module.name} level={module.level}" + (f" mesh={mesh}" if mesh else "")
    lines = [f"{head} {{"]
    lines += [f"  meta {key} = {json.dumps(text)}" for key, text in module.meta.items()]
    lines += [f"  {_entry(row)}" for row in module.interface.values()]
    return [*lines, "}"]


def print_function(
    function: Function, *, locs: bool = True, names: Mapping[Value, str] | None = None
) -> str:
    """The text of one function, as in its module.

    Args:
        function: the function.
        locs: append the provenance comment to each op.
        names: ``%name`` of every value; by default those of :func:`value_names`.
    """
    return "\n".join(_function(function, locs, names)) + "\n"


def print_interface(module: Module) -> str:
    """The head of a module's text: name and level, meta lines, interface."""
    return "\n".join(_head(module)) + "\n"


def _entry(row: Entry) -> str:
    text = f"{row.role.value} %{row.name} : {row.logical.text}"
    if row.physical is not row.logical:
        text += f" as {row.physical.text}"
    if row.pack:
        text += f" pack=@{row.pack}"
    if row.unpack:
        text += f" unpack=@{row.unpack}"
    if row.last:
        text += f" last={row.last}"
    if row.domain is not None:
        text += f" domain={row.domain.text}"
    if row.sharding:
        text += f" sharding={row.sharding.text}"
    return text


def _function(
    function: Function, locs: bool, known: Mapping[Value, str] | None = None
) -> list[str]:
    names = value_names(function) if known is None else known
    head = f"func @{function.name}"
    if function.phase:
        head += f" phase={function.phase}"
    if function.dims:
        head += " dims={" + ",".join(f"{k}={v}" for k, v in function.dims.items()) + "}"
    lines = [f"{head}{annotation_text(function.annotations)} {{"]
    lines += [
        f"  arg {names[value]} : {_type(value)}{annotation_text(value.annotations)}"
        for value in function.args
    ]
    lines += [_op(op, names, locs) for op in function.block]
    lines += [f"  return {name} = {names[value]}" for name, value in function.outputs]
    lines.append("}")
    return lines


def value_names(function: Function) -> dict[Value, str]:
    """A unique ``%name`` for every value: its own name if that is free, else a number."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    unnamed: list[Value] = []
    values = list(function.args)
    for op in function.block:
        values.extend(op.results)
    for value in values:
        name = value.name
        if name is None or name in taken or not re.fullmatch(NAME, name) or name.isdigit():
            unnamed.append(value)
            continue
        taken.add(name)
        names[value] = f"%{name}"
    order = {value: index for index, value in enumerate(values)}
    for number, value in enumerate(sorted(unnamed, key=order.__getitem__)):
        names[value] = f"%{number}"
    return names


def _type(value: Value) -> str:
    return value.type.text + (value.sharding.text if value.sharding else "")


def attr_text(op: Op) -> str:
    """The attributes that differ from their defaults, each preceded by a space."""
    key = (op.name, op.attrs)
    found = _attr_text.get(key)
    if found is None:
        parts = [
            f" {attr.name}={_value(attr, op.attrs[attr.name])}"
            for attr in op_def(op.name).attrs
            if op.attrs[attr.name] != attr.default
        ]
        found = _attr_text[key] = "".join(parts)
    return found


def annotation_text(annotations: Attrs) -> str:
    """Annotations, each preceded by a space: `` hlo.sharding="{replicated}"``."""
    if annotations is EMPTY:
        return ""
    return "".join([f" {key}={format_string(str(text))}" for key, text in annotations.items()])


def _value(attr: Attr, value: AttrValue) -> str:
    if attr.type.tag == "string" and isinstance(value, str):
        return format_string(value)
    return format_attr(value)


def op_text(
    op: Op,
    names: Mapping[Value, str],
    operands: Sequence[Value],
    types: Sequence[TensorType],
) -> str:
    """The line of an op with these operands and result types.

    Without indentation, provenance and shardings.
    """
    left = ", ".join([names[result] for result in op.results])
    read = ", ".join([names[value] for value in operands])
    made = ", ".join([type_.text for type_ in types])
    return f"{left} = {op.name}({read}){attr_text(op)} : {made}"


def _op(op: Op, names: Mapping[Value, str], locs: bool) -> str:
    if len(op.results) == 1:
        result = op.results[0]
        left, types = names[result], _type(result)
    else:
        left = ", ".join([names[result] for result in op.results])
        types = ", ".join([_type(result) for result in op.results])
    operands = ", ".join([names[value] for value in op.operands])
    attrs = attr_text(op) + annotation_text(op.annotations)
    line = f"  {left} = {op.name}({operands}){attrs} : {types}"
    return f"{line}  # {loc_text(op.loc)}" if locs and op.loc is not UNKNOWN else line


def loc_text(where: Loc) -> str:
    """The provenance comment of an op: file:line, scope, passes."""
    text = f"{where.file}:{where.line}"
    if where.scope:
        text += f" {where.scope}"
    if where.via:
        text += f" via {','.join(where.via)}"
    return text
