"""Kinds of JSON values that bodies may hold: each reads a value and describes it as JSON Schema.

A reader returns the value in its normal form (an integer for ``16.0``) or raises
:class:`~graphgen.runtime.server.api_error.ApiError` with status 400, naming the field by its path,
such as ``messages[0].content``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

from graphgen.json_value import Json
from graphgen.runtime.server.api_error import ApiError

Read = Callable[[Json, str], object]


@dataclass(frozen=True, slots=True)
class FieldKind:
    """Values that a field may have.

    Attributes:
        noun: the values in words, for errors.
        schema: the values as JSON Schema.
        read: checks a value and returns its normal form; gets the path for errors.
    """

    noun: str
    schema: Mapping[str, Json]
    read: Read


@dataclass(frozen=True, slots=True)
class BodyField:
    """One field of a JSON object; ``null`` means the default, unless the field is required.

    Attributes:
        name: in the object.
        kind: its values.
        doc: one sentence for the OpenAPI document.
        default: the value where it is missing.
        required: whether it may not be missing.
    """

    name: str
    kind: FieldKind
    doc: str = ""
    default: object = None
    required: bool = False


def _refuse(path: str, noun: str, value: Json) -> NoReturn:
    raise ApiError(
        400,
        f"Invalid type for '{path}': expected {noun}, but got {_noun_of(value)}",
        param=path,
        code="invalid_type",
    )


def _noun_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def _number(value: Json, path: str, noun: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(path, noun, value)
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(path, noun, value)
    return value


def _in_range(value: float, low: float, high: float, path: str) -> None:
    if low <= value <= high:
        return
    side, bound = ("below_min", low) if value < low else ("above_max", high)
    kind = "integer" if isinstance(value, int) else "decimal"
    word = "at least" if value < low else "at most"
    raise ApiError(
        400,
        f"Invalid value for '{path}': it must be {word} {bound:g}",
        param=path,
        code=f"{kind}_{side}_value",
    )


def integer(low: int, high: int) -> FieldKind:
    """Integers of a closed range; ``16.0`` is one."""

    def read(value: Json, path: str) -> int:
        number = _number(value, path, "an integer")
        if number != int(number):
            _refuse(path, "an integer", value)
        _in_range(int(number), low, high, path)
        return int(number)

    return FieldKind("an integer", {"type": "integer", "minimum": low, "maximum": high}, read)


def number(low: float, high: float) -> FieldKind:
    """Finite numbers of a closed range."""

    def read(value: Json, path: str) -> float:
        found = _number(value, path, "a number")
        _in_range(found, low, high, path)
        return float(found)

    return FieldKind("a number", {"type": "number", "minimum": low, "maximum": high}, read)


def _read_boolean(value: Json, path: str) -> bool:
    if not isinstance(value, bool):
        _refuse(path, "a boolean", value)
    return value


BOOLEAN = FieldKind("a boolean", {"type": "boolean"}, _read_boolean)


def text(smallest: int = 0, largest: int | None = None) -> FieldKind:
    """Strings of a number of characters; lone surrogates are refused."""

    def read(value: Json, path: str) -> str:
        if not isinstance(value, str):
            _refuse(path, "a string", value)
        if len(value) < smallest:
            raise ApiError(400, f"'{path}' is empty", param=path, code="invalid_value")
        if largest is not None and len(value) > largest:
            what = f"'{path}' has {len(value)} characters, and at most {largest} fit"
            raise ApiError(400, what, param=path, code="string_above_max_length")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            what = f"'{path}' has a lone surrogate at index {error.start}, which has no character"
            raise ApiError(400, what, param=path, code="invalid_value") from error
        return value

    longest: Mapping[str, Json] = {} if largest is None else {"maxLength": largest}
    return FieldKind("a string", {"type": "string", "minLength": smallest, **longest}, read)


TEXT = text()


def choice(*words: str) -> FieldKind:
    """Some strings."""
    noun = "one of " + ", ".join(f"'{word}'" for word in words)

    def read(value: Json, path: str) -> str:
        if not isinstance(value, str):
            _refuse(path, noun, value)
        if value not in words:
            what = f"Invalid value for '{path}': expected {noun}, but got '{value[:80]}'"
            raise ApiError(400, what, param=path, code="invalid_value")
        return value

    return FieldKind(noun, {"type": "string", "enum": list(words)}, read)


def array(item: FieldKind, noun: str, smallest: int = 1, largest: int = 1 << 20) -> FieldKind:
    """Arrays of one kind; read as a tuple.

    Args:
        item: kind of the items.
        noun: the items in the plural, such as ``strings``.
        smallest: least number of items.
        largest: largest number of items.
    """

    def read(value: Json, path: str) -> tuple[object, ...]:
        if not _is_array(value):
            _refuse(path, f"an array of {noun}", value)
        items = cast("Sequence[Json]", value)
        if not smallest <= len(items) <= largest:
            what = f"'{path}' has {len(items)} items, not {smallest} to {largest}"
            raise ApiError(400, what, param=path, code="invalid_array_length")
        return tuple(item.read(entry, f"{path}[{n}]") for n, entry in enumerate(items))

    schema: Mapping[str, Json] = {
        "type": "array",
        "items": item.schema,
        "minItems": smallest,
        "maxItems": largest,
    }
    return FieldKind(f"an array of {noun}", schema, read)


def _is_array(value: Json) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def either(noun: str, choose: Callable[[Json], FieldKind | None], *kinds: FieldKind) -> FieldKind:
    """Values of one of several kinds.

    Args:
        noun: the values in words.
        choose: the kind that a value has to be read as; ``None`` for a value of none of them.
        kinds: all of them.
    """

    def read(value: Json, path: str) -> object:
        kind = choose(value)
        return _refuse(path, noun, value) if kind is None else kind.read(value, path)

    return FieldKind(noun, {"anyOf": [kind.schema for kind in kinds]}, read)


def record(fields: Iterable[BodyField]) -> FieldKind:
    """Objects with known fields only; read as a dictionary with every field."""
    rows = {row.name: row for row in fields}

    def read(value: Json, path: str) -> dict[str, object]:
        given = as_object(value, path)
        prefix = f"{path}." if path else ""
        for name in given:
            if name not in rows:
                raise unknown_field(prefix, name, rows)
        return {row.name: _field(row, given, f"{prefix}{row.name}") for row in rows.values()}

    schema: dict[str, Json] = {
        "type": "object",
        "properties": {row.name: _described(row) for row in rows.values()},
        "required": [row.name for row in rows.values() if row.required],
        "additionalProperties": False,
    }
    return FieldKind("an object", schema, read)


def unknown_field(prefix: str, name: str, known: Iterable[str]) -> ApiError:
    """The refusal of an unknown field, with near names."""
    near = difflib.get_close_matches(name, list(known), 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    shown = (prefix + name)[:100].encode("utf-8", "replace").decode()
    return ApiError(
        400, f"Unknown parameter: '{shown}'{hint}", param=shown, code="unknown_parameter"
    )


def as_object(value: Json, path: str) -> Mapping[str, Json]:
    """The value as an object (status 400 for another one)."""
    if not isinstance(value, Mapping):
        _refuse(path or "the body", "an object", value)
    return value


def _field(row: BodyField, given: Mapping[str, Json], path: str) -> object:
    value = given.get(row.name)
    if row.required and row.name not in given:
        what = f"Missing required parameter: '{path}'"
        raise ApiError(400, what, param=path, code="missing_required_parameter")
    if value is None and not row.required:
        return row.default
    return row.kind.read(value, path)


def _described(row: BodyField) -> Json:
    """The schema of a field: its kind, or ``null`` where it is not required."""
    shown: dict[str, Json] = dict(row.kind.schema)
    if not row.required:
        shown = {"anyOf": [row.kind.schema, {"type": "null"}]}
    if isinstance(row.default, bool | int | float | str):
        shown["default"] = row.default
    return {**shown, "description": row.doc} if row.doc else shown


ANY_OBJECT = FieldKind("an object", {"type": "object"}, as_object)


def as_given(kind: FieldKind) -> FieldKind:
    """The values of a kind, read as they are given: without the fields that they leave out."""

    def read(value: Json, path: str) -> Json:
        kind.read(value, path)
        return value

    return FieldKind(kind.noun, kind.schema, read)


def of_type(kind: FieldKind, *types: str) -> FieldKind:
    """Objects of some types, of any without them: another one is refused before what else it has.

    Fields that are null have no value, also unknown ones: clients send back all that they got.
    """
    known = choice(*types)

    def read(value: Json, path: str) -> object:
        if not isinstance(value, Mapping):
            return kind.read(value, path)
        given = {name: entry for name, entry in value.items() if entry is not None}
        if types and "type" in given:
            known.read(given["type"], f"{path}.type")
        return kind.read(given, path)

    return FieldKind(kind.noun, kind.schema, read)
