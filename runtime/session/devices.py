"""The tensors of a session on the devices, and the calls that change or read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import join, put
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.session.adapter_slots import AdapterSlots, PreparedAdapter
from graphgen.runtime.session.block_table import BlockTable
from graphgen.runtime.session.empty_states import zeros_for
from graphgen.runtime.session.launch import LaunchOutputs
from graphgen.runtime.session.pending_step import DeviceTokens, TokenTransfer
from graphgen.runtime.session.row_results import Outputs
from graphgen.runtime.session.step_call import Ints


class RowCopy:
    """Copies one row of all states onto another, or one block of a paged cache.

    The program is made from the module's states at the first copy, and kept in the folder of the
    other programs where there is one; artifacts of any age have it.

    Args:
        programs: of the session.
        rows: R, rows of the cache.
        blocks: the table of a paged cache, whose blocks are copied.
    """

    def __init__(
        self, programs: ExecutableCache, rows: int, blocks: BlockTable | None = None
    ) -> None:
        self._programs: Final = programs
        self._rows: Final = blocks.blocks if blocks else rows
        self._blocks: Final = blocks
        self._copies: ExecutableCache | None = None

    @property
    def possible(self) -> bool:
        """True if every state has the rows of the cache, or its blocks, as its first dimension.

        The program has to be compiled here, too.
        """
        if not self._programs.is_open:
            return False
        return self._blocks is not None or has_rows_first(self._programs.module, self._rows)

    def launch(
        self, states: Mapping[str, DeviceValue], source: int, target: int
    ) -> dict[str, list[DeviceValue]]:
        """The states after the copy, one value a rank; the given ones are gone.

        Raises:
            GraphgenError: GG0705 for a row or block that does not exist.
        """
        what = "block" if self._blocks else "row"
        for row in (source, target):
            if not 0 <= row < self._rows:
                raise GraphgenError(
                    "GG0705",
                    f"{what} {row} does not exist",
                    help=f"{what}s are 0 to {self._rows - 1}",
                )
        ranks = self._programs.module.ranks
        places = {"source": source, "target": target}
        inputs = {key: put([np.array(row, np.int32)] * ranks) for key, row in places.items()}
        return self._made().get("copy_row").launch({**states, **inputs})

    def _made(self) -> ExecutableCache:
        if self._copies is None:
            # Only here: an artifact whose rows are not copied runs without the builder.
            from graphgen.passes.programs.cache_programs import row_copy_module

            self._copies = self._programs.beside(row_copy_module(self._programs.module))
        return self._copies


def has_rows_first(module: Module, rows: int) -> bool:
    """True if each state has one place a row along its first dimension, in both representations.

    Where a table assigns places to rows, as in a cache of blocks, the place of a row is not known
    without the table.
    """
    return not module.entries(Role.LAYOUT) and all(
        type_.rank > 0 and type_.shape[0] == rows
        for row in module.entries(Role.STATE)
        for type_ in (row.logical, row.physical)
    )


class SlotMoves:
    """Moves slots of all states by one program, made at the first move from the module's states.

    Args:
        programs: of the session.
        rows: R, rows of the cache.
        nodes: S, nodes of the largest tree.
    """

    def __init__(self, programs: ExecutableCache, rows: int, nodes: int) -> None:
        self._programs: Final = programs
        self._rows: Final = rows
        self._count: Final = max(nodes - 1, 1)
        self._made: ExecutableCache | None = None

    def launch(
        self,
        values: Mapping[str, DeviceValue],
        lengths: Ints,
        seq_ids: Sequence[int],
        moves: Sequence[Sequence[int]],
    ) -> dict[str, list[DeviceValue]]:
        """The states after the moves, one value a rank; the given ones are gone.

        Args:
            values: states and layouts by name.
            lengths: s32 [R], tokens in each row of the cache.
            seq_ids: rows of the cache.
            moves: of each row the slots that become the last ones before its length, in order.
        """
        module = self._programs.module
        rows = np.full(self._rows, self._rows, np.int32)
        sources = np.full((self._rows, self._count), -1, np.int32)
        targets = sources.copy()
        for row, slots in zip(seq_ids, moves, strict=True):
            rows[row] = row
            sources[row, : len(slots)] = slots
            targets[row, : len(slots)] = np.arange(lengths[row] - len(slots), lengths[row])
        given = {"seq_ids": rows, "from_slots": sources, "to_slots": targets}
        inputs = {name: put([array] * module.ranks) for name, array in given.items()}
        kept = {row.name for role in (Role.STATE, Role.LAYOUT) for row in module.entries(role)}
        states = {name: value for name, value in values.items() if name in kept}
        return self._program().get("kv_move").launch({**states, **inputs})

    def _program(self) -> ExecutableCache:
        if self._made is None:
            # Only here: what runs without trees runs without the passes.
            from graphgen.passes.programs.cache_programs import kv_move_module

            self._made = self._programs.beside(kv_move_module(self._programs.module, self._count))
        return self._made


class RowOrder:
    """Reorders the rows of all states by one program, made at the first call from the states.

    Args:
        programs: of the session.
    """

    def __init__(self, programs: ExecutableCache) -> None:
        self._programs: Final = programs
        self._made: ExecutableCache | None = None

    def launch(
        self, values: Mapping[str, DeviceValue], sources: Ints
    ) -> dict[str, list[DeviceValue]]:
        """The states after the call, one value a rank; the given ones are gone.

        Args:
            values: states and layouts by name.
            sources: s32 [R], the row that each row becomes.
        """
        module = self._programs.module
        if self._made is None:
            # Only here: what searches no beams runs without the passes.
            from graphgen.passes.programs.cache_programs import row_order_module

            self._made = self._programs.beside(row_order_module(module))
        kept = {row.name for role in (Role.STATE, Role.LAYOUT) for row in module.entries(role)}
        given = {name: value for name, value in values.items() if name in kept}
        inputs = {"from_rows": put([np.ascontiguousarray(sources, np.int32)] * module.ranks)}
        return self._made.get("row_order").launch({**given, **inputs})


# Calls whose arguments are words and arrays.
_PLAIN = ("prepare", "warm_feed", "empty", "use_layout", "copy", "move_slots", "order_rows")
# The input that steps hand tokens to, and the names of their places beside it.
_TOKENS, _SOURCE = "tokens", "handed."


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """One call of :class:`SessionDevices`, as another process repeats it.

    Attributes:
        kind: name of the method.
        words: arguments that JSON can hold.
        arrays: arguments by name.
    """

    kind: str
    words: tuple[object, ...] = ()
    arrays: Outputs = field(default_factory=dict[str, npt.NDArray[np.generic]])


@dataclass(frozen=True, slots=True)
class StartedLaunch:
    """A launch whose outputs may not have been read.

    Attributes:
        number: of the launch, from 0 on.
        program: the function's name.
        outputs: on the devices, one value a rank.
    """

    number: int
    program: str
    outputs: Mapping[str, Sequence[DeviceValue]]


class SessionDevices:
    """The programs of a session with its weights, layouts and caches.

    Decisions that depend on the inputs of a step alone are made before it comes here: a process
    that makes the same calls in the same order launches the same programs.

    Args:
        programs: the compiled programs.
        rows: R, rows of the cache.
        blocks: the table of a paged cache.
        nodes: of the largest tree of tokens.
        outputs: reads what launches return.
        adapters: slots for those of the rows; ``None`` for programs without.

    Attributes:
        programs: as given.
        values: of everything that launches find on the devices, by name.
        listener: notified of each call before it is made; ``None`` for nothing.
    """

    def __init__(
        self,
        programs: ExecutableCache,
        rows: int,
        blocks: BlockTable | None,
        nodes: int,
        outputs: LaunchOutputs,
        adapters: AdapterSlots | None,
    ) -> None:
        self.programs: Final = programs
        self.values: dict[str, DeviceValue] = {}
        self.listener: Callable[[DeviceCall], None] | None = None
        self.row_copy: Final = RowCopy(programs, rows, blocks)
        self._feed: Final = TokenTransfer(programs)
        self._moves: Final = SlotMoves(programs, rows, nodes)
        self._order: Final = RowOrder(programs)
        self._outputs: Final = outputs
        self._adapters: Final = adapters
        if adapters is not None:
            adapters.listener = self._note_adapter
        self._states: Final = [row.name for row in programs.module.entries(Role.STATE)]
        self._launches = 0
        # Launches of another process that this one repeated, until that one reads them.
        self._repeated: dict[int, StartedLaunch] = {}

    def prepare(self, name: str) -> None:
        """Compile or load a program."""
        self._note("prepare", name)
        self.programs.get(name)

    def warm_feed(self, given: Sequence[int], taken: Sequence[int]) -> None:
        """Compile or load what hands tokens between launches of these numbers of rows."""
        self._note("warm_feed", [*given], [*taken])
        self._feed.warm_up(given, taken)

    def launch(
        self, name: str, inputs: Outputs, handed: Sequence[DeviceTokens] = ()
    ) -> StartedLaunch:
        """Start a program, whose results are not there yet.

        Args:
            name: of the program.
            inputs: by name.
            handed: what replaces tokens among them.
        """
        sources = {f"{_SOURCE}{place}": one.source for place, one in enumerate(handed)}
        self._note("launch", name, [one.number for one in handed], arrays={**inputs, **sources})
        ranks = self.programs.module.ranks
        held = self._adapters.values if self._adapters else {}
        fed = {_TOKENS: self._feed.fed(inputs[_TOKENS], handed)} if handed else {}
        values = {key: put([array] * ranks) for key, array in inputs.items() if key not in fed}
        results = self.programs.get(name).launch({**self.values, **held, **values, **fed})
        self._keep_states(results)
        started = StartedLaunch(self._launches, name, self._outputs.of(results))
        self._launches += 1
        return started

    def read(self, started: StartedLaunch, *, counted: bool = True) -> Outputs:
        """The outputs of a launch on the host, once it has ended.

        Args:
            started: of :meth:`launch`.
            counted: note the choices of experts, too.
        """
        self._note("read", started.number, counted)
        if counted:
            return self._outputs.read(started.program, started.outputs)
        return self._outputs.wait(started.outputs)

    def empty(self) -> None:
        """Replace all states by zeros."""
        self._note("empty")
        self._repeated.clear()
        module = self.programs.module
        self.values |= zeros_for(module.entries(Role.STATE), module.ranks)

    def use_layout(self, name: str, table: Ints) -> None:
        """Replace a layout, such as the table of blocks."""
        self._note("use_layout", name, arrays={"table": table})
        self.values[name] = put([table] * self.programs.module.ranks)

    def copy(self, source: int, target: int) -> None:
        """Copy a row, or a block of a paged cache, onto another one (GG0705)."""
        self._note("copy", source, target)
        self._keep_states(self.row_copy.launch(self.values, source, target))

    def move_slots(
        self, rows: Sequence[int], moves: Sequence[Sequence[int]], lengths: Ints
    ) -> None:
        """Let slots of each row become those before its length (GG0304)."""
        words = ([*map(int, rows)], [[*map(int, slots)] for slots in moves])
        self._note("move_slots", *words, arrays={"lengths": lengths})
        self._keep_states(self._moves.launch(self.values, lengths, rows, moves))

    def order_rows(self, sources: Ints) -> None:
        """Let each row become another one, ``sources`` s32 [R], in all states (GG0304)."""
        self._note("order_rows", arrays={"sources": sources})
        self._keep_states(self._order.launch(self.values, sources))

    def repeat(self, call: DeviceCall) -> None:
        """Make a call that another process has made."""
        words, arrays = call.words, call.arrays
        if call.kind == "launch":
            name, numbers = cast("tuple[str, list[int]]", words)
            started = self.launch(name, *self._with_handed(numbers, arrays))
            self._repeated[started.number] = started
        elif call.kind == "read":
            number, counted = cast("tuple[int, bool]", words)
            self.read(self._repeated.pop(number), counted=counted)
        elif call.kind == "use_adapter" and self._adapters is not None:
            self._adapters.repeat(cast(int, words[0]), arrays)
        elif call.kind in _PLAIN:
            getattr(self, call.kind)(*words, **arrays)

    def _with_handed(
        self, numbers: Sequence[int], arrays: Outputs
    ) -> tuple[Outputs, list[DeviceTokens]]:
        """Inputs of a launch of another process, and what launches of these numbers hand to it."""
        inputs, handed = dict(arrays), list[DeviceTokens]()
        for place, number in enumerate(numbers):
            source = cast(Ints, inputs.pop(f"{_SOURCE}{place}"))
            tokens = self._repeated[number].outputs["next_tokens"]
            handed.append(DeviceTokens(number, tokens, source))
        return inputs, handed

    def _note(self, kind: str, *words: object, arrays: Outputs | None = None) -> None:
        if self.listener is not None:
            self.listener(DeviceCall(kind, words, arrays or {}))

    def _note_adapter(self, slot: int, adapter: PreparedAdapter | None) -> None:
        if self.listener is not None:
            self._note("use_adapter", slot, arrays=adapter.arrays() if adapter else {})

    def _keep_states(self, results: Mapping[str, Sequence[DeviceValue]]) -> None:
        for state in self._states:
            self.values[state] = join(results[state])
