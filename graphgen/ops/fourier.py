"""Discrete Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dims import product
from graphgen.ir.dtype import c64, c128, f32, f64
from graphgen.ops.attr_types import INTEGERS, choice
from graphgen.ops.factors import Factors, passthrough_factors
from graphgen.ops.opdef import attr, define, require
from graphgen.ops.traits import LinearIn, Types

_COMPLEX = {f32: c64, f64: c128}
_REAL = {c64: f32, c128: f64}


def _fft_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Dimensions that are not transformed are batch dimensions."""
    kept = operands[0].rank - len(attrs.integers("fft_length"))
    return passthrough_factors(operands, results, [dim < kept for dim in range(operands[0].rank)])


def _fft_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """``5 n log2 n`` operations for each transform of n complex numbers, half of that for reals."""
    lengths = attrs.integers("fft_length")
    count = product(operands[0].shape[: operands[0].rank - len(lengths)])
    total = math.prod(lengths)
    work = 5 * total * max(total - 1, 0).bit_length()
    return count * (work if attrs.text("fft_type") in ("FFT", "IFFT") else work // 2), 0


@define(
    "fft",
    "operand",
    attr("fft_type", choice("FFT", "IFFT", "RFFT", "IRFFT")),
    attr("fft_length", INTEGERS),
    traits=(LinearIn((0,)),),
    factors=_fft_factors,
    cost=_fft_cost,
)
def _fft(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The discrete Fourier transform of the last dimensions, one for each of ``fft_length``.

    ``RFFT`` transforms reals, and gives the first half of the last dimension, ``n // 2 + 1``
    numbers, which the others follow from; ``IRFFT`` is its inverse: its operand has
    ``n // 2 + 1`` numbers for the last length n. The inverses divide by the number of elements.

    Example:
        %y = fft(%x) fft_type=RFFT fft_length=[8] : c64[B,5]
    """
    (x,) = types
    kind, lengths = attrs.text("fft_type"), attrs.integers("fft_length")
    require(1 <= len(lengths) <= 3, f"transforms {len(lengths)} dimensions, not 1 to 3")
    require(min(lengths) >= 0, f"fft_length is {list(lengths)}")
    require(x.rank >= len(lengths), f"{len(lengths)} lengths for {x.text}", 0)
    known = _COMPLEX if kind == "RFFT" else _REAL
    wanted = " or ".join([dtype.name for dtype in known])
    require(x.dtype in known, f"{kind} needs {wanted}, got {x.text}", 0)
    half = lengths[-1] // 2 + 1 if lengths[-1] else 0
    given = (*lengths[:-1], half if kind == "IRFFT" else lengths[-1])
    start = x.rank - len(lengths)
    require(x.shape[start:] == given, f"needs {list(given)} as last sizes, got {x.text}", 0)
    made = {"RFFT": half, "IRFFT": lengths[-1]}.get(kind, lengths[-1])
    dtype = known[x.dtype] if kind in ("RFFT", "IRFFT") else x.dtype
    return (tensor(dtype, (*x.shape[:-1], made)),)
