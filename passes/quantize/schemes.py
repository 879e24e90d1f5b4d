"""The ways a weight is quantized, under AWS's names: element types, and what shares a scale."""

from __future__ import annotations

from graphgen.ir import DType
from graphgen.ir.dtype import f8e4m3fn, f8e5m2, s8

PER_TENSOR, PER_CHANNEL = "per_tensor_symmetric", "per_channel_symmetric"
SCHEMES = (PER_TENSOR, PER_CHANNEL)
DTYPES = ("int8", "f8e4m3", "f8e5m2")

# Neuron's f8e4m3 ends at 240; stored as OCP's type, which ends at 448, its values are the same.
ELEMENTS: dict[str, DType] = {"int8": s8, "f8e4m3": f8e4m3fn, "f8e5m2": f8e5m2}


def limit(dtype: str, scheme: str) -> float:
    """The value that the largest weight of a tensor or channel becomes: scale = absmax / limit.

    NxD Inference's numbers. For int8 tensors it takes torch's steps of (127 - -128) / 2, in which
    the largest weight may be brought to 127; for channels 127, in which nothing is brought to.
    """
    if dtype == "int8":
        return 127.5 if scheme == PER_TENSOR else 127.0
    return {"f8e4m3": 240.0, "f8e5m2": 57344.0}[dtype]
