"""Binary interface of a program, the same in every dialect: buffer aliases, operation names."""

from __future__ import annotations

import re

from graphgen.ir import Function, Loc, Module, Role


def donated(module: Module, function: Function) -> dict[int, int]:
    """Map each state's argument index to the output index that takes over its buffer.

    Args:
        module: the program, whose interface table gives the roles.
        function: its entry function.
    """
    outputs = {name: index for index, (name, _) in enumerate(function.outputs)}
    found: dict[int, int] = {}
    for index, value in enumerate(function.args):
        row = module.interface.get(value.name or "")
        if row is not None and row.role is Role.STATE and row.name in outputs:
            found[index] = outputs[row.name]
    return found


def operation_name(where: Loc) -> str:
    """Scope and passes of a location, as the ``op_name`` of HLO's ``OpMetadata``."""
    scope = where.scope.replace(".", "/") or "main"
    return f"{scope} via {','.join(where.via)}" if where.via else scope


def clean_name(text: str, default: str) -> str:
    """``text`` as a name: ``result['a'][0]`` is ``result.a.0``."""
    name = re.sub(r"[^\w.\-]+", ".", text).strip(".")
    return default if not name or name.isdigit() else name
