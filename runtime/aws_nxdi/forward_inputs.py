"""The inputs of ``forward`` as tokens per cache row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.user_arrays import integers

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowInput:
    """One row of a call.

    Attributes:
        row: the row of the cache, its ``seq_id``.
        start: position of the first token.
        tokens: without padding.
        column: of the first token in ``input_ids``.
        line: of the tokens in ``input_ids``, which a prompt has to itself and chunks share.
        turn: rows of a turn run together, after those of the turns before.
    """

    row: int
    start: int
    tokens: tuple[int, ...]
    column: int = 0
    line: int = 0
    turn: int = 0


def read_rows(
    input_ids: object,
    attention_mask: object = None,
    position_ids: object = None,
    seq_ids: object = None,
    *,
    lengths: npt.NDArray[np.int32],
) -> list[RowInput]:
    """The rows of a call, in its order.

    A prompt may be padded on either side. Without ``position_ids`` a row with one token continues
    its sequence, if it has one; a longer row is a prompt.

    Args:
        input_ids: integers [B,S].
        attention_mask: [B,S] for prompts, [B,A] over earlier tokens too; 1 for tokens.
        position_ids: [B,S]; the value at padding is ignored.
        seq_ids: [B]; by default 0, 1, ...
        lengths: tokens in each row of the cache so far.

    Raises:
        GraphgenError: GG0402 for inputs that do not fit each other or the cache, GG0702 for a row
            without a token.
    """
    ids = integers("input_ids", input_ids, 2)
    mask = None if attention_mask is None else integers("attention_mask", attention_mask, 2)
    positions = None if position_ids is None else integers("position_ids", position_ids, 2)
    rows = cache_rows(seq_ids, len(ids), len(lengths))
    _check_shapes(ids, mask, positions)
    made = [
        _row(
            int(row),
            ids[index],
            None if mask is None else mask[index],
            None if positions is None else positions[index],
            int(lengths[row]),
        )
        for index, row in enumerate(rows)
    ]
    return [replace(row, line=line) for line, row in enumerate(made)]


def cut_rows(rows: Sequence[RowInput], most: int) -> tuple[list[RowInput], int]:
    """The rows of a call with prompts of ``most`` tokens at most, and how many were cut.

    The first tokens stay, as in NxD Inference.
    """
    cut = [replace(row, tokens=row.tokens[:most]) if row.start == 0 else row for row in rows]
    return cut, sum(a.tokens != b.tokens for a, b in zip(rows, cut, strict=True))


def cache_rows(seq_ids: object, batch: int, rows: int) -> Integers:
    """The cache rows of a call (GG0402)."""
    chosen = np.arange(batch) if seq_ids is None else integers("seq_ids", seq_ids, 1)
    if batch > rows or len(chosen) != batch:
        raise GraphgenError(
            "GG0402",
            f"input_ids has {batch} rows and seq_ids {len(chosen)}; the programs were compiled "
            f"for up to {rows}",
        )
    if len(set(chosen.tolist())) < batch or chosen.min() < 0 or chosen.max() >= rows:
        raise GraphgenError(
            "GG0402", f"seq_ids {chosen.tolist()} are not different numbers from 0 to {rows - 1}"
        )
    return chosen


def _check_shapes(ids: Integers, mask: Integers | None, positions: Integers | None) -> None:
    """Refuse shapes that do not belong together (GG0402)."""
    batch, size = ids.shape
    if positions is not None and positions.shape != ids.shape:
        what = f"position_ids is {[*positions.shape]}, input_ids {[batch, size]}"
        raise GraphgenError("GG0402", what, help="give a position for each token")
    if mask is not None and (len(mask) != batch or mask.shape[1] < size):
        what = f"attention_mask is {[*mask.shape]}, input_ids {[batch, size]}"
        raise GraphgenError("GG0402", what, help="give a row for each row, 1 for tokens")


def _row(
    row: int, ids: Integers, mask: Integers | None, positions: Integers | None, cached: int
) -> RowInput:
    if len(ids) == 1:
        position = _position(row, mask, positions, cached)
        if position:
            return RowInput(row, position, (int(ids[0]),))
    here = _tokens_of_prompt(row, ids, mask, positions)
    if not here.any():
        raise GraphgenError("GG0702", f"the row of seq_id {row} has no token")
    start = 0 if positions is None else int(positions[here][0])
    if positions is not None and not np.array_equal(
        positions[here], np.arange(start, start + int(here.sum()))
    ):
        raise GraphgenError(
            "GG0402",
            f"position_ids of seq_id {row} do not count up: {positions[here].tolist()}",
            help="number the tokens of a row one after the other",
        )
    _check_start(row, start, cached)
    return RowInput(row, start, tuple(ids[here].tolist()), int(here.argmax()))


def _check_start(row: int, start: int, cached: int) -> None:
    """Refuse a gap between the cache and the tokens (GG0402)."""
    if not 0 <= start <= cached:
        raise GraphgenError(
            "GG0402",
            f"the tokens of seq_id {row} start at position {start}; the row holds {cached} tokens",
            help="run the prompt first; positions have no gaps",
        )


def _position(row: int, mask: Integers | None, positions: Integers | None, cached: int) -> int:
    """The position of a single token; 0 for a prompt (GG0402)."""
    attended = None if mask is None or mask.shape == (1,) else int((mask != 0).sum())
    if positions is not None:
        position = int(positions[0])
        if attended is not None and attended != position + 1:
            raise GraphgenError(
                "GG0402",
                f"attention_mask of seq_id {row} has {attended} tokens, position_ids says "
                f"{position}, which is {position + 1}",
                help="the mask covers the earlier tokens and the new one",
            )
    else:
        position = cached if attended is None else attended - 1
    _check_start(row, position, cached)
    return position


def _tokens_of_prompt(
    row: int, ids: Integers, mask: Integers | None, positions: Integers | None
) -> npt.NDArray[np.bool_]:
    """True for tokens, False for padding (GG0402)."""
    if mask is not None:
        here = mask[: len(ids)] != 0
        if mask[len(ids) :].any():
            what = f"attention_mask of seq_id {row} has tokens after the end of input_ids"
            raise GraphgenError("GG0402", what)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], here, [False])).astype(np.int8)))
        if len(edges) > 2:
            what = f"attention_mask of seq_id {row} has padding between tokens"
            raise GraphgenError("GG0402", what, help="pad on one side of the tokens")
        return here
    if positions is None:
        return np.ones(len(ids), np.bool_)
    return _counted(row, positions)


def _counted(row: int, positions: Integers) -> npt.NDArray[np.bool_]:
    """True from position 0 on, as long as positions count up; padding has position 1 or -1.

    Positions 0, 1, 1 may be of one token or of two. Without a 0, every token from position 1 on
    continues its sequence.
    """
    starts = np.flatnonzero(positions == 0)
    if not len(starts) and positions[-1] > 0 and np.all(np.diff(positions) == 1):
        return np.ones(len(positions), np.bool_)
    if len(starts) != 1:
        what = f"position_ids of seq_id {row} has {len(starts)} times 0: {positions.tolist()}"
        raise GraphgenError("GG0402", what, help="give attention_mask")
    start = int(starts[0])
    counts = positions[start:] == np.arange(len(positions) - start)
    size = int(np.argmin(counts)) if not counts.all() else len(counts)
    if size == 2 and len(counts) > 2 and positions[start + 2] == 1:
        what = f"position_ids of seq_id {row} is 0, 1, 1: of one token or of two"
        raise GraphgenError("GG0402", what, help="give attention_mask")
    here = np.zeros(len(positions), np.bool_)
    here[start : start + size] = True
    return here
