"""Typed fields: a name with the type of its values, its default and one sentence of documentation.

Attributes of ops, options of passes and pipelines, of compilations and commands, attributes of
AWS's configurations, fields of requests, sampling settings and keys of ``config.json`` read their
values by the types of this module. Rules about several values stay with their owners.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from graphgen.errors import GraphgenError, did_you_mean, either_of
from graphgen.json_value import Json
from graphgen.limits import Limit, bound
from graphgen.numbers import MOST_SIZE, finite, signed_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
N = TypeVar("N", int, float)

# Why a value does not fit: another type, a word that is not a choice, out of range, another length,
# characters or text that stand for no value.
Reason = Literal["type", "choice", "low", "high", "length", "text"]


class MismatchError(ValueError):
    """A value that a type does not have.

    Attributes:
        reason: the kind of error.
        wanted: what is expected, a noun phrase such as ``an integer >= 1``.
        path: of the part at fault, from outside: names of fields and positions of items.
        bound: the end of the range that the value is beyond, for ``low`` and ``high``.
        help: what was meant; may be empty.
    """

    def __init__(
        self,
        reason: Reason,
        wanted: str,
        path: Sequence[str | int] = (),
        bound: float = 0,
        help: str = "",
    ) -> None:
        super().__init__(f"expected {wanted}")
        self.reason: Reason = reason
        self.wanted = wanted
        self.path = tuple(path)
        self.bound = bound
        self.help = help

    def inside(self, step: str | int) -> MismatchError:
        """The same, of a value that has the value at ``step``."""
        path = (step, *self.path)
        return MismatchError(self.reason, self.wanted, path, self.bound, self.help)


@dataclass(frozen=True, slots=True)
class Description:
    """The values of a type, for readers.

    Attributes:
        noun: in words, such as ``an integer >= 1``: for errors, help and pages.
        code: as code writes them, such as ``[int]`` or ``cpu | inf2``.
        schema: as JSON Schema.
    """

    noun: str
    code: str
    schema: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T_co]):
    """A set of values.

    Attributes:
        read: the normal form of a Python or JSON value; raises :class:`MismatchError`.
        parse: the value that a text stands for, in a pipeline or an environment variable; raises
            :class:`MismatchError`.
        describe: what it is; a function, since plugins add words to some types.
        tag: a word for owners of fields that treat values of the type in a way of their own.
    """

    read: Callable[[object], T_co]
    parse: Callable[[str], T_co]
    describe: Callable[[], Description]
    tag: str = ""

    @property
    def noun(self) -> str:
        """The values in words."""
        return self.describe().noun

    @property
    def code(self) -> str:
        """The values as code writes them."""
        return self.describe().code

    @property
    def schema(self) -> Mapping[str, Json]:
        """The values as JSON Schema."""
        return self.describe().schema

    @property
    def choices(self) -> tuple[str | int, ...]:
        """The values where there are a few; else empty."""
        return tuple(cast("Sequence[str | int]", self.plain.get("enum", ())))

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The least and the greatest number, both included; ``None`` for no bound."""
        low, high = self.plain.get("minimum"), self.plain.get("maximum")
        return cast("float | None", low), cast("float | None", high)

    @property
    def plain(self) -> Mapping[str, Json]:
        """The schema of the values that are not ``None``."""
        found = self.schema
        while "anyOf" in found:
            found = cast("Sequence[Mapping[str, Json]]", found["anyOf"])[0]
        return found


def value_type(
    read: Callable[[object], T],
    noun: str,
    code: str,
    schema: Mapping[str, Json],
    *,
    parse: Callable[[str], T] | None = None,
    tag: str = "",
) -> ValueType[T]:
    """A type whose description does not change; text is read as a string unless ``parse`` does."""
    described = Description(noun, code, schema)
    return ValueType(read, parse or read, lambda: described, tag)


def at_step(read: Callable[[Any], T], value: object, step: str | int) -> T:
    """The value that ``read`` returns; its errors name ``step``, the place of the value."""
    try:
        return read(value)
    except MismatchError as error:
        raise error.inside(step) from None


def range_text(low: float, high: float, open_low: bool = False) -> str:
    """The range in mathematical notation, after a noun; empty for all numbers."""
    if high < math.inf:
        if low == -math.inf:
            return f" <= {_end(high)}"
        return f" in {'(' if open_low else '['}{_end(low)}, {_end(high)}]"
    return "" if low == -math.inf else f" {'>' if open_low else '>='} {_end(low)}"


