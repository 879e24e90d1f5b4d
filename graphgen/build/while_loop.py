"""Loops built by a decorator: condition and body become functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from typing import TYPE_CHECKING

from graphgen.build.argument_checks import located
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Value

if TYPE_CHECKING:
    from graphgen.build.builder import Builder

# (builder of the body, state...) -> the new state: one value, or several.
Body = Callable[..., Value | Iterable[Value]]
# (builder, state...) -> pred[].
Condition = Callable[..., Value]


def while_loop(
    b: Builder,
    module: Module,
    state: tuple[Value, ...],
    condition: Condition,
    body: Body,
    trips: int,
) -> tuple[Value, ...]:
    """Append a ``while`` op with these functions, and return its results.

    Raises:
        GraphgenError: GG0105 for a body whose results have other types than the state, and for a
            condition that is not pred[].
    """
    name = getattr(body, "__name__", "body")
    made = Function(_fresh(module, f"{b.function.name}.{name}"))
    outputs = _traced(b, made, state, body)
    given = [value.type.text for value in outputs]
    if given != [value.type.text for value in state]:
        wanted = ", ".join(value.type.text for value in state)
        raise located(
            GraphgenError(
                "GG0105",
                f"the body {name} returns {', '.join(given) or 'nothing'}, the state is {wanted}",
                help="return the new state, in its order and types; what only is read, as it is",
            )
        )
    test = Function(_fresh(module, f"{b.function.name}.{name}.condition"))
    holds = _traced(b, test, state, condition)
    if [value.type.text for value in holds] != ["pred[]"]:
        shown = ", ".join(value.type.text for value in holds)
        raise located(GraphgenError("GG0105", f"the condition of {name} is {shown}, not pred[]"))
    before = {n: f for n, f in module.functions.items() if f is not b.function}
    after = {b.function.name: b.function} if b.function.name in module.functions else {}
    module.functions = {**before, test.name: test, made.name: made, **after}
    attrs = {"condition": test.name, "body": made.name, "trip_count": trips}
    return b.emit("while", state, {**attrs}).results


def _fresh(module: Module, wanted: str) -> str:
    name, number = wanted, 1
    while name in module.functions:
        number += 1
        name = f"{wanted}.{number}"
    return name


def _traced(b: Builder, function: Function, state: tuple[Value, ...], body: Body) -> list[Value]:
    """Fill a function with what ``body`` builds; its arguments have the names of the parameters."""
    from graphgen.build.builder import Builder

    names = list(signature(body).parameters)[1:]
    if len(names) != len(state):
        raise located(
            GraphgenError(
                "GG0105",
                f"{getattr(body, '__name__', 'the function')} takes {len(names)} values, the state "
                f"has {len(state)}",
                help="parameters are the builder, then one for each value of the state",
            )
        )
    args = [function.block.add_arg(v.type, name) for v, name in zip(state, names, strict=True)]
    with Builder(function, loc=b.loc) as inner:
        inner.library = b.module or b.library
        result = body(inner, *args)
    outputs = [result] if isinstance(result, Value) else list(result)
    given = [f"{name}.next" for name in names] + [f"result.{n}" for n in range(len(outputs))]
    function.outputs = list(zip(given, outputs, strict=False))
    return outputs
