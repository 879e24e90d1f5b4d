"""The largest elements of each row as Neuron's compiler takes them: by a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.top_k import top_k
from graphgen.ir import Attrs, Value, tensor
from graphgen.ir.dtype import lowest, s32, u32

TARGET = "AwsNeuronTopK"
# The kernel reads rows of so many elements, or a multiple.
ROW = 8


def top_k_by_kernel(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``AwsNeuronTopK`` on rows padded to a multiple of 8; integers are sorted (NCC_EVRF013).

    Sorting is refused by trn2 and trn3 (NCC_EVRF029), and the kernel has no integers.
    """
    (x,), k = operands, attrs.integer("k")
    size = x.shape[-1]
    if not x.dtype.is_float or not isinstance(size, int) or not k:
        return top_k(b, operands, attrs)
    missing = -size % ROW
    if missing:
        least = b.literal(lowest(x.dtype), x.dtype)
        sides = [0] * len(x.shape)
        x = b.pad(x, least, sides, [*sides[1:], missing])
    shape = (*x.shape[:-1], k)
    results = [tensor(x.dtype, shape), tensor(u32, shape)]
    values, places = b.custom_call(TARGET, [x], results, str(k))
    return [values, b.convert(places, s32)]