def _end(number: float) -> str:
    """An end of a range: 1e9 and more as a power of two where it is one less than that."""
    if number > 1e9 and number == int(number) and not (int(number) + 1) & int(number):
        return f"2^{int(number).bit_length()} - 1"
    return f"{number:g}"


def _as_float(value: object) -> float:
    """The value as a float; NaN for what is not a number, or beyond the range of floats."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _in_range(found: N, low: N, high: N, noun: str, *, open_low: bool = False) -> N:
    """The number, if it is in the range (:class:`MismatchError`)."""
    if found < low or (open_low and found == low):
        raise MismatchError("low", noun, bound=low)
    if found > high:
        raise MismatchError("high", noun, bound=high)
    return found


def integer(
    low: int | None = None, high: int | None = None, *, floats: bool = False
) -> ValueType[int]:
    """Integers from ``low`` to ``high``, both included; booleans are none.

    Args:
        low: the least value; by default that of 64 bits.
        high: the greatest value; by default that of 64 bits.
        floats: whether ``16.0`` is read as ``16``.
    """
    noun = "an integer" + range_text(
        -math.inf if low is None else low, math.inf if high is None else high
    )
    least = -MOST_SIZE - 1 if low is None else low
    most = MOST_SIZE if high is None else high

    def read(value: object) -> int:
        # Most are; the tests below take longer.
        if type(value) is int and least <= value <= most:
            return value
        # bool is a subclass of int.
        whole = not isinstance(value, bool) and isinstance(value, Integral)
        if not whole and not (floats and _as_float(value).is_integer()):
            raise MismatchError("type", noun)
        return _in_range(int(cast(float, value)), least, most, noun)

    def parse(text: str) -> int:
        try:
            number = signed_number(text)
        except ValueError:
            raise MismatchError("text", noun) from None
        return read(number)

    limits: dict[str, Json] = {}
    if low is not None:
        limits["minimum"] = low
    if high is not None:
        limits["maximum"] = high
    return value_type(read, noun, "int", {"type": "integer", **limits}, parse=parse)


def number(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    infinite: bool = False,
) -> ValueType[float]:
    """Numbers from ``low`` to ``high`` as floats; NaN is none.

    Args:
        low: the least value.
        high: the greatest value.
        open_low: whether ``low`` itself is out of range.
        infinite: whether infinities in the range are values.
    """
    noun = "a number" + range_text(low, high, open_low)

    def read(value: object) -> float:
        found = _as_float(value)
        if math.isnan(found) or (math.isinf(found) and not infinite):
            raise MismatchError("type", noun)
        return _in_range(found, low, high, noun, open_low=open_low)

    def parse(text: str) -> float:
        try:
            found = finite(text)
        except ValueError:
            raise MismatchError("text", noun) from None
        return read(found)

    limits: dict[str, Json] = {}
    if low > -math.inf:
        limits["exclusiveMinimum" if open_low else "minimum"] = low
    if high < math.inf:
        limits["maximum"] = high
    return value_type(read, noun, "float", {"type": "number", **limits}, parse=parse)


def boolean() -> ValueType[bool]:
    """``True`` and ``False``; ``true`` and ``false`` as text."""
    noun = "true or false"

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise MismatchError("type", noun)
        return value

    def parse(text: str) -> bool:
        if text not in ("true", "false"):
            raise MismatchError("text", noun)
        return text == "true"

    return value_type(read, noun, "bool", {"type": "boolean"}, parse=parse)


def text(least: int = 0, most: int | None = None) -> ValueType[str]:
    """Strings of ``least`` to ``most`` characters, without lone surrogates."""
    if most is not None:
        noun = f"a string of {least} to {most} characters"
    else:
        noun = f"a string of at least {least} characters" if least > 1 else "a string"

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise MismatchError("type", noun)
        if len(value) < least or (most is not None and len(value) > most):
            raise MismatchError("length", noun if value else "a string that is not empty")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise MismatchError("text", "a string without lone surrogates") from None
        return value

    longest: Mapping[str, Json] = {} if most is None else {"maxLength": most}
    return value_type(read, noun, "str", {"type": "string", "minLength": least, **longest})


def path() -> ValueType[Path]:
    """Paths of files and folders, also as strings."""
    noun = "a path"

    def read(value: object) -> Path:
        if not isinstance(value, str | Path):
            raise MismatchError("type", noun)
        return Path(value)

    return value_type(read, noun, "path", {"type": "string"})


_JSON_TYPES: Mapping[type, str] = {str: "string", int: "integer"}


def words(*choices: str | int | Callable[[], Sequence[str]]) -> ValueType[Any]:
    """A few words or numbers; a member of an enumeration counts as its value.

    Args:
        choices: the values; a function returns them where plugins add to them.
    """

    fixed = [each for each in choices if not callable(each)]

    def known() -> list[str | int]:
        if len(fixed) == len(choices):
            return fixed
        return [word for each in choices for word in (each() if callable(each) else (each,))]

    def describe() -> Description:
        found = known()
        code = " | ".join(map(str, found))
        kinds = [_JSON_TYPES[kind] for kind in {type(word) for word in found}]
        kind: Mapping[str, Json] = {"type": kinds[0]} if len(kinds) == 1 else {}
        return Description(either_of(map(str, found)), code, {**kind, "enum": found})

    def read(value: object) -> str | int:
        word = getattr(value, "value", value)
        if isinstance(word, bool) or not isinstance(word, str | int):
            raise MismatchError("type", describe().noun)
        if word not in known():
            raise MismatchError("choice", describe().noun)
        return word

    def parse(text: str) -> str | int:
        for word in known():
            if str(word) == text:
                return word
        raise MismatchError("choice", describe().noun)

    return ValueType(read, parse, describe)


def list_of(
    item: ValueType[T], noun: str = "", *, least: int = 0, most: int | Limit = 1 << 20
) -> ValueType[tuple[T, ...]]:
    """Lists of values of one type, read as tuples; ``[1,2]`` as text.

    Args:
        item: type of the items.
        noun: the lists in words, such as ``a list of names``; empty for ``a list, each ...``.
        least: the least number of items.
        most: the greatest number of items.
    """

    def named() -> str:
        return noun or f"a list, each {item.noun}"

    def describe() -> Description:
        ends: Mapping[str, Json] = {"minItems": least, "maxItems": bound(most)}
        schema: Mapping[str, Json] = {"type": "array", "items": item.schema, **ends}
        return Description(named(), f"[{item.code}]", schema)

    def read(value: object) -> tuple[T, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise MismatchError("type", named())
        items = cast("Sequence[object]", value)
        if not least <= len(items) <= bound(most):
            limit = f"{least} to {most} items" if isinstance(most, int) else str(most)
            raise MismatchError("length", f"{named()}, {limit}, not {len(items)}")
        try:
            return tuple([item.read(entry) for entry in items])
        except MismatchError:
            # Again, for the place of the fault.
            return tuple([at_step(item.read, entry, n) for n, entry in enumerate(items)])

    def parse(text: str) -> tuple[T, ...]:
        if not (text.startswith("[") and text.endswith("]")):
            raise MismatchError("text", named())
        # Commas inside of braces are part of an item.
        items = [entry.strip() for entry in re.split(r",(?![^{}]*\})", text[1:-1])]
        return tuple([at_step(item.parse, entry, n) for n, entry in enumerate(items) if entry])

    return ValueType(read, parse, describe)


def optional(item: ValueType[T]) -> ValueType[T | None]:
    """The values of a type, and ``None``; ``none`` as text."""

    def describe() -> Description:
        of = item.describe()
        schema: Mapping[str, Json] = {"anyOf": [of.schema, {"type": "null"}]}
        return Description(f"{of.noun}, or None", f"{of.code} | none", schema)

    return ValueType(
        lambda value: None if value is None else item.read(value),
        lambda text: None if text == "none" else item.parse(text),
        describe,
        item.tag,
    )


def one_of(*types: ValueType[Any]) -> ValueType[Any]:
    """The values of several types; the first that has a value reads it."""

    def describe() -> Description:
        of = [each.describe() for each in types]
        noun, code = (", or ".join(each.noun for each in of), " | ".join(each.code for each in of))
        return Description(noun, code, {"anyOf": [each.schema for each in of]})

    def first(readers: Sequence[Callable[[Any], object]]) -> Callable[[object], object]:
        def read(value: object) -> object:
            for reader in readers:
                try:
                    return reader(value)
                except MismatchError:
                    continue
            raise MismatchError("type", describe().noun)

        return read

    return ValueType(
        first([each.read for each in types]), first([each.parse for each in types]), describe
    )


def type_of(annotation: object) -> ValueType[object]:
    """The type that an annotation states: ``int | None``, ``tuple[str, ...]``, ``Literal``, ..."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        members = tuple(type_of(item) for item in arguments if item is not NoneType)
        inner = members[0] if len(members) == 1 else one_of(*members)
        return optional(inner) if NoneType in arguments else inner
    if origin in (tuple, list):
        return list_of(type_of(arguments[0]))
    if origin is Literal:
        return words(*arguments)
    return _PLAIN[annotation]


