"""Fields of JSON bodies: objects, arrays and choices of them, and the errors that name a field.

Values are read by the types of :mod:`graphgen.config.fields`. :func:`read_body` turns what they
refuse into an :class:`~graphgen.runtime.server.api_error.ApiError` with status 400, which names the
field by its path, such as ``messages[0].content``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, TypeVar, cast

from graphgen.config import fields
from graphgen.config.fields import (
    MismatchError,
    TypedField,
    ValueType,
    at_step,
    boolean,
    list_of,
    text,
    value_type,
    words,
)
from graphgen.errors import did_you_mean
from graphgen.json_value import Json
from graphgen.runtime.server.api_error import ApiError

T = TypeVar("T")


class FieldError(MismatchError):
    """A field that is at fault for more than its type: unknown, missing, not built.

    Attributes:
        code: of the answer.
        say: the message, from the path of the field.
    """

    def __init__(
        self, code: str, say: Callable[[str], str], path: Sequence[str | int] = ()
    ) -> None:
        super().__init__("type", "another field", path)
        self.code = code
        self.say = say

    def inside(self, step: str | int) -> FieldError:
        """The same, of a value that has the value at ``step``."""
        return FieldError(self.code, self.say, (step, *self.path))


def read_body(kind: ValueType[T], value: Json) -> T:
    """The normal form of a body.

    Raises:
        ApiError: status 400 for a value that the type does not have.
    """
    try:
        return kind.read(value)
    except MismatchError as error:
        raise _answer(error, value) from error


def _answer(error: MismatchError, body: Json) -> ApiError:
    """The answer to a body with a wrong value."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
    path = path[1:101].encode("utf-8", "replace").decode()
    if isinstance(error, FieldError):
        return ApiError(400, error.say(path), param=path, code=error.code)
    value = cast(Any, body)
    for step in error.path:
        value = value[step]
    code, what = _fault(error, value, path)
    return ApiError(400, what, param=path, code=code)


def _fault(error: MismatchError, value: Json, path: str) -> tuple[str, str]:
    """The code and the message of a value that its type does not have."""
    match error.reason:
        case "low" | "high":
            side, word = ("below_min", "least") if error.reason == "low" else ("above_max", "most")
            kind = "integer" if isinstance(value, int) else "decimal"
            what = f"Invalid value for '{path}': it must be at {word} {error.bound:g}"
            return f"{kind}_{side}_value", what
        case "choice":
            got = f"{error}, but got '{str(value)[:80]}'"
            return "invalid_value", f"Invalid value for '{path}': {got}"
        case "length" if isinstance(value, str):
            if not value:
                return "invalid_value", f"'{path}' is empty"
            what = f"'{path}' has {len(value)} characters, {error}"
            return "string_above_max_length", what
        case "length":
            return "invalid_array_length", f"Invalid value for '{path}': {error}"
        case "text":
            return "invalid_value", f"Invalid value for '{path}': {error}"
        case _:
            what = f"Invalid type for '{path or 'the body'}': {error}, but got {_noun_of(value)}"
            return "invalid_type", what


def _noun_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case float() if not math.isfinite(value):
            return "a number that is not finite"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def integer(low: int, high: int) -> ValueType[int]:
    """Integers of a closed range; ``16.0`` is one."""
    return fields.integer(low, high, floats=True)


def array(
    item: ValueType[T], noun: str, smallest: int = 1, largest: int = 1 << 20
) -> ValueType[tuple[T, ...]]:
    """Arrays of one type; read as a tuple.

    Args:
        item: type of the items.
        noun: the items in the plural, such as ``strings``.
        smallest: least number of items.
        largest: largest number of items.
    """
    return list_of(item, f"an array of {noun}", least=smallest, most=largest)


def body_field(
    name: str, kind: ValueType[Any], doc: str = "", default: object = None, required: bool = False
) -> TypedField[Any]:
    """One field of a JSON object; ``null`` means the default, unless the field is required.

    Args:
        name: in the object.
        kind: its values.
        doc: one sentence for the OpenAPI document.
        default: the value where it is missing.
        required: whether it may not be missing.
    """
    return TypedField(name, kind, MISSING if required else default, doc)


