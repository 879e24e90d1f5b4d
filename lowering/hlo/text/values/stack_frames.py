"""Tables of stack frames in HLO text, whose lines are numbered from 1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import StackFramesField as S
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text.values.quoted import quoted_bytes, unquoted_bytes

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
    pairs = re.findall(r"(\w+)=(\d+)", text)
    inner = [wire.integer(parts[key], int(value)) for key, value in pairs if key in parts]
    return wire.delimited(number, b"".join(inner))


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
            pairs = [
                f"{key}={row.integer(field)}" for key, field in parts.items() if row.has(field)
            ]
            yield f"{place} {{{' '.join(pairs)}}}"
        yield ""
