"""Merge programs of one model, read one by one, into a module with one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import MAIN, Dim, Entry, Function, Module, Role, TensorType, Value, symbol, tensor
from graphgen.ir.domain import hull
from graphgen.ops import verify


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


PHASES = ("prefill", "decode")


def join(programs: Sequence[tuple[str, Module]], *, phases: bool = True) -> Module:
    """Merge modules of one program each; they share weights and states by name.

    Where an input or an output differs in size from program to program, its logical size is a
    symbol that each program binds. Where a state does, a smaller one is the leading part of the
    largest: ``cache[:, :C]`` of a program for C slots.

    Args:
        programs: a name for the only program of each module, and the module; they become part of
            the result. One called ``prefill`` or ``decode``, or so up to a dot, is of that phase.
        phases: False for programs without phases, whatever they are called.

    Raises:
        GraphgenError: GG0205 for what is called the same and is not, GG0107 for a name given twice,
            GG0705 for a module without one program or a name without a phase.
    """
    first = programs[0][1]
    joined = Module(first.name, first.level, dict(first.mesh), {}, {}, dict(first.meta))
    for name, module in programs:
        if (module.level, module.mesh) != (joined.level, joined.mesh):
            what = f"{name} is at level {module.level}, {programs[0][0]} at {joined.level}"
            raise GraphgenError("GG0205", what, help="import programs of one form together")
        phase = name.partition(".")[0] if phases else MAIN
        if phases and len(programs) > 1 and phase not in PHASES:
            help_ = "write prefill=FILE decode=FILE; several of a phase are prefill.128 and so on"
            raise GraphgenError("GG0705", f"'{name}' says no phase of a program", help=help_)
        _add(joined, name, module, phase)
    widen_states([module for _, module in programs])
    sizes = _SizeMerger(joined)
    for row in dict.fromkeys(name for _, module in programs for name in module.interface):
        rows = {name: m.interface[row] for name, m in programs if row in m.interface}
        joined.interface[row] = sizes.agreed(rows)
    _in_order(joined)
    verify(joined)
    return joined


def _add(joined: Module, name: str, module: Module, phase: str) -> None:
    """Add the functions of ``module``, its program under ``name``."""
    found = module.programs()
    if len(found) != 1:
        raise GraphgenError("GG0705", f"{name} has {len(found)} programs, not one")
    found[0].phase = phase if phase in PHASES else MAIN
    found[0].name = name
    for function in module.functions.values():
        joined.add(function)


class _SizeMerger:
    """Symbols for sizes that differ between programs."""

    def __init__(self, joined: Module) -> None:
        self.joined = joined
        self.known: dict[tuple[tuple[str, Dim], ...], Dim] = {}

    def agreed(self, rows: dict[str, Entry]) -> Entry:
        """Merge the rows of one name (GG0205 if they do not fit)."""
        (where, first), *others = rows.items()
        for name, row in others:
            same = row.role is first.role and row.logical.dtype is first.logical.dtype
            if not same or row.logical.rank != first.logical.rank:
                raise _disagree(first, where, row, name)
            fixed = first.role in (Role.WEIGHT, Role.STATE)
            if fixed and row.logical is not first.logical:
                raise _disagree(first, where, row, name)
        sizes = zip(*(row.logical.shape for row in rows.values()), strict=True)
        shape = [self._size(dict(zip(rows, dims, strict=True))) for dims in sizes]
        type_: TensorType = tensor(first.logical.dtype, shape)
        domain = hull([row.domain for row in rows.values()])
        return replace(first, logical=type_, physical=type_, domain=domain)

    def _size(self, dims: dict[str, Dim]) -> Dim:
        if len(set(dims.values())) == 1:
            return next(iter(dims.values()))
        symbols = {str(dim) for dim in dims.values() if not isinstance(dim, int)}
        if len(symbols) > 1:
            raise GraphgenError("GG0205", f"sizes {', '.join(sorted(symbols))} are not one size")
        key = tuple(dims.items())
        chosen = self.known.get(key)
        if chosen is None:
            chosen = self.known[key] = symbol(symbols.pop() if symbols else self._name())
        for name, dim in dims.items():
            function = self.joined.function(name)
            if dim != chosen and function.dims.setdefault(str(chosen), dim) != dim:
                raise GraphgenError(
                    "GG0205", f"@{name}: {chosen} would be {function.dims[str(chosen)]} and {dim}"
                )
        return chosen

    def _name(self) -> str:
        """Choose a free name: ``S``, as for the tokens of a call, else ``S2``, ..."""
        taken = {name for f in self.joined.functions.values() for name in f.dims}
        return next(n for n in ("S", *(f"S{i}" for i in range(2, 99))) if n not in taken)


def _disagree(first: Entry, where: str, other: Entry, name: str) -> GraphgenError:
    return GraphgenError(
        "GG0205",
        f"{first.name} is the {first.role.value} {first.logical.text} of {where} and the "
        f"{other.role.value} {other.logical.text} of {name}",
        help=f"call one of them otherwise: --rename {name}:{first.name}=NAME",
    )


def _in_order(joined: Module) -> None:
    """Order the interface: outputs last."""
    rows = list(joined.interface.values())
    joined.interface.clear()
    for row in sorted(rows, key=lambda row: row.role is Role.OUTPUT):
        joined.interface[row.name] = row
