"""Kinds of attribute values: each accepts a value, in a normal form, or says what it wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class AttributeType:
    """A type of values.

    Attributes:
        text: the type for documentation and errors, such as ``a positive integer``.
        accept: the normal form of a value; raises :class:`TypeError` or :class:`ValueError` for a
            value of another kind.
        nested: name of the class of configurations that values are of; empty for plain values.
    """

    text: str
    accept: Callable[[object], object]
    nested: str = ""


def _bool(value: object) -> object:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(least: int) -> Callable[[object], object]:
    def accept(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        return value

    return accept


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError
    return float(value)


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise TypeError
    return value


def _mapping(value: object) -> object:
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(cast("Mapping[str, object]", value))


# Names of PyTorch's element types.
TORCH_DTYPES = ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8")


def dtype_name(value: object) -> str:
    """``bfloat16`` of ``torch.bfloat16``, of ``"torch.bfloat16"`` and of ``"bfloat16"``."""
    name = str(value).removeprefix("torch.")
    if name not in TORCH_DTYPES:
        raise ValueError
    return name


def optional(kind: AttributeType) -> AttributeType:
    """The same, or ``None``."""
    return AttributeType(
        f"{kind.text}, or None",
        lambda value: None if value is None else kind.accept(value),
        kind.nested,
    )


def choice(*words: str) -> AttributeType:
    """One of a few words; an enumeration's member counts as its value."""

    def accept(value: object) -> object:
        word = getattr(value, "value", value)
        if word not in words:
            raise ValueError
        return word

    return AttributeType(f"one of {', '.join(words)}", accept)


def list_of(kind: AttributeType, text: str) -> AttributeType:
    """A list of values of a kind, as a tuple."""

    def accept(value: object) -> object:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise TypeError
        return tuple(kind.accept(item) for item in cast("Sequence[object]", value))

    return AttributeType(text, accept)


def nested(name: str) -> AttributeType:
    """A configuration of the class ``name``, or a dictionary of its attributes."""

    def accept(value: object) -> object:
        if not isinstance(value, Mapping) and type(value).__name__ != name:
            raise ValueError
        return cast("object", value)

    return AttributeType(f"a {name} or a dictionary", accept, name)


BOOL = AttributeType("True or False", _bool)
COUNT = AttributeType("a positive integer", _integer(1))
INDEX = AttributeType("an integer of at least 0", _integer(0))
INTEGER = AttributeType("an integer", _integer(-(1 << 63)))
NUMBER = AttributeType("a number", _number)
TEXT = AttributeType("a string", _text)
MAPPING = AttributeType("a dictionary", _mapping)
DTYPE = AttributeType(f"a torch.dtype or one of {', '.join(TORCH_DTYPES)}", dtype_name)
COUNTS = list_of(COUNT, "a list of positive integers")
TEXTS = list_of(TEXT, "a list of strings")