_PLAIN: Mapping[object, ValueType[object]] = {
    int: integer(),
    float: number(),
    str: text(),
    bool: boolean(),
    Path: path(),
}
_TYPE, _DOC = "type", "doc"


def option(type: ValueType[object] | None, default: T, doc: str = "", **extra: object) -> T:
    """Declare a field of a dataclass of options.

    Args:
        type: the accepted values; ``None`` for all that the annotation has.
        default: the value where none is given.
        doc: one sentence, for all pages; empty where the docstring of the class has it.
        extra: what readers of the class look at besides. Options of a compilation have ``flag``,
            the help of the command-line flag if it is not ``doc``, ``None`` for no flag;
            ``flag_name``, its name if it is not the field's; ``served``, those of vLLM's server;
            ``requested``, whether commands ask for the default too; ``pipeline``, whether
            ``default{...}`` has the option.
    """
    return field(default=default, metadata={_TYPE: type, _DOC: doc, **extra})


@dataclass(frozen=True, slots=True)
class TypedField(Generic[T]):
    """A field.

    Attributes:
        name: of the field.
        type: the accepted values.
        default: the value where none is given; :data:`dataclasses.MISSING` if one must be.
        doc: one sentence; may be empty.
        extra: what else :func:`option` was given.
    """

    name: str
    type: ValueType[T]
    default: T
    doc: str = ""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def required(self) -> bool:
        """True if a value must be given."""
        return self.default is MISSING

    @property
    def served(self) -> tuple[str, ...]:
        """The names that the flag has besides where vLLM's server has it."""
        return cast("tuple[str, ...]", self.extra.get("served", ()))

    @property
    def flag(self) -> str:
        """The command-line flag, such as ``--tp``; empty for none."""
        if self.extra.get("flag", "") is None:
            return ""
        return str(self.extra.get("flag_name", f"--{self.name.replace('_', '-')}"))


