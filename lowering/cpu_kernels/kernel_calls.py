"""Calls of kernels as custom calls of XLA, where the kernels are there.

``select-kernels`` leaves a ``call`` of a function with the name of a kernel. Here it becomes a
``custom_call`` with the typed interface of XLA's FFI, row-major layouts and the settings as a
dictionary; without the kernels it stays a call of the function, which computes the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import cast

from graphgen.analysis import called
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, TensorType
from graphgen.ir.clone import Cloner
from graphgen.json_value import parse_json
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.hlo_proto.shape import HloShape, write_shape
from graphgen.ops import make_attrs
from graphgen.ops.control import kernel_of
from graphgen.ops.custom_calls import NKI

# XLA's API_VERSION_TYPED_FFI.
_TYPED = 4
# Kernels whose result is written into the memory of an operand, by its number.
_IN_PLACE = {"graphgen.cache_write": 0}
# Field of XLA's OutputOperandAliasing; those of places within tuples stay empty.
_ALIAS_OPERAND = 2


def with_custom_calls(
    module: Module, function: Function, targets: Collection[str]
) -> tuple[Module, Function]:
    """The module with custom calls of the kernels among ``targets``; itself if it has none.

    Args:
        module: at level ``target``; left as it is.
        function: the program that is compiled.
        targets: names of the custom calls that are there. Kernels in NKI are called as functions.
    """
    every = [*called(module, function), function]
    changed = {*targets, NKI}
    if not any(kernel_of(op) in changed for each in every for op in each.block):
        return module, function
    made = Module(module.name, module.level, dict(module.mesh), {}, dict(module.interface))
    for each in every:
        copy = Function(each.name, each.phase, dict(each.dims))
        _CustomCalls(targets).function(each, copy)
        made.add(copy)
    return made, made.function(function.name)


class _CustomCalls(Cloner):
    def __init__(self, targets: Collection[str]) -> None:
        super().__init__()
        self.targets = targets

    def detached(self, op: Op, operands: object = None) -> Op:
        kernel = kernel_of(op)
        if kernel == NKI:
            copy = super().detached(op)
            attrs = {"to_apply": op.attrs.text("to_apply"), "results": op.attrs.types("results")}
            copy.attrs = make_attrs("call", attrs)
            return copy
        if kernel not in self.targets:
            return super().detached(op)
        values = tuple([self.mapping[value] for value in op.operands])
        attrs = make_attrs(
            "custom_call",
            {
                "target": kernel,
                "config": settings_text(op.attrs.text("config")),
                "fields": _fields([value.type for value in values], _IN_PLACE.get(kernel)),
                "results": op.attrs.types("results"),
            },
        )
        types = [result.type for result in op.results]
        copy = Op("custom_call", values, types, attrs, op.loc, self.result_names(op))
        self.mapping.update(zip(op.results, copy.results, strict=True))
        return copy


def _fields(operands: Collection[TensorType], in_place: int | None) -> str:
    """The typed interface, row-major operands and the alias, as fields of HLO's instruction."""
    out = wire.integer(F.CONSTRAIN_LAYOUT, 1)
    for type_ in operands:
        order = tuple(reversed(range(type_.rank)))
        shape = write_shape(HloShape(type_.dtype.name, type_.dims, (), order))
        out += wire.delimited(F.OPERAND_SHAPES_WITH_LAYOUT, shape)
    if in_place is not None:
        out += wire.delimited(F.OUTPUT_OPERAND_ALIASING, wire.integer(_ALIAS_OPERAND, in_place))
    return (out + wire.integer(F.CUSTOM_CALL_API_VERSION, _TYPED)).hex()


def settings_text(config: str) -> str:
    """The settings of a kernel, a JSON object, as MLIR's dictionary: integers are i64, floats f32.

    Raises:
        GraphgenError: GG0401 for a value of another kind.
    """
    try:
        found = parse_json(config or "{}")
    except ValueError as error:
        what = f"the settings of a kernel are not JSON: {error}"
        raise GraphgenError("GG0401", what) from error
    if not isinstance(found, dict):
        raise GraphgenError("GG0401", "the settings of a kernel are not a JSON object")
    settings = cast("Mapping[str, object]", found)
    return (
        "{" + ", ".join(f"{key} = {_setting(key, value)}" for key, value in settings.items()) + "}"
    )


def _setting(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"{value:.9e} : f32"
    if isinstance(value, str):
        return json.dumps(value)
    raise GraphgenError("GG0401", f"a kernel's setting {key} is {value!r}, not a number or a word")
