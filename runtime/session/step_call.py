"""The inputs of one step of a session: tokens, their positions, cache rows and sampling inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampling inputs of one step.

    Attributes:
        params: f32 [n,3]: top_k (0 for all), the end of top_p, and temperature (0 for the best
            token) per row.
        random: f32 [n], numbers in [0, 1); f32 [n,N] for several steps,
            f32 [n,N,3] where these are a speculative one.
        kept: s32 [n], tokens that top_p keeps at least; for programs that take them.
    """

    params: Floats
    random: Floats
    kept: Ints | None = None

    def of(self, rows: Index) -> Draw:
        """The inputs of some rows."""
        kept = None if self.kept is None else self.kept[rows]
        return Draw(self.params[rows], self.random[rows], kept)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The numbers of steps that the rows of a launch take, where it makes several.

    Attributes:
        counts: s32 [n], largest number of steps of a row; 0 for an idle row.
        stops: s32 [n,E], tokens after which a row takes no further step; -1 for none.
    """

    counts: Ints
    stops: Ints

    def of(self, rows: Index) -> StepLimits:
        """The limits of some rows."""
        return StepLimits(self.counts[rows], self.stops[rows])


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step of n rows, or the first of several steps.

    Attributes:
        tokens: s32 [n,S], or f32 [n,S,E] of embeddings.
        positions: s32 [n,S], -1 for padding.
        seq_ids: s32 [n], rows of the cache.
        draw: sampling inputs of n rows.
        limits: of a launch of several steps.
        features: f32 [n,S,W], for programs that take features beside tokens.
        ancestors: s32 [n,S,S], not 0 where a token reads another one of its row, of tokens that
            form a tree; ``None`` for tokens that follow each other.
    """

    tokens: npt.NDArray[np.int32 | np.float32]
    positions: Ints
    seq_ids: Ints
    draw: Draw | None
    limits: StepLimits | None = None
    features: Floats | None = None
    ancestors: Ints | None = None

    @property
    def ends(self) -> Ints:
        """s32 [n]: the most tokens in each row after the launch."""
        more = 0 if self.limits is None else np.maximum(self.limits.counts - 1, 0)
        return (self.lengths + more).astype(np.int32)

    @property
    def lengths(self) -> Ints:
        """s32 [n]: tokens in each row after the step; 0 for a row without a token.

        All nodes of a tree count.
        """
        if self.ancestors is not None:
            count = (self.positions >= 0).sum(1)
            return np.where(count, self.positions[:, 0] + count, 0).astype(np.int32)
        return (self.positions.max(1) + 1).astype(np.int32)

    @property
    def starts(self) -> Ints:
        """s32 [n]: the first position of each row; 0 for a row without a token."""
        return (self.lengths - (self.positions >= 0).sum(1)).astype(np.int32)

    def part(self, rows: Index, columns: Index) -> StepCall:
        """Some rows and columns."""
        if len(rows) == len(self.seq_ids) and len(columns) == self.positions.shape[1]:
            return self
        draw = None if self.draw is None else self.draw.of(rows)
        limits = None if self.limits is None else self.limits.of(rows)
        tokens, positions = self.tokens[rows][:, columns], self.positions[rows][:, columns]
        features = None if self.features is None else self.features[rows][:, columns]
        tree = self.ancestors
        tree = None if tree is None else tree[rows][:, columns][:, :, columns]
        return StepCall(tokens, positions, self.seq_ids[rows], draw, limits, features, tree)

    def check(self, width: int, held: Ints) -> None:
        """Refuse inputs that contradict each other or the cache (GG0705).

        Args:
            width: E of programs that take embeddings; 0 for those that take tokens.
            held: s32 [R], tokens in each cache row.
        """
        shape, rank = self.positions.shape, 3 if width else 2
        if len(shape) != 2 or self.tokens.ndim != rank or self.tokens.shape[:2] != shape:
            wanted = "[n,S,E], the embeddings of tokens," if width else "[n,S]"
            raise _refused(
                f"tokens {_text(self.tokens)} and positions {_text(self.positions)}: these "
                f"programs take tokens {wanted} and positions [n,S]",
                "n rows of S tokens each",
            )
        if width and self.tokens.shape[2] != width:
            given = self.tokens.shape[2]
            raise _refused(
                f"the embeddings have {given} numbers, not {width}", "give those of this model"
            )
        if self.seq_ids.shape != shape[:1]:
            raise _refused(f"seq_ids {_text(self.seq_ids)} for {shape[0]} rows", "one for each row")
        self._check_rows(len(held))
        self._check_positions(held)
        if self.draw is not None and len(self.draw.params) != shape[0]:
            given = len(self.draw.params)
            raise _refused(
                f"sampling inputs of {given} rows for {shape[0]} rows", "one for each row"
            )

    def _check_rows(self, rows: int) -> None:
        ids = self.seq_ids.tolist()
        outside = [row for row in ids if not 0 <= row < rows]
        if outside:
            raise _refused(
                f"cache row {outside[0]} does not exist: the cache has {rows} rows",
                f"rows are 0 to {rows - 1}",
            )
        if len(set(ids)) < len(ids):
            twice = next(row for row in ids if ids.count(row) > 1)
            raise _refused(f"cache row {twice} is given twice", "give each row of a step its own")

    def _check_positions(self, held: Ints) -> None:
        real, starts = self.positions >= 0, self.starts
        after = np.cumsum(real, 1, dtype=np.int32) if self.ancestors is None else self._depths()
        wanted = starts[:, None] + after - 1
        wrong = np.argwhere(real & (self.positions != wanted))
        if len(wrong) and self.ancestors is not None:
            row, column = wrong[0]
            raise _refused(
                f"node {column} of row {row} has position {self.positions[row, column]} and "
                f"{after[row, column] - 1} ancestors after position {starts[row]}",
                "a node's position is that of node 0 and one more for each of its other ancestors",
            )
        if len(wrong):
            row, column = wrong[0]
            raise _refused(
                f"positions of row {row} are not consecutive: {self.positions[row, column]} at "
                f"column {column}",
                "number the tokens of a row one after the other; -1 is padding",
            )
        holes = np.flatnonzero(starts > held[self.seq_ids])
        if len(holes):
            row = int(holes[0])
            cache_row = int(self.seq_ids[row])
            raise _refused(
                f"row {row} starts at position {starts[row]}, but cache row {cache_row} holds "
                f"{held[cache_row]} tokens",
                "go on where the row ends, or earlier",
            )

    def _depths(self) -> Ints:
        """s32 [n,S]: the nodes that each node of a tree reads, itself included (GG0705)."""
        assert self.ancestors is not None
        shape = self.positions.shape
        if self.ancestors.shape != (*shape, shape[-1]):
            raise _refused(
                f"ancestors {_text(self.ancestors)} for positions {_text(self.positions)}",
                "one row of S numbers for each token, 0 where it does not read the other one",
            )
        reads = self.ancestors != 0
        later = np.triu(reads, 1).any((1, 2)) | ~np.diagonal(reads, 0, 1, 2).all(1)
        if later.any():
            raise _refused(
                f"a node of row {int(later.argmax())} reads a later one, or not itself",
                "write parents before children; every node reads itself and its ancestors",
            )
        return reads.sum(2).astype(np.int32)


