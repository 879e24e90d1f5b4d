"""Text and HTML representations of values, ops, functions and modules."""

from __future__ import annotations

from html import escape

from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.text import print_function, print_module
from graphgen.text.printer import loc_text, op_text, value_names

Printable = Value | Op | Function | Module
# Ops of a function in its HTML; the text has all.
MOST_ROWS = 200


def text_of(what: Printable) -> str:
    """The IR text; of a value, the line of its op."""
    if isinstance(what, Module):
        return print_module(what).rstrip()
    if isinstance(what, Function):
        return print_function(what).rstrip()
    op = what.op if isinstance(what, Value) else what
    if op is None:
        assert isinstance(what, Value)
        return f"arg %{what.name or what.index} : {what.type.text}"
    return _line(op)


def _line(op: Op) -> str:
    """The op's line in the text of its function."""
    whole = Function("")
    whole.block = op.block or whole.block
    # An op removed from its block still has names.
    names = {value: f"%{value.name or '?'}" for value in (*op.operands, *op.results)}
    names |= value_names(whole)
    line = op_text(op, names, op.operands, [result.type for result in op.results])
    return line if op.loc is UNKNOWN else f"{line}  # {loc_text(op.loc)}"


def html_of(what: Printable) -> str:
    """HTML for a notebook: one table per function, one row per op with its source location."""
    if isinstance(what, Module):
        head = f"<p>module <b>@{escape(what.name)}</b>, level {escape(what.level)}</p>"
        return head + "".join(map(_table, what.functions.values()))
    if isinstance(what, Function):
        return _table(what)
    return f"<code>{escape(text_of(what))}</code>"


def _table(function: Function) -> str:
    lines = print_function(function).splitlines()
    rows = lines[1:-1]
    left = len(rows) - MOST_ROWS
    shown = [_row(line) for line in rows[:MOST_ROWS]]
    if left > 0:
        shown.append(f"<tr><td>... and {left} lines more</td><td></td></tr>")
    head = f"<caption><code>{escape(lines[0].rstrip(' {'))}</code></caption>"
    return f"<table>{head}{''.join(shown)}</table>"


def _row(line: str) -> str:
    text, _, place = line.strip().partition("  # ")
    left = f'<td style="text-align:left"><code>{escape(text)}</code></td>'
    return f'<tr>{left}<td style="text-align:left">{escape(place)}</td></tr>'
