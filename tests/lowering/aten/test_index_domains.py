"""Indices that torch refuses: the domain of an input that goes straight to such a reader."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphgen.ir import Domain
from graphgen.lowering.aten.program import read_exported
from graphgen.passes.raising.symbolize_shapes import lift_sizes
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles.exported import export


class Reads(nn.Module):
    """A table that is read in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 3)

    def forward(
        self,
        ids: Tensor,
        chosen: Tensor,
        places: Tensor,
        shifted: Tensor,
        taken: Tensor,
        free: Tensor,
    ) -> tuple[Tensor, ...]:
        weight = self.table.weight
        return (
            self.table(ids.reshape(2, 2)),
            torch.index_select(weight, 0, chosen),
            weight[places],
            weight[shifted + 1],
            weight.gather(0, taken.reshape(2, 2)),
            free * 2,
        )


NAMES = ("ids", "chosen", "places", "shifted", "taken", "free")


def test_inputs_have_the_domain_that_torch_accepts():
    given = [torch.zeros(4, dtype=torch.int64) for _ in NAMES]
    module = read_exported(export(Reads(), *given)).module
    found = {name: module.interface[name].domain for name in NAMES}
    assert found == {
        "ids": Domain(0, 10),
        "chosen": Domain(0, 10),
        "places": Domain(-11, 10),
        # Computed from what is given, and any number.
        "shifted": None,
        "taken": Domain(0, 10),
        "free": None,
    }
    calls = make_workload(module).calls
    ids = {int(x) for call in calls for x in call.inputs["ids"].ravel()}
    assert {0, 10} <= ids <= set(range(11))


INDEXED = """\
module @m level=canonical {
  input %x : f32[11,2]
  input %at : s32[12] domain=[0,10]
  output %y : f32[12,2]
}

func @main phase=main {
  arg %x : f32[11,2]
  arg %at : s32[12]
  %y = embedding(%x, %at) : f32[12,2]
  return y = %y
}
"""


@pytest.mark.parametrize(("size", "left"), [(11, None), (12, Domain(0, 10))])
def test_a_domain_goes_with_the_number_that_it_ends_at(size: int, left: Domain | None):
    module = parse(INDEXED)
    lift_sizes(module, {"N": size})
    assert module.interface["at"].domain == left
