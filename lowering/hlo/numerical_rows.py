"""Rows of linear systems, Fourier transforms and random bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.ir import AttrValue, Value
from graphgen.lowering.decompose import BatchNorm
from graphgen.lowering.hlo.op_builder import Tree
from graphgen.lowering.hlo.op_row import (
    HloField,
    HloInstruction,
    HloRow,
    attribute,
    read_attrs,
    read_fields,
    row,
)
from graphgen.lowering.hlo.unmodelled import ContradictionError, UnmodelledError, kept_if_unlike
from graphgen.ops import InferError

_PREFIX = "batch-norm-"


def _read(row: HloRow, i: HloInstruction) -> Tree:
    number = 0

    def emit(name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        nonlocal number
        i.to.part(f"{name}{number}")
        number += 1
        return i.to.emit(name, operands, **attrs)

    x = i.values
    if not x:
        raise UnmodelledError("it has no operand")
    epsilon, feature = (
        attribute(key, row.name).decode(i.message) for key in ("epsilon", "feature_index")
    )
    assert isinstance(epsilon, float)
    assert isinstance(feature, int)
    try:
        made = BatchNorm(emit, x[0].type, feature, epsilon).read(row.name.removeprefix(_PREFIX), x)
    except InferError as error:
        raise ContradictionError(str(error)) from error
    return tuple(made) if i.shape.is_tuple else made[0]


BATCH_NORM_ROWS: tuple[HloRow, ...] = tuple(
    [row("", name=f"{_PREFIX}{name}", read=_read) for name in ("training", "inference", "grad")]
)


def _word(attr: str, code: str) -> HloField:
    """An attribute that the IR has by the word of HLO's text, and the protobuf by its number."""
    found = attribute(attr, code)

    def number(value: AttrValue) -> bytes:
        return found.parse(str(value))

    named = replace(found, encode=number, decode=found.show)
    return HloField(attr, named, named.decode)


def _truth(attr: str, code: str) -> HloField:
    found = attribute(attr, code)
    return HloField(attr, found, lambda message: bool(found.decode(message)))


def _read_random(row: HloRow, i: HloInstruction) -> Tree:
    """The type of the bits is that of the second result."""
    if len(i.shape.members) != 2 or i.shape.members[1].is_tuple:
        raise UnmodelledError("it does not give a state and bits")
    made = i.shape.members[1].type
    attrs = read_attrs(row, i)
    return tuple(
        i.to.emit_all("rng_bit_generator", i.values, **attrs, dtype=made.dtype, shape=made.dims)
    )


def _read_loosely(row: HloRow, i: HloInstruction) -> Tree:
    """XLA takes lengths that are not the sizes, and bounds of another type."""
    with kept_if_unlike():
        return read_fields(row, i)


_SOLVE = "triangular-solve"
NUMERICAL_ROWS: tuple[HloRow, ...] = (
    row(
        "triangular_solve",
        *[_truth(key, _SOLVE) for key in ("left_side", "lower", "unit_diagonal")],
        _word("transpose_a", _SOLVE),
    ),
    row("cholesky", _truth("lower", "cholesky")),
    row("fft", _word("fft_type", "fft"), "fft_length", read=_read_loosely),
    row(
        "rng",
        _word("distribution", "rng"),
        inferred=("dtype", "shape"),
        read=_read_loosely,
    ),
    row("rng_bit_generator", _word("algorithm", "rng-bit-generator"), read=_read_random),
)
