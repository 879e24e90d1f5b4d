"""A tensor of torch's as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.lowering.aten.dtypes import TORCH, dtype_of

if TYPE_CHECKING:
    from torch import Tensor

_BITS = {1: "uint8", 2: "uint16"}


def array_of(given: Tensor) -> Array:
    """The elements of a tensor, in memory of their own only where they were not in order.

    Types that NumPy does not know, such as bf16, are read by their bits.
    """
    import torch

    dtype = numpy_dtype(dtype_of(given.dtype))
    # A view would not see what lies between elements that are not in order.
    ordered = given.detach().cpu().resolve_neg().contiguous()
    known = {name for name in TORCH if hasattr(np, name)} | {"bool"}
    if str(given.dtype).removeprefix("torch.") in known:
        return np.asarray(ordered.numpy())
    bits = getattr(torch, _BITS[dtype.itemsize])
    return np.asarray(ordered.view(bits).numpy()).view(dtype)
