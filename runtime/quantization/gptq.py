"""GPTQ (Frantar et al., arXiv 2210.17323): rounding that compensates for its own errors.

The error of a product on the calibration text is ``tr(E H Eᵀ)``, E the weight's error and H the
Gram matrix of its inputs. Input by input, the column of the weight is rounded, and what that adds
to the product is taken back, as far as possible, by the columns that are not rounded yet. With
``inv(H) = Uᵀ U``, U upper triangular, the best change of column k after the rounding of column j
is ``-(error of j) * U[j,k] / U[j,j]``.

Scales are those of whole groups of the original weight, found beforehand, so that inputs can be
taken in any order: those with the largest part in the products first, as in the authors' code.
Among fractions of the scale to nearest, each block gets the one with the least error, weighed by
the diagonal of H.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphgen.passes.quantization.schemes import WeightScheme
from graphgen.runtime.quantization.calibration import Gram
from graphgen.runtime.quantization.rounding import (
    Floats,
    QuantizedWeight,
    block_scales,
    encode,
    spread,
    starts,
)

# Part of the mean of H's diagonal that is added to it, as in the paper.
_DAMPING = 0.01
# Inputs whose changes to later inputs are gathered to one product.
_PANEL = 64
_FRACTIONS = np.linspace(1.0, 0.7, 13, dtype=np.float32)


def quantize_by_gptq(weight: Floats, gram: Gram, scheme: WeightScheme) -> QuantizedWeight:
    """Quantize a weight for inputs like those of a calibration text.

    Args:
        weight: f32 [N,K], contracted over K.
        gram: f32 [K,K], the sum of ``x xᵀ`` over the inputs.
        scheme: element type and blocks.
    """
    rows, columns = weight.shape
    importance = np.diagonal(gram).astype(np.float32)
    scale = _best_scales(weight, importance, scheme)
    order = np.argsort(-importance, kind="stable")
    steps = spread(scale, scheme, (rows, columns))
    # Transposed: one input of all rows is contiguous.
    left = np.ascontiguousarray(weight.T[order])
    values = _rounded(
        left,
        np.ascontiguousarray(steps.T[order]),
        _inverse_root(gram[np.ix_(order, order)]),
        scheme,
    )
    home = np.empty_like(values)
    home[order] = values
    return QuantizedWeight(scheme, np.ascontiguousarray(home.T), scale)


def _best_scales(weight: Floats, importance: Floats, scheme: WeightScheme) -> Floats:
    """Of fractions of the scales to nearest, those with the least error weighed by importance."""
    rows, columns = weight.shape
    largest = block_scales(weight, scheme)
    if scheme.dtype == "mxfp4":
        return largest
    best, least = largest.copy(), np.full(largest.shape, np.inf)
    high, wide = scheme.block((rows, columns))
    for fraction in _FRACTIONS:
        scale = largest * fraction
        steps = spread(scale, scheme, (rows, columns))
        error = weight - encode(weight / steps, scheme).astype(np.float32) * steps
        cost = np.add.reduceat(error * error * importance, starts(columns, wide), axis=1)
        cost = np.add.reduceat(cost, starts(rows, high), axis=0)
        best = np.where(cost < least, scale, best)
        least = np.minimum(cost, least)
    return best


def _inverse_root(gram: npt.NDArray[np.floating]) -> Floats:
    """Upper triangular U with ``Uᵀ U = inv(gram + damping)``, f32."""
    damped = gram.astype(np.float64)
    diagonal = np.arange(len(damped))
    mean = float(damped[diagonal, diagonal].mean())
    damped[diagonal, diagonal] += _DAMPING * mean if mean > 0 else 1.0
    # inv(H) = Uᵀ U is the Cholesky factor from the other end: H reversed is L Lᵀ, so that
    # H = R Rᵀ with R = L reversed, upper triangular, and U = inv(R).
    lower = np.linalg.cholesky(damped[::-1, ::-1])
    return np.linalg.inv(lower[::-1, ::-1]).astype(np.float32)


def _rounded(
    left: Floats, steps: Floats, root: Floats, scheme: WeightScheme
) -> npt.NDArray[np.generic]:
    """Round the rows of ``left`` [K,N] in order; it is used up."""
    count = len(left)
    values = encode(np.zeros_like(left), scheme)
    for start in range(0, count, _PANEL):
        stop = min(start + _PANEL, count)
        errors = np.empty((stop - start, left.shape[1]), np.float32)
        for row in range(start, stop):
            values[row] = encode(left[row] / steps[row], scheme)
            rounded = values[row].astype(np.float32) * steps[row]
            error = (left[row] - rounded) / root[row, row]
            left[row + 1 : stop] -= np.outer(root[row, row + 1 : stop], error)
            errors[row - start] = error
        left[stop:] -= root[start:stop, stop:].T @ errors
    return values
