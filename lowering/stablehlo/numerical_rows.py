"""Rows of linear systems, Fourier transforms and random bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Op, Value
from graphgen.lowering.decompose import BatchNorm
from graphgen.lowering.mlir.mlir_types import read_tensor_type, type_text
from graphgen.lowering.mlir.syntax_tree import MlirOp, word_of
from graphgen.lowering.stablehlo.op_row import (
    StableHloField,
    StableHloRow,
    UnmodelledForm,
    hint,
    integer_of,
    integers,
    list_text,
    local,
    result_type,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.ops import InferError

_PREFIX: Final = "stablehlo.batch_norm_"


def _read(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    epsilon = node.attrs.get("epsilon")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise GraphgenError("GG0104", f"{node.name} needs the number 'epsilon'")
    if not x:
        raise GraphgenError("GG0105", f"{node.name} has no operand")
    feature = integer_of(node, "feature_index")
    norm = BatchNorm(to.emit, x[0].type, feature, float(epsilon))
    try:
        return norm.read(node.name.removeprefix(_PREFIX), x)
    except InferError as error:
        raise GraphgenError("GG0105", f"{node.name}: {error}") from error


BATCH_NORM_ROWS: Final[Sequence[StableHloRow]] = tuple(
    [
        StableHloRow("", f"{_PREFIX}{name}", form="generic", read=_read)
        for name in ("training", "inference", "grad")
    ]
)


# Names of algorithms: those of HLO begin with this.
_RNG: Final = "rng_"


def _boolean(key: str, short: str = "") -> StableHloField:
    """A truth value, which the assembly form has as a word."""

    def value(node: MlirOp) -> bool:
        found = node.attrs.get(key, False)
        if found not in (True, False, "true", "false"):
            raise GraphgenError("GG0104", f"{node.name}: '{key}' is not true or false")
        return found in (True, "true")

    return StableHloField(
        key,
        short,
        lambda node: {key: value(node)},
        lambda attrs: "true" if attrs[key] is True else "false",
    )


def _word(attr: str, key: str, short: str, kind: str) -> StableHloField:
    """One of several words: ``#stablehlo<kind WORD>`` in the generic form."""

    def show(attrs: Attrs) -> str:
        word = attrs.text(attr)
        return word if short else f"#stablehlo<{kind} {word}>"

    return StableHloField(key, short, lambda node: {attr: word_of(node.attrs.get(key))}, show)


def _algorithm() -> StableHloField:
    key = "rng_algorithm"
    return StableHloField(
        key,
        "algorithm",
        lambda node: {"algorithm": _RNG + word_of(node.attrs.get(key)).lower()},
        lambda attrs: attrs.text("algorithm").removeprefix(_RNG).upper(),
    )


def _read_random(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read the type of the bits from the second result."""
    if len(node.types) != 2:
        raise UnmodelledForm(f"random bits of {len(node.types)} results")
    made = read_tensor_type(node.types[1])
    algorithm = _RNG + word_of(node.attrs.get("rng_algorithm")).lower()
    attrs = {"algorithm": algorithm, "dtype": made.dtype, "shape": made.shape}
    return [*to.emit_all("rng_bit_generator", x, **attrs)]


def _emit_rng(op: Op, out: str, x: Sequence[str]) -> str:
    """Write the shape as a constant."""
    sizes = op.result.type.dims
    value, name = f"tensor<{len(sizes)}xi64>", local(out, "shape")
    items = f"dense<{list_text(sizes)}>" if sizes else "dense<>"
    kind = op.attrs.text("distribution").removeprefix(_RNG).upper()
    scalar = type_text(op.operands[0].type)
    return (
        f"{name} = stablehlo.constant {items} : {value}\n    "
        f"{out} = stablehlo.rng {', '.join(x)}, {name}, distribution = {kind} : "
        f"({scalar}, {scalar}, {value}) -> {type_text(op.result.type)}"
    )


def _read_rng(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read the shape from the type of the result."""
    made = result_type(node)
    if len(x) != 3:
        raise GraphgenError("GG0105", f"{node.name} takes 3 operands, got {len(x)}")
    to.idle(x[2])
    kind = _RNG + word_of(node.attrs.get("rng_distribution")).lower()
    return [to.emit("rng", x[:2], distribution=kind, dtype=made.dtype, shape=made.shape)]


NUMERICAL_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow(
        "triangular_solve",
        "stablehlo.triangular_solve",
        (
            _boolean("left_side"),
            _boolean("lower"),
            _word("transpose_a", "transpose_a", "", "transpose"),
            _boolean("unit_diagonal"),
        ),
        form="generic",
    ),
    StableHloRow("cholesky", "stablehlo.cholesky", (_boolean("lower", "lower"),), form="result"),
    StableHloRow(
        "fft",
        "stablehlo.fft",
        (_word("fft_type", "fft_type", "type", "fft_type"), integers("fft_length", short="length")),
    ),
    StableHloRow(
        "rng_bit_generator",
        "stablehlo.rng_bit_generator",
        (_algorithm(),),
        read=_read_random,
    ),
    StableHloRow(
        "rng",
        "stablehlo.rng",
        (hint("rng_distribution", "distribution"),),
        emit=_emit_rng,
        read=_read_rng,
    ),
)
