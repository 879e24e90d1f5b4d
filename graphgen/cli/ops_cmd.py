"""``graphgen ops``: a list of the ops, or the page of one."""

from __future__ import annotations

import inspect
from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AsJson
from graphgen.json_value import Json
from graphgen.ops import OPS, Attr, OpDef, op_def
from graphgen.report.table import Table
from graphgen.text.grammar import format_attr

COMMAND: Final = Command("passes", "List the ops, or explain one.")


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The op to explain; none lists all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the ops, or explain one: operands, attributes, what it computes, an example.

    \b
    Examples:
      graphgen ops
      graphgen ops dot_general
      graphgen ops --json
    """
    if name is not None:
        definition = op_def(name)
        emit(as_json, lambda: _facts(definition), lambda: _page(definition))
    else:
        ops = [OPS[key] for key in sorted(OPS)]
        rows = [
            [each.name, " ".join(each.operands), _kind(each), _doc(each).partition("\n")[0]]
            for each in ops
        ]
        emit(
            as_json,
            lambda: [_facts(each) for each in ops],
            lambda: Table(["op", "operands", "kind", "what it computes"], rows),
        )


def _doc(definition: OpDef) -> str:
    return inspect.cleandoc(definition.doc)


def _kind(definition: OpDef) -> str:
    if definition.composite:
        return "composite"
    return "collective" if definition.collective else "simple"


def _default(attr: Attr) -> str | None:
    return None if attr.required else format_attr(attr.default)


def _facts(definition: OpDef) -> dict[str, Json]:
    return {
        "name": definition.name,
        "kind": _kind(definition),
        "operands": list(definition.operands),
        "attributes": [
            {
                "name": attr.name,
                "kind": attr.type.tag,
                "required": attr.required,
                "default": _default(attr),
                "choices": list(attr.type.choices),
            }
            for attr in definition.attrs
        ],
        "doc": _doc(definition),
    }


def _page(definition: OpDef) -> str:
    lines = [f"{definition.name}({', '.join(definition.operands)})    {_kind(definition)}", ""]
    lines += [_doc(definition), ""]
    if definition.attrs:
        lines.append("Attributes:")
    for attr in definition.attrs:
        kind = attr.type.code
        default = _default(attr)
        lines.append(f"    {attr.name}: {kind}" + ("" if default is None else f" = {default}"))
    return "\n".join(lines).rstrip() + "\n"
