"""JSON values: the type of all that commands print with ``--json``, and a reader with limits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from graphgen.limits import JSON_BYTES, JSON_DEPTH, JSON_OBJECTS, Limit, bound, stated

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

# transformers writes 10**30 for a length without a limit.
_MOST_DIGITS = 40
# Exceptions of reading a value of another form than expected.
OTHER_FORM = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError)
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
_DIGITS_ALONE = bytes([ord("0" if 48 <= code < 58 else " ") for code in range(256)])


class JsonError(ValueError):
    """A text that is not JSON, or passes a limit.

    Attributes:
        place: line and column as ``3:14``, where they are known.
        reason: the text without its place.
    """

    def __init__(self, what: str, place: str = "", reason: str = "") -> None:
        super().__init__(what)
        self.place = place
        self.reason = reason or what


def json_number(value: float) -> float | str:
    """A number as JSON can hold it: ``nan``, ``inf`` and ``-inf`` become strings."""
    return value if math.isfinite(value) else str(value)


def parse_json(
    data: bytes | str,
    *,
    most: int | Limit = JSON_BYTES,
    objects: int | Limit = JSON_OBJECTS,
    unique: bool = False,
    finite: bool = False,
    strict: bool = True,
) -> object:
    """Parse JSON of a file, a request or an attribute.

    Args:
        data: the text, as UTF-8 where it is bytes.
        most: the bytes that are parsed at most.
        objects: the lists and objects that are made at most.
        unique: refuse a key that is twice in an object.
        finite: refuse ``NaN`` and ``Infinity``, which Python's writers put out.
        strict: refuse line breaks and other control characters inside of strings.

    Raises:
        JsonError: it is not JSON, is larger than ``most``, nested more than 200 deep, or has an
            integer of more than 40 digits. The text can be shown to a user.
    """
    try:
        text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        _require_bounds(text, most, objects)
        return json.loads(
            data if isinstance(data, str) else text.decode("utf-8-sig"),
            object_pairs_hook=_unique if unique else None,
            parse_constant=_refuse_constant if finite else None,
            parse_int=_integer if _has_long_number(text) else None,
            strict=strict,
        )
    except json.JSONDecodeError as error:
        raise JsonError(str(error), f"{error.lineno}:{error.colno}", error.msg) from error
    except JsonError:
        raise
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:
        raise JsonError(str(error)) from error


def _require_bounds(text: bytes, most: int | Limit, objects: int | Limit) -> None:
    """Require the limits of size and depth before anything is made of the text."""
    if len(text) > bound(most):
        raise JsonError(f"it has {len(text)} bytes, and {stated(most)} are read")
    brackets = text.translate(None, _NOT_BRACKETS)
    depth = JSON_DEPTH.most
    if brackets.count(b"[") + brackets.count(b"{") <= depth:
        return
    outside = _outside_strings(text)
    opened = outside.count(b"[") + outside.count(b"{")
    if opened > bound(objects):
        raise JsonError(f"it has {opened} lists and objects, and {stated(objects)} are read")
    if max(accumulate(map(_STEP.__getitem__, outside)), default=0) > depth:
        raise JsonError(f"it is nested too deeply: {JSON_DEPTH} are read")


def _outside_strings(text: bytes) -> bytes:
    """The brackets of a text that are not inside of strings."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Most strings are without brackets and vanish here; of the others each second piece is inside.
    kept = text.translate(None, _NOT_BRACKETS).replace(b'""', b"")
    return b"".join(kept.split(b'"')[::2])


def _has_long_number(text: bytes) -> bool:
    """True where a run of digits is longer than integers may be; fractions may be."""
    return b"0" * (_MOST_DIGITS + 1) in text.translate(_DIGITS_ALONE)


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise JsonError(
            f"an integer has {len(text.lstrip('-'))} digits, and at most {_MOST_DIGITS}"
        )
    return int(text)


def _refuse_constant(name: str) -> float:
    raise JsonError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonError(f"'{name}' is there twice")
            seen.add(name)
    return result
