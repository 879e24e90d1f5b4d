"""The attributes of HLO text and the protobuf fields behind them, one table for both directions.

An attribute whose value is the name of something else in the text (a computation, an instruction)
is not here: the parser and the printer look those up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import DotField, GatherField, InstructionField, ScatterField
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text import attribute_values as values
from graphgen.lowering.hlo.text.attribute_values import (
    BadAttributeError,
    boolean_of,
    braces,
    integer_of,
    numbers,
    quoted,
    unquoted,
)

F = InstructionField


@dataclass(frozen=True, slots=True)
class TextAttr:
    """One attribute.

    Attributes:
        name: as written in the text.
        field: the field of the instruction it is in.
        read: the field's bytes, or those inside its message, from the text of the value.
        show: the text of the value in this instruction; empty where it is not said.
        inside: whether ``read`` gives a part of the message in ``field``, which others share.
        only: the opcodes it is printed for; empty for all that have the field.
    """

    name: str
    field: int
    read: Callable[[str], bytes]
    show: Callable[[Message], str]
    inside: bool = False
    only: tuple[str, ...] = ()


def _ints(name: str, field: int, *only: str) -> TextAttr:
    def read(text: str) -> bytes:
        return wire.integers(field, numbers(text))

    def show(i: Message) -> str:
        return braces(i.integers(field)) if i.has(field) or only else ""

    return TextAttr(name, field, read, show, only=only)


def _int(name: str, field: int, *only: str) -> TextAttr:
    def read(text: str) -> bytes:
        return wire.integer(field, integer_of(text))

    def show(i: Message) -> str:
        return str(i.integer(field)) if i.has(field) or only else ""

    return TextAttr(name, field, read, show, only=only)


def _bool(name: str, field: int) -> TextAttr:
    def read(text: str) -> bytes:
        return wire.integer(field, boolean_of(text))

    def show(i: Message) -> str:
        return "true" if i.boolean(field) else ""

    return TextAttr(name, field, read, show)


def _word(name: str, field: int) -> TextAttr:
    return TextAttr(name, field, lambda text: wire.text(field, text), lambda i: i.text(field))


def _string(name: str, field: int) -> TextAttr:
    def show(i: Message) -> str:
        return quoted(i.text(field)) if i.has(field) else ""

    return TextAttr(name, field, lambda text: wire.text(field, unquoted(text)), show)


def _choice(name: str, field: int, words: dict[str, int], *only: str) -> TextAttr:
    names = {value: word for word, value in words.items()}

    def read(text: str) -> bytes:
        if text not in words:
            raise BadAttributeError(f"'{text}' is none of {', '.join(words)}")
        return wire.integer(field, words[text])

    def show(i: Message) -> str:
        value = i.integer(field)
        return names.get(value, str(value)) if i.has(field) or only else ""

    return TextAttr(name, field, read, show, only=only)


def _part(
    name: str, field: int, number: int, *only: str, one: bool = False, always: bool = False
) -> TextAttr:
    """A list, or one number, inside the message in ``field``."""

    def read(text: str) -> bytes:
        values = numbers(text)
        return wire.integer(number, integer_of(text)) if one else wire.integers(number, values)

    def show(i: Message) -> str:
        inner = i.message(field)
        if inner is None or not (always or inner.has(number)):
            return ""
        return str(inner.integer(number)) if one else braces(inner.integers(number))

    return TextAttr(name, field, read, show, inside=True, only=only)


def _flag(name: str, field: int, number: int, *only: str) -> TextAttr:
    """A truth inside the message in ``field``."""

    def read(text: str) -> bytes:
        return wire.integer(number, boolean_of(text))

    def show(i: Message) -> str:
        inner = i.message(field)
        return "true" if inner is not None and inner.boolean(number) else ""

    return TextAttr(name, field, read, show, inside=True, only=only)


def _transposed(name: str, field: int, number: int) -> TextAttr:
    def read(text: str) -> bytes:
        if text not in _TRANSPOSE:
            raise BadAttributeError(f"'{text}' is none of {', '.join(_TRANSPOSE)}")
        return wire.integer(number, _TRANSPOSE[text])

    def show(i: Message) -> str:
        inner = i.message(field)
        value = inner.integer(number) if inner is not None else 0
        return next((word for word, known in _TRANSPOSE.items() if known == value), "")

    return TextAttr(name, field, read, show, inside=True)


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


def _show_dimensions(i: Message) -> str:
    code = i.text(F.OPCODE)
    said = code != "iota" and (i.has(F.DIMENSIONS) or code in _DIMENSIONED)
    return braces(i.integers(F.DIMENSIONS)) if said else ""


def _api_version() -> TextAttr:
    """Of a custom call: what the text leaves out is the original version, not an unset one."""
    row = _choice("api_version", F.CUSTOM_CALL_API_VERSION, _API, "custom-call")

    def show(i: Message) -> str:
        return "" if i.integer(row.field) == ORIGINAL_API else row.show(i)

    return TextAttr(row.name, row.field, row.read, show, only=row.only)


# In the order they are printed.
ATTRS: tuple[TextAttr, ...] = (
    _int("index", F.TUPLE_INDEX, "get-tuple-element"),
    _int("channel_id", F.CHANNEL_ID),
    TextAttr("replica_groups", F.REPLICA_GROUPS, values.parse_groups, values.show_groups),
    TextAttr(
        "source_target_pairs",
        F.SOURCE_TARGET_PAIRS,
        values.parse_pairs,
        values.show_pairs,
        only=("collective-permute",),
    ),
    _bool("use_global_device_ids", F.USE_GLOBAL_DEVICE_IDS),
    TextAttr("dimensions", F.DIMENSIONS, _ints("dimensions", F.DIMENSIONS).read, _show_dimensions),
    TextAttr(
        "iota_dimension",
        F.DIMENSIONS,
        lambda text: wire.integers(F.DIMENSIONS, [integer_of(text)]),
        lambda i: str(next(iter(i.integers(F.DIMENSIONS)), 0)),
        only=("iota",),
    ),
    TextAttr("slice", F.SLICES, values.parse_slices, values.show_slices, only=("slice",)),
    _ints("dynamic_slice_sizes", F.DYNAMIC_SLICE_SIZES, "dynamic-slice"),
    TextAttr("padding", F.PADDING, values.parse_padding, values.show_padding, only=("pad",)),
    TextAttr("window", F.WINDOW, values.parse_window, values.show_window),
    TextAttr("dim_labels", F.CONVOLUTION, values.parse_dim_labels, values.show_dim_labels),
    _int("feature_group_count", F.FEATURE_GROUP_COUNT),
    _int("batch_group_count", F.BATCH_GROUP_COUNT),
    _word("direction", F.COMPARISON_DIRECTION),
    _word("type", F.COMPARISON_TYPE),
    _part("lhs_batch_dims", F.DOT, DotField.LHS_BATCH),
    _part("lhs_contracting_dims", F.DOT, DotField.LHS_CONTRACTING),
    _part("rhs_batch_dims", F.DOT, DotField.RHS_BATCH),
    _part("rhs_contracting_dims", F.DOT, DotField.RHS_CONTRACTING),
    _part("offset_dims", F.GATHER, GatherField.OFFSET_DIMS, always=True),
    _part("collapsed_slice_dims", F.GATHER, GatherField.COLLAPSED_SLICE_DIMS, always=True),
    _part("start_index_map", F.GATHER, GatherField.START_INDEX_MAP, always=True),
    _part("operand_batching_dims", F.GATHER, GatherField.OPERAND_BATCHING_DIMS),
    _part("start_indices_batching_dims", F.GATHER, GatherField.START_INDICES_BATCHING_DIMS),
    _part("index_vector_dim", F.GATHER, GatherField.INDEX_VECTOR_DIM, one=True, always=True),
    _ints("slice_sizes", F.GATHER_SLICE_SIZES, "gather"),
    _part("update_window_dims", F.SCATTER, ScatterField.UPDATE_WINDOW_DIMS, always=True),
    _part("inserted_window_dims", F.SCATTER, ScatterField.INSERTED_WINDOW_DIMS, always=True),
    _part("scatter_dims_to_operand_dims", F.SCATTER, ScatterField.TO_OPERAND_DIMS, always=True),
    _part("input_batching_dims", F.SCATTER, ScatterField.INPUT_BATCHING_DIMS),
    _part("scatter_indices_batching_dims", F.SCATTER, ScatterField.SCATTER_INDICES_BATCHING_DIMS),
    _part("index_vector_dim", F.SCATTER, ScatterField.INDEX_VECTOR_DIM, one=True, always=True),
    _bool("indices_are_sorted", F.INDICES_ARE_SORTED),
    _bool("unique_indices", F.UNIQUE_INDICES),
    _bool("is_stable", F.IS_STABLE),
    _int("exponent_bits", F.EXPONENT_BITS, "reduce-precision"),
    _int("mantissa_bits", F.MANTISSA_BITS, "reduce-precision"),
    _int("feature_index", F.FEATURE_INDEX),
    _int("k", F.K),
    _bool("largest", F.LARGEST),
    _int("delta", F.DELTA),
    _choice("distribution", F.DISTRIBUTION, _RNG),
    _choice("algorithm", F.RNG_ALGORITHM, _RNG_ALGORITHMS, "rng-bit-generator"),
    _choice("fft_type", F.FFT_TYPE, _FFT, "fft"),
    _ints("fft_length", F.FFT_LENGTH),
    _word("kind", F.FUSION_KIND),
    _flag("lower", F.CHOLESKY, 1, "cholesky"),
    _flag("left_side", F.TRIANGULAR_SOLVE, 1, "triangular-solve"),
    _flag("lower", F.TRIANGULAR_SOLVE, 2, "triangular-solve"),
    _flag("unit_diagonal", F.TRIANGULAR_SOLVE, 3, "triangular-solve"),
    _transposed("transpose_a", F.TRIANGULAR_SOLVE, 4),
    _string("custom_call_target", F.CUSTOM_CALL_TARGET),
    _bool("custom_call_has_side_effect", F.CUSTOM_CALL_HAS_SIDE_EFFECT),
    _api_version(),
    _choice("schedule", F.CUSTOM_CALL_SCHEDULE, _SCHEDULES),
    _bool("constrain_layout", F.CONSTRAIN_LAYOUT),
    _bool("is_composite", F.IS_COMPOSITE),
    TextAttr(
        "output_to_operand_aliasing",
        F.OUTPUT_OPERAND_ALIASING,
        values.parse_aliasing,
        values.show_aliasing,
    ),
    TextAttr("operand_precision", F.PRECISION, values.parse_precision, values.show_precision),
    TextAttr("sharding", F.SHARDING, values.parse_sharding, values.show_sharding),
    TextAttr(
        "frontend_attributes",
        F.FRONTEND_ATTRIBUTES,
        lambda text: wire.delimited(F.FRONTEND_ATTRIBUTES, values.parse_map(text)),
        lambda i: values.show_map(i.message(F.FRONTEND_ATTRIBUTES)),
    ),
    TextAttr("metadata", F.METADATA, values.parse_metadata, values.show_metadata),
    TextAttr("backend_config", F.BACKEND_CONFIG, values.parse_config, values.show_config),
)

# In front of the name of an attribute of a text that has no row, kept among the front end's.
UNKNOWN_ATTRIBUTE = "hlo_text."
# What a text may say besides, and no reader of ours asks for.
IGNORED = frozenset(
    (
        *("async_execution_thread", "execution_thread", "operand_layout_constraints", "origin"),
        *("original_value", "parameter_replication", "result_accuracy", "statistics"),
    )
)


def attr_named(name: str, code: str) -> TextAttr | None:
    """The row for an attribute of an instruction; two opcodes may mean two things by one name."""
    rows = [row for row in ATTRS if row.name == name]
    if name == "index_vector_dim":
        return rows[1] if code == "scatter" else rows[0]
    return next((row for row in rows if code in row.only), rows[0] if rows else None)
