"""The largest elements of each row as Neuron's compiler takes them: by a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.top_k import top_k
from graphgen.ir import Attrs, Value
from graphgen.passes.legalize.neuron_sort import FLOATS, in_order, in_reach


def top_k_by_kernel(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """``AwsNeuronTopK`` on rows padded to a multiple of 8; integers are sorted (NCC_EVRF013)."""
    if operands[0].dtype not in FLOATS:
        return top_k(b, operands, attrs)
    return top_k_without_sort(b, operands, attrs)


def top_k_without_sort(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """The same where sorting is refused (NCC_EVRF029): integers by their halves."""
    (x,), k = operands, attrs.integer("k")
    if not k or not in_reach(x):
        return top_k(b, operands, attrs)
    return in_order(b, x, k, descending=True)
