"""Weights kept in another layout: stored so once, and brought back where programs read them.

A device's compiler asks for layouts after it has seen a program. The weight gets one more step of
its preparation, and each program starts with the opposite of that step, which that compiler
absorbs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, cast

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    WEIGHTS_GLOBAL,
    WEIGHTS_RANK,
    Function,
    Module,
    Role,
    TensorType,
    Value,
    entry,
)
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.names import fresh_name

_SUFFIX = ".laid_out"


@dataclass(frozen=True, slots=True)
class LayoutStep:
    """One op of a change of layout.

    Attributes:
        op: of the two.
        values: the shape of the result, or the permutation.
    """

    op: Literal["reshape", "transpose"]
    values: tuple[int, ...]


Layout = Sequence[LayoutStep]


def apply_weight_layouts(module: Module, layouts: Mapping[str, Layout]) -> Mapping[str, str]:
    """Keep weights in other layouts; programs compute what they did.

    Args:
        module: at level ``target``, changed in place.
        layouts: by the name of what programs read, a weight or a prepared one.

    Returns:
        The new names by the old ones.

    Raises:
        GraphgenError: GG0302 for a name that no program reads, or steps that do not fit its shape.
    """
    renamed: dict[str, str] = {}
    for name, layout in layouts.items():
        row = module.interface.get(name)
        if row is None or row.role not in (Role.WEIGHT, Role.PARAM) or row.pack:
            raise GraphgenError("GG0302", f"{name} is not a weight that programs read as it is")
        shapes = _shapes(name, row.physical, layout)
        new = fresh_name(f"{name}{_SUFFIX}", {*module.interface})
        made = _prepare(module, name, new, layout)
        module.interface[new] = entry(Role.PARAM, new, made.type)
        for function in module.programs():
            _read(function, name, new, made.type, layout, shapes)
        _drop_unread(module, name)
        renamed[name] = new
    return renamed


def _shapes(name: str, type_: TensorType, layout: Layout) -> list[tuple[int, ...]]:
    """The shapes before each step (GG0302 if a step does not fit)."""
    shape = cast("tuple[int, ...]", type_.shape)
    found: list[tuple[int, ...]] = []
    for step in layout:
        found.append(shape)
        if step.op == "reshape":
            fits, shape_after = prod(step.values) == prod(shape), step.values
        else:
            fits = sorted(step.values) == [*range(len(shape))]
            shape_after = tuple([shape[i] for i in step.values]) if fits else shape
        if not fits:
            what = f"the layout of {name}: {step.op} {[*step.values]} does not fit {[*shape]}"
            raise GraphgenError("GG0302", what)
        shape = shape_after
    return found


def _prepare(module: Module, name: str, new: str, layout: Layout) -> Value:
    """Add the steps to the function that prepares the weight, as its output ``new``."""
    for home in (WEIGHTS_RANK, WEIGHTS_GLOBAL):
        function = module.functions.get(home)
        value = dict(function.outputs).get(name) if function else None
        if function is not None and value is not None:
            return _output(function, value, new, layout)
    function = module.functions.get(WEIGHTS_GLOBAL)
    if function is None:
        function = Function(WEIGHTS_GLOBAL)
        module.functions = {WEIGHTS_GLOBAL: function, **module.functions}
    value = function.arg(name) or function.block.add_arg(module.interface[name].logical, name)
    return _output(function, value, new, layout)


def _output(function: Function, value: Value, new: str, layout: Layout) -> Value:
    with Builder(function, loc=UNKNOWN) as b:
        for step in layout:
            value = _step(b, value, step)
    function.outputs.append((new, value))
    return value


def _step(b: Builder, value: Value, step: LayoutStep) -> Value:
    if step.op == "reshape":
        return b.reshape(value, step.values)
    return b.transpose(value, step.values)


def _read(
    function: Function,
    name: str,
    new: str,
    type_: TensorType,
    layout: Layout,
    shapes: Sequence[tuple[int, ...]],
) -> None:
    """Make a program read the new weight and undo its steps, the last one first."""
    before = function.arg(name)
    if before is None:
        return
    after = function.block.add_arg(type_, new)
    value = after
    with Builder(function, before=function.block.first, loc=UNKNOWN) as b:
        for step, shape in zip(reversed(layout), reversed(shapes), strict=True):
            if step.op == "reshape":
                value = b.reshape(value, shape)
            else:
                back = [step.values.index(i) for i in range(len(shape))]
                value = b.transpose(value, back)
    function.replace_uses(before, value)
    kept = [item for item in function.args if item is not after]
    kept[before.index] = after
    function.block.keep_args(kept)


def _drop_unread(module: Module, name: str) -> None:
    """Remove a prepared weight that nothing reads any more."""
    if module.interface[name].role is not Role.PARAM:
        return
    if any(function.arg(name) is not None for function in module.functions.values()):
        return
    del module.interface[name]
    for home in (WEIGHTS_RANK, WEIGHTS_GLOBAL):
        function = module.functions.get(home)
        if function is not None:
            function.outputs = [(key, value) for key, value in function.outputs if key != name]
