"""The builder: appends ops to a function, infers their types and records the user's lines.

All code makes ops through it: models directly, composites and passes with an insertion point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from graphgen.build.argument_checks import (
    as_number,
    check_function,
    check_type,
    check_values,
    declared_domain,
    declared_type,
    located,
    operand_mismatch,
    plain_attrs,
)
from graphgen.build.array_methods import ArrayMethods, Index
from graphgen.build.source_location import user_loc
from graphgen.errors import GraphgenError
from graphgen.ir import (
    AttrValue,
    Dim,
    Domain,
    DomainLike,
    DType,
    Entry,
    Function,
    Literal,
    Loc,
    Module,
    Op,
    Role,
    TensorType,
    Value,
    entry,
)
from graphgen.ops import InferError, infer, make_attrs
from graphgen.text.grammar import NAME

if TYPE_CHECKING:
    pass

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


class Builder(ArrayMethods):
    """Builds one function.

    Args:
        function: the function to append to.
        module: the module whose interface receives declared inputs, weights, states and outputs;
            None if the function is not an entry program.
        before: insert before this op instead of at the end.
        loc: provenance of every new op, instead of the caller's line; passes use it.

    Use it as a context manager to make Python operators on values (``x * y + 1.0``) append here.
    """

    _active: ClassVar[list[Builder]] = []

    def __init__(
        self,
        function: Function,
        module: Module | None = None,
        *,
        before: Op | None = None,
        loc: Loc | None = None,
    ) -> None:
        self.function = function
        self.module = module
        self.before = before
        self.loc = loc
        self.made: list[Op] | None = None
        # The module whose functions a loop's body may call; its interface is not for the body.
        self.library: Module | None = None
        self._scopes: list[str] = [""]

    def __enter__(self) -> Builder:
        Builder._active.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        Builder._active.pop()

    @staticmethod
    def current() -> Builder:
        """The builder of the innermost ``with`` (GG0705 outside of any)."""
        if not Builder._active:
            raise GraphgenError(
                "GG0705",
                "operators on values work inside `with Builder(...)` only",
                help="open the builder, or call its methods: b.add(x, y)",
            )
        return Builder._active[-1]

    @staticmethod
    def is_open() -> bool:
        """True inside of ``with Builder(...)``."""
        return bool(Builder._active)

    @contextmanager
    def scope(self, name: str) -> Generator[str]:
        """New ops and weights belong to the module scope ``name``, nested with dots."""
        outer = self._scopes[-1]
        self._scopes.append(f"{outer}.{name}" if outer else name)
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    @property
    def scope_name(self) -> str:
        """The current module scope, e.g. ``model.layers.0``; empty at the top."""
        return self._scopes[-1]

    def emit(
        self, name: str, operands: Sequence[Value], attrs: dict[str, AttrValue] | None = None
    ) -> Op:
        """Append the op ``name`` with inferred result types.

        Raises:
            GraphgenError: GG0103, GG0104, GG0105 if the operands do not fit, or GG0202 if one
                belongs to another function, naming the caller's line.
        """
        where = self.loc or user_loc(self._scopes[-1])
        try:
            checked = make_attrs(name, attrs or {})
            types = infer(name, tuple([value.type for value in operands]), checked)
        except InferError as error:
            raise operand_mismatch(name, operands, error, where) from None
        except GraphgenError as error:
            error.where = error.where or repr(where)
            raise
        except (AttributeError, TypeError):
            # Checked only after a failure: the check would slow down every op.
            check_values(f"{name}: operand ", operands, where)
            raise
        if self.before is None:
            check_function(self.function, name, operands, where)
        op = Op(name, tuple(operands), types, checked, where)
        if self.before is None:
            self.function.block.append(op)
        else:
            self.function.block.insert_before(op, self.before)
        if self.made is not None:
            self.made.append(op)
        return op

    def op(self, name: str, *operands: Value, **attrs: AttrValue) -> Value:
        """Append any op with one result, and return the result."""
        return self.emit(name, operands, plain_attrs(attrs)).result

    def literal(self, value: object, dtype: DType) -> Value:
        """A constant from a number or nested lists of numbers."""
        try:
            written = Literal.of(dtype, value)
        except GraphgenError as error:
            raise located(error, self.scope_name) from None
        return self.emit("constant", (), {"value": written}).result

    def full(self, value: float, type: TensorType) -> Value:
        """A tensor of this type filled with ``value``; the shape may have symbols.

        Raises:
            GraphgenError: GG0104 for a value the type cannot hold, such as 0.5 in s32, GG0105 for
                an argument that is not a number or not a tensor type.
        """
        check_type(type)
        plain = as_number(value)
        whole = isinstance(plain, int) or plain.is_integer()
        scalar = self.literal(
            int(plain) if whole and not type.dtype.is_float else plain, type.dtype
        )
        return scalar if not type.shape else self.broadcast_in_dim(scalar, type.shape, ())

    def binary(self, name: str, lhs: Value | float, rhs: Value | float) -> Value:
        """An elementwise op of two operands; a Python number takes the other operand's type."""
        if not isinstance(lhs, Value):
            assert isinstance(rhs, Value)
            lhs = self.full(lhs, rhs.type)
        if not isinstance(rhs, Value):
            rhs = self.full(rhs, lhs.type)
        return self.emit(name, (lhs, rhs)).result

    def unary(self, name: str, operand: Value) -> Value:
        """An elementwise op of one operand."""
        return self.emit(name, (operand,)).result

    def while_loop(
        self, *state: Value, condition: Condition, trip_count: int = -1
    ) -> Callable[[Body], tuple[Value, ...]]:
        """Decorate the body of a loop; the decorated name is the tuple of final values.

        Body and condition take a builder of their own and the state, and nothing from outside: what
        they read is part of the state. The body returns the new state, the condition a pred[].

        Args:
            state: first values.
            condition: the loop goes on while it holds.
            trip_count: how often the body runs, if that is known.

        Example::

            @b.while_loop(i, x, condition=lambda b, i, x: i < 10)
            def loop(b, i, x):
                return i + 1, x * 2.0

            i, x = loop
        """
        module = self.module or self.library
        if module is None:
            raise GraphgenError(
                "GG0705",
                "this builder has no module for the functions of a loop",
                where=repr(user_loc(self.scope_name)),
                help="give it one: Builder(function, module)",
            )
        check_values("while: state ", state, user_loc(self.scope_name))
        return lambda body: while_loop(self, module, state, condition, body, trip_count)

    def input(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[Dim],
        *,
        domain: DomainLike | None = None,
    ) -> Value:
        """Declare an input of the program.

        Args:
            name: of the input.
            dtype: its element type.
            shape: its sizes.
            domain: the values that a caller may give: ``(low, high)`` with both ends, of which each
                is a number or a size such as ``C - 1``, or a set. By default every value of the
                type is legal.

        Raises:
            GraphgenError: GG0108 for a domain that the type does not have, GG0107 for a name that
                is taken, GG0705 for one that is not a name.
        """
        type_ = declared_type(dtype, shape, self.scope_name)
        return self._declare(Role.INPUT, name, type_, domain)

    def weight(self, name: str, dtype: DType, shape: Sequence[Dim]) -> Value:
        """Declare a tensor of the checkpoint, named inside the current scope."""
        scope = self._scopes[-1]
        full = f"{scope}.{name}" if scope else name
        return self._declare(Role.WEIGHT, full, declared_type(dtype, shape, scope))

    def state(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[Dim],
        *,
        domain: DomainLike | None = None,
    ) -> Value:
        """Declare a state, kept between calls; pass its new value to :meth:`set_state`.

        ``domain`` is that of the values that it starts with, as of :meth:`input`.
        """
        scope = self._scopes[-1]
        full = f"{scope}.{name}" if scope else name
        return self._declare(Role.STATE, full, declared_type(dtype, shape, scope), domain)

    def set_state(self, state: Value, value: Value) -> None:
        """Set the value of ``state`` after this call."""
        assert state.name
        self.function.outputs.append((state.name, value))

    def output(self, name: str, value: Value, logical: TensorType | None = None) -> None:
        """Declare ``value`` as the output ``name``.

        Args:
            name: the output's name.
            value: the output's value.
            logical: its type in the module's symbols, if this program binds some of them.

        Raises:
            GraphgenError: GG0107 for a name that is taken, GG0105 or GG0202 if ``value`` is not a
                value of this function.
        """
        self._check_name(name)
        where = self.loc or user_loc(self.scope_name)
        check_values(f"output {name}: value ", [value], where)
        check_function(self.function, f"output {name}", [value], where)
        if any(known == name for known, _ in self.function.outputs):
            what = f"@{self.function.name} has two outputs called {name}"
            raise GraphgenError("GG0107", what, where=repr(where))
        if self.module is not None:
            row = self.module.interface.setdefault(
                name, entry(Role.OUTPUT, name, logical or value.type)
            )
            if row.role is not Role.OUTPUT:
                raise _taken(Role.OUTPUT, value.type, row, where)
        self.function.outputs.append((name, value))

    def _declare(
        self, role: Role, name: str, type: TensorType, domain: DomainLike | None = None
    ) -> Value:
        if self.module is None:
            raise GraphgenError(
                "GG0705",
                f"this builder has no module to declare {name} in",
                where=repr(user_loc(self.scope_name)),
                help="give it one: Builder(function, module)",
            )
        self._check_name(name)
        within = declared_domain(domain, type, self.scope_name)
        known = self.module.interface.get(name)
        if known is None:
            self.module.interface[name] = entry(role, name, type, within)
        elif (known.role, known.logical) != (role, type):
            raise _taken(role, type, known, user_loc(self._scopes[-1]))
        elif within is not None and within != known.domain:
            raise _other_domain(within, known, user_loc(self._scopes[-1]))
        declared = self.function.arg(name) if known else None
        return declared or self.function.block.add_arg(type.bind(self.function.dims), name)

    def _check_name(self, name: object) -> None:
        """Require an interface name that survives printing and parsing (GG0705)."""
        if not isinstance(name, str):
            what = f"{name!r} is not a name"
            help = "the name comes first: b.output('y', y), b.input('x', dtype, shape)"
        elif name.isdigit() or not re.fullmatch(NAME, name):
            what, help = f"'{name}' is not a name", "use letters, digits, '_', '.' and '-'"
        else:
            return
        raise GraphgenError("GG0705", what, where=repr(user_loc(self.scope_name)), help=help)


