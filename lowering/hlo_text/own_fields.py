"""Attributes of an instruction in a text, as fields of its protobuf and names it refers to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo_text.attributes import (
    ORIGINAL_API,
    UNKNOWN_ATTRIBUTE,
    attribute_named,
    inner_opcode,
)
from graphgen.lowering.hlo_text.metadata import parse_metadata
from graphgen.lowering.hlo_text.text_values import BadAttributeError

# Attributes that name computations, in the order their ids are kept.
CALLS = (
    *("to_apply", "calls", "body", "condition", "true_computation", "false_computation"),
    *("branch_computations", "select", "scatter", "called_computations"),
)
_RANKS = {key: place for place, key in enumerate(CALLS)}
# The first letter of a name that the parser gives to a computation written inside of an attribute.
INLINE = "\0"
_NAMES = re.compile(rf"{INLINE}\d+|%?([\w.$\-]+)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# Bounds of what is remembered of one text.
_MOST = 1 << 16


class AttributeTextError(Exception):
    """An attribute with a value that it cannot have.

    Attributes:
        key: its name.
    """

    def __init__(self, key: str, what: str) -> None:
        super().__init__(what)
        self.key = key


@dataclass(frozen=True, slots=True)
class OwnFields:
    """The attributes of one instruction.

    Attributes:
        data: its own fields, encoded.
        calls: names of the computations it calls.
        waits: names of the instructions it waits for.
        given: names of the attributes.
    """

    data: bytes
    calls: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()


# Fields of an instruction that XLA asks for, also where the text says nothing.
_ASKED: dict[str, tuple[tuple[str, bytes], ...]] = {
    "custom-call": (
        ("api_version", wire.integer(InstructionField.CUSTOM_CALL_API_VERSION, ORIGINAL_API)),
    ),
    "convolution": (("window", wire.delimited(InstructionField.WINDOW, b"")),),
    "reduce-window": (("window", wire.delimited(InstructionField.WINDOW, b"")),),
    "select-and-scatter": (("window", wire.delimited(InstructionField.WINDOW, b"")),),
    "dot": (("lhs_contracting_dims", wire.delimited(InstructionField.DOT, b"")),),
}


def own_fields(code: str, pairs: Iterable[tuple[str, str]]) -> OwnFields:
    """Encode the attributes of an instruction of this opcode.

    Raises:
        AttributeTextError: one of them is not understood.
    """
    code = inner_opcode(code)
    # Parts of one message, by its field, are put together.
    inner: dict[int, list[bytes]] = {}
    data: list[bytes] = []
    calls: list[tuple[int, tuple[str, ...]]] = []
    waits: tuple[str, ...] = ()
    given: set[str] = set()
    unknown: dict[str, str] = {}
    for key, value in pairs:
        given.add(key)
        if key in _RANKS:
            calls.append((_RANKS[key], called_names(value)))
        elif key == "control-predecessors":
            waits = tuple(_NAMES.findall(value))
        else:
            _encode(code, key, value, data, inner, unknown)
    if unknown:
        data.append(write_frontend_attributes(unknown))
    data += [wire.delimited(field, b"".join(parts)) for field, parts in inner.items()]
    data += [field for key, field in _ASKED.get(code, ()) if key not in given]
    calls.sort(key=lambda item: item[0])
    names = tuple([name for _, found in calls for name in found])
    return OwnFields(b"".join(data), names, waits, frozenset(given))


def value_reason(error: Exception) -> str:
    """Why a value is not understood; empty where only Python has words for it."""
    if isinstance(error, GraphgenError):
        return error.what
    return "" if isinstance(error, LookupError) else str(error)


def called_names(value: str) -> tuple[str, ...]:
    """The computations that the value of an attribute names."""
    found = _NAMES.finditer(_COMMENT.sub("", value))
    return tuple([match[1] or match[0] for match in found])


def _encode(
    code: str,
    key: str,
    value: str,
    data: list[bytes],
    inner: dict[int, list[bytes]],
    unknown: dict[str, str],
) -> None:
    row = attribute_named(key, code)
    if row is None:
        # Kept as a frontend attribute, with which the instruction is read as opaque.
        unknown[UNKNOWN_ATTRIBUTE + key] = value
        return
    try:
        made = row.parse(value)
    except (BadAttributeError, GraphgenError, ValueError, IndexError, KeyError) as error:
        reason = value_reason(error)
        what = f"{key}={value[:60]}: {reason or 'this is not understood'}"
        raise AttributeTextError(key, what) from error
    if row.inside:
        inner.setdefault(row.field, []).append(made)
    else:
        data.append(made)


def _nested(depth: int) -> str:
    """A pattern of text in braces, with strings and braces in it."""
    deeper = f"|{_nested(depth - 1)}" if depth else ""
    return rf'\{{(?:[^{{}}"]++|"(?:[^"\\]|\\.)*+"{deeper})*+\}}'


_VALUE = rf"""(?:{_nested(5)}
    |"(?:[^"\\]|\\.)*+"
    |\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?
    |[^\s,{{}}()"\[\]]++)"""
_PAIR = re.compile(rf"\s*+,\s*+([\w\-]+)=({_VALUE})(?=\s*+(?:,|$))", re.VERBOSE)
_METADATA = re.compile(rf", metadata=({_nested(1)})(?=\s*(?:,|$))")


class OwnFieldsOfLines:
    """Encodes the attributes that end a line; equal ones, of which a text has many, once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], OwnFields] = {}
        self._metadata: dict[str, bytes] = {}

    def encode(self, code: str, text: str) -> OwnFields | None:
        """Encode ``, key=value, ..``; ``None`` where the text is of any other form.

        Raises:
            AttributeTextError: an attribute is not understood.
        """
        at = text.find(", metadata={")
        if at < 0:
            return self._own(code, text.rstrip())
        match = _METADATA.match(text, at)
        if match is None:
            return None
        own = self._own(code, (text[:at] + text[match.end() :]).rstrip())
        if own is None:
            return None
        data = self._metadata.get(match[1])
        if data is None:
            try:
                inner = parse_metadata(match[1])
            except (BadAttributeError, ValueError) as error:
                raise AttributeTextError("metadata", str(error)) from error
            data = wire.delimited(InstructionField.METADATA, inner)
            if len(self._metadata) < _MOST:
                self._metadata[match[1]] = data
        return OwnFields(own.data + data, own.calls, own.waits, own.given)

    def _own(self, code: str, text: str) -> OwnFields | None:
        found = self._found.get((code, text))
        if found is None:
            pairs: list[tuple[str, str]] = []
            at = 0
            while at < len(text):
                match = _PAIR.match(text, at)
                if match is None or (match[1] in _RANKS and "=" in match[2]):
                    # Computations inside of an attribute are for the parser of tokens.
                    return None
                pairs.append((match[1], match[2]))
                at = match.end()
            found = own_fields(code, pairs)
            if len(self._found) < _MOST:
                self._found[code, text] = found
        return found
