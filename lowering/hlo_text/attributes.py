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
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    DotField,
    GatherField,
    InstructionField,
    PaddingField,
    RareField,
    ScatterField,
    WindowField,
)
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text import attribute_values as values
from graphgen.lowering.hlo_text import opaque_values
from graphgen.lowering.hlo_text.attribute_values import (
    ABOVE_ONE,
    BOOLEAN,
    BOOLEANS,
    BYTES,
    EXPLICIT,
    FLOAT,
    INTEGER,
    INTEGERS,
    SHAPE,
    SINGLE,
    STRING,
    TRUTH,
    WORD,
    ValueKind,
    choice,
)
from graphgen.lowering.hlo_text.opaque_values import UNKNOWN_ATTRIBUTE as UNKNOWN_ATTRIBUTE

F = InstructionField
R = RareField
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
    name: str,
    field: int,
    kind: ValueKind[T],
    *only: str,
    inner: int = 0,
    outer: int = 0,
    always: bool | None = None,
) -> HloAttribute:
    """A row of values of one kind.

    Args:
        name: as written in the text.
        field: of the instruction.
        kind: of its values.
        only: see :class:`HloAttribute`.
        inner: the field inside the message in ``field``; 0 if ``field`` itself has the value.
        outer: the message in ``field`` that holds ``inner``; 0 if ``field`` is that message.
        always: printed also where the field, or the inner one, is not set; by default that is so
            for attributes of certain opcodes.
    """
    number = inner or field
    always = bool(only) if always is None else always

    def holder(i: Message) -> Message | None:
        found = i.message(field) if inner else i
        return found.message(outer) if found and outer else found

    def decode(i: Message) -> T:
        return kind.decode(holder(i) or _NOTHING, number)

    def show(i: Message) -> str:
        found = holder(i)
        if found is None or not (always or found.has(number)):
            return ""
        return kind.show(kind.decode(found, number))

    def encode(value: T) -> bytes:
        data = kind.encode(number, value)
        return wire.delimited(outer, data) if outer else data

    return HloAttribute(
        name,
        field,
        inner > 0,
        only,
        lambda text: encode(kind.parse(text)),
        show,
        lambda value: encode(cast("T", value)),
        cast("Callable[[Message], AttrValue]", decode),
    )


