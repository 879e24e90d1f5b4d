"""Argument checks of the builder: wrong numbers, arrays, values and types, and their errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import TypeVar, cast

from graphgen.build.source_location import user_loc
from graphgen.errors import GraphgenError
from graphgen.ir import (
    AttrValue,
    Domain,
    DomainLike,
    DType,
    Function,
    Loc,
    TensorType,
    Value,
    as_domain,
    tensor,
)
from graphgen.ir.domain import check_domain
from graphgen.ops import InferError, op_def

Item = TypeVar("Item")
_WRITE_IN = "b.literal(array.tolist(), dtype) writes one into the program, b.weight declares one"


def located(error: GraphgenError, scope: str = "") -> GraphgenError:
    """Add the user's line to an error without a location."""
    error.where = error.where or repr(user_loc(scope))
    return error


def as_tuple(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items as a tuple, NumPy integers as Python's.

    Raises:
        GraphgenError: GG0105 for a value, GG0104 for anything else that is not iterable.
    """
    if isinstance(items, Value):
        raise located(
            GraphgenError("GG0105", f"{_shown(items)} is one value", help="write [value]")
        )
    try:
        found = tuple(items)
    except TypeError:
        raise located(
            GraphgenError("GG0104", f"{items!r} is not a list", help=f"write [{items!r}]")
        ) from None
    return tuple([cast(Item, _plain(item)) for item in found])


def _plain(item: object) -> object:
    known = type(item) is int or isinstance(item, bool | Value) or not hasattr(item, "__index__")
    return item if known else index(cast(int, item))


def as_number(value: object) -> int | float:
    """A Python number from a Python number or a NumPy scalar.

    Raises:
        GraphgenError: GG0105 for anything else.
    """
    if isinstance(value, int | float):
        return value
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "shape", None) == ():
        plain = item()
        if isinstance(plain, int | float):
            return plain
    raise located(GraphgenError("GG0105", f"{_shown(value)} is not a number", help=_help(value)))


def declared_type(dtype: DType, shape: Sequence[object], scope: str) -> TensorType:
    """The tensor type of a declaration; errors have the user's line."""
    sizes = as_tuple(cast(Iterable[int], shape))
    # 4.0 equals 4 in the cache of types.
    for size in sizes:
        if isinstance(cast(object, size), float):
            what = f"{size} is not a dimension, in {list(sizes)}"
            raise located(GraphgenError("GG0102", what), scope)
    try:
        return tensor(dtype, sizes)
    except GraphgenError as error:
        raise located(error, scope) from None


def declared_domain(given: DomainLike | None, type_: TensorType, scope: str) -> Domain | None:
    """The domain of a declaration; errors have the user's line."""
    if given is None:
        return None
    try:
        domain = as_domain(given)
        check_domain(domain, type_.dtype)
    except GraphgenError as error:
        raise located(error, scope) from None
    return domain


def check_type(type: object) -> None:
    """Require a tensor type (GG0105)."""
    if not isinstance(type, TensorType):
        example = f"graphgen.tensor({type!r}, shape)" if isinstance(type, DType) else "value.type"
        raise located(
            GraphgenError("GG0105", f"{_shown(type)} is not a tensor type", help=f"write {example}")
        )


def plain_attrs(attrs: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    """Attributes with lists converted to tuples."""
    given = cast(Mapping[str, object], attrs)
    made = {
        k: as_tuple(cast(Iterable[object], v)) if isinstance(v, list) else v
        for k, v in given.items()
    }
    return cast(dict[str, AttrValue], made)


def check_values(what: str, things: Sequence[object], where: Loc) -> None:
    """Require that all ``things`` are values (GG0105)."""
    for place, thing in enumerate(things):
        if not isinstance(thing, Value):
            said = f"{what}{place + 1} is {_shown(thing)}, which is not a value"
            raise GraphgenError("GG0105", said, where=repr(where), help=_help(thing)) from None


def all_of(function: Function, values: Sequence[Value]) -> bool:
    """True if all values are arguments of the function or made in it."""
    block = function.block
    args = block.args
    for value in values:
        made = value.op
        if made is not None:
            if made.block is not block:
                return False
        elif value.index >= len(args) or args[value.index] is not value:
            return False
    return True


def of_another(function: Function, name: str, value: Value, where: Loc) -> GraphgenError:
    """GG0202: the op ``name`` reads a value that is not of this function."""
    return GraphgenError(
        "GG0202",
        f"{name}: {_shown(value)} is not a value of @{function.name}",
        where=repr(where),
        help="it was made by another builder: declare it here too, with b.input or b.weight, or "
        "build both in one function; inside of a loop or a branch, use the builder it is given",
    )


def check_function(function: Function, name: str, operands: Sequence[Value], where: Loc) -> None:
    """Require values of this function (GG0202)."""
    for operand in operands:
        if not all_of(function, [operand]):
            raise of_another(function, name, operand, where)


def operand_mismatch(
    name: str, operands: Sequence[Value], error: InferError, where: Loc
) -> GraphgenError:
    """GG0105: operands do not fit the op, with a caret under the mismatched operand."""
    texts = [f"%{v.name or i} : {v.type.text}" for i, v in enumerate(operands)]
    head = f"{name}("
    note = head + ", ".join(texts) + ")"
    if error.operand is not None and error.operand < len(texts):
        start = len(head) + sum(len(text) + 2 for text in texts[: error.operand])
        note += "\n" + " " * start + "^" * len(texts[error.operand])
    help = error.help or op_def(name).doc.splitlines()[0]
    return GraphgenError("GG0105", f"{name}: {error}", where=repr(where), note=note, help=help)


def _shown(thing: object) -> str:
    """A short description, without an array's numbers."""
    if isinstance(thing, Value):
        return f"%{thing.name}" if thing.name else f"the {thing.type.text} value"
    if hasattr(thing, "shape") and hasattr(thing, "dtype"):
        return f"an array of shape {list(getattr(thing, 'shape'))}"  # noqa: B009
    if isinstance(thing, list | tuple):
        return f"a {type(thing).__name__}"  # pyright: ignore[reportUnknownArgumentType]
    return repr(thing)


def _help(thing: object) -> str:
    if isinstance(thing, bool):
        return "comparing values is a method: b.compare(x, y, 'GT')"
    if isinstance(thing, int | float):
        return "b.full(number, other.type) makes one; operators do it for you"
    if isinstance(thing, list | tuple) or hasattr(thing, "shape"):
        return _WRITE_IN
    return "give a value: what b.input, b.weight or a method of the builder returned"
