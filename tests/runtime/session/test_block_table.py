"""The table of a paged cache: what a step needs of it."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.session.block_table import BlockTable
from graphgen.runtime.session.step_call import StepCall


def test_a_step_beyond_the_blocks_of_its_row_is_refused():
    table = np.array([[3, 0, -1], [1, 2, 4]], np.int32)
    rows = np.array([1, 0], np.int32)
    # Row 1 has 12 slots, row 0 has 8.
    for last, refused in ((7, False), (8, True)):
        positions = np.array([[11], [last]], np.int32)
        call = StepCall(np.zeros((2, 1), np.int32), positions, rows, None)
        if not refused:
            BlockTable("block_table", 4, 5, table).check(call)
            continue
        with pytest.raises(GraphgenError) as caught:
            BlockTable("block_table", 4, 5, table).check(call)
        assert caught.value.code == "GG0705"
        assert caught.value.what == "row 0 has blocks for 8 positions, and the step needs 9"