def fields_of(cls: type[DataclassInstance]) -> Mapping[str, TypedField[object]]:
    """The fields of a dataclass by name, by annotation where :func:`option` gives no type.

    A field that instances are not compared by is none of their options. Without a ``group`` of its
    own a field has the ``GROUP`` of the class that declares it.
    """
    hints = get_type_hints(cls)
    homes = {
        name: getattr(each, "GROUP", "")
        for each in reversed(cls.__mro__)
        for name in vars(each).get("__annotations__", ())
    }
    return {
        item.name: _typed(item, hints[item.name], homes[item.name])
        for item in fields(cls)
        if item.compare
    }


def _typed(item: Field[object], hint: object, group: str) -> TypedField[object]:
    extra = {**({"group": group} if group else {}), **item.metadata}
    kind = extra.pop(_TYPE, None) or type_of(hint)
    doc = str(extra.pop(_DOC, ""))
    return TypedField(item.name, cast("ValueType[object]", kind), item.default, doc, extra)


def read_field(owner: str, item: TypedField[T], value: object, code: str) -> T:
    """The normal form of a value.

    Raises:
        GraphgenError: ``code``, ``{owner}: {name} is {value!r}, expected {noun}``; without the
            owner if it is empty.
    """
    return _read(owner, item, value, item.type.read, code)


def parse_field(owner: str, item: TypedField[T], text: str, code: str) -> T:
    """The value that a text stands for; see :func:`read_field`."""
    return _read(owner, item, text, item.type.parse, code)


def _read(owner: str, item: TypedField[T], value: Any, read: Callable[[Any], T], code: str) -> T:
    try:
        return read(value)
    except MismatchError as error:
        # Of a list all of it is shown, so all of it is described.
        wanted = f"expected {item.type.noun}" if error.path else error
        what = f"{f'{owner}: ' if owner else ''}{item.name} is {value!r:.80}, {wanted}"
        near = error.help or did_you_mean(str(value), map(str, item.type.choices))
        raise GraphgenError(code, what, help=near) from None


def unknown_name(
    owner: str, what: str, name: str, known: Iterable[str], code: str
) -> GraphgenError:
    """The error of a name that ``owner`` does not have: ``{owner} has no {what} '{name}'``."""
    names = list(known)
    help = did_you_mean(name, names) or f"it has {', '.join(names) or 'none'}"
    return GraphgenError(code, f"{owner} has no {what} '{name:.100}'", help=help)
