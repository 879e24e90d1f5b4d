"""Options of convolutions: a number a dimension, or one for all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphgen.lowering.aten.program import array_of, read_exported


class Convolution(nn.Module):
    def __init__(self, stride: list[int], padding: list[int]) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        options = (self.stride, self.padding, [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution.default(x, w, None, *options)


@pytest.mark.parametrize(("stride", "padding"), [([2, 1], [0, 1]), ([2], [1])])
def test_one_number_is_for_all_dimensions(stride: list[int], padding: list[int]):
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=random) for shape in ((2, 3, 6, 5), (4, 3, 3, 2)))
    model = Convolution(stride, padding)
    exported = torch.export.export(model, (x, w), strict=False)
    (found,) = (
        read_exported(exported, "m").module.evaluate({"x": array_of(x), "w": array_of(w)}).values()
    )
    np.testing.assert_allclose(np.asarray(found), model(x, w).numpy(), rtol=1e-5, atol=1e-5)
