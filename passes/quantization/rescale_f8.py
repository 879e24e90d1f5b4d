"""Rescale OCP's f8e4m3fn (maximum 448) to the range of Neuron's f8e4m3 (maximum 240).

The codes up to 240 are the same in both; the type is Neuron's. The factor and the two roundings are
those of the script that AWS publishes for checkpoints: a number becomes bf16(number / (448 / 240)),
and a scale 448 / 240 as large.
"""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import bf16, f8e4m3, f32

FACTOR = 448.0 / 240.0


def rescaled(b: Builder, values: Value, scale: Value) -> tuple[Value, Value]:
    """Numbers of at most 240, and the scales that go with them; part of the weight program."""
    smaller = b.binary("divide", b.convert(values, f32), FACTOR)
    narrow = b.convert(b.convert(smaller, bf16), f8e4m3)
    return narrow, b.binary("multiply", b.convert(scale, f32), FACTOR)
