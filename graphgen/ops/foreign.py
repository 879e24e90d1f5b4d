"""Ops whose meaning lies outside of the IR: kernels of the target, and instructions of others."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType
from graphgen.ops.opdef import Attr, define, require

RESULTS = Attr("results", "types")


def _stated(attrs: Attrs) -> tuple[TensorType, ...]:
    results = attrs.types("results")
    require(bool(results), "states no result")
    return results


@define("custom_call", "*operands", Attr("target", "string"), Attr("config", "string", ""), RESULTS)
def _custom_call(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """What the compiler of the target knows under this name; the result types are as stated.

    It is written into StableHLO and HLO, and cannot be evaluated.

    Example:
        %y = custom_call(%x) target="AwsNeuronGelu" results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("target")), "needs the name of a target")
    return _stated(attrs)


@define(
    "hlo.opaque",
    "*operands",
    Attr("opcode", "string"),
    Attr("fields", "string", ""),
    Attr("more", "string", ""),
    RESULTS,
)
def _opaque(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An HLO instruction that has no op here; the result types are as stated.

    ``fields`` and ``more`` are its own fields of the protobuf, before and behind the ids, in
    hexadecimal. It is printed, and written into HLO as it was; it cannot be evaluated.

    Example:
        %y = hlo.opaque(%x) opcode="erf-inv" results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("opcode")), "needs an opcode")
    for key in ("fields", "more"):
        digits = attrs.text(key)
        legal = len(digits) % 2 == 0 and all(digit in "0123456789abcdef" for digit in digits)
        require(legal, f"{key} are no bytes in hexadecimal")
    return _stated(attrs)
