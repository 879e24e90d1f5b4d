"""Prefix caching and chunked prefill of ``forward``, whose caller hands out the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.block_inputs import CallArrays, TableRow, chunk_rows, prefix_rows
from graphgen.runtime.aws_nxdi.forward_inputs import Integers, RowInput
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy
from graphgen.runtime.session.block_table import BlockTable
from graphgen.runtime.session.buckets import choose_bucket
from graphgen.runtime.session.session import RowResults, Session

# Outputs with one entry a sequence; others have one a token.
_PER_ROW = ("logits", "next_tokens")


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A sequence with its blocks.

    Attributes:
        given: as it was given.
        blocks: those of all its positions.
    """

    given: TableRow
    blocks: Integers


@dataclass(frozen=True, slots=True)
class BlockCall:
    """A call with a table of blocks, which are placed.

    Attributes:
        blocks: that it changes.
        placed: the sequences with new tokens, by their blocks.
        rows: the same, by the cache rows that they run in.
        count: n, sequences of the table.
        places: [m], of those with new tokens among them.
        chunks: they stand side by side in one row.
    """

    blocks: CallerBlocks
    placed: Sequence[PlacedRow]
    rows: Sequence[RowInput]
    count: int
    places: npt.NDArray[np.intp]
    chunks: bool

    def begin(self, adapters: Sequence[str]) -> None:
        """Give the rows their blocks: the last check, and the first change.

        Args:
            adapters: [m], of each row; empty names for none.

        Raises:
            GraphgenError: GG0402 for tokens in the cache that another adapter has written.
        """
        self.blocks.begin(self.placed, adapters)

    def of_its_rows(self, sampling_params: object, rows: int) -> object:
        """The ``sampling_params`` of n sequences; vLLM gives those of all ``rows`` with chunks."""
        if sampling_params is None or not self.chunks:
            return sampling_params
        given = as_numpy(sampling_params)
        return given[: self.count] if len(given) == rows else given

    def done(self, result: RowResults) -> RowResults:
        """Note what the call has written.

        Returns:
            The results of all n sequences, zeros for one without a new token.
        """
        self.blocks.note(self.placed)
        if len(self.rows) == self.count:
            return result
        made: dict[str, npt.NDArray[np.generic]] = {}
        for name, array in result.outputs.items():
            made[name] = array
            if name in _PER_ROW:
                made[name] = np.zeros((self.count, *array.shape[1:]), array.dtype)
                made[name][self.places] = array
        return RowResults(made)


