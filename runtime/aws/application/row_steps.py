"""The steps of a session that one call of ``forward`` takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.runtime.aws.application.forward_inputs import RowInput
from graphgen.runtime.session import RowResults, Session
from graphgen.runtime.step_call import Draw, packed

Embeddings = npt.NDArray[np.float32]
# Outputs with a column for each token, as ``router_logits.0``.
_PER_TOKEN = ("hidden_states", "router_logits", "expert_index")


def run_rows(
    session: Session,
    rows: Sequence[RowInput],
    width: int,
    draw: Draw | None,
    embeds: Embeddings | None = None,
) -> RowResults:
    """The results of each row of a call, in its order.

    Rows with several tokens and rows with one go through different programs, and so do prompts and
    parts that continue a sequence: each kind is a step of its own.

    Args:
        session: the programs.
        rows: of the call.
        width: S, columns of the call; outputs per token have as many.
        draw: sampling inputs of each row, for programs that sample.
        embeds: f32 [B,S,E], for programs that take embeddings.
    """
    kinds: dict[tuple[bool, bool], list[int]] = {}
    for index, row in enumerate(rows):
        several = len(row.tokens) > 1
        kinds.setdefault((several, several and row.start > 0), []).append(index)
    numbered = {f"{name}.0" for name in _PER_TOKEN}
    if len(kinds) == 1 and numbered.isdisjoint(session.module.interface):
        # As it is, without a copy: logits of some rows are megabytes.
        return _step(session, rows, range(len(rows)), draw, embeds)
    made: dict[str, npt.NDArray[np.generic]] = {}
    for chosen in kinds.values():
        part = _step(session, rows, chosen, draw, embeds)
        for name, array in part.outputs.items():
            per_token = name.partition(".")[0] in _PER_TOKEN
            shape = (width, *array.shape[2:]) if per_token else array.shape[1:]
            home = made.setdefault(name, np.zeros((len(rows), *shape), array.dtype))
            if not per_token:
                home[chosen] = array
                continue
            for place, index in enumerate(chosen):
                home[index, _columns(rows[index])] = array[place, : len(rows[index].tokens)]
    return RowResults(made)


def _columns(row: RowInput) -> slice:
    """The columns of a row's tokens in the call."""
    return slice(row.column, row.column + len(row.tokens))


def _step(
    session: Session,
    rows: Sequence[RowInput],
    chosen: Sequence[int],
    draw: Draw | None,
    embeds: Embeddings | None,
) -> RowResults:
    """Run some rows of a call; ``chosen`` are their places in it."""
    picked = [rows[index] for index in chosen]
    tokens, positions = packed([row.tokens for row in picked], [row.start for row in picked])
    given: npt.NDArray[np.int32 | np.float32] = tokens
    if embeds is not None:
        given = np.zeros((*tokens.shape, embeds.shape[2]), np.float32)
        for place, (index, row) in enumerate(zip(chosen, picked, strict=True)):
            given[place, : len(row.tokens)] = embeds[index, _columns(row)]
    seq_ids = np.array([row.row for row in picked], np.int32)
    part = None if draw is None else draw.of(np.array(chosen, np.intp))
    return session.step(given, positions, seq_ids, part)
