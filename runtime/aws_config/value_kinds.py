"""Types of attribute values: each normalizes a value, or describes the expected ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from graphgen.limits import LIST_ITEMS


@dataclass(frozen=True, slots=True)
class AttributeType:
    """A type of values.

    Attributes:
        text: the type for documentation and errors, such as ``a positive integer``.
        accept: the normal form of a value; raises :class:`TypeError` or :class:`ValueError` for a
            value of another kind.
        nested: name of the class of configurations that values are of; empty for plain values.
        element: values are names of element types; users see ``torch.dtype`` once torch is there.
    """

    text: str
    accept: Callable[[object], object]
    nested: str = ""
    element: bool = False


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


# Names of PyTorch's element types: those to compute with, and all.
COMPUTE_DTYPES = ("bfloat16", "float16", "float32")
TORCH_DTYPES = (*COMPUTE_DTYPES, "float64", "float8_e4m3fn", "float8_e5m2", "int8")


def dtype_name(value: object) -> str:
    """``bfloat16`` of ``torch.bfloat16``, of ``"torch.bfloat16"`` and of ``"bfloat16"``."""
    name = str(value).removeprefix("torch.")
    if name not in TORCH_DTYPES:
        raise ValueError
    return name


def _compute_dtype(value: object) -> str:
    name = dtype_name(value)
    if name not in COMPUTE_DTYPES:
        raise ValueError
    return name


def _class(value: object) -> object:
    """A class, or AWS's dictionary for one."""
    if isinstance(value, Mapping):
        names = cast("Mapping[object, object]", value)
        if set(names) != {"__module__", "__name__"}:
            raise ValueError
        return dict(names)
    if not isinstance(value, type):
        raise TypeError
    return cast("object", value)


def _model_config(value: object) -> object:
    names = {item.__name__ for item in type(value).__mro__}
    if not isinstance(value, Mapping) and "InferenceConfig" not in names:
        raise TypeError
    return cast("object", value)


def _adapters(value: object) -> object:
    """A dictionary from adapter ids to paths, also from a list of ``id : path``."""
    if isinstance(value, Mapping):
        return {str(key): str(path) for key, path in cast("Mapping[object, object]", value).items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError
    pairs = [str(item).partition(":") for item in cast("Sequence[object]", value)]
    if not all(key.strip() and path.strip() for key, _, path in pairs):
        raise ValueError
    return {key.strip(): path.strip() for key, _, path in pairs}


def optional(kind: AttributeType) -> AttributeType:
    """The same, or ``None``."""
    return AttributeType(
        f"{kind.text}, or None",
        lambda value: None if value is None else kind.accept(value),
        kind.nested,
        kind.element,
    )


def choice(*words: str | int) -> AttributeType:
    """One of a few words or numbers; an enumeration's member counts as its value."""

    def accept(value: object) -> object:
        word = getattr(value, "value", value)
        if isinstance(word, bool) or word not in words:
            raise ValueError
        return word

    *front, last = map(str, words)
    return AttributeType(f"{', '.join(front)} or {last}", accept)


def list_of(kind: AttributeType, text: str) -> AttributeType:
    """A list of values of a kind, as a tuple; of limited length, since rules compare all."""

    def accept(value: object) -> object:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise TypeError
        items = cast("Sequence[object]", value)
        if len(items) > LIST_ITEMS.most:
            raise ValueError(f"{len(items)} items, {LIST_ITEMS}")
        return tuple(kind.accept(item) for item in items)

    return AttributeType(text, accept)


def one_of(*kinds: AttributeType) -> AttributeType:
    """A value of the first kind that accepts it."""

    def accept(value: object) -> object:
        for kind in kinds:
            try:
                return kind.accept(value)
            except (TypeError, ValueError):
                continue
        raise ValueError

    return AttributeType(", or ".join(kind.text for kind in kinds), accept)


def nested(name: str) -> AttributeType:
    """A configuration of the class ``name``, or a dictionary of its attributes."""

    def accept(value: object) -> object:
        names = {item.__name__ for item in type(value).__mro__}
        if not isinstance(value, Mapping) and name not in names:
            raise ValueError
        return cast("object", value)

    article = "an" if name[0] in "AEIO" else "a"
    return AttributeType(f"{article} {name} or a dictionary", accept, name)


BOOL = AttributeType("True or False", _bool)
COUNT = AttributeType("a positive integer", _integer(1))
INDEX = AttributeType("an integer of at least 0", _integer(0))
INTEGER = AttributeType("an integer", _integer(-(1 << 63)))
NUMBER = AttributeType("a number", _number)
TEXT = AttributeType("a string", _text)
MAPPING = AttributeType("a dictionary", _mapping)
DTYPE = AttributeType(
    f"a torch.dtype or one of {', '.join(TORCH_DTYPES)}", dtype_name, element=True
)
COMPUTE_DTYPE = AttributeType(
    f"a torch.dtype or one of {', '.join(COMPUTE_DTYPES)}", _compute_dtype, element=True
)
COUNTS = list_of(COUNT, "a list of positive integers")
TEXTS = list_of(TEXT, "a list of strings")
CLASS = AttributeType("a class", _class)
MODEL_CONFIG = AttributeType("an InferenceConfig or a dictionary", _model_config)
ADAPTERS = AttributeType("a dictionary or a list of 'id : path'", _adapters)
