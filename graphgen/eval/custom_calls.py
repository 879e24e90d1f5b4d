"""What the kernels of Neuron's compiler compute, in NumPy: those whose meaning is published."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.rules_order import Several, places_in_order
from graphgen.ir import Attrs


def _top_k(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    """``config`` is how many: the largest first, with their places as u32."""
    found = places_in_order(x[0], -1, descending=True)[..., : int(attrs.text("config"))]
    return [np.take_along_axis(x[0], found, -1), found.astype(np.uint32)]


_BY_TARGET: dict[str, Several] = {"AwsNeuronTopK": _top_k}


def kernel(attrs: Attrs) -> Several | None:
    """What a custom call computes, if that is known."""
    known = attrs.text("config").isdecimal()
    return _BY_TARGET.get(attrs.text("target")) if known else None
