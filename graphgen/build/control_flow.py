"""Loops and choices of the builder: functions of Python traced into functions of the module.

A traced function may read values from around it. Each of them becomes an argument after its own
ones, and an operand of the op that runs it; a loop hands it on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, cast

from graphgen.build.argument_checks import check_values, located
from graphgen.build.source_location import user_loc
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, TensorType, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.text.grammar import NAME

if TYPE_CHECKING:
    from graphgen.build.builder import Builder

# (builder of the body, state...) -> the new state: one value, or several.
Body = Callable[..., Value | float | Iterable[Value | float]]
# (builder, state...) -> pred[].
Condition = Callable[..., Value]
# (builder, carried..., one element of each sequence...) -> (what is carried, what is stacked).
Step = Callable[..., tuple[object, object]]
# (builder, operands...) -> one value, or several.
Branch = Callable[..., Value | Iterable[Value]]


@dataclass
class _Traced:
    """A function of the module that a function of Python fills.

    Attributes:
        builder: of its ops.
        own: its arguments that are not read from around it.
        results: the values that the Python function returned.
        held: next values of further arguments, which a loop changes and Python does not see.
    """

    builder: Builder
    own: list[Value]
    results: list[Value] = field(default_factory=list[Value])
    held: dict[Value, Value] = field(default_factory=dict[Value, Value])

    @property
    def function(self) -> Function:
        """The function."""
        return self.builder.function


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
    name = function_name(body)
    made = _started(b, fresh_name(module, f"{b.function.name}.{name}"), state, _names(body, state))
    types = [value.type for value in state]
    with made.builder as inner:
        made.results = _values(made, body(inner, *made.own), name, types)
    _check_types(f"the body {name} returns", made.results, types)
    return _emit_while(b, module, name, state, made, condition, trips)[: len(state)]


def _emit_while(
    b: Builder,
    module: Module,
    name: str,
    state: Sequence[Value],
    made: _Traced,
    condition: Condition,
    trips: int,
) -> tuple[Value, ...]:
    """Append the loop of a traced body; the results are those of its arguments, in order."""
    taken = made.function.name
    known = [value.name or "" for value in made.own]
    test = _started(
        b, fresh_name(module, f"{taken}.condition"), state, _names(condition, state, known)
    )
    for value in made.builder.captured:
        test.builder.own(value)
    with test.builder as inner:
        test.results = _values(test, condition(inner, *test.own), "condition")
    if [value.type.text for value in test.results] != ["pred[]"]:
        shown = ", ".join(value.type.text for value in test.results) or "nothing"
        raise located(GraphgenError("GG0105", f"the condition of {name} is {shown}, not pred[]"))
    for value in test.builder.captured:
        made.builder.own(value)
    nexts = dict(zip(made.own, made.results, strict=True)) | made.held
    made.function.outputs = [(f"{a.name}.next", nexts.get(a, a)) for a in made.function.args]
    test.function.outputs = [("result.0", test.results[0])]
    _insert(module, b.function, [test.function, made.function])
    attrs = {"condition": test.function.name, "body": taken, "trip_count": trips}
    return b.emit("while", [*state, *made.builder.captured], {**attrs}).results


def scan(
    b: Builder,
    module: Module,
    carried: tuple[Value, ...],
    over: tuple[Value, ...],
    step: Step,
    reverse: bool,
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Append a loop over dimension 0 of values: what is carried at its end, and what is stacked.

    Raises:
        GraphgenError: GG0105 for values of different lengths, for a step that returns no pair, and
            for one that carries other types on.
    """
    name, limit = function_name(step), _length(b, over)
    rows = [tensor(value.dtype, value.shape[1:]) for value in over]
    names = _names(step, [*carried, *over])[: len(carried)]
    state = (b.literal(0, s32), *carried)
    made = _started(b, fresh_name(module, f"{b.function.name}.{name}"), state, ["turn", *names])
    with made.builder as inner:
        turn = made.own[0]
        last = inner.subtract(limit, 1) if isinstance(limit, Value) else limit - 1
        at = inner.subtract(last, turn) if reverse else turn
        elements = [_element(inner, v, at, row) for v, row in zip(over, rows, strict=True)]
        following, stacked = _pair(step(inner, *made.own[1:], *elements), name)
        types = [value.type for value in carried]
        made.results = [inner.add(turn, 1), *_values(made, following, name, types)]
        _check_types(f"{name} carries on", made.results[1:], types)
        for part in _values(made, stacked, name):
            _stack(b, made, part, at, over[0])
    trips = limit if isinstance(limit, int) else -1
    found = _emit_while(b, module, name, state, made, _below(limit), trips)
    ends = dict(zip(made.function.args, found, strict=True))
    return tuple([ends[a] for a in made.own[1:]]), tuple([ends[a] for a in made.held])


