"""Layout change of a state: one more step in its ``pack`` and ``unpack`` functions."""

from __future__ import annotations

from collections.abc import Callable

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
) -> None:
    """Keep the state ``row`` as ``physical``; states of one history share their functions.

    Args:
        module: changed in place.
        row: the state's row as it is now.
        physical: the type on one rank from now on; may hold symbols.
        label: what is added to the names of the functions.
        steps: from the present physical type to the new one, and back.
        parts: how many ranks' parts it takes to put the state together; 0 for as many as before.
    """
    pack = f"{row.pack or f'pack.{row.logical.text_name}'}.{label}"
    unpack = f"{row.unpack or f'unpack.{row.logical.text_name}'}.{label}"
    if pack not in module.functions:
        _pack(module, row, module.add(Function(pack)), steps[0])
        before = module.function(row.unpack).args[0].shape[0] if row.unpack else 1
        stacked = tensor(physical.dtype, (parts or before, *physical.shape))
        _unpack(module, row, module.add(Function(unpack)), stacked, steps[1])
    module.interface[row.name] = row.with_physical(physical, pack, unpack)


def _pack(module: Module, row: Entry, function: Function, step: Pack) -> None:
    whole = function.block.add_arg(row.logical, "whole")
    rank = function.block.add_arg(tensor(s32, (1,)), RANK)
    with Builder(function) as b:
        part = _call(b, module, row.pack, [whole, rank]) if row.pack else whole
        function.outputs = [("part", step(b, part, rank))]


def _unpack(
    module: Module, row: Entry, function: Function, stacked: TensorType, step: Unpack
) -> None:
    parts = function.block.add_arg(stacked, "parts")
    with Builder(function) as b:
        before = step(b, parts)
        if row.unpack:
            whole = _call(b, module, row.unpack, [before])
        else:
            whole = b.reshape(before, row.logical.shape)
        function.outputs = [("whole", whole)]


def _call(b: Builder, module: Module, name: str, operands: list[Value]) -> Value:
    """The first output of the function ``name`` on these operands, inlined."""
    return inline_function(b, module.function(name), operands)[0]