def either(
    noun: str, choose: Callable[[Json], ValueType[Any] | None], *kinds: ValueType[Any]
) -> ValueType[Any]:
    """Values of one of several types.

    Args:
        noun: the values in words.
        choose: the type that a value has to be read as; ``None`` for a value of none of them.
        kinds: all of them.
    """

    def read(value: object) -> object:
        kind = choose(cast(Json, value))
        if kind is None:
            raise MismatchError("type", noun)
        return kind.read(value)

    return value_type(read, noun, "any", {"anyOf": [kind.schema for kind in kinds]})


def record(rows: Iterable[TypedField[Any]]) -> ValueType[dict[str, object]]:
    """Objects with known fields only; read as a dictionary with every field."""
    known = {row.name: row for row in rows}

    def read(value: object) -> dict[str, object]:
        given = as_object(value)
        for name in given:
            if name not in known:
                raise unknown_field(name, known)
        return {row.name: _field(row, given) for row in known.values()}

    schema: dict[str, Json] = {
        "type": "object",
        "properties": {row.name: _described(row) for row in known.values()},
        "required": [row.name for row in known.values() if row.required],
        "additionalProperties": False,
    }
    return value_type(read, "an object", "object", schema)


def unknown_field(name: str, known: Iterable[str]) -> FieldError:
    """The refusal of an unknown field, with near names."""
    near = did_you_mean(name, known)
    hint = f"; {near}" if near else ""
    return FieldError(
        "unknown_parameter", lambda path: f"Unknown parameter: '{path}'{hint}", (name,)
    )


def not_built(path: Sequence[str | int] = ()) -> FieldError:
    """The refusal of a field that is not built."""
    say: Callable[[str], str] = "'{}' is not built; leave it out".format
    return FieldError("unsupported_parameter", say, path)


def as_object(value: object) -> Mapping[str, Json]:
    """The value as an object; :class:`MismatchError` for another one."""
    if not isinstance(value, Mapping):
        raise MismatchError("type", "an object")
    return cast("Mapping[str, Json]", value)


def _field(row: TypedField[Any], given: Mapping[str, Json]) -> object:
    if row.required and row.name not in given:
        say: Callable[[str], str] = "Missing required parameter: '{}'".format
        raise FieldError("missing_required_parameter", say, (row.name,))
    value = given.get(row.name)
    if value is None and not row.required:
        return row.default
    return at_step(row.type.read, value, row.name)


def _described(row: TypedField[Any]) -> Json:
    """The schema of a field: its type, or ``null`` where it is not required."""
    shown: dict[str, Json] = dict(row.type.schema)
    if not row.required:
        shown = {"anyOf": [row.type.schema, {"type": "null"}]}
    if isinstance(row.default, bool | int | float | str):
        shown["default"] = row.default
    return {**shown, "description": row.doc} if row.doc else shown


BOOLEAN, TEXT = boolean(), text()
ANY_OBJECT = value_type(as_object, "an object", "object", {"type": "object"})


def as_given(kind: ValueType[Any]) -> ValueType[Any]:
    """The values of a type, read as they are given: without the fields that they leave out."""

    def read(value: object) -> object:
        kind.read(value)
        return value

    return value_type(read, kind.noun, kind.code, kind.schema)


def of_type(kind: ValueType[Any], *types: str) -> ValueType[Any]:
    """Objects of some types, of any without them: another one is refused before what else it has.

    Fields that are null have no value, also unknown ones: clients send back all that they got.
    """
    known = words(*types)

    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            return kind.read(value)
        entries = cast("Mapping[str, Json]", value).items()
        given = {name: entry for name, entry in entries if entry is not None}
        if types and "type" in given:
            at_step(known.read, given["type"], "type")
        return kind.read(given)

    return value_type(read, kind.noun, kind.code, kind.schema)
