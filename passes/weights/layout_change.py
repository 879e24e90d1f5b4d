"""Layout change of a state: one more step in its ``pack`` and ``unpack`` functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphgen.build import Builder
from graphgen.build.inline_function import inline_function
from graphgen.ir import RANK, Entry, Function, Module, TensorType, Value, tensor
from graphgen.ir.dtype import s32

# (builder, the part as it was kept, rank s32[1]) -> the part as it is kept from now on.
Pack = Callable[[Builder, Value, Value], Value]
# (builder, parts as they are kept from now on, stacked by rank) -> as they were kept, stacked.
Unpack = Callable[[Builder, Value], Value]


def repack(
    module: Module,
    row: Entry,
    physical: TensorType,
    label: str,
    steps: tuple[Pack, Unpack],
    parts: int = 0,
    *,
    inputs: Mapping[str, TensorType] | None = None,
    held: Callable[[Builder], Value] | None = None,
) -> None:
    """Keep the state ``row`` as ``physical``; states of one history share their functions.

    Args:
        module: changed in place.
        row: the state's row as it is now.
        physical: the type on one rank from now on; may hold symbols.
        label: what is added to the names of the functions.
        steps: from the present physical type to the new one, and back.
        parts: how many ranks' parts it takes to put the state together; 0 for as many as before.
        inputs: layouts that the steps read, as further arguments of both functions.
        held: makes pred of the logical shape, where the new physical type does not keep all.
    """
    pack = f"{row.pack or f'pack.{row.logical.text_name}'}.{label}"
    unpack = f"{row.unpack or f'unpack.{row.logical.text_name}'}.{label}"
    if pack not in module.functions:
        more = _layouts(module, row) | dict(inputs or {})
        _pack(module, row, module.add(Function(pack)), steps[0], more)
        before = module.function(row.unpack).args[0].shape[0] if row.unpack else 1
        stacked = tensor(physical.dtype, (parts or before, *physical.shape))
        function = module.add(Function(unpack))
        _unpack(module, row, function, stacked, steps[1], more)
        if held is not None:
            with Builder(function) as b:
                function.outputs.append(("held", held(b)))
    module.interface[row.name] = row.with_physical(physical, pack, unpack)


def _layouts(module: Module, row: Entry) -> dict[str, TensorType]:
    """The layouts that the present functions of a state read."""
    if not row.pack:
        return {}
    known = module.function(row.pack).args[2:]
    return {value.name or "": value.type for value in known}


def _pack(
    module: Module, row: Entry, function: Function, step: Pack, layouts: Mapping[str, TensorType]
) -> None:
    whole = function.block.add_arg(row.logical, "whole")
    rank = function.block.add_arg(tensor(s32, (1,)), RANK)
    _add(function, layouts)
    with Builder(function) as b:
        part = _call(b, module, row.pack, [whole, rank])[0] if row.pack else whole
        function.outputs = [("part", step(b, part, rank))]


def _unpack(
    module: Module,
    row: Entry,
    function: Function,
    stacked: TensorType,
    step: Unpack,
    layouts: Mapping[str, TensorType],
) -> None:
    parts = function.block.add_arg(stacked, "parts")
    _add(function, layouts)
    with Builder(function) as b:
        before = step(b, parts)
        if row.unpack:
            names = [name for name, _ in module.function(row.unpack).outputs]
            made = _call(b, module, row.unpack, [before])
            function.outputs = list(zip(names, made, strict=True))
        else:
            function.outputs = [("whole", b.reshape(before, row.logical.shape))]


def _add(function: Function, layouts: Mapping[str, TensorType]) -> None:
    for name, type_ in layouts.items():
        function.block.add_arg(type_, name)


def _call(b: Builder, module: Module, name: str, operands: list[Value]) -> list[Value]:
    """The outputs of the function ``name`` on these operands and on its layouts, inlined."""
    called = module.function(name)
    own = [b.function.arg(value.name or "") for value in called.args[len(operands) :]]
    return inline_function(b, called, [*operands, *filter(None, own)])
