"""Layers of a program: the ops of one numbered scope, their inputs, outputs and signature."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.analysis.layers import scope_of
from graphgen.ir import HELD_ROLES, Function, Module, Op, Role, Value

# The identity of an op, wherever it stands: equal keys of two layers mean equal bodies.
Key = tuple[object, ...]


@dataclass(slots=True, eq=False)
class LayerOps:
    """One layer of one program.

    Attributes:
        scope: e.g. ``model.layers.17``.
        ops: in program order, without the constants, which every body has of its own.
        inputs: values from outside, in order of first use.
        outputs: values that are read outside, in order.
        key: what the layer computes, apart from where its inputs come from.
    """

    scope: str
    ops: list[Op] = field(default_factory=list[Op])
    inputs: list[Value] = field(default_factory=list[Value])
    outputs: list[Value] = field(default_factory=list[Value])
    key: Key = ()


def portable(function: Function) -> dict[Value, Key]:
    """Values computed from no argument, with their keys: a body can compute them itself."""
    keys: dict[Value, Key] = {}
    for op in function.block:
        if all(value in keys for value in op.operands):
            base: Key = (op.name, op.attrs, *[keys[value] for value in op.operands])
            for result in op.results:
                keys[result] = (*base, result.index, result.type)
    return keys


def find_layers(module: Module, function: Function, constants: dict[Value, Key]) -> list[LayerOps]:
    """The layers of a program, in order of their first op."""
    layers: dict[str, LayerOps] = {}
    shared = _shared(module, function)
    for op in function.block:
        scope = scope_of(op)
        if scope and op.results[0] not in constants and op not in shared:
            layers.setdefault(scope, LayerOps(scope)).ops.append(op)
    for layer in layers.values():
        _describe(function, layer, constants)
    return list(layers.values())


def _shared(module: Module, function: Function) -> set[Op]:
    """Ops written in one layer that others read and that have no part in it, such as a mask.

    Values shared by layers are computed once, in the first of them, which would then be unlike the
    others. They depend on no weight or state and are read by other layers.
    """
    common: set[Op] = set()
    for op in function.block:
        makers = [value.op for value in op.operands if value.op is not None]
        made_outside = all(not scope_of(maker) or maker in common for maker in makers)
        if made_outside and not any(_is_kept(module, value) for value in op.operands):
            common.add(op)
    shared: set[Op] = set()
    for op in reversed(function.block):
        readers = [user for result in op.results for user in result.users]
        others = {scope_of(user) for user in readers} - {scope_of(op), ""}
        if op in common and (others or any(user in shared for user in readers)):
            shared.add(op)
    return shared


def _is_kept(module: Module, value: Value) -> bool:
    """True for weights, adapters and states."""
    row = module.interface.get(value.name or "") if value.op is None else None
    return row is not None and row.role in (*HELD_ROLES, Role.PARAM, Role.STATE)


def _describe(function: Function, layer: LayerOps, constants: dict[Value, Key]) -> None:
    """Fill in inputs, outputs and the key."""
    inside = set(layer.ops)
    numbers: dict[Value, int] = {}
    parts: list[object] = []
    for op in layer.ops:
        for value in op.operands:
            if value in constants:
                parts.append(constants[value])
                continue
            if value not in numbers:
                numbers[value] = len(numbers)
                layer.inputs.append(value)
                parts.append(value.type)
            parts.append(numbers[value])
        parts += (op.name, op.attrs)
        for result in op.results:
            numbers[result] = len(numbers)
            parts.append(result.type)
            read = any(user not in inside for user in result.users) or function.returns(result)
            parts.append(read)
            if read:
                layer.outputs.append(result)
    layer.key = tuple(parts)
