"""Uses of integers: the dimensions they index, the shifts they make, the loops they bound.

An integer is followed from an argument to its readers through arithmetic, comparisons and
reshapes, and into the functions that calls and loops run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from graphgen.ir import Dim, Function, Module, Op, Value, bind
from graphgen.ops.control import callees

# Number of readers that are looked at for one argument.
_MOST = 2000
# Operands by op that are indices into a dimension of another operand: place, that one, dimension.
_INDEXED: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "embedding": ((1, 0, 0),),
    "cache_read": ((1, 0, 0),),
    "kv_update": ((2, 0, 0), (3, 0, 1)),
    "kv_move": ((1, 0, 0), (2, 0, 1), (3, 0, 0), (4, 0, 1)),
    "experts": ((1, 3, 0),),
    # A limit of tokens, of which there is one more than proposals.
    "accept": ((1, 0, 1),),
    "attention_mask": ((0, 1, 1), (1, 1, 1)),
    "last_token": ((1, 0, 1), (2, 0, 1)),
}
_SHIFTS = ("shift_left", "shift_right_arithmetic", "shift_right_logical")


@dataclass(frozen=True, slots=True)
class IntegerUse:
    """The roles of an integer in a program.

    Attributes:
        sizes: dimensions that it indexes, and the first places where a slice no longer fits.
        shifts: whether it says by how many bits something is shifted.
        turns: whether it takes part in the condition of a loop, so that large ones make many turns.
    """

    sizes: tuple[int, ...] = ()
    shifts: bool = False
    turns: bool = False


def use_of(module: Module, function: Function, name: str, dims: Mapping[str, Dim]) -> IntegerUse:
    """The use of the argument ``name`` of a function whose symbols have the sizes ``dims``."""
    value = function.arg(name)
    if value is None:
        return IntegerUse()
    found = _Follower(module, {**dims, **function.dims})
    found.follow(value)
    return IntegerUse(tuple(sorted(found.sizes)), found.shifts, found.turns)


class _Follower:
    """Follows one integer through a module."""

    def __init__(self, module: Module, dims: Mapping[str, Dim]) -> None:
        self.module, self.dims = module, dims
        self.sizes: set[int] = set()
        self.shifts = self.turns = False

    def follow(self, start: Value) -> None:
        """Look at every reader of a value and of what is computed from it as an integer."""
        work, seen = [start], {start}
        while work and len(seen) < _MOST:
            value = work.pop()
            for op in value.users:
                for place, operand in enumerate(op.operands):
                    if operand is value:
                        self._read(op, place)
                more = [*_derived(op, value), *self._arguments(op, value)]
                work += [item for item in more if item not in seen]
                seen.update(more)

    def _read(self, op: Op, place: int) -> None:
        """Note the use as the operand at ``place``."""
        self.shifts = self.shifts or (op.name in _SHIFTS and place == 1)
        for size, window in _indexed(op, place):
            whole, part = bind(size, self.dims), bind(window, self.dims)
            if isinstance(whole, int) and isinstance(part, int):
                self.sizes |= {whole, whole - part + 1} if part > 1 else {whole}

    def _arguments(self, op: Op, value: Value) -> Iterator[Value]:
        """The values that stand for ``value`` in functions that ``op`` runs."""
        names = callees(op)
        if not names or any(name not in self.module.functions for name in names):
            return
        places = [place for place, operand in enumerate(op.operands) if operand is value]
        if op.name == "conditional":
            takes, start = op.attrs.integers("takes"), 1
            for name, count in zip(names, takes, strict=True):
                args = self.module.functions[name].args
                yield from [args[p - start] for p in places if start <= p < start + count]
                start += count
            return
        for name in names:
            args = self.module.functions[name].args
            inside = [args[place] for place in places if place < len(args)]
            if op.name == "while" and name == names[0]:
                self.turns = self.turns or any(argument.users for argument in inside)
            yield from inside


def _derived(op: Op, value: Value) -> list[Value]:
    """The integers that an op computes from one; not those it looks up by it."""
    if callees(op):
        return []
    indices = {op.operands[place] for place in range(len(op.operands)) if _is_index(op, place)}
    if value in indices:
        return []
    return [result for result in op.results if result.type.dtype.is_integer]


def _is_index(op: Op, place: int) -> bool:
    return any(True for _ in _indexed(op, place)) and op.name != "compare"


def _indexed(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions that an operand indexes, each with the size of what is read or written."""
    for index, indexed, dim in _INDEXED.get(op.name, ()):
        if index == place:
            yield op.operands[indexed].shape[dim], 1
    if op.name in _RULES:
        yield from _RULES[op.name](op, place)


def _of_gather(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    if place == 1:
        sizes = op.attrs.dims("slice_sizes")
        for dim in op.attrs.integers("start_index_map"):
            yield op.operands[0].shape[dim], sizes[dim]


def _of_scatter(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    if place == 1:
        for dim in op.attrs.integers("scatter_dims_to_operand_dims"):
            yield op.operands[0].shape[dim], 1


def _of_slice(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    if place:
        yield op.operands[0].shape[place - 1], op.attrs.dims("slice_sizes")[place - 1]


def _of_update(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    if place > 1:
        yield op.operands[0].shape[place - 2], op.operands[1].shape[place - 2]


def _of_take(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    size, block = op.operands[0].shape[op.attrs.integer("dimension")], op.attrs.integer("block")
    if place == 1 and isinstance(size, int):
        yield size // block, 1


def _of_attended(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    yield op.attrs.dim("attended"), 1


def _of_choice(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    if place == 0:
        yield len(callees(op)), 1


def _of_compare(op: Op, place: int) -> Iterator[tuple[Dim, Dim]]:
    yield from _iota_sizes(op.operands[1 - place])


_RULES: Mapping[str, Callable[[Op, int], Iterator[tuple[Dim, Dim]]]] = {
    "gather": _of_gather,
    "scatter": _of_scatter,
    "dynamic_slice": _of_slice,
    "dynamic_update_slice": _of_update,
    "take": _of_take,
    "key_positions": _of_attended,
    "key_distance": _of_attended,
    "conditional": _of_choice,
    "compare": _of_compare,
}


def _iota_sizes(value: Value) -> Iterator[tuple[Dim, Dim]]:
    """The length of an iota, written out through broadcasts, reshapes and converts."""
    while value.op is not None and value.op.name in ("broadcast_in_dim", "reshape", "convert"):
        value = value.op.operands[0]
    if value.op is not None and value.op.name == "iota":
        yield value.op.result.shape[value.op.attrs.integer("dimension")], 1