def _parts(
    field: int, *only: str, outer: int = 0, always: bool = False, **inner: int
) -> list[HloAttribute]:
    """Rows of integers, each in a field of its own inside the message in ``field``."""
    return [
        _row(name, field, INTEGERS, *only, inner=number, outer=outer, always=always)
        for name, number in inner.items()
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
_DOT_ALGORITHMS = {
    name: number
    for number, name in enumerate(
        (
            *("dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16"),
            *("dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32"),
            *("dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32"),
            *("dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64"),
            "dot_bf16_bf16_f32_x9",
        ),
        1,
    )
}
_PADDING_TYPES = {"PADDING_INVALID": 0, "PADDING_VALID": 1, "PADDING_SAME": 2}
_TRI_STATE = {"TRI_STATE_UNSPECIFIED": 0, "true": 1, "false": 2}
_FFT = {"FFT": 0, "IFFT": 1, "RFFT": 2, "IRFFT": 3}
_TRANSPOSE = {"NO_TRANSPOSE": 1, "TRANSPOSE": 2, "ADJOINT": 3}
# Collectives that may insist on their layouts.
_LAID_OUT = (
    *("all-reduce", "all-reduce-start", "all-gather", "all-gather-start", "reduce-scatter"),
    *("all-to-all", "ragged-all-to-all", "collective-broadcast"),
)
_BATCH_NORMS = ("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
_PRECISE = ("dot", "scaled-dot", "convolution", "ragged-dot", "custom-call")
_RAGGED = ("ragged-dot",)
_RAGGED_DOT_DIMS = 1
# Instructions that have their dimensions in the text even where there are none.
_DIMENSIONED = ("broadcast", "reduce", "transpose", "concatenate")


def _dimensions() -> HloAttribute:
    """Dimensions of any instruction but those that print them by another name."""
    row = _row("dimensions", F.DIMENSIONS, INTEGERS, always=True)

    def show(i: Message) -> str:
        code = i.text(F.OPCODE)
        said = code not in ("iota", "reshape") and (i.has(F.DIMENSIONS) or code in _DIMENSIONED)
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
    _row(
        "source_target_pairs",
        F.SOURCE_TARGET_PAIRS,
        values.PAIRS,
        "collective-permute",
        "collective-permute-start",
    ),
    _row("use_global_device_ids", F.USE_GLOBAL_DEVICE_IDS, BOOLEAN),
    _dimensions(),
    _row("iota_dimension", F.DIMENSIONS, SINGLE, "iota"),
    _row("inferred_dimension", F.DIMENSIONS, SINGLE, "reshape", always=False),
    _row(
        "slice_sizes",
        F.DYNAMIC_SLICE_SIZES,
        opaque_values.SLICE_LISTS,
        "collective-permute",
        "collective-permute-start",
        always=False,
    ),
    _row("slice", F.SLICES, values.SLICES, "slice"),
    _row("dynamic_slice_sizes", F.DYNAMIC_SLICE_SIZES, INTEGERS, "dynamic-slice"),
    _row("padding", F.PADDING, values.PADDING, "pad", inner=PaddingField.DIMENSIONS),
    _row("window", F.WINDOW, values.WINDOW, inner=WindowField.DIMENSIONS),
    _row("dim_labels", F.CONVOLUTION, opaque_values.DIM_LABELS, always=True),
    _row("feature_group_count", F.FEATURE_GROUP_COUNT, ABOVE_ONE),
    _row("batch_group_count", F.BATCH_GROUP_COUNT, ABOVE_ONE),
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
        R.RAGGED_DOT,
        *_RAGGED,
        outer=_RAGGED_DOT_DIMS,
        lhs_batch_dims=DotField.LHS_BATCH,
        lhs_contracting_dims=DotField.LHS_CONTRACTING,
        rhs_batch_dims=DotField.RHS_BATCH,
        rhs_contracting_dims=DotField.RHS_CONTRACTING,
    ),
    *_parts(R.RAGGED_DOT, *_RAGGED, lhs_ragged_dims=2, rhs_group_dims=3),
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
    _row("epsilon", F.EPSILON, FLOAT, *_BATCH_NORMS),
    _row("feature_index", F.FEATURE_INDEX, INTEGER, *_BATCH_NORMS),
    _row("k", F.K, INTEGER),
    _row("largest", F.LARGEST, TRUTH, "topk"),
    _row("delta", F.DELTA, INTEGER),
    _row("distribution", F.DISTRIBUTION, choice(_RNG)),
    _row("algorithm", F.RNG_ALGORITHM, choice(_RNG_ALGORITHMS), "rng-bit-generator"),
    _row("algorithm", F.PRECISION, choice(_DOT_ALGORITHMS), *_PRECISE, inner=2, always=False),
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
    _row("constrain_layout", F.CONSTRAIN_LAYOUT, BOOLEAN, *_LAID_OUT, always=False),
    _row("is_composite", F.IS_COMPOSITE, BOOLEAN),
    _row(
        "output_to_operand_aliasing", F.OUTPUT_OPERAND_ALIASING, opaque_values.ALIASING, always=True
    ),
    _row(
        "operand_layout_constraints",
        F.OPERAND_SHAPES_WITH_LAYOUT,
        opaque_values.OPERAND_LAYOUTS,
        "custom-call",
    ),
    _row("padding_type", R.PADDING_TYPE, choice(_PADDING_TYPES)),
    _row("literal", F.LITERAL, opaque_values.LITERAL, "custom-call", always=False),
    _row("is_host_transfer", R.IS_HOST_TRANSFER, BOOLEAN),
    _row("infeed_config", R.INFEED_CONFIG, BYTES),
    _row("outfeed_config", R.OUTFEED_CONFIG, BYTES),
    _row("outfeed_shape", R.OUTFEED_SHAPE, SHAPE, "outfeed", always=False),
    _row(
        "cross_program_prefetch_index",
        R.CROSS_PROGRAM_PREFETCH_INDEX,
        EXPLICIT,
        "copy-start",
        always=False,
    ),
    _row("is_reverse", R.IS_REVERSE, BOOLEAN),
    _row("num_carries", R.NUM_CARRIES, INTEGER),
    _row("is_associative", R.IS_ASSOCIATIVE, choice(_TRI_STATE)),
    _row("domain", R.DOMAIN_ENTRY_SHARDING, opaque_values.DOMAIN, "domain"),
    _row("async_execution_thread", R.ASYNC_EXECUTION_THREAD, STRING, "async-start"),
    _row("operand_precision", F.PRECISION, values.PRECISION, inner=1),
    _row("sharding", F.SHARDING, opaque_values.SHARDING),
    _row("parameter_replication", F.PARAMETER_REPLICATION, BOOLEANS, inner=1),
    _row("statistics", F.STATISTICS, opaque_values.STATISTICS),
    _row("origin", F.ORIGINAL_VALUE, opaque_values.ORIGIN),
    _row("result_accuracy", F.RESULT_ACCURACY, opaque_values.ACCURACY),
    _row("frontend_attributes", F.FRONTEND_ATTRIBUTES, opaque_values.MAP),
    _row("metadata", F.METADATA, opaque_values.METADATA),
    _row("backend_config", F.BACKEND_CONFIG, opaque_values.CONFIG),
)

_STEPS = ("-start", "-update", "-done")
# Opcodes of their own that end like the short form of an asynchronous operation.
NATIVE = frozenset(
    (
        *("async-start", "async-update", "async-done", "copy-start", "copy-done"),
        *("all-gather-start", "all-gather-done", "all-reduce-start", "all-reduce-done"),
        *("collective-permute-start", "collective-permute-done", "send-done", "recv-done"),
    )
)


def inner_opcode(code: str) -> str:
    """``slice`` of ``slice-start``, a short form of an asynchronous operation; else ``code``."""
    return code.rpartition("-")[0] if code.endswith(_STEPS) and code not in NATIVE else code


def _by_name() -> dict[str, list[HloAttribute]]:
    found: dict[str, list[HloAttribute]] = {}
    for row in ATTRIBUTES:
        found.setdefault(row.name, []).append(row)
    return found


_NAMED = _by_name()


def attribute_named(name: str, code: str) -> HloAttribute | None:
    """The row of an attribute of an instruction; two opcodes may mean two things by one name."""
    rows = _NAMED.get(name, [])
    if name == "index_vector_dim":
        return rows[1] if code == "scatter" else rows[0]
    general = next((row for row in rows if not row.only), rows[0] if rows else None)
    return next((row for row in rows if code in row.only), general)
