"""The builder: appends ops to a function, infers their types and records the user's lines.

All code makes ops through it: models directly, composites and passes with an insertion point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import ClassVar, overload

from graphgen.build.argument_checks import (
    all_of,
    as_number,
    as_tuple,
    check_function,
    check_type,
    check_values,
    declared_domain,
    declared_type,
    located,
    of_another,
    operand_mismatch,
    plain_attrs,
)
from graphgen.build.array_methods import Index
from graphgen.build.control_flow import (
    Body,
    Branch,
    Condition,
    Step,
    conditional,
    scan,
    while_loop,
)
from graphgen.build.layer_methods import LayerMethods
from graphgen.build.shape_methods import broadcast_shape
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
    tensor,
)
from graphgen.ir.loc import UNKNOWN
from graphgen.ops import InferError, infer, make_attrs
from graphgen.text.grammar import NAME


class Builder(LayerMethods):
    """Builds one function.

    Args:
        function: the function to append to.
        module: the module whose interface receives declared inputs, weights, states and outputs;
            None if the function is not an entry program.
        before: insert before this op instead of at the end.
        loc: provenance of every new op, instead of the caller's line; passes use it.
        broadcast: repeat operands of elementwise methods and operators by NumPy's rule, by a
            ``broadcast_in_dim`` in the program; False refuses operands of different shapes.

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
        broadcast: bool = True,
    ) -> None:
        self.function = function
        self.module = module
        self.before = before
        self.loc = loc
        self.broadcast = broadcast
        self.made: list[Op] | None = None
        # Of a loop's body or a branch: the builder around it, and the values read from there.
        self.outer: Builder | None = None
        self.captured: dict[Value, Value] = {}
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
        if self.before is None and not all_of(self.function, operands):
            operands = [self.own(value, name) for value in operands]
        op = Op(name, tuple(operands), types, checked, where)
        if self.before is None:
            self.function.block.append(op)
        else:
            self.function.block.insert_before(op, self.before)
        if self.made is not None:
            self.made.append(op)
        return op

    def own(self, value: Value, name: str = "") -> Value:
        """The value in this function: itself, or the argument that brings it into a traced one.

        Raises:
            GraphgenError: GG0202 for a value of a function that is not around this one; ``name`` is
                what reads it.
        """
        if self.before is not None or all_of(self.function, [value]):
            return value
        if self.outer is None:
            raise of_another(self.function, name, value, self.loc or user_loc(self.scope_name))
        around = self.outer.own(value, name)
        if around not in self.captured:
            self.captured[around] = self.argument(value.type, value.name or "outer")
        return self.captured[around]

    def argument(self, type: TensorType, wanted: str) -> Value:
        """A new argument of the function, called ``wanted``, with a number where that is taken."""
        name, number = wanted, 1
        while self.function.arg(name) is not None:
            number += 1
            name = f"{wanted}.{number}"
        return self.function.block.add_arg(type, name)

    def inside(self, function: Function) -> Builder:
        """A builder of a loop's body or of a branch, which reads values of this one too."""
        inner = type(self)(function, loc=self.loc, broadcast=self.broadcast)
        inner.outer, inner.library = self, self.module or self.library
        inner._scopes = [self.scope_name]
        return inner

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
        return self.emit(name, self.alike(name, lhs, rhs)).result

    def alike(
        self, name: str, *operands: Value | float, dtype: DType | None = None
    ) -> Sequence[Value]:
        """The operands of an elementwise op in one shape, by NumPy's rule for broadcasting.

        A Python number has the element type ``dtype``, by default that of the first value.
        Operands that do not broadcast stay as they are, for the op to refuse.
        """
        like = next((item for item in operands if isinstance(item, Value)), None)
        if like is None:
            raise located(
                GraphgenError(
                    "GG0105",
                    f"{name}: none of {', '.join(map(repr, operands))} is a value",
                    help="b.literal(number, dtype) makes one",
                )
            )
        shapes = [item.shape for item in operands if isinstance(item, Value)]
        shape, fits = like.shape, all(other == like.shape for other in shapes)
        if not fits and self.broadcast:
            common = broadcast_shape(shapes)
            shape, fits = (like.shape, False) if common is None else (common, True)
        number_type = tensor(dtype or like.dtype, shape)
        made: list[Value] = []
        for item in operands:
            if not isinstance(item, Value):
                made.append(self.full(item, number_type))
            else:
                made.append(self.broadcast_to(item, shape) if fits else item)
        return made

    def unary(self, name: str, operand: Value) -> Value:
        """An elementwise op of one operand."""
        return self.emit(name, (operand,)).result

    def while_loop(
        self, *state: Value, condition: Condition, trip_count: int = -1
    ) -> Callable[[Body], tuple[Value, ...]]:
        """Decorate the body of a loop; the decorated name is the tuple of final values.

        Body and condition take a builder of their own and the state. The body returns the new
        state, the condition a pred[]. Both may read values from around the loop; their parameters
        may be ``*values``, have defaults, or be bound by ``functools.partial``.

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
        module = self._library("a loop")
        check_values("while: state ", state, user_loc(self.scope_name))
        return lambda body: while_loop(self, module, state, condition, body, trip_count)

    def scan(
        self, *carried: Value, over: Sequence[Value], reverse: bool = False
    ) -> Callable[[Step], tuple[tuple[Value, ...], tuple[Value, ...]]]:
        """Decorate one step of a loop over dimension 0 of the values ``over``.

        The step takes a builder of its own, what is carried from step to step, and one element of
        each of ``over``. It returns a pair: what is carried on, and what is stacked along a new
        dimension 0. Each is one value or several, ``()`` for none. The decorated name is the pair
        of the last carried values and of the stacked ones, both tuples.

        Args:
            carried: first values.
            over: values of one size of dimension 0.
            reverse: begin with the last element; what is stacked keeps the order of ``over``.

        Example::

            @b.scan(h, over=[u])
            def steps(b, h, u):
                h = h * 0.5 + u
                return h, h

            (last,), (all_of_them,) = steps
        """
        module, values = self._library("a loop"), as_tuple(over)
        check_values("scan: value ", carried, user_loc(self.scope_name))
        return lambda step: scan(self, module, carried, values, step, reverse)

    @overload
    def cond(
        self,
        which: Value,
        on_true: Callable[..., Value],
        on_false: Callable[..., Value],
        *operands: Value,
    ) -> Value: ...
    @overload
    def cond(
        self,
        which: Value,
        on_true: Callable[..., Sequence[Value]],
        on_false: Callable[..., Sequence[Value]],
        *operands: Value,
    ) -> tuple[Value, ...]: ...
    def cond(
        self, which: Value, on_true: Branch, on_false: Branch, *operands: Value
    ) -> Value | tuple[Value, ...]:
        """The values of one of two functions: of the first where the scalar ``which`` is true.

        Each takes a builder of its own and the operands, and may read values from around it. Only
        one of them runs; ``where`` chooses between elements, and computes both sides.

        Example::

            y = b.cond(b.sum(x, [0]) > 0, lambda b, x: x, lambda b, x: -x, x)
        """
        return self._chosen("cond", which, (on_true, on_false), operands)

    @overload
    def switch(
        self, which: Value, branches: Sequence[Callable[..., Value]], *operands: Value
    ) -> Value: ...
    @overload
    def switch(
        self, which: Value, branches: Sequence[Callable[..., Sequence[Value]]], *operands: Value
    ) -> tuple[Value, ...]: ...
    def switch(
        self, which: Value, branches: Sequence[Branch], *operands: Value
    ) -> Value | tuple[Value, ...]:
        """The values of the function numbered by the s32 scalar ``which``, else of the last one."""
        return self._chosen("switch", which, as_tuple(branches), operands)

    def _chosen(
        self, name: str, which: Value, branches: Sequence[Branch], operands: tuple[Value, ...]
    ) -> Value | tuple[Value, ...]:
        module = self._library(name)
        check_values(f"{name}: operand ", [which, *operands], user_loc(self.scope_name))
        found, alone = conditional(self, module, which, branches, operands)
        return found[0] if alone else found

    def _library(self, what: str) -> Module:
        """The module for the functions of a loop or a choice (GG0705 without one)."""
        module = self.module or self.library
        if module is None:
            raise GraphgenError(
                "GG0705",
                f"this builder has no module for the functions of {what}",
                where=repr(user_loc(self.scope_name)),
                help="give it one: Builder(function, module)",
            )
        return module

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

        A state without a new value keeps its own.

        ``domain`` is that of the values that it starts with, as of :meth:`input`.
        """
        scope = self._scopes[-1]
        full = f"{scope}.{name}" if scope else name
        made = self._declare(Role.STATE, full, declared_type(dtype, shape, scope), domain)
        if self.function.phase and self.function.outputs.get(full) is None:
            self.function.outputs.append((full, made))
        return made

    def set_state(self, state: Value, value: Value) -> None:
        """Set the value of ``state`` after this call.

        Raises:
            GraphgenError: GG0705 for a value that is not a state of this program, GG0107 for a
                state that has a new value already.
        """
        where = self.loc or user_loc(self.scope_name)
        check_values("set_state: value ", [state, value], where)
        name = state.name or ""
        row = self.module.interface.get(name) if self.module is not None else None
        other = row is not None and row.role is not Role.STATE
        if other or self.outer is not None or self.function.arg(name) is not state:
            shown = f"%{name}" if name else f"the {state.type.text} value"
            raise GraphgenError(
                "GG0705",
                f"{shown} is not a state of @{self.function.name}",
                where=repr(where),
                help="b.state declares one; a loop's body returns values for the program to set",
            )
        check_function(self.function, f"set_state {name}", [value], where)
        known = self.function.outputs.get(name)
        if known is not None and known is not state:
            what = f"@{self.function.name} sets the state {name} twice"
            raise GraphgenError("GG0107", what, where=repr(where))
        # Kept states stand where they were declared, set ones in the order in which they are set.
        self.function.outputs.drop(name)
        self.function.outputs.append((name, value))

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
        if self.outer is not None:
            what = f"a loop's body and a branch have no outputs, such as {name}"
            raise GraphgenError("GG0705", what, where=repr(where), help="return the value instead")
        check_values(f"output {name}: value ", [value], where)
        check_function(self.function, f"output {name}", [value], where)
        if any(known == name for known, _ in self.function.outputs):
            what = f"@{self.function.name} has two outputs called {name}"
            raise GraphgenError("GG0107", what, where=repr(where))
        if self.module is not None:
            row = self.module.interface.setdefault(
                name, entry(Role.OUTPUT, name, logical or value.type, loc=where)
            )
            if row.role is not Role.OUTPUT:
                raise _taken(Role.OUTPUT, value.type, row, where)
        self.function.outputs.append((name, value))

    def _declare(
        self, role: Role, name: str, type: TensorType, domain: DomainLike | None = None
    ) -> Value:
        if self.module is None:
            inside = "declare it before the loop or the choice, whose functions may read it"
            raise GraphgenError(
                "GG0705",
                f"this builder has no module to declare {name} in",
                where=repr(user_loc(self.scope_name)),
                help="give it one: Builder(function, module)" if self.outer is None else inside,
            )
        self._check_name(name)
        within = declared_domain(domain, type, self.scope_name)
        known = self.module.interface.get(name)
        if known is None:
            where = self.loc or user_loc(self._scopes[-1])
            self.module.interface[name] = entry(role, name, type, within, where)
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
    other = known.logical
    alike = role is known.role and type.dtype is other.dtype and type.rank == other.rank
    sizes = alike and role is not Role.WEIGHT
    help = "all programs declare one role and one type of a name"
    if sizes:
        dims = [n for n in range(type.rank) if type.shape[n] != other.shape[n]]
        here = f"dims={{'N': {type.shape[dims[0]]}}}"
        help = (
            f"declare dimension {', '.join(map(str, dims))} as gg.symbol('N') in all programs; "
            f"gg.Function(name, phase=..., {here}) binds it in this one"
        )
    return GraphgenError(
        "GG0107",
        f"{known.name} is {role.value} {type.text} here and {known.role.value} "
        f"{other.text} {'elsewhere' if known.loc is UNKNOWN else f'at {known.loc!r}'}",
        where=repr(where),
        help=help,
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
        return builder.compare(lhs, rhs, direction)
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
