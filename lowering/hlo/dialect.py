"""Ops of HLO: one row per op, for writing and for reading.

Start with ``op_row``, the form of a row. To add an op, add its row to ``tensor_rows`` or to the
rows of its family.
"""

from __future__ import annotations

from graphgen.lowering.codec import by_name, by_op
from graphgen.lowering.hlo.collective_rows import COLLECTIVE_ROWS
from graphgen.lowering.hlo.control_rows import CONTROL_ROWS
from graphgen.lowering.hlo.external_rows import EXTERNAL_ROWS
from graphgen.lowering.hlo.numerical_rows import BATCH_NORM_ROWS, NUMERICAL_ROWS
from graphgen.lowering.hlo.tensor_rows import TENSOR_ROWS
from graphgen.lowering.hlo.window_rows import WINDOW_ROWS

ROWS = (
    *TENSOR_ROWS,
    *WINDOW_ROWS,
    *NUMERICAL_ROWS,
    *BATCH_NORM_ROWS,
    *COLLECTIVE_ROWS,
    *CONTROL_ROWS,
    *EXTERNAL_ROWS,
)
# Rows that write, by the IR's op; rows that read, by opcode.
BY_OP, BY_NAME = by_op(ROWS), by_name(ROWS)
