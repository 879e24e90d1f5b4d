"""Blocks of a paged cache for sequences whose rows are known, without a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphgen.runtime.session import Session


def reserve_blocks(session: Session, needs: Mapping[int, int]) -> None:
    """Give rows blocks for their next positions; rows of plain slots have them already.

    Rows keep the blocks that their tokens are in; of the others they give up what they do not need.

    Args:
        session: whose table of blocks changes.
        needs: the number of positions from 0 on, by row.

    Raises:
        GraphgenError: GG0701 where there are too few blocks; nothing has changed then.
    """
    if session.blocks is None:
        return
    table = session.blocks.reserved(needs, session.lengths)
    if table is not session.blocks.table:
        session.use_layout(session.blocks.name, table)
