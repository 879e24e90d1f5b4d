"""``block_table``, ``slot_mapping`` and the lengths of ``forward``, as tokens per sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.forward_inputs import Integers, RowInput, cache_rows
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy, integers

BLOCK_ARGUMENTS: Final = (
    "slot_mapping",
    "block_table",
    "full_context_lens",
    "computed_context_lens",
)
_PADDING: Final = -1


@dataclass(frozen=True, slots=True)
class TableRow:
    """One sequence of a call with a table of blocks.

    Attributes:
        name: for errors.
        input: the new tokens; ``start`` is the number of tokens in the cache.
        table: [T], the blocks of the sequence in the order of positions; -1 for none.
        slots: one for each new token, ``block * block_size + offset``.
    """

    name: str
    input: RowInput
    table: Integers
    slots: Integers

    @property
    def end(self) -> int:
        """Tokens of the sequence after the call."""
        return self.input.start + len(self.input.tokens)


@dataclass(frozen=True, slots=True)
class CallArrays:
    """The arrays of a call with a table of blocks.

    Attributes:
        ids: integers [B,S], or [1,T] of the chunks of n sequences side by side.
        positions: as ``ids``.
        mask: [B,A], 1 for tokens; ``None`` where the lengths alone say which are.
        table: integers [n,T].
        slots: integers [n,N] or [T]; -1 for padding.
        full, computed: integers [n], tokens of each sequence after the call, and in the cache.
    """

    ids: Integers
    positions: Integers
    mask: Integers | None
    table: Integers
    slots: Integers
    full: Integers
    computed: Integers


def read_arrays(
    input_ids: object, position_ids: object, attention_mask: object, given: Mapping[str, object]
) -> CallArrays:
    """The arguments as integers.

    Args:
        input_ids: integers [B,S].
        position_ids: as ``input_ids``.
        attention_mask: [B,A], or ``None``.
        given: :data:`BLOCK_ARGUMENTS` by name; lengths are [n] or [n,1].

    Raises:
        GraphgenError: GG0402 for an argument that is missing, or of another shape.
    """
    missing = [name for name in BLOCK_ARGUMENTS if given.get(name) is None]
    if missing or position_ids is None:
        there = next(name for name in BLOCK_ARGUMENTS if given.get(name) is not None)
        raise _refused(
            f"{there} of forward without {', '.join(missing or ['position_ids'])}",
            f"give {', '.join(BLOCK_ARGUMENTS)} and position_ids together",
        )
    ids = integers("input_ids", input_ids, 2)
    positions = integers("position_ids", position_ids, 2)
    if positions.shape != ids.shape:
        what = f"position_ids is {[*positions.shape]}, input_ids {[*ids.shape]}"
        raise _refused(what, "give a position for each token")
    mask = None if attention_mask is None else integers("attention_mask", attention_mask, 2)
    slots = given["slot_mapping"]
    made = CallArrays(
        ids,
        positions,
        mask,
        integers("block_table", given["block_table"], 2),
        integers("slot_mapping", slots, as_numpy(slots).ndim or 1),
        _lengths("full_context_lens", given["full_context_lens"]),
        _lengths("computed_context_lens", given["computed_context_lens"]),
    )
    sizes = [len(made.table), len(made.full), len(made.computed)]
    if len(set(sizes)) > 1:
        raise _refused(
            f"block_table has {sizes[0]} rows, full_context_lens {sizes[1]} and "
            f"computed_context_lens {sizes[2]}",
            "give a row of blocks and both lengths for each sequence",
        )
    return made


def prefix_rows(arrays: CallArrays, seq_ids: object, rows: int) -> list[TableRow]:
    """The sequences of a call of ``is_prefix_caching``: one a row.

    The tokens of a row are the whole prompt, of which those in the cache are left out here, or the
    new ones alone: the first position says which.

    Args:
        arrays: of the call.
        seq_ids: [B]; by default 0, 1, ...
        rows: of the cache.

    Raises:
        GraphgenError: GG0402 for arguments that do not fit each other.
    """
    batch = len(arrays.ids)
    if len(arrays.table) != batch or arrays.slots.ndim != 2 or len(arrays.slots) != batch:
        raise _refused(
            f"input_ids has {batch} rows, block_table {len(arrays.table)}, and slot_mapping is "
            f"{[*arrays.slots.shape]}",
            "give each row of input_ids a row of both",
        )
    chosen = cache_rows(seq_ids, batch, rows)
    return [_prefix_row(arrays, line, int(row)) for line, row in enumerate(chosen)]


def _prefix_row(arrays: CallArrays, line: int, row: int) -> TableRow:
    name = f"row {line}"
    start, end = _check_lengths(arrays, line, name)
    ids, positions = arrays.ids[line], arrays.positions[line]
    column = start if positions[0] == 0 else 0
    count = end - start
    _check_width(name, column + count, len(ids))
    _check_positions(name, positions[column : column + count], start)
    after = column + count
    # Padding has position 0 or 1.
    if end > 1 and after < len(positions) and positions[after] == end:
        raise _refused(
            f"position_ids of {name} go on to {end}, and full_context_lens is {end}",
            "count all tokens of a row, on its left; padding has other positions",
        )
    if arrays.mask is not None:
        # Of the sequence, of the new tokens, or of those before: so a step's is inferred there.
        _check_mask(name, arrays.mask, line, (end, count, start))
    slots = _trimmed(name, arrays.slots[line])
    if len(slots) not in (count, end):
        raise _refused(
            f"slot_mapping of {name} has {len(slots)} slots, and full_context_lens "
            f"{end} with computed_context_lens {start} leaves {count} new tokens",
            "give a slot for each new token, -1 for padding",
        )
    tokens = tuple(ids[column : column + count].tolist())
    made = RowInput(row, start, tokens, column, line)
    return TableRow(name, made, arrays.table[line], slots[len(slots) - count :])


def chunk_rows(arrays: CallArrays, rows: int) -> list[TableRow | None]:
    """The sequences of a call of ``is_chunked_prefill``: side by side in one row.

    Args:
        arrays: of the call; ``ids`` is [1,T], and the chunk of a sequence begins where that of the
            one before ends.
        rows: of the cache.

    Returns:
        A sequence for each row of the table; ``None`` for one without a new token.

    Raises:
        GraphgenError: GG0402 for arguments that do not fit each other.
    """
    count, slots = len(arrays.table), arrays.slots.reshape(-1)
    if len(arrays.ids) != 1 or len(slots) != arrays.ids.shape[1]:
        raise _refused(
            f"input_ids is {[*arrays.ids.shape]} and slot_mapping {[*arrays.slots.shape]}",
            "chunks stand side by side in one row: input_ids [1,T], slot_mapping [T]",
        )
    if count > rows:
        raise _refused(
            f"block_table has {count} rows; the programs were compiled for {rows} sequences",
            f"compile with ChunkedPrefillConfig(max_num_seqs={count}), or give fewer",
        )
    made: list[TableRow | None] = []
    column = 0
    for place in range(count):
        name = f"sequence {place}"
        start, end = _check_lengths(arrays, place, name, idle=True)
        after = column + end - start
        _check_width(name, after, len(slots))
        if after == column:
            made.append(None)
            continue
        _check_positions(name, arrays.positions[0, column:after], start)
        tokens = tuple(arrays.ids[0, column:after].tolist())
        made.append(
            TableRow(
                name,
                RowInput(place, start, tokens, column),
                arrays.table[place],
                slots[column:after],
            )
        )
        column = after
    if (slots[column:] != _PADDING).any() or not column:
        raise _refused(
            f"full_context_lens and computed_context_lens leave {column} new tokens, and "
            f"slot_mapping has {int((slots != _PADDING).sum())} slots",
            "give a slot for each new token, -1 for padding",
        )
    return made


def _lengths(name: str, value: object) -> Integers:
    """[n], of [n] or [n,1] (GG0402)."""
    array = as_numpy(value)
    column = array.ndim == 2 and array.shape[1] == 1
    return integers(name, array.reshape(-1) if column else array, 1)


def _check_lengths(
    arrays: CallArrays, place: int, name: str, *, idle: bool = False
) -> tuple[int, int]:
    """The tokens of a sequence before and after the call (GG0402)."""
    start, end = int(arrays.computed[place]), int(arrays.full[place])
    if start < 0 or end < start or (end == start and not idle):
        raise _refused(
            f"full_context_lens of {name} is {end}, computed_context_lens {start}",
            "the first counts the tokens in the cache and the new ones, at least one, the second "
            "those in the cache",
        )
    return start, end


def _check_width(name: str, needed: int, width: int) -> None:
    if needed > width:
        raise _refused(
            f"the tokens of {name} end at column {needed} by its full_context_lens, and input_ids "
            f"has {width} columns",
            "give the whole prompt with positions from 0 on, or the new tokens with theirs",
        )


def _check_positions(name: str, positions: Integers, start: int) -> None:
    wanted = np.arange(start, start + len(positions))
    if not np.array_equal(positions, wanted):
        wrong = int(np.argmax(positions != wanted))
        raise _refused(
            f"position_ids of {name} has {positions[wrong]} for its token {wanted[wrong]}: the new "
            f"tokens begin at computed_context_lens {start}",
            "number the tokens of a sequence from 0 on, those in the cache first",
        )


def _check_mask(name: str, mask: Integers, line: int, counts: Sequence[int]) -> None:
    """Refuse a mask of another number of tokens than the lengths say (GG0402)."""
    found = int((mask[line] != 0).sum()) if line < len(mask) else 0
    if found not in counts:
        raise _refused(
            f"attention_mask of {name} has {found} tokens, and full_context_lens says {counts[0]}",
            "give a 1 for each token of the sequence, or leave attention_mask out",
        )


def _trimmed(name: str, slots: Integers) -> Integers:
    """The slots of a row without padding on either side (GG0402 for some between)."""
    used = np.flatnonzero(slots != _PADDING)
    found = slots[used[0] : used[-1] + 1] if len(used) else slots[:0]
    if len(found) > len(used):
        what = f"slot_mapping of {name} has -1 between slots: {found.tolist()}"
        raise _refused(what, "give a slot for each new token, -1 after the last")
    return found


def _refused(what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0402", what, help=help)
