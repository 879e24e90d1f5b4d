"""OpMetadata as text: ``{op_name="f" source_line=3}``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import MetadataField as M
from graphgen.lowering.hlo_proto.fields import StackFramesField as S
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.text_values import BadAttributeError, quoted_bytes, unquoted_bytes

# In the order they are printed.
_STRINGS = {
    "op_type": M.OP_TYPE,
    "op_name": M.OP_NAME,
    "source_file": M.SOURCE_FILE,
    "deduplicated_name": M.DEDUPLICATED_NAME,
    "scheduling_name": M.SCHEDULING_NAME,
}
_NUMBERS = {
    "source_line": M.SOURCE_LINE,
    "source_end_line": M.SOURCE_END_LINE,
    "source_column": M.SOURCE_COLUMN,
    "source_end_column": M.SOURCE_END_COLUMN,
    "stack_frame_id": M.STACK_FRAME_ID,
    "size_of_generated_code_in_bytes": M.CODE_BYTES,
    "size_of_memory_working_set_in_bytes": M.WORKING_SET_BYTES,
}
_LISTS = {"profile_type": M.PROFILE_TYPE}
_ORDER = (
    *("op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column"),
    *("source_end_column", "profile_type", "size_of_generated_code_in_bytes"),
    *("size_of_memory_working_set_in_bytes", "deduplicated_name", "stack_frame_id"),
    "scheduling_name",
)
_PAIR = re.compile(r'\w+=(?:"(?:[^"\\]|\\.)*+"|\{[^{}]*+\}|[\w\-]++)', re.DOTALL)
_WHOLE = re.compile(rf"\{{\s*+(?:{_PAIR.pattern}\s*+,?\s*+)*+\}}", re.DOTALL)
# Encoded parts by their text: files, lines and layers come again.
_parts: dict[str, bytes] = {}
_MOST_PARTS = 1 << 16
# Written by old versions; says nothing that a reader needs.
_OLD = ("preserve_layout", "logical_creation_pass_id", "creation_pass_id")


def parse_metadata(text: str) -> bytes:
    """An OpMetadata of its text."""
    if _WHOLE.fullmatch(text) is None:
        raise BadAttributeError(f"'{text[:40]}' is not understood as metadata")
    out: list[bytes] = []
    for part in _PAIR.findall(text):
        data = _parts.get(part)
        if data is None:
            data = _encoded(*part.split("=", 1))
            if len(_parts) < _MOST_PARTS:
                _parts[part] = data
        out.append(data)
    return b"".join(out)


def _encoded(key: str, value: str) -> bytes:
    if key in _STRINGS:
        data = unquoted_bytes(value)
        return wire.delimited(_STRINGS[key], data) if data else b""
    if key in _NUMBERS:
        return wire.integer(_NUMBERS[key], int(value))
    if key in _LISTS:
        return wire.integers(_LISTS[key], map(int, re.findall(r"\d+", value)))
    if key not in _OLD:
        raise BadAttributeError(f"'{key}' is not a known field of metadata")
    return b""


def show_metadata(found: Message) -> str:
    """The text of an OpMetadata, empty for an empty one."""
    parts: list[str] = []
    for key in _ORDER:
        number = _STRINGS.get(key) or _NUMBERS.get(key) or _LISTS[key]
        if not found.has(number):
            continue
        if key in _STRINGS:
            data = found.data(number)
            parts += [f"{key}={quoted_bytes(data)}"] if data else []
        elif key in _NUMBERS:
            parts.append(f"{key}={found.integer(number)}")
        else:
            parts.append(f"{key}={{{','.join(map(str, found.integers(number)))}}}")
    return "{" + " ".join(parts) + "}" if parts else ""


# Tables of strings, and tables of rows by the names of their parts; in order.
STRINGS = {"FileNames": S.FILE_NAMES, "FunctionNames": S.FUNCTION_NAMES}
_LOCATION = {
    "file_name_id": S.LOCATION_FILE,
    "function_name_id": S.LOCATION_FUNCTION,
    "line": S.LOCATION_LINE,
    "end_line": S.LOCATION_END_LINE,
    "column": S.LOCATION_COLUMN,
    "end_column": S.LOCATION_END_COLUMN,
}
_FRAME = {"file_location_id": S.FRAME_LOCATION, "parent_frame_id": S.FRAME_PARENT}
ROWS = {"FileLocations": (S.LOCATIONS, _LOCATION), "StackFrames": (S.FRAMES, _FRAME)}


def parse_frame_row(section: str, text: str) -> bytes:
    """A row of a table, as a field of the StackFrameIndexProto."""
    if section in STRINGS:
        return wire.delimited(STRINGS[section], unquoted_bytes(text))
    number, parts = ROWS[section]
    pairs = [(parts[key], int(n)) for key, n in re.findall(r"(\w+)=(\d+)", text) if key in parts]
    inner = [wire.integer(field, max(0, n - _ahead(section, field))) for field, n in pairs]
    return wire.delimited(number, b"".join(inner))


def _ahead(section: str, field: int) -> int:
    """By how much a number of the text is ahead of the protobuf's: of a parent, where 0 is none."""
    return int(section == "StackFrames" and field == S.FRAME_PARENT)


def show_frames(frames: Message) -> Iterator[str]:
    """The tables, line by line."""
    for section, number in STRINGS.items():
        yield section
        for place, data in enumerate(frames.datas(number), 1):
            yield f"{place} {quoted_bytes(data)}"
        yield ""
    for section, (number, parts) in ROWS.items():
        yield section
        for place, row in enumerate(frames.messages(number), 1):
            # XLA's parser wants every part, also one that is 0.
            pairs = [
                f"{key}={row.integer(field) + _ahead(section, field)}"
                for key, field in parts.items()
            ]
            yield f"{place} {{{' '.join(pairs)}}}"
        yield ""
