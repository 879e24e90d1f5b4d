"""Trees of tokens written as the parent of each node, parents first; node 0 is the root."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def depths(parents: Sequence[int]) -> list[int]:
    """The distance of each node from the root.

    Args:
        parents: of each node the number of an earlier one; -1 for node 0.
    """
    made: list[int] = []
    for parent in parents:
        made.append(made[parent] + 1 if made else 0)
    return made


def ancestors(parents: Sequence[int]) -> npt.NDArray[np.int32]:
    """s32 [n,n]: 1 where a node is itself or an ancestor of the node of the row.

    Args:
        parents: as for :func:`depths`.
    """
    made = np.eye(len(parents), dtype=np.int32)
    for node, parent in enumerate(parents[1:], 1):
        made[node] |= made[parent]
    return made
