"""Frontend attributes: a map of texts, in one annotation ``hlo.frontend_attributes``."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo.proto.proto_module import read_frontend_attributes
from graphgen.lowering.hlo.proto.wire import Message, delimited
from graphgen.lowering.hlo.text.opaque_values import parse_map, show_map

FRONTEND = "hlo.frontend_attributes"


def frontend_text(entries: Mapping[str, str]) -> str:
    """The text of a map: ``{a="1",b="2"}``."""
    whole = Message(write_frontend_attributes(dict(entries)))
    return show_map(whole.message(InstructionField.FRONTEND_ATTRIBUTES))


def frontend_map(annotations: Mapping[str, object]) -> dict[str, str]:
    """The frontend attributes among annotations; empty without any."""
    text = annotations.get(FRONTEND)
    if not text:
        return {}
    number = InstructionField.FRONTEND_ATTRIBUTES
    return read_frontend_attributes(Message(delimited(number, parse_map(str(text)))), number)