def next_tokens(
    held: Ints,
    tokens: Sequence[int],
    active: Sequence[bool] | Mask | None,
    draw: Draw | None,
    limits: StepLimits | None = None,
) -> StepCall:
    """A step of one token of each active row of a cache, at its length.

    Args:
        held: s32 [R], tokens in each row.
        tokens: one a row; ignored for idle rows.
        active: pred [R], of the rows that take part; ``None`` for all.
        draw: sampling inputs of R rows.
        limits: where a launch makes several steps.
    """
    active = np.ones(len(held), np.bool_) if active is None else np.asarray(active, np.bool_)
    positions = np.where(active, held, -1).astype(np.int32)[:, None]
    column = np.where(active, np.asarray(tokens, np.int32), 0).astype(np.int32)[:, None]
    return StepCall(column, positions, np.arange(len(held), dtype=np.int32), draw, limits)


def step_call(
    tokens: npt.ArrayLike,
    positions: npt.ArrayLike,
    seq_ids: npt.ArrayLike | None,
    draw: Draw | None,
    width: int,
    held: Ints,
    features: npt.ArrayLike | None = None,
    ancestors: npt.ArrayLike | None = None,
) -> StepCall:
    """The checked inputs of a step.

    Args:
        tokens: as for :class:`StepCall`.
        positions: as for :class:`StepCall`.
        seq_ids: as for :class:`StepCall`; by default 0 to n - 1.
        draw: sampling inputs of n rows.
        width: E of programs that take embeddings; 0 for those that take tokens.
        held: s32 [R], tokens in each cache row.
        features: f32 [n,S,W], for programs that take them.
        ancestors: s32 [n,S,S], of tokens that form a tree.

    Raises:
        GraphgenError: GG0705 for inputs that contradict each other or the cache.
    """
    places = np.asarray(positions, np.int32)
    ids = np.arange(len(places)) if seq_ids is None else seq_ids
    given: npt.NDArray[np.int32 | np.float32] = (
        np.asarray(tokens, np.float32) if width else np.asarray(tokens, np.int32)
    )
    more = None if features is None else np.asarray(features, np.float32)
    tree = None if ancestors is None else np.asarray(ancestors, np.int32)
    call = StepCall(given, places, np.asarray(ids, np.int32), draw, None, more, tree)
    call.check(width, held)
    if more is not None and more.shape[:2] != places.shape:
        what = f"features {_text(more)} for positions {_text(places)}"
        raise _refused(what, "n rows of S tokens each, W numbers a token")
    return call


def packed(rows: Sequence[Sequence[int]], starts: Sequence[int] | None = None) -> tuple[Ints, Ints]:
    """Tokens and positions of rows of different lengths.

    Args:
        rows: n rows of token ids.
        starts: position of the first token of each row; 0 by default.

    Returns:
        s32 [n,S] each, S the length of the longest row; on the right token 0 and position -1.
    """
    width = max((len(row) for row in rows), default=0)
    tokens = np.zeros((len(rows), width), np.int32)
    positions = np.full((len(rows), width), -1, np.int32)
    for index, row in enumerate(rows):
        start = 0 if starts is None else starts[index]
        tokens[index, : len(row)] = row
        positions[index, : len(row)] = np.arange(start, start + len(row))
    return tokens, positions


def padded(
    prompts: Sequence[Sequence[int]], rows: int, width: int, padding: str
) -> tuple[Ints, Ints]:
    """Tokens and positions of prompts in the first rows, each from position 0 on.

    Args:
        prompts: at most ``rows`` of at most ``width`` tokens.
        rows: of the result.
        width: of the result.
        padding: the padded side of shorter prompts, ``left`` or ``right``.

    Returns:
        s32 [rows,width] each; token 0 and position -1 for padding.
    """
    tokens = np.zeros((rows, width), np.int32)
    positions = np.full((rows, width), -1, np.int32)
    for row, prompt in enumerate(prompts):
        size = len(prompt)
        start = width - size if padding == "left" else 0
        tokens[row, start : start + size] = prompt
        positions[row, start : start + size] = np.arange(size, dtype=np.int32)
    return tokens, positions


def _text(array: npt.NDArray[np.generic]) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _refused(what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", what, help=help)
