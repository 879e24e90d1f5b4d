"""Attributes of HLO instructions: one row per attribute, for its text and its protobuf field.

The parser and the printer of text walk over the rows; the rows of ops in
:mod:`graphgen.lowering.hlo.dialect` name them. Attributes whose value is the name of something else
in the text (a computation, an instruction) have no row: the parser and the printer look those up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from graphgen.ir import AttrValue
from graphgen.lowering.hlo.proto.fields import (
    DotField,
    GatherField,
    InstructionField,
    ModuleField,
    PaddingField,
    ScatterField,
    WindowField,
)
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text import attribute_values as values
from graphgen.lowering.hlo.text import opaque_values
from graphgen.lowering.hlo.text.attribute_values import (
    BOOLEAN,
    INTEGER,
    INTEGERS,
    SINGLE,
    STRING,
    WORD,
    ValueKind,
    choice,
)

F = InstructionField
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HloAttribute:
    """One attribute.

    Attributes:
        name: as written in the text.
        field: the field of the instruction it is in.
        inside: whether it is a part of the message in ``field``, which other rows share.
        only: the opcodes it is printed for; empty for all that have the field.
        parse: text of the value -> the field, or the part of its message.
        show: instruction -> text of the value; empty where it is not printed.
        encode: value -> the field, or the part of its message.
        decode: instruction -> value, the default of its type where the field is not set.
    """

    name: str
    field: int
    inside: bool
    only: tuple[str, ...]
    parse: Callable[[str], bytes]
    show: Callable[[Message], str]
    encode: Callable[[AttrValue], bytes]
    decode: Callable[[Message], AttrValue]


_NOTHING = Message(b"")


def _row(
    name: str, field: int, kind: ValueKind[T], *only: str, inner: int = 0, always: bool = False
) -> HloAttribute:
    """A row of values of one kind.

    Args:
        name: as written in the text.
        field: of the instruction.
        kind: of its values.
        only: see :class:`HloAttribute`; for these it is printed also where the field is not set.
        inner: the field inside the message in ``field``; 0 if ``field`` itself has the value.
        always: printed also where the field, or the inner one, is not set.
    """
    number = inner or field

    def decode(i: Message) -> T:
        return kind.decode((i.message(field) or _NOTHING) if inner else i, number)

    def show(i: Message) -> str:
        holder = i.message(field) if inner else i
        if holder is None or not (always or only or holder.has(number)):
            return ""
        return kind.show(kind.decode(holder, number))

    return HloAttribute(
        name,
        field,
        inner > 0,
        only,
        lambda text: kind.encode(number, kind.parse(text)),
        show,
        lambda value: kind.encode(number, cast("T", value)),
        cast("Callable[[Message], AttrValue]", decode),
    )


def _parts(field: int, *, always: bool = False, **inner: int) -> list[HloAttribute]:
    """Rows of integers, each in a field of its own inside the message in ``field``."""
    return [
        _row(name, field, INTEGERS, inner=number, always=always) for name, number in inner.items()
    ]


_API = {
    "API_VERSION_UNSPECIFIED": 0,
    "API_VERSION_ORIGINAL": 1,
    "API_VERSION_STATUS_RETURNING": 2,
    "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
    "API_VERSION_TYPED_FFI": 4,
}
ORIGINAL_API = _API["API_VERSION_ORIGINAL"]
_SCHEDULES = {"SCHEDULE_NONE": 0, "SCHEDULE_LATEST": 1, "SCHEDULE_EARLIEST": 2}
_RNG = {"rng_invalid": 0, "rng_uniform": 1, "rng_normal": 2}
_RNG_ALGORITHMS = {"rng_default": 0, "rng_three_fry": 1, "rng_philox": 2}
_FFT = {"FFT": 0, "IFFT": 1, "RFFT": 2, "IRFFT": 3}
_TRANSPOSE = {"NO_TRANSPOSE": 1, "TRANSPOSE": 2, "ADJOINT": 3}
# Instructions that have their dimensions in the text even where there are none.
_DIMENSIONED = ("broadcast", "reduce", "transpose", "concatenate")


def _dimensions() -> HloAttribute:
    """Dimensions of any instruction but ``iota``, which prints them by another name."""
    row = _row("dimensions", F.DIMENSIONS, INTEGERS, always=True)

    def show(i: Message) -> str:
        code = i.text(F.OPCODE)
        said = code != "iota" and (i.has(F.DIMENSIONS) or code in _DIMENSIONED)
        return row.show(i) if said else ""

    return replace(row, show=show)


def _api_version() -> HloAttribute:
    """Of a custom call: what the text leaves out is the original version, not an unset one."""
    row = _row("api_version", F.CUSTOM_CALL_API_VERSION, choice(_API), "custom-call")

    def show(i: Message) -> str:
        return "" if i.integer(row.field) == ORIGINAL_API else row.show(i)

    return replace(row, show=show)


# In the order they are printed.
ATTRIBUTES: tuple[HloAttribute, ...] = (
    _row("index", F.TUPLE_INDEX, INTEGER, "get-tuple-element"),
    _row("channel_id", F.CHANNEL_ID, INTEGER),
    _row("replica_groups", F.REPLICA_GROUPS, values.GROUPS, always=True),
    _row("source_target_pairs", F.SOURCE_TARGET_PAIRS, values.PAIRS, "collective-permute"),
    _row("use_global_device_ids", F.USE_GLOBAL_DEVICE_IDS, BOOLEAN),
    _dimensions(),
    _row("iota_dimension", F.DIMENSIONS, SINGLE, "iota"),
    _row("slice", F.SLICES, values.SLICES, "slice"),
    _row("dynamic_slice_sizes", F.DYNAMIC_SLICE_SIZES, INTEGERS, "dynamic-slice"),
    _row("padding", F.PADDING, values.PADDING, "pad", inner=PaddingField.DIMENSIONS),
    _row("window", F.WINDOW, values.WINDOW, inner=WindowField.DIMENSIONS),
    _row("dim_labels", F.CONVOLUTION, opaque_values.DIM_LABELS, always=True),
    _row("feature_group_count", F.FEATURE_GROUP_COUNT, INTEGER),
    _row("batch_group_count", F.BATCH_GROUP_COUNT, INTEGER),
    _row("direction", F.COMPARISON_DIRECTION, WORD),
    _row("type", F.COMPARISON_TYPE, WORD),
    *_parts(
        F.DOT,
        lhs_batch_dims=DotField.LHS_BATCH,
        lhs_contracting_dims=DotField.LHS_CONTRACTING,
        rhs_batch_dims=DotField.RHS_BATCH,
        rhs_contracting_dims=DotField.RHS_CONTRACTING,
    ),
    *_parts(
        F.GATHER,
        always=True,
        offset_dims=GatherField.OFFSET_DIMS,
        collapsed_slice_dims=GatherField.COLLAPSED_SLICE_DIMS,
        start_index_map=GatherField.START_INDEX_MAP,
    ),
    *_parts(
        F.GATHER,
        operand_batching_dims=GatherField.OPERAND_BATCHING_DIMS,
        start_indices_batching_dims=GatherField.START_INDICES_BATCHING_DIMS,
    ),
    _row("index_vector_dim", F.GATHER, INTEGER, inner=GatherField.INDEX_VECTOR_DIM, always=True),
    _row("slice_sizes", F.GATHER_SLICE_SIZES, INTEGERS, "gather"),
    *_parts(
        F.SCATTER,
        always=True,
        update_window_dims=ScatterField.UPDATE_WINDOW_DIMS,
        inserted_window_dims=ScatterField.INSERTED_WINDOW_DIMS,
        scatter_dims_to_operand_dims=ScatterField.TO_OPERAND_DIMS,
    ),
    *_parts(
        F.SCATTER,
        input_batching_dims=ScatterField.INPUT_BATCHING_DIMS,
        scatter_indices_batching_dims=ScatterField.SCATTER_INDICES_BATCHING_DIMS,
    ),
    _row("index_vector_dim", F.SCATTER, INTEGER, inner=ScatterField.INDEX_VECTOR_DIM, always=True),
    _row("indices_are_sorted", F.INDICES_ARE_SORTED, BOOLEAN),
    _row("unique_indices", F.UNIQUE_INDICES, BOOLEAN),
    _row("is_stable", F.IS_STABLE, BOOLEAN),
    _row("exponent_bits", F.EXPONENT_BITS, INTEGER, "reduce-precision"),
    _row("mantissa_bits", F.MANTISSA_BITS, INTEGER, "reduce-precision"),
    _row("feature_index", F.FEATURE_INDEX, INTEGER),
    _row("k", F.K, INTEGER),
    _row("largest", F.LARGEST, BOOLEAN),
    _row("delta", F.DELTA, INTEGER),
    _row("distribution", F.DISTRIBUTION, choice(_RNG)),
    _row("algorithm", F.RNG_ALGORITHM, choice(_RNG_ALGORITHMS), "rng-bit-generator"),
    _row("fft_type", F.FFT_TYPE, choice(_FFT), "fft"),
    _row("fft_length", F.FFT_LENGTH, INTEGERS),
    _row("kind", F.FUSION_KIND, WORD),
    _row("lower", F.CHOLESKY, BOOLEAN, "cholesky", inner=1),
    _row("left_side", F.TRIANGULAR_SOLVE, BOOLEAN, "triangular-solve", inner=1),
    _row("lower", F.TRIANGULAR_SOLVE, BOOLEAN, "triangular-solve", inner=2),
    _row("unit_diagonal", F.TRIANGULAR_SOLVE, BOOLEAN, "triangular-solve", inner=3),
    _row("transpose_a", F.TRIANGULAR_SOLVE, choice(_TRANSPOSE, strict=True), inner=4, always=True),
    _row("custom_call_target", F.CUSTOM_CALL_TARGET, STRING),
    _row("custom_call_has_side_effect", F.CUSTOM_CALL_HAS_SIDE_EFFECT, BOOLEAN),
    _api_version(),
    _row("schedule", F.CUSTOM_CALL_SCHEDULE, choice(_SCHEDULES)),
    _row("constrain_layout", F.CONSTRAIN_LAYOUT, BOOLEAN),
    _row("is_composite", F.IS_COMPOSITE, BOOLEAN),
    _row(
        "output_to_operand_aliasing", F.OUTPUT_OPERAND_ALIASING, opaque_values.ALIASING, always=True
    ),
    _row("operand_precision", F.PRECISION, values.PRECISION, inner=1),
    _row("sharding", F.SHARDING, opaque_values.SHARDING, inner=1, always=True),
    _row("frontend_attributes", F.FRONTEND_ATTRIBUTES, opaque_values.MAP, always=True),
    _row("metadata", F.METADATA, opaque_values.METADATA, always=True),
    _row("backend_config", F.BACKEND_CONFIG, opaque_values.CONFIG),
)

# Attributes of a module, in the order they are printed; their fields are the module's.
MODULE_ATTRIBUTES: tuple[HloAttribute, ...] = (
    _row("input_output_alias", ModuleField.ALIAS, opaque_values.MODULE_ALIASES, always=True),
    _row("buffer_donor", ModuleField.DONORS, opaque_values.BUFFER_DONORS, always=True),
    _row("frontend_attributes", ModuleField.FRONTEND_ATTRIBUTES, opaque_values.MAP, always=True),
)

# Prefix of an attribute of a text that has no row, kept among the frontend attributes.
UNKNOWN_ATTRIBUTE = "hlo_text."
# Attributes of a text that no reader needs.
IGNORED = frozenset(
    (
        *("async_execution_thread", "execution_thread", "operand_layout_constraints", "origin"),
        *("original_value", "parameter_replication", "result_accuracy", "statistics"),
    )
)


def attribute_named(name: str, code: str) -> HloAttribute | None:
    """The row of an attribute of an instruction; two opcodes may mean two things by one name."""
    rows = [row for row in ATTRIBUTES if row.name == name]
    if name == "index_vector_dim":
        return rows[1] if code == "scatter" else rows[0]
    return next((row for row in rows if code in row.only), rows[0] if rows else None)