def _below(limit: int | Value) -> Condition:
    def holds(b: Builder, turn: Value, *rest: Value) -> Value:
        return b.compare(turn, limit, "LT")

    return holds


def _length(b: Builder, over: Sequence[Value]) -> int | Value:
    """The size of dimension 0 of all values: a number, or a value for a symbol."""
    check_values("scan: over ", over, user_loc(b.scope_name))
    sizes = [value.shape[0] if value.shape else 0 for value in over]
    if not over or not all(value.shape for value in over):
        what = "a scan over " + (", ".join(value.type.text for value in over) or "no values")
        raise located(GraphgenError("GG0105", what, help="over=[x] takes values with dimension 0"))
    if any(size != sizes[0] for size in sizes):
        shown = ", ".join(value.type.text for value in over)
        raise located(GraphgenError("GG0105", f"scan: {shown} have different sizes of dimension 0"))
    if isinstance(sizes[0], int):
        return sizes[0]
    counts = b.iota(s32, (sizes[0],), 0)
    return b.add(b.reduce(counts, [0], "maximum"), 1)


def _element(b: Builder, x: Value, at: Value, row: TensorType) -> Value:
    """``x[at]`` along dimension 0."""
    if x.shape[0] == 0:
        return b.full(0, row)
    zero = [b.full(0, at.type)] * len(row.shape)
    return b.reshape(b.dynamic_slice(x, [at, *zero], (1, *row.shape)), row.shape)


def _stack(b: Builder, made: _Traced, part: Value, at: Value, over: Value) -> None:
    """Write ``part`` at ``at`` of a buffer that the loop holds beside its state."""
    whole = tensor(part.dtype, (over.shape[0], *part.shape))
    inner = made.builder
    buffer = inner.own(b.full(0, whole))
    made.held[buffer] = buffer
    if over.shape[0] != 0:
        zero = [inner.full(0, at.type)] * len(part.shape)
        row = inner.reshape(part, (1, *part.shape))
        made.held[buffer] = inner.dynamic_update_slice(buffer, row, [at, *zero])


def _pair(result: object, name: str) -> tuple[object, object]:
    if not isinstance(result, tuple) or len(cast(tuple[object, ...], result)) != 2:
        raise located(
            GraphgenError(
                "GG0105",
                f"{name} returns no pair",
                help="return (what is carried on, what is stacked); () for nothing",
            )
        )
    return cast(tuple[object, object], result)


def conditional(
    b: Builder, module: Module, which: Value, branches: Sequence[Branch], given: tuple[Value, ...]
) -> tuple[tuple[Value, ...], bool]:
    """Append a ``conditional`` op: its results, and whether each function returns one value.

    Raises:
        GraphgenError: GG0105 for branches whose results differ in number or type.
    """
    if not branches:
        what = "a choice between no functions"
        raise located(GraphgenError("GG0105", what, help="switch needs at least one function"))
    all_made: list[_Traced] = []
    alone = True
    for branch in branches:
        name = function_name(branch)
        taken = [made.function.name for made in all_made]
        called = fresh_name(module, f"{b.function.name}.{name}", taken)
        made = _started(b, called, given, _names(branch, given, (), "it is given"))
        with made.builder as inner:
            result = branch(inner, *made.own)
            made.results = _values(made, result, name)
            alone = alone and isinstance(result, Value)
        made.function.outputs = [(f"result.{n}", value) for n, value in enumerate(made.results)]
        all_made.append(made)
        types = [value.type for value in all_made[0].results]
        _check_types(f"the branch {name} returns", made.results, types, "the first one")
    _insert(module, b.function, [made.function for made in all_made])
    operands = [which]
    for made in all_made:
        operands += [*given, *made.builder.captured]
    attrs = {
        "branches": tuple([made.function.name for made in all_made]),
        "takes": tuple([len(made.function.args) for made in all_made]),
        "results": tuple([value.type for value in all_made[0].results]),
    }
    return b.emit("conditional", operands, {**attrs}).results, alone