def _taken(role: Role, type: TensorType, known: Entry, where: Loc) -> GraphgenError:
    return GraphgenError(
        "GG0107",
        f"{known.name} is {role.value} {type.text} here and {known.role.value} "
        f"{known.logical.text} elsewhere",
        where=repr(where),
    )


def _other_domain(domain: Domain, known: Entry, where: Loc) -> GraphgenError:
    other = "none" if known.domain is None else known.domain.text
    return GraphgenError(
        "GG0107",
        f"{known.name} has the domain {domain.text} here and {other} elsewhere",
        where=repr(where),
        help="all programs declare one domain of an input",
    )


def apply_to_current(name: str, *operands: Value | float) -> Value:
    """Append what an operator of values means through the current builder.

    Args:
        name: an elementwise op, ``matmul``, or ``compare.LT`` and the like.
        operands: one or two; a number takes the type of the value beside it.

    Raises:
        GraphgenError: GG0105 for an operand that is neither a value nor a number.
    """
    builder = Builder.current()
    if name == "matmul":
        return builder.matmul(*operands)  # pyright: ignore[reportArgumentType]
    op, _, direction = name.partition(".")
    if direction:
        lhs, rhs = operands
        assert isinstance(lhs, Value)
        return builder.compare(
            lhs, rhs if isinstance(rhs, Value) else builder.full(rhs, lhs.type), direction
        )
    if len(operands) == 2:
        return builder.binary(op, *operands)
    (operand,) = operands
    assert isinstance(operand, Value)
    return builder.unary(op, operand)


def index_with_current(x: Value, at: Index | Value | tuple[Index, ...]) -> Value:
    """``x[at]`` through the current builder."""
    return Builder.current().index(x, at)


def refuse_truth(value: Value) -> None:
    """Refuse a comparison as a condition of Python inside ``with Builder`` (GG0705)."""
    if Builder.is_open():
        raise located(
            GraphgenError(
                "GG0705",
                f"the truth of {value.type.text} is not known while the graph is built",
                help="b.and_(low < x, x < high) joins two, b.select(pred, x, y) chooses",
            )
        )
