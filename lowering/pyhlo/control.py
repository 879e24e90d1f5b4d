"""Control flow of PyHLO: calls, loops and conditionals.

The original language names these ops without a way to state their computations; here each is an
attribute, a function of a scribe as in reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from graphgen.ir import AttrValue, Function, Value
from graphgen.lowering.pyhlo.op_row import PyHloRow, custom_row
from graphgen.lowering.pyhlo.shapes import PyHloShape, PyHloValue, mistake
from graphgen.lowering.pyhlo.trace_context import PyHloCall


def _call(c: PyHloCall) -> Sequence[Value]:
    """Write a call of a function, which calls of equal computations share."""
    body = c.attrs.function()
    callee, _ = _written(c, body, c.operands)
    values = [value for item in c.operands for value in item.values]
    types = tuple([value.type for _, value in callee.outputs])
    found = _shared(c, callee)
    return c.b.emit("call", values, {"to_apply": found.name, "results": types}).results


def _shared(c: PyHloCall, callee: Function) -> Function:
    """Return an equal function of the module, or add this one."""
    from graphgen.text import print_function

    functions = c.trace.scribe.module.functions
    text = print_function(callee, locs=False).partition("\n")[2]
    for known in functions.values():
        if print_function(known, locs=False).partition("\n")[2] == text:
            return known
    base, count = callee.name, 0
    while callee.name in functions:
        count += 1
        callee.name = f"{base}.{count}"
    return c.trace.scribe.module.add(callee)


def _written(
    c: PyHloCall, body: Callable[..., object], given: Sequence[PyHloShape]
) -> tuple[Function, PyHloValue]:
    """Trace ``body``, whose parameters must have the shapes ``given`` (GG0203)."""
    name = getattr(body, "__name__", c.attrs.op).strip("<>")
    trace, root = c.trace.scribe.write(name, body)  # pyright: ignore[reportArgumentType]
    taken = [item.types for item in trace.parameters]
    wanted = [item.types for item in given]
    if taken != wanted:
        shown = [", ".join([item.text for item in side]) for side in (trace.parameters, given)]
        raise mistake("GG0203", f"{c.attrs.op}: {name} takes {shown[0]}, and is given {shown[1]}")
    trace.function.outputs = [(f"out{i}", value) for i, value in enumerate(root.values)]
    return trace.function, root


def _while(c: PyHloCall) -> Sequence[Value]:
    """``state.While(start, condition=f, body=g)``: g(state) while f(state), which is one pred."""
    if len(c.operands) != 1:
        raise mistake(
            "GG0105", f"While takes the start of its state, got {len(c.operands)} operands"
        )
    condition, test = _written(c, c.attrs.function("condition"), c.operands)
    body, after = _written(c, c.attrs.function("body"), c.operands)
    if test.text != "pred[]":
        raise mistake("GG0203", f"While: the condition gives {test.text}, not pred[]")
    if after.text != c.operands[0].text:
        raise mistake("GG0203", f"While: the body makes {after.text} of {c.operands[0].text}")
    names: dict[str, AttrValue] = {
        "condition": _shared(c, condition).name,
        "body": _shared(c, body).name,
    }
    return c.b.emit("while", c.operands[0].values, names).results


def _conditional(c: PyHloCall) -> Sequence[Value]:
    """``shape.Conditional(p, x, y, true_computation=f, false_computation=g)``: f(x) or g(y).

    Or ``shape.Conditional(i, x, y, z, branch_computations=[f, g, h])``: that of number i.
    """
    numbered = "branch_computations" in c.attrs.left
    keys = ("true_computation", "false_computation")
    branches = (
        c.attrs.functions("branch_computations")
        if numbered
        else [c.attrs.function(k) for k in keys]
    )
    chooser = "s32[]" if numbered else "pred[]"
    if len(c.operands) != 1 + len(branches) or c.operands[0].text != chooser:
        shown = ", ".join([item.text for item in c.operands])
        count = "two operands" if len(branches) == 2 else f"an operand for each of {len(branches)}"
        raise mistake("GG0105", f"Conditional takes {chooser} and {count}, got {shown}")
    made = [_written(c, f, [given]) for f, given in zip(branches, c.operands[1:], strict=True)]
    first = made[0][1]
    for _, root in made[1:]:
        if root.text != first.text:
            raise mistake("GG0203", f"Conditional gives {first.text} or {root.text}")
    attrs: dict[str, AttrValue] = {
        "branches": tuple([_shared(c, function).name for function, _ in made]),
        "takes": tuple([len(item.values) for item in c.operands[1:]]),
        "results": first.types,
    }
    values = [value for item in c.operands for value in item.values]
    return c.b.emit("conditional", values, attrs).results


CONTROL_ROWS: Final[Sequence[PyHloRow]] = (
    custom_row("Call", _call),
    custom_row("While", _while),
    custom_row("Conditional", _conditional),
)
