"""Options of instructions: their last known number, by XLA's schema, and the first unknown one."""

from __future__ import annotations

import pytest

from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.hlo_proto.fields import RareField as R
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_printer import INSTRUCTION, unknown_field

# The fields that lead to a message, and the last field of that message in xla/service/hlo.proto
# and xla/xla_data.proto.
LAST = [
    ((F.WINDOW, 1), 7),
    ((F.CONVOLUTION,), 12),
    ((F.SLICES,), 3),
    ((F.PADDING, 1), 3),
    ((F.DOT,), 4),
    ((R.RAGGED_DOT, 1), 4),
    ((F.GATHER,), 6),
    ((F.SCATTER,), 6),
    ((F.PRECISION,), 2),
    ((F.SOURCE_TARGET_PAIRS,), 2),
    ((F.TRIANGULAR_SOLVE,), 4),
    ((F.PARAMETER_REPLICATION,), 1),
    ((F.CHOLESKY,), 1),
    ((F.FRONTEND_ATTRIBUTES, 1), 2),
    ((F.OUTPUT_OPERAND_ALIASING,), 3),
    ((F.STATISTICS, 2), 2),
    ((F.COLLECTIVE_DEVICE_LIST, 2), 4),
    ((F.IOTA_DEVICE_LIST,), 4),
    ((F.MESH_DEVICE_LIST, 1, 1), 2),
    ((F.MESH_DEVICE_LIST, 1, 3), 2),
    ((F.MESH_DEVICE_LIST, 2, 2), 2),
    ((F.RESULT_ACCURACY, 2), 3),
]


@pytest.mark.parametrize(("path", "last"), LAST, ids=[str(path) for path, _ in LAST])
def test_what_follows_the_last_field_is_unknown(path: tuple[int, ...], last: int):
    assert unknown_field(nested((*path, last)), INSTRUCTION) == ""
    after = (*path, last + 1)
    assert unknown_field(nested(after), INSTRUCTION) == ".".join(map(str, after))


def nested(path: tuple[int, ...]) -> Message:
    """An instruction with one number, inside of the messages that a path names."""
    data = wire.integer(path[-1], 1)
    for number in reversed(path[:-1]):
        data = wire.delimited(number, data)
    return Message(data)
