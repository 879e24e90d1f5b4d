"""Calls of modules of any form: ordinary inputs first, then the special values of integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphgen.analysis import free_symbols
from graphgen.eval import Array
from graphgen.exec.session import ProgramCall
from graphgen.ir import (
    ADAPTER_IDS,
    MAIN,
    WHOLE_ARRAYS,
    Dim,
    Entry,
    Function,
    Module,
    Role,
    TensorType,
    bind,
)
from graphgen.ir.dims import symbols
from graphgen.passes.workload.call_plan import CallPlan, Span
from graphgen.passes.workload.draw_calls import CallDrawer, slot_of_row
from graphgen.passes.workload.integer_uses import IntegerUse, use_of
from graphgen.passes.workload.legal_values import (
    calls_for,
    draw_integers,
    draw_within,
    special_integers,
)
from graphgen.passes.workload.program_shapes import (
    ProgramShape,
    ServingSizes,
    StagePrograms,
    caches_by_length,
)
from graphgen.passes.workload.value_ranges import ArraySource, own_generator

PLACES = {"positions", "lengths", "seq_ids"}
LANGUAGE_MODEL = {"tokens", *PLACES}
# Programs of more ops are called fewer times.
_LARGE, _FEW_CALLS = 2000, 3


@dataclass(frozen=True, slots=True)
class RandomCalls:
    """Draws calls of the programs of a module.

    Attributes:
        module: names inputs and states.
        seed: of all arrays.
        source: draws what is neither an integer nor has a domain.
        vocabulary: number of token ids.
        slots: of adapters.
    """

    module: Module
    seed: int
    source: ArraySource
    vocabulary: int = 2
    slots: int = 0

    def of(self, function: Function, dims: Mapping[str, Dim]) -> list[ProgramCall]:
        """The calls of one program with these sizes: one, and more for its integers."""
        rows = self._rows(function)
        turns = 1 + max([self._turns(function, row, dims) for row in rows], default=0)
        if function.block.size > _LARGE:
            turns = min(turns, _FEW_CALLS)
        return [self._call(function, dims, turn) for turn in range(turns)]

    def states(self, dims: Mapping[str, Dim]) -> dict[str, Array]:
        """Initial states by name, in logical types."""
        return {row.name: self._state(row, dims) for row in self.module.entries(Role.STATE)}

    def _rows(self, function: Function) -> list[Entry]:
        rows = self.module.entries(Role.INPUT)
        return [row for row in rows if function.arg(row.name) is not None]

    def _turns(self, function: Function, row: Entry, dims: Mapping[str, Dim]) -> int:
        """Number of calls that place the special values of an input."""
        bound = row.bind(dims)
        type_ = bound.logical
        if not type_.dtype.is_integer:
            return 0
        if self._stands_in_a_prompt(function, row.name, dims):
            return int(row.name in ("tokens", "positions"))
        use = use_of(self.module, function, row.name, dims)
        specials = special_integers(type_.dtype, use, bound.domain)
        return calls_for(len(specials), count_of(type_))

    def _stands_in_a_prompt(self, function: Function, name: str, dims: Mapping[str, Dim]) -> bool:
        types = {row.name: row.logical.bind(dims) for row in self._rows(function)}
        return name in LANGUAGE_MODEL and takes_prompts(types)

    def _call(self, function: Function, dims: Mapping[str, Dim], turn: int) -> ProgramCall:
        rows = self._rows(function)
        types = {row.name: row.logical.bind(dims) for row in rows}
        shared: Mapping[str, Array] = (
            self._prompt(function, types, dims, turn) if takes_prompts(types) else {}
        )
        rest = [row for row in rows if row.name not in shared]

        def drawn(row: Entry, rank: int = 0) -> Array:
            owner = (function.name, row.name, rank, *([turn] if turn else []))
            return self._drawn(own_generator(self.seed, *owner), function, row, dims, turn)

        split = self.module.ranks > 1 and WHOLE_ARRAYS not in self.module.meta
        if function.phase == MAIN and split:
            ranks = range(self.module.ranks)
            parts = {row.name: [drawn(row, rank) for rank in ranks] for row in rest}
            return ProgramCall(function.phase, dict(dims), shared, parts=parts)
        inputs = {row.name: drawn(row) for row in rest}
        return ProgramCall(function.phase, dict(dims), {**inputs, **shared})

    def _drawn(
        self,
        rng: np.random.Generator,
        function: Function,
        row: Entry,
        dims: Mapping[str, Dim],
        turn: int,
    ) -> Array:
        bound = row.bind(dims)
        type_, domain = bound.logical, bound.domain
        if type_.dtype.is_integer:
            use = use_of(self.module, function, row.name, dims)
            return draw_integers(rng, type_, use, domain, turn)
        if domain is not None:
            return draw_within(rng, type_, domain, turn)
        return self.source(rng, row, type_)

    def _state(self, row: Entry, dims: Mapping[str, Dim]) -> Array:
        """An initial state; of several integers half are special ones."""
        rng, bound = own_generator(self.seed, row.name), row.bind(dims)
        type_, domain = bound.logical, bound.domain
        if not type_.dtype.is_integer:
            if domain is not None:
                return draw_within(rng, type_, domain)
            return self.source(rng, row, type_)
        uses = [use_of(self.module, each, row.name, dims) for each in self.module.programs()]
        sizes = tuple(sorted({size for use in uses for size in use.sizes}))
        turns = any(use.turns for use in uses)
        use = IntegerUse(sizes, any(use.shifts for use in uses), turns)
        ordinary, special = (draw_integers(rng, type_, use, domain, turn) for turn in range(2))
        if type_.size == 1:
            return ordinary
        return np.where(rng.random(type_.dims) < 1 / 2, special, ordinary)

    def _prompt(
        self,
        function: Function,
        types: Mapping[str, TensorType],
        dims: Mapping[str, Dim],
        turn: int,
    ) -> Mapping[str, Array]:
        """Inputs of an imported language model, as in the workload of ours.

        A part of one, without tokens, has no padding: what it computes there is read nowhere. The
        second call has token ids outside of the vocabulary, and steps into the last slots.
        """
        rows, width = types["positions"].dims
        slots = self._slots_of_rows(function, types, dims)
        shape = ProgramShape(MAIN, slots, width, rows, in_place=True)
        sizes = ServingSizes((shape,), rows, slots)
        room = slots if width == 1 else min(width, slots)
        part = width > 1 and "tokens" not in types
        if turn and width == 1:
            ends = [max(room - row, 1) for row in range(rows)]
        else:
            ends = [room if part else max(room - 2 - 3 * row, 1) for row in range(rows)]
        spans = [
            Span(end - 1, 1) if width == 1 else Span(0, end, left=row % 2 == 1)
            for row, end in enumerate(ends)
        ]
        ids = "outside" if turn else "random"
        plan = CallPlan("", shape, tuple(enumerate(spans)), ids)
        inputs = {n: self.module.interface[n] for n in types if n in LANGUAGE_MODEL}
        drawer = CallDrawer(sizes, inputs, self.vocabulary, self.source, self.slots)
        return drawer.draw(self.seed, [plan] * (turn + 1))[-1].inputs

    def _slots_of_rows(
        self, function: Function, types: Mapping[str, TensorType], dims: Mapping[str, Dim]
    ) -> int:
        """Number of positions that a row has room for.

        As the domain of the positions has it, else as the caches [R,M,K,D] that the program writes.
        """
        rows, width = types["positions"].dims
        domain = self.module.interface["positions"].bind(dims).domain
        stated = domain.numbers if domain is not None else None
        if stated is not None:
            return max(int(stated[1]) + 1, 1)
        shapes = [
            tuple(bind(size, dims) for size in shape)
            for shape in caches_by_length(self.module, [function])
        ]
        found = [(shape[0] == rows, shape[1]) for shape in shapes if isinstance(shape[1], int)]
        of_rows = [size for own, size in found if own]
        return max(of_rows or [size for _, size in found] or [width])


def count_of(type_: TensorType) -> int:
    """Number of elements of a static type."""
    return type_.size if isinstance(type_.size, int) else 1


def takes_prompts(types: Mapping[str, TensorType]) -> bool:
    """True for positions [B,S], and lengths and rows of the cache [B], all of them integers."""
    if not types.keys() >= PLACES:
        return False
    given = [types[name] for name in types if name in LANGUAGE_MODEL]
    shape = types["positions"].shape
    wanted = {"tokens": shape, "positions": shape, "lengths": shape[:1], "seq_ids": shape[:1]}
    fits = all(types[name].shape == wanted[name] for name in types if name in LANGUAGE_MODEL)
    return len(shape) == 2 and fits and all(type_.dtype.is_integer for type_ in given)


def symbol_sizes(module: Module) -> dict[str, Dim]:
    """A size for each symbol of the programs: small ones, all different.

    Of a cache there are more slots than a call has tokens.
    """
    programs = module.programs()
    states = [row.logical for row in module.entries(Role.STATE)]
    free = free_symbols(programs) | set(_interface_symbols(module))
    slots = {name for type_ in states for name in symbols(type_.shape)}
    ordered = sorted(free, key=lambda name: (name in slots and name != "B", name))
    return {name: 3 + index for index, name in enumerate(ordered)}


def _interface_symbols(module: Module) -> Iterator[str]:
    """The symbols of what a caller gives, which may be none of a program's own."""
    for row in module.interface.values():
        if row.role is not Role.OUTPUT:
            yield from symbols(row.logical.shape)
            yield from row.domain.symbols if row.domain is not None else ()


def with_adapters(
    call: ProgramCall, stages: Sequence[StagePrograms], slots: int, seed: int
) -> ProgramCall:
    """The call with the adapter of each row, where a stage takes one."""
    ids = [row for stage in stages for name, row in stage.inputs.items() if name == ADAPTER_IDS]
    if not ids or not ids[0].logical.bind(call.dims).static:
        return call
    (rows,) = ids[0].logical.bind(call.dims).dims
    places = np.arange(rows, dtype=np.int32)
    chosen = slot_of_row(places, rows, slots, seed)
    return replace(call, inputs={**call.inputs, ADAPTER_IDS: chosen})