def function_name(function: object) -> str:
    """The name of a function, or of what a ``partial`` calls; ``body`` where there is none."""
    inner = getattr(function, "func", function)
    name = getattr(inner, "__name__", "")
    return name if re.fullmatch(NAME, name) else "body"


def fresh_name(module: Module, wanted: str, taken: Sequence[str] = ()) -> str:
    """The name, with a number if the module, or ``taken``, has it already."""
    name, number = wanted, 1
    while name in module.functions or name in taken:
        number += 1
        name = f"{wanted}.{number}"
    return name


def _insert(module: Module, caller: Function, made: Sequence[Function]) -> None:
    """Put functions into the module before the one that runs them."""
    before = {n: f for n, f in module.functions.items() if f is not caller}
    after = {caller.name: caller} if caller.name in module.functions else {}
    module.functions = {**before, **{function.name: function for function in made}, **after}


def _started(b: Builder, name: str, given: Sequence[Value], names: Sequence[str]) -> _Traced:
    """A function with an argument of the type of each value, still to be filled."""
    function = Function(name)
    inner = b.inside(function)
    own = [inner.argument(v.type, n) for v, n in zip(given, names, strict=True)]
    return _Traced(inner, own)


def _names(
    function: Callable[..., object],
    given: Sequence[Value],
    otherwise: Sequence[str] = (),
    whose: str = "the state has",
) -> list[str]:
    """A name for each value that a function is given beside the builder: those of its parameters.

    Where it takes any number of values (``*args``), the values are called as in ``otherwise``, or
    as they are called already.
    """
    name = function_name(function)
    try:
        found = signature(function)
    except ValueError:
        found = None  # Some callables of other languages tell nothing.
    except TypeError:
        what = f"{function!r} is not a function"
        raise located(
            GraphgenError("GG0105", what, help="give a function of the builder")
        ) from None
    names: list[str] = []
    if found is not None:
        places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        names = [n for n, parameter in found.parameters.items() if parameter.kind in places][1:]
        try:
            found.bind(None, *given)
        except TypeError as error:
            what = f"{name} takes {len(names)} values, {whose} {len(given)}"
            help = f"parameters are the builder, then one for each of these values: {error}"
            raise located(GraphgenError("GG0105", what, help=help)) from None
    rest = otherwise or [value.name or f"value.{n}" for n, value in enumerate(given)]
    return [*names[: len(given)], *rest[len(names) :]]


def _values(
    made: _Traced, result: object, name: str, types: Sequence[TensorType] = ()
) -> list[Value]:
    """The values that a traced function returned; a number has the type wanted in its place."""
    inner = made.builder
    if result is None:
        result = ()
    items: list[object] = [result]
    if isinstance(result, Iterable) and not isinstance(result, Value | str):
        items = list(cast(Iterable[object], result))
    found: list[object] = []
    for place, item in enumerate(items):
        number = isinstance(item, int | float) and place < len(types)
        found.append(inner.full(cast(float, item), types[place]) if number else item)
    check_values(f"{name}: result ", found, user_loc(""))
    return [inner.own(value) for value in cast(list[Value], found)]


def _check_types(
    what: str, found: Sequence[Value], wanted: Sequence[TensorType], of: str = "the state"
) -> None:
    given = [value.type.text for value in found]
    if given != [type_.text for type_ in wanted]:
        shown = ", ".join(type_.text for type_ in wanted)
        raise located(
            GraphgenError(
                "GG0105",
                f"{what} {', '.join(given) or 'nothing'}, {of} is {shown}",
                help="return the same types in the same order; what is only read from around it "
                "need not be returned",
            )
        )