class CallerBlocks:
    """The blocks of a session while calls bring their own tables.

    The caller decides which sequences share a block. A sequence reads slots that a call with a
    table has written, or an earlier sequence of the same call writes.

    Args:
        session: whose cache is paged.
        table: its table.
        chunks: sequences of a call stand side by side in one row.

    Attributes:
        active: the last call brought a table; :meth:`forget` ends that.
    """

    def __init__(self, session: Session, table: BlockTable, *, chunks: bool) -> None:
        self._session = session
        self._table = table
        self._chunks = chunks
        self._own = table.table
        self.active = False
        # The place in _adapters of what has written a slot, plus one; 0 for nothing.
        self._writers: npt.NDArray[np.int32] = np.zeros(table.blocks * table.block, np.int32)
        self._written = self._writers
        self._adapters: list[str] = []

    def call(self, arrays: CallArrays, seq_ids: object) -> BlockCall:
        """Read and check a call, and change nothing.

        Args:
            arrays: of the call.
            seq_ids: [B], rows of the cache; those of chunks are not read.

        Raises:
            GraphgenError: GG0402 for arguments that do not fit each other or the cache, GG0701 for
                a sequence that is too long.
        """
        rows: Sequence[TableRow | None]
        if self._chunks:
            rows = chunk_rows(arrays, self._session.rows)
        else:
            rows = prefix_rows(arrays, seq_ids, self._session.rows)
        given = [row for row in rows if row is not None]
        places = np.array([at for at, row in enumerate(rows) if row is not None], np.intp)
        placed = [PlacedRow(row, self._blocks(row)) for row in given]
        self._check_written_once(given)
        self._check_read(placed)
        # A row that reads what another row of the call writes comes after it.
        turns = _turns(placed, self._table.block)
        inputs = [
            replace(row.given.input, turn=turn) for row, turn in zip(placed, turns, strict=True)
        ]
        return BlockCall(self, placed, inputs, len(rows), places, self._chunks)

    def begin(self, placed: Sequence[PlacedRow], adapters: Sequence[str]) -> None:
        """Give rows their blocks; nothing has changed where that is refused.

        Args:
            placed: rows of a call that was checked.
            adapters: of each.

        Raises:
            GraphgenError: GG0402 for tokens in the cache that another adapter has written.
        """
        self._written = self._writers_after(placed, adapters)
        for row in placed:
            # A call that fails leaves them so: nothing is known of what it has written.
            self._writers[row.given.slots] = 0
        session = self._session
        table = self._table.table.copy() if self.active else np.full_like(self._table.table, -1)
        if not self.active:
            self._own = self._table.table
            session.lengths[:] = 0
        for row in placed:
            table[row.given.input.row] = -1
            table[row.given.input.row, : len(row.blocks)] = row.blocks
            session.lengths[row.given.input.row] = row.given.input.start
        if not np.array_equal(table, self._table.table):
            session.use_layout(self._table.name, table)
        self.active = True

    def note(self, placed: Sequence[PlacedRow]) -> None:
        """Remember the slots that a call has written."""
        for row in placed:
            self._writers[row.given.slots] = self._written[row.given.slots]

    def _writers_after(
        self, placed: Sequence[PlacedRow], adapters: Sequence[str]
    ) -> npt.NDArray[np.int32]:
        """The writer of each slot after a call (GG0402 for a prefix of another adapter)."""
        self._adapters += [name for name in dict.fromkeys(adapters) if name not in self._adapters]
        made = self._writers.copy()
        for row, name in zip(placed, adapters, strict=True):
            number, before = self._adapters.index(name) + 1, self._slots_before(row)
            wrong = np.flatnonzero(made[before] != number)
            if len(wrong):
                other = self._adapters[int(made[before[wrong[0]]]) - 1]
                raise _refused(
                    f"adapter_ids has {name or None!r} for {row.given.name}, and the token in slot "
                    f"{before[wrong[0]]} of its prefix was computed with {other or None!r}",
                    "let sequences share blocks with sequences of their own adapter alone",
                )
            made[row.given.slots] = number
        return made

    def _slots_before(self, row: PlacedRow) -> Integers:
        """The slots of a row's tokens that are in the cache."""
        size, start = self._table.block, row.given.input.start
        used = row.blocks[: -(-start // size)]
        return (used[:, None] * size + np.arange(size)).reshape(-1)[:start]

    def forget(self) -> None:
        """Take all blocks back from the caller: rows have those of before, with nothing in them."""
        if self.active:
            self._session.use_layout(self._table.name, self._own)
            self._session.lengths[:] = 0
            self._writers[:] = 0
            self.active = False

    def check_ended(self) -> None:
        """Refuse a call without a table between calls that bring theirs (GG0402)."""
        if self.active:
            raise GraphgenError(
                "GG0402",
                "forward without block_table, after calls that brought one: the blocks of their "
                "sequences would be taken",
                help="give block_table, slot_mapping, full_context_lens and "
                "computed_context_lens in each call, or call reset() first",
            )

    def _blocks(self, row: TableRow) -> Integers:
        """The blocks of a row's positions, those of its slots where the table has none (GG0402)."""
        size, count = self._table.block, self._table.blocks
        choose_bucket([self._session.table.limit], row.end, "a sequence")
        needed = -(-row.end // size)
        given = row.table[:needed]
        wrong = given[(given < -1) | (given >= count)]
        if len(wrong):
            raise _refused(
                f"block_table of {row.name} has block {wrong[0]}; the cache has blocks 0 to "
                f"{count - 1}",
                "give blocks of pa_num_blocks, -1 for none",
            )
        wrong = row.slots[(row.slots < 0) | (row.slots >= count * size)]
        if len(wrong):
            raise _refused(
                f"slot_mapping of {row.name} has slot {wrong[0]} for a token; the cache has slots "
                f"0 to {count * size - 1}",
                "a slot is block * pa_block_size + offset",
            )
        blocks = np.full(needed, -1, np.int64)
        blocks[: len(given)] = given
        places = np.arange(row.input.start, row.end)
        columns = places // size
        blocks[columns] = np.where(blocks[columns] < 0, row.slots // size, blocks[columns])
        self._check_slots(row, blocks, places)
        if (blocks < 0).any():
            first = int((blocks < 0).argmax())
            raise _refused(
                f"block_table of {row.name} has no block for position {first * size}, and "
                f"computed_context_lens says that {row.input.start} tokens are in the cache",
                "give the blocks of all tokens, in the order of positions",
            )
        if len(set(blocks.tolist())) < needed:
            shown = blocks.tolist()
            twice = next(block for block in shown if shown.count(block) > 1)
            raise _refused(
                f"block_table of {row.name} has block {twice} twice for its {row.end} tokens: "
                f"{shown}",
                "a block holds one part of a sequence",
            )
        return blocks

    def _check_slots(self, row: TableRow, blocks: Integers, places: Integers) -> None:
        """Refuse a slot that is not that of its position in the table (GG0402)."""
        size = self._table.block
        wanted = blocks[places // size] * size + places % size
        if not np.array_equal(wanted, row.slots):
            at = int(np.argmax(wanted != row.slots))
            raise _refused(
                f"slot_mapping of {row.name} has slot {row.slots[at]} for position {places[at]}, "
                f"whose slot is {wanted[at]}: block {blocks[places[at] // size]} of its "
                f"block_table, blocks of {size}",
                "a slot is block * pa_block_size + position % pa_block_size",
            )

    def _check_written_once(self, rows: Sequence[TableRow]) -> None:
        """Refuse a slot that two rows write (GG0402)."""
        owners: dict[int, str] = {}
        for row in rows:
            for slot in row.slots.tolist():
                other = owners.setdefault(slot, row.name)
                if other != row.name:
                    raise _refused(
                        f"slot_mapping of {other} and of {row.name} both have slot {slot}",
                        "let sequences share blocks of tokens that are in the cache",
                    )

    def _check_read(self, placed: Sequence[PlacedRow]) -> None:
        """Refuse tokens in the cache that nothing has written (GG0402)."""
        earlier = set[int]()
        for row in placed:
            start, slots = row.given.input.start, self._slots_before(row)
            unknown = np.flatnonzero(self._writers[slots] == 0)
            empty = [place for place in unknown.tolist() if int(slots[place]) not in earlier]
            if empty:
                raise _refused(
                    f"computed_context_lens of {row.given.name} is {start}, and slot "
                    f"{slots[empty[0]]} of its position {empty[0]} was not written since the last "
                    "reset()",
                    "run the tokens before, or lower computed_context_lens",
                )
            earlier.update(row.given.slots.tolist())


def caller_blocks(session: Session, config: NeuronConfig) -> CallerBlocks | None:
    """The blocks that callers of a model hand out; ``None`` for a model that takes no tables.

    Raises:
        GraphgenError: GG0904 for a model whose caches are not all kept in blocks.
    """
    names = [name for name in ("is_prefix_caching", "is_chunked_prefill") if config.value(name)]
    if not names:
        return None
    if session.blocks is None:
        raise GraphgenError(
            "GG0904",
            f"{config.owner}.{names[0]} = True: a cache of this model that is not kept in blocks "
            "is not built yet",
            help=f"leave {names[0]} out",
        )
    return CallerBlocks(session, session.blocks, chunks="is_chunked_prefill" in names)


def _turns(placed: Sequence[PlacedRow], size: int) -> list[int]:
    """The turn of each row: after the earlier rows that write its blocks or read what it writes."""
    made: list[int] = []
    # The first turn after those that write a block, and after those that read it.
    written, read = dict[int, int](), dict[int, int]()
    for row in placed:
        reads = set(row.blocks[: -(-row.given.input.start // size)].tolist())
        writes = set((row.given.slots // size).tolist())
        turn = max(
            [0]
            + [written.get(block, 0) for block in reads]
            + [read.get(block, 0) for block in writes]
        )
        for block in writes:
            written[block] = max(written.get(block, 0), turn + 1)
        for block in reads:
            read[block] = max(read.get(block, 0), turn + 1)
        made.append(turn)
    return made


def _refused(what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0402", what, help=help)
