"""Types of the values of AWS attributes, beside the general ones of :mod:`graphgen.config.fields`.

A type's ``tag`` is the name of the class of configurations that values are of, or :data:`ELEMENT`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from graphgen.config.fields import (
    MismatchError,
    ValueType,
    boolean,
    integer,
    list_of,
    number,
    text,
    value_type,
)
from graphgen.limits import LIST_ITEMS

T = TypeVar("T")

# Tag of types of element types; users see ``torch.dtype`` once torch is there.
ELEMENT: Final = "element"
# By PyTorch's name of an element type to compute with, the name that graphgen has for it.
ELEMENTS: Final[Mapping[str, str]] = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
# Names of PyTorch's element types: those to compute with, and all.
COMPUTE_DTYPES = tuple(ELEMENTS)
TORCH_DTYPES = (*COMPUTE_DTYPES, "float64", "float8_e4m3fn", "float8_e5m2", "int8")


def dtype_name(value: object) -> str:
    """``bfloat16`` of ``torch.bfloat16``, of ``"torch.bfloat16"`` and of ``"bfloat16"``."""
    name = str(value).removeprefix("torch.")
    if name not in TORCH_DTYPES:
        raise MismatchError("choice", f"one of {', '.join(TORCH_DTYPES)}")
    return name


def accepted(noun: str, accept: Callable[[Any], T | None], tag: str = "") -> ValueType[T]:
    """The values that ``accept`` returns a normal form of; ``None`` is for others."""

    def read(value: object) -> T:
        found = accept(value)
        if found is None:
            raise MismatchError("type", noun)
        return found

    return value_type(read, noun, noun, {}, tag=tag)


def _element(names: Sequence[str]) -> ValueType[str]:
    def accept(value: object) -> str | None:
        name = str(value).removeprefix("torch.")
        return name if name in names else None

    return accepted(f"a torch.dtype or one of {', '.join(names)}", accept, ELEMENT)


def _mapping(value: object) -> Mapping[str, object] | None:
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else None


def _class(value: object) -> object:
    """A class, or AWS's dictionary for one."""
    if isinstance(value, Mapping):
        names = cast("Mapping[object, object]", value)
        return dict(names) if set(names) == {"__module__", "__name__"} else None
    return cast("object", value) if isinstance(value, type) else None


def _adapters(value: object) -> Mapping[str, str] | None:
    """A dictionary from adapter ids to paths, also from a list of ``id : path``."""
    if isinstance(value, Mapping):
        return {str(key): str(path) for key, path in cast("Mapping[object, object]", value).items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    pairs = [str(item).partition(":") for item in cast("Sequence[object]", value)]
    if not all(key.strip() and path.strip() for key, _, path in pairs):
        return None
    return {key.strip(): path.strip() for key, _, path in pairs}


def _of_class(name: str) -> Callable[[object], object]:
    """Accept instances of the class ``name``, by its name, and dictionaries."""

    def accept(value: object) -> object:
        names = {item.__name__ for item in type(value).__mro__}
        fits = isinstance(value, Mapping) or name in names
        return cast("object", value) if fits else None

    return accept


def nested(name: str) -> ValueType[object]:
    """A configuration of the class ``name``, or a dictionary of its attributes."""
    article = "an" if name[0] in "AEIO" else "a"
    return accepted(f"{article} {name} or a dictionary", _of_class(name), name)


def tuple_of(item: ValueType[T], noun: str, least: int = 0) -> ValueType[tuple[T, ...]]:
    """A list of values of a type, as a tuple; of limited length, since rules compare all."""
    return list_of(item, noun, least=least, most=LIST_ITEMS)


BOOL = boolean()
COUNT, INDEX, INTEGER = integer(1), integer(0), integer()
NUMBER = number(infinite=True)
TEXT = text()
MAPPING = accepted("a dictionary", _mapping)
DTYPE, COMPUTE_DTYPE = _element(TORCH_DTYPES), _element(COMPUTE_DTYPES)
COUNTS = tuple_of(COUNT, "a list of one or more positive integers", 1)
TEXTS = tuple_of(TEXT, "a list of strings")
CLASS = accepted("a class", _class)
MODEL_CONFIG = accepted("an InferenceConfig or a dictionary", _of_class("InferenceConfig"))
ADAPTERS = accepted("a dictionary or a list of 'id : path'", _adapters)
