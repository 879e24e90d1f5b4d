"""Control flow: calls of a computation, loops, and choices between computations.

The original has the names of these ops and no way to say which computation they run; here it is an
attribute, a function of a scribe like those of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.ir import AttrValue, Function, Value
from graphgen.lowering.pyhlo.given import Given
from graphgen.lowering.pyhlo.ops import Write
from graphgen.lowering.pyhlo.scribe import Trace
from graphgen.lowering.pyhlo.shapes import Result, Shape, mistake


def _call(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """A function of the module; calls of one Python function with equal operands share it."""
    body = a.function()
    callee, _ = _written(t, a, body, x)
    values = [value for item in x for value in item.values]
    types = tuple([value.type for _, value in callee.outputs])
    found = _shared(t, callee)
    return t.b.emit("call", values, {"to_apply": found.name, "results": types}).results


def _shared(t: Trace, callee: Function) -> Function:
    """The function of the module that is the same, or this one, which is put in."""
    from graphgen.text import print_function

    functions = t.scribe.module.functions
    text = print_function(callee, locs=False).partition("\n")[2]
    for known in functions.values():
        if print_function(known, locs=False).partition("\n")[2] == text:
            return known
    base, count = callee.name, 0
    while callee.name in functions:
        count += 1
        callee.name = f"{base}.{count}"
    return t.scribe.module.add(callee)


def _written(
    t: Trace, a: Given, body: Callable[..., object], given: Sequence[Shape]
) -> tuple[Function, Result]:
    """The computation of ``body``, whose parameters must be like ``given`` (GG0203)."""
    name = getattr(body, "__name__", a.op).strip("<>")
    trace, root = t.scribe.write(name, body)  # pyright: ignore[reportArgumentType]
    taken = [item.types for item in trace.parameters]
    wanted = [item.types for item in given]
    if taken != wanted:
        shown = [", ".join([item.text for item in side]) for side in (trace.parameters, given)]
        raise mistake("GG0203", f"{a.op}: {name} takes {shown[0]}, and is given {shown[1]}")
    trace.function.outputs = [(f"out{i}", value) for i, value in enumerate(root.values)]
    return trace.function, root


def _while(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """``state.While(start, condition=f, body=g)``: g(state) while f(state), which is one pred."""
    if len(x) != 1:
        raise mistake("GG0105", f"While takes the start of its state, got {len(x)} operands")
    condition, test = _written(t, a, a.function("condition"), x)
    body, after = _written(t, a, a.function("body"), x)
    if test.text != "pred[]":
        raise mistake("GG0203", f"While: the condition gives {test.text}, not pred[]")
    if after.text != x[0].text:
        raise mistake("GG0203", f"While: the body makes {after.text} of {x[0].text}")
    names: dict[str, AttrValue] = {
        "condition": _shared(t, condition).name,
        "body": _shared(t, body).name,
    }
    return t.b.emit("while", x[0].values, names).results


def _conditional(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """``shape.Conditional(p, x, y, true_computation=f, false_computation=g)``: f(x) or g(y).

    Or ``shape.Conditional(i, x, y, z, branch_computations=[f, g, h])``: that of number i.
    """
    numbered = "branch_computations" in a.left
    keys = ("true_computation", "false_computation")
    branches = a.functions("branch_computations") if numbered else [a.function(k) for k in keys]
    chooser = "s32[]" if numbered else "pred[]"
    if len(x) != 1 + len(branches) or x[0].text != chooser:
        shown = ", ".join([item.text for item in x])
        count = "two operands" if len(branches) == 2 else f"an operand for each of {len(branches)}"
        raise mistake("GG0105", f"Conditional takes {chooser} and {count}, got {shown}")
    made = [_written(t, a, f, [given]) for f, given in zip(branches, x[1:], strict=True)]
    first = made[0][1]
    for _, root in made[1:]:
        if root.text != first.text:
            raise mistake("GG0203", f"Conditional gives {first.text} or {root.text}")
    attrs: dict[str, AttrValue] = {
        "branches": tuple([_shared(t, function).name for function, _ in made]),
        "takes": tuple([len(item.values) for item in x[1:]]),
        "results": first.types,
    }
    values = [value for item in x for value in item.values]
    return t.b.emit("conditional", values, attrs).results


CONTROL: dict[str, Write] = {"Call": _call, "While": _while, "Conditional": _conditional}
