"""Table of how elements of each kind of type are drawn, compared and printed by tools.

Tools give no rule of their own for a kind: they draw by :func:`drawn`, compare the real numbers of
:func:`real_parts`, and print by :func:`element_text` and :func:`element_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from graphgen.eval.arithmetic import Array, name_of, numpy_dtype
from graphgen.ir import DType, dtype
from graphgen.ir.dtype import Kind, part_of
from graphgen.ir.small_float import FORMATS
from graphgen.json_value import Json, json_number

Dims = tuple[int, ...]
# One element as Python has it; predicates are 0 and 1.
Number = int | float | complex


class ElementKind(Enum):
    """Kinds of elements that tools treat alike.

    SMALL_FLOAT: floats of 8 bits and fewer, of which some have no sign, zero, infinity or NaN.
    TOKEN: a value that holds nothing.
    """

    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    SMALL_FLOAT = "8-bit float"
    COMPLEX = "complex"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class NumberSource:
    """Draws numbers without regard to how an element type stores them.

    Attributes:
        floats: float64 numbers of a shape.
        whole: integers of a type and shape; of ``pred`` 0 and 1.
    """

    floats: Callable[[Dims], Array]
    whole: Callable[[DType, Dims], Array]


@dataclass(frozen=True, slots=True)
class ElementRules:
    """One row of the table.

    Attributes:
        draw: an array of a shape, before it is converted to the type.
        parts: an array as one array of real numbers, [...] or [..., 2], that is compared.
        number: one element as a Python number.
    """

    draw: Callable[[NumberSource, DType, Dims], Array]
    parts: Callable[[Array], Array]
    number: Callable[[Any], Number]


def _whole(source: NumberSource, kind: DType, dims: Dims) -> Array:
    return source.whole(kind, dims)


def _floats(source: NumberSource, kind: DType, dims: Dims) -> Array:
    return source.floats(dims)


def _small_floats(source: NumberSource, kind: DType, dims: Dims) -> Array:
    """Floats; of a type without sign their sizes, and 1 for 0, which it has not either."""
    x = source.floats(dims)
    return x if FORMATS[kind.name].signed else np.where(x == 0, 1.0, np.abs(x))


def _complex(source: NumberSource, kind: DType, dims: Dims) -> Array:
    """Both parts drawn as floats; of three elements one has both, one each of them alone."""
    out = np.empty(dims, np.complex128)
    which = np.arange(out.size).reshape(dims) % 3
    out.real = np.where(which == 1, 0.0, source.floats(dims))
    out.imag = np.where(which == 2, 0.0, source.floats(dims))
    return out


def _nothing(source: NumberSource, kind: DType, dims: Dims) -> Array:
    return np.zeros(dims, np.bool_)


def _as_they_are(array: Array) -> Array:
    return array


def _as_floats(array: Array) -> Array:
    return array.astype(np.float64, copy=False)


def _both_parts(array: Array) -> Array:
    return np.stack([np.real(array), np.imag(array)], -1).astype(np.float64)


_RULES: Final[Mapping[ElementKind, ElementRules]] = {
    ElementKind.PRED: ElementRules(_whole, _as_they_are, int),
    ElementKind.SIGNED: ElementRules(_whole, _as_they_are, int),
    ElementKind.UNSIGNED: ElementRules(_whole, _as_they_are, int),
    ElementKind.FLOAT: ElementRules(_floats, _as_floats, float),
    ElementKind.SMALL_FLOAT: ElementRules(_small_floats, _as_floats, float),
    ElementKind.COMPLEX: ElementRules(_complex, _both_parts, complex),
    ElementKind.TOKEN: ElementRules(_nothing, _as_they_are, int),
}
_KINDS: Final[Mapping[Kind, ElementKind]] = {
    Kind.PRED: ElementKind.PRED,
    Kind.SIGNED: ElementKind.SIGNED,
    Kind.UNSIGNED: ElementKind.UNSIGNED,
    Kind.FLOAT: ElementKind.FLOAT,
    Kind.COMPLEX: ElementKind.COMPLEX,
    Kind.TOKEN: ElementKind.TOKEN,
}


def element_kind(kind: DType) -> ElementKind:
    """The kind of an element type.

    Raises:
        GraphgenError: GG0403 for quantized elements, which nothing here computes with.
    """
    # Refuses quantized elements.
    numpy_dtype(kind)
    return ElementKind.SMALL_FLOAT if kind.name in FORMATS else _KINDS[kind.kind]


def element_rules(kind: DType) -> ElementRules:
    """The row of an element type (GG0403 for a quantized one)."""
    return _RULES[element_kind(kind)]


def rules_of(array: Array | np.generic) -> ElementRules:
    """The row of the elements of an array, or of one element."""
    return element_rules(dtype(name_of(array.dtype)))


def drawn(source: NumberSource, kind: DType, dims: Dims) -> Array:
    """An array of an element type, of numbers from a source.

    A complex type takes both parts from it as floats. Of three elements in order one has both
    parts, one the imaginary part alone and one the real part alone.

    Raises:
        GraphgenError: GG0403 for quantized elements.
    """
    made = element_rules(kind).draw(source, kind, dims)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(made).astype(numpy_dtype(kind), copy=False)


def has_floats(kind: DType) -> bool:
    """True for floats, and for complex numbers, which are made of two."""
    return part_of(kind).is_float


def real_parts(array: Array) -> Array:
    """The real numbers that an array is compared by: [...], or [..., 2] for complex elements.

    Integers and predicates are unchanged, of floats each is a float64.
    """
    return rules_of(array).parts(array)


def element(item: np.generic) -> Number:
    """One element of an array as a Python number."""
    return rules_of(item).number(item)


def element_text(value: Number, digits: int = 6) -> str:
    """An integer with all its digits, a float with some, a complex number as ``1-2i``."""
    if isinstance(value, complex):
        return f"{value.real:.{digits}g}{value.imag:+.{digits}g}i"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def element_json(value: Number) -> Json:
    """A number as JSON holds it: a complex one as its real and its imaginary part."""
    if isinstance(value, complex):
        return [json_number(value.real), json_number(value.imag)]
    return value if isinstance(value, int) else json_number(value)
