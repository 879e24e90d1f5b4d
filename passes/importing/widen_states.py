"""States of programs that were traced for fewer slots: the leading part of the largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.build import Builder
from graphgen.ir import Entry, Function, Module, Role, TensorType, Value, tensor


def widen_states(modules: Sequence[Module]) -> None:
    """Give every program the largest form of each state.

    A program for fewer slots reads the leading part, and returns the rest as it was::

        arg %cache : f32[2,8,4]              arg %cache : f32[2,16,4]
        %0 = ... %cache ...          ->      %1 = slice(%cache) ... : f32[2,8,4]
        return cache = %0                    %0 = ... %1 ...
                                             %2 = slice(%cache) ... : f32[2,8,4]
                                             %3 = concatenate(%0, %2) dimension=1 : f32[2,16,4]
                                             return cache = %3

    States that differ in more than one dimension, or in symbols, stay as they are.

    Args:
        modules: of programs of one model; changed in place.
    """
    names = dict.fromkeys(row.name for module in modules for row in module.entries(Role.STATE))
    for name in names:
        holders = [module for module in modules if name in module.interface]
        rows = [module.interface[name] for module in holders]
        largest = _largest(rows)
        for module, row in zip(holders, rows, strict=True):
            if largest is not None and row.logical is not largest:
                _widen(module, row, largest)


def _largest(rows: Sequence[Entry]) -> TensorType | None:
    """The type that the others are leading parts of, along one dimension."""
    types = [row.logical for row in rows]
    plain = all(row.role is Role.STATE and row.physical is row.logical for row in rows)
    shapes = {type_.shape for type_ in types}
    kinds = {(type_.dtype, type_.rank) for type_ in types}
    numbers = all(isinstance(size, int) for shape in shapes for size in shape)
    if not plain or len(shapes) == 1 or len(kinds) > 1 or not numbers:
        return None
    sizes = list(zip(*(type_.dims for type_ in types), strict=True))
    if sum(len(set(found)) > 1 for found in sizes) != 1:
        return None
    return tensor(types[0].dtype, [max(found) for found in sizes])


def _widen(module: Module, row: Entry, largest: TensorType) -> None:
    small = row.logical
    module.interface[row.name] = replace(row, logical=largest, physical=largest)
    pairs = enumerate(zip(small.dims, largest.dims, strict=True))
    dim = next(index for index, (less, more) in pairs if less != more)
    for function in module.programs():
        cache = function.arg(row.name)
        if cache is not None:
            _read_leading(function, module, cache, largest, dim)


def _read_leading(
    function: Function, module: Module, cache: Value, largest: TensorType, dim: int
) -> None:
    """Let a program that took the leading part of a state take all of it."""
    slots, total = cache.type.dims[dim], largest.dims[dim]
    readers = list(cache.users)
    cache.type = largest
    first = next(iter(function.block), None)
    b = Builder(function, module, before=first) if first else Builder(function, module)
    leading = b.slice_dim(cache, dim, 0, slots)
    for op in readers:
        op.set_operands(tuple([leading if x is cache else x for x in op.operands]))
    end = Builder(function, module)
    outputs: list[tuple[str, Value]] = []
    for name, value in function.outputs:
        if name == cache.name and value is not cache:
            value = end.concatenate([value, end.slice_dim(cache, dim, slots, total)], dim)
        elif name != cache.name and value is cache:
            value = leading
        outputs.append((name, value))
    function.outputs = outputs
