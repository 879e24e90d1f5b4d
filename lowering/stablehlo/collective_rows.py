"""Rows of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.lowering.stablehlo.op_row import StableHloField, StableHloRow, groups, integer

_GROUPS = groups("replica_groups")
_SPLIT_COUNT = StableHloField(
    "split_count",
    "",
    lambda node: {},
    lambda attrs: f"{len(attrs.groups('replica_groups')[0])} : i64",
)

# fmt: off
COLLECTIVE_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("all_reduce", "stablehlo.all_reduce", (_GROUPS,), form="generic", reduces=True,
        each=True),
    StableHloRow("all_gather", "stablehlo.all_gather",
        (integer("dimension", "all_gather_dim"), _GROUPS), form="generic", each=True),
    StableHloRow("reduce_scatter", "stablehlo.reduce_scatter",
        (integer("dimension", "scatter_dimension"), _GROUPS), form="generic", reduces=True),
    StableHloRow("all_to_all", "stablehlo.all_to_all",
        (integer("split_dimension"), integer("concat_dimension"), _SPLIT_COUNT, _GROUPS),
        form="generic", each=True),
    StableHloRow("collective_permute", "stablehlo.collective_permute",
        (groups("source_target_pairs", empty="dense<> : tensor<0x2xi64>"),), form="generic"),
)
# fmt: on
