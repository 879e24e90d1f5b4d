"""``graphgen ops``: which ops there are, and what one computes."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer

from graphgen.cli.console import Json, table, write_json, write_stdout
from graphgen.ops import OPS, Attr, OpDef, op_def
from graphgen.ops.opdef import REQUIRED
from graphgen.text.grammar import format_attr


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The op to explain; none lists all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
        if as_json:
            write_json(_facts(definition))
        else:
            write_stdout(_page(definition))
    elif as_json:
        write_json([_facts(OPS[key]) for key in sorted(OPS)])
    else:
        rows = [
            [key, " ".join(OPS[key].operands), _kind(OPS[key]), _doc(OPS[key]).partition("\n")[0]]
            for key in sorted(OPS)
        ]
        write_stdout(table(["op", "operands", "kind", "what it computes"], rows, sys.stdout))


def _doc(definition: OpDef) -> str:
    return inspect.cleandoc(definition.doc)


def _kind(definition: OpDef) -> str:
    if definition.composite:
        return "composite"
    return "collective" if definition.collective else "simple"


def _default(attr: Attr) -> str | None:
    return None if attr.default is REQUIRED else format_attr(attr.default)  # pyright: ignore[reportArgumentType]


def _facts(definition: OpDef) -> dict[str, Json]:
    return {
        "name": definition.name,
        "kind": _kind(definition),
        "operands": list(definition.operands),
        "attributes": [
            {
                "name": attr.name,
                "kind": attr.kind,
                "required": attr.default is REQUIRED,
                "default": _default(attr),
                "choices": list(attr.choices),
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
        kind = " | ".join(attr.choices) or attr.kind
        default = _default(attr)
        lines.append(f"    {attr.name}: {kind}" + ("" if default is None else f" = {default}"))
    return "\n".join(lines).rstrip() + "\n"
