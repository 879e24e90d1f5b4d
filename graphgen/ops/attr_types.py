"""Types of op attributes: the field types of options, and types for values of the IR.

The tag of a type names its grammar in IR text (:mod:`graphgen.text.grammar`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from graphgen.config.fields import (
    Description,
    MismatchError,
    ValueType,
    boolean,
    integer,
    list_of,
    number,
    text,
    value_type,
    words,
)
from graphgen.ir import Dim, DType, Literal, TensorType
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import DTYPES
from graphgen.json_value import Json

T = TypeVar("T")


def _kind(tag: str, type: ValueType[T], noun: str = "") -> ValueType[T]:
    """The type with the name that listings of attributes and the grammar have for it."""
    of = type.describe()
    described = Description(noun or of.noun, tag, of.schema)
    return replace(type, describe=lambda: described, tag=tag)


def _instance(noun: str, accepts: Callable[[object], bool]) -> ValueType[Any]:
    """Immutable objects of the IR, which have no JSON form."""

    def read(value: object) -> object:
        if accepts(value):
            return value
        meant = f"graphgen.dtype({value!r})" if isinstance(value, str) and value in DTYPES else ""
        raise MismatchError("type", noun, help=meant)

    return value_type(read, noun, noun, _ANY)


_ANY: Mapping[str, Json] = {}
_SIZE = integer()


def _dim(value: object) -> Dim:
    return value if isinstance(value, Poly) else _SIZE.read(value)


_DIM = value_type(_dim, "an integer or a symbol", "dim", _ANY)

INTEGER: Final = _kind("integer", integer())
INTEGERS: Final = _kind("integers", list_of(integer(), "a list of integers"))
NUMBER: Final = _kind("number", number(infinite=True))
BOOLEAN: Final = _kind("boolean", boolean())
# One word of IR text; any string.
TEXT: Final = _kind("text", text(), "a word")
STRING: Final = _kind("string", text())
NAMES: Final = _kind("names", list_of(text(1), "a list of names"))
DIM: Final = _kind("dim", _DIM)
DIMS: Final = _kind("dims", list_of(_DIM, "a list of integers and symbols"))
ELEMENT: Final = _kind(
    "element",
    _instance("an element type", lambda value: isinstance(value, DType) and not value.is_token),
)
LITERAL: Final = _kind("literal", _instance("a literal", lambda value: isinstance(value, Literal)))
GROUPS: Final = _kind("groups", list_of(list_of(integer()), "lists of ranks"))
TYPES: Final = _kind(
    "types",
    list_of(
        _instance("a tensor type", lambda value: isinstance(value, TensorType)),
        "a list of tensor types",
    ),
)


def choice(*names: str) -> ValueType[str]:
    """One of a few words of IR text."""
    return replace(words(*names), tag=TEXT.tag)
