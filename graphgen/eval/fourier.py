"""NumPy rule of Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.registry import eval_rule
from graphgen.ir import Attrs


@eval_rule("fft")
def _fft(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    """In the precision of the operand, as NumPy's own transforms are."""
    (operand,) = x
    kind, lengths = attrs.text("fft_type"), attrs.integers("fft_length")
    axes = tuple(range(operand.ndim - len(lengths), operand.ndim))
    wide = how.wide is not None or operand.dtype.name in ("float64", "complex128")
    real, pair = (np.float64, np.complex128) if wide else (np.float32, np.complex64)
    if 0 in lengths or operand.size == 0:
        half = lengths[-1] // 2 + 1 if lengths[-1] else 0
        last = half if kind == "RFFT" else lengths[-1]
        return np.zeros((*operand.shape[:-1], last), real if kind == "IRFFT" else pair)
    transform = {
        "FFT": np.fft.fftn,
        "IFFT": np.fft.ifftn,
        "RFFT": np.fft.rfftn,
        "IRFFT": np.fft.irfftn,
    }[kind]
    made = transform(operand, s=lengths, axes=axes)
    return made.astype(real if kind == "IRFFT" else pair)
