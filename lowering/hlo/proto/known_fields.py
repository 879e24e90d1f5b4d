"""Fields of HLO protobufs that HLO text has a form for, message by message.

A table maps a field to the table of its message, or to nothing where it is a number or a text.
Fields outside of the tables are unknown; :func:`unknown_field` finds one at any depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphgen.lowering.hlo.proto.fields import (
    ComputationField,
    ConfigField,
    InstructionField,
    ModuleField,
)
from graphgen.lowering.hlo.proto.fields import RareField as R
from graphgen.lowering.hlo.proto.wire import Message

Known: TypeAlias = Mapping[int, "Known | None"]
F = InstructionField


def _numbers(*last: int, **_: int) -> dict[int, Known | None]:
    return dict.fromkeys(range(1, last[0] + 1))


_METADATA: Known = dict.fromkeys((1, 2, 3, 4, 5, 8, 9, 12, 15, 16, 17, 18, 19))
_LAYOUT: Known = {**dict.fromkeys((1, 7, 8, 9, 11, 12, 13, 14, 15, 16)), 6: {1: None},
                  17: {1: None, 2: None}}  # fmt: skip
_SHAPE: dict[int, Known | None] = {2: None, 3: None, 5: _LAYOUT, 6: None}
_SHAPE[4] = _SHAPE
_LITERAL: dict[int, Known | None] = {
    **dict.fromkeys(range(2, 37)), 1: _SHAPE,
}  # fmt: skip
_LITERAL[10] = _LITERAL
# Sizes of dynamic literals and indices of sparse ones.
del _LITERAL[14], _LITERAL[34]
_SHARDING: dict[int, Known | None] = {
    **dict.fromkeys((1, 3, 4, 6, 8, 9, 10, 11, 12, 13)), 7: _METADATA,
}  # fmt: skip
_SHARDING[5] = _SHARDING
_MAP: Known = {1: {1: None, 2: None}}
_DOT = _numbers(4)
_IOTA_GROUPS = _numbers(4)
_ORIGINAL: Known = {1: {1: None, 2: {1: None, 2: None}}, 2: None}

# HloInstructionProto.
INSTRUCTION: Known = {
    **dict.fromkeys(
        (
            *(F.NAME, F.OPCODE, F.PARAMETER_NUMBER, F.FUSION_KIND, F.TUPLE_INDEX, F.DIMENSIONS),
            *(F.EXPONENT_BITS, F.MANTISSA_BITS, F.DYNAMIC_SLICE_SIZES, F.DISTRIBUTION, F.EPSILON),
            *(F.FEATURE_INDEX, F.CHANNEL_ID, F.CUSTOM_CALL_TARGET, F.FFT_TYPE, F.FFT_LENGTH, F.ID),
            *(F.GATHER_SLICE_SIZES, F.OPERAND_IDS, F.CONTROL_PREDECESSOR_IDS, F.CALLED_IDS),
            *(F.BACKEND_CONFIG, F.FEATURE_GROUP_COUNT, F.CONSTRAIN_LAYOUT, F.BATCH_GROUP_COUNT),
            *(F.IS_STABLE, F.COMPARISON_DIRECTION, F.CUSTOM_CALL_HAS_SIDE_EFFECT, F.DELTA),
            *(F.INDICES_ARE_SORTED, F.UNIQUE_INDICES, F.RNG_ALGORITHM, F.USE_GLOBAL_DEVICE_IDS),
            *(F.COMPARISON_TYPE, F.CUSTOM_CALL_SCHEDULE, F.CUSTOM_CALL_API_VERSION, F.K),
            *(F.LARGEST, F.IS_COMPOSITE, R.OUTFEED_CONFIG, R.INFEED_CONFIG, R.IS_HOST_TRANSFER),
            *(R.PADDING_TYPE, R.ASYNC_EXECUTION_THREAD, R.CROSS_PROGRAM_PREFETCH_INDEX),
            *(R.IS_REVERSE, R.NUM_CARRIES, R.IS_ASSOCIATIVE),
        )
    ),
    F.SHAPE: _SHAPE,
    F.METADATA: _METADATA,
    F.LITERAL: _LITERAL,
    F.WINDOW: {1: _numbers(7)},
    F.CONVOLUTION: dict.fromkeys((3, 4, 6, 7, 8, 9, 10, 11, 12)),
    F.SLICES: _numbers(3),
    F.PADDING: {1: _numbers(3)},
    R.OUTFEED_SHAPE: _SHAPE,
    F.DOT: _DOT,
    R.RAGGED_DOT: {1: _DOT, 2: None, 3: None},
    F.GATHER: _numbers(6),
    F.SHARDING: _SHARDING,
    F.SCATTER: _numbers(6),
    F.REPLICA_GROUPS: {1: None},
    F.PRECISION: _numbers(2),
    F.SOURCE_TARGET_PAIRS: _numbers(2),
    R.DOMAIN_ENTRY_SHARDING: _SHARDING,
    R.DOMAIN_EXIT_SHARDING: _SHARDING,
    F.OPERAND_SHAPES_WITH_LAYOUT: _SHAPE,
    F.TRIANGULAR_SOLVE: _numbers(4),
    F.PARAMETER_REPLICATION: {1: None},
    F.CHOLESKY: {1: None},
    F.FRONTEND_ATTRIBUTES: _MAP,
    F.OUTPUT_OPERAND_ALIASING: _numbers(3),
    F.STATISTICS: {1: None, 2: {1: None, 2: None}},
    F.COLLECTIVE_DEVICE_LIST: {1: {1: None}, 2: _IOTA_GROUPS},
    F.IOTA_DEVICE_LIST: _IOTA_GROUPS,
    F.ORIGINAL_VALUE: _ORIGINAL,
    F.RESULT_ACCURACY: {1: None, 2: _numbers(3)},
}
_PROGRAM_SHAPE: Known = {1: _SHAPE, 2: _SHAPE, 3: None}
# HloComputationProto; its instructions are looked at one by one.
COMPUTATION: Known = {
    **dict.fromkeys(
        (
            *(ComputationField.NAME, ComputationField.INSTRUCTIONS, ComputationField.ID),
            *(ComputationField.ROOT_ID, ComputationField.IS_FUSION),
            ComputationField.EXECUTION_THREAD,
        )
    ),
    ComputationField.PROGRAM_SHAPE: _PROGRAM_SHAPE,
}
# HloModuleProto; so are its computations.
MODULE: Known = {
    **dict.fromkeys(
        (
            *(ModuleField.NAME, ModuleField.ENTRY_NAME, ModuleField.COMPUTATIONS, ModuleField.ID),
            *(ModuleField.ENTRY_ID, ModuleField.IS_DYNAMIC, ModuleField.AUTO_SPMD),
            ModuleField.PJRT_ID,
        )
    ),
    ModuleField.PROGRAM_SHAPE: _PROGRAM_SHAPE,
    ModuleField.SCHEDULE: {1: {1: None, 2: {1: None}}},
    ModuleField.ALIAS: {1: _numbers(4)},
    ModuleField.OUTPUT_SHARDING: _SHARDING,
    ModuleField.PARAMETER_SHARDINGS: _SHARDING,
    ModuleField.STACK_FRAMES: {1: None, 2: None, 3: _numbers(6), 4: _numbers(2)},
    ModuleField.DONORS: {1: _numbers(2)},
    ModuleField.FRONTEND_ATTRIBUTES: _MAP,
    ModuleField.CONFIG: {ConfigField.REPLICA_COUNT: None, ConfigField.NUM_PARTITIONS: None},
    ModuleField.TEXT_ATTRIBUTES: _MAP,
}


def unknown_field(message: Message, known: Known) -> str:
    """The path of a field that is set and not known, ``41`` or ``7.3``; empty for none."""
    for number, values in message.fields.items():
        if number not in known:
            # The default value, or an empty message, says nothing.
            if any(value if isinstance(value, int) else value[1] > value[0] for value in values):
                return str(number)
            continue
        inner = known[number]
        if inner is None:
            continue
        for value in values:
            if isinstance(value, int):
                continue
            found = _inside(bytes(message.source[value[0] : value[1]]), inner)
            if found:
                return f"{number}.{found}"
    return ""


_seen: dict[tuple[int, bytes], str] = {}
_MOST_SEEN, _LONGEST = 1 << 14, 256


def _inside(data: bytes, known: Known) -> str:
    """:func:`unknown_field` of an encoded message; short ones, which repeat, are remembered."""
    key = (id(known), data)
    found = _seen.get(key)
    if found is None:
        found = unknown_field(Message(data), known)
        if len(data) < _LONGEST and len(_seen) < _MOST_SEEN:
            _seen[key] = found
    return found
