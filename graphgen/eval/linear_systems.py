"""NumPy rules of triangular systems and of the Cholesky decomposition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array, widened
from graphgen.eval.registry import eval_rule
from graphgen.ir import Attrs


def _transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


@eval_rule("triangular_solve")
def _triangular_solve(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    """Substitution, one unknown after the other."""
    a, b = (widened(operand) for operand in x)
    lower, kind = attrs["lower"] is True, attrs.text("transpose_a")
    if kind != "NO_TRANSPOSE":
        a, lower = _transposed(np.conj(a) if kind == "ADJOINT" else a), not lower
    if attrs["left_side"] is not True:
        # x a = b is a' x' = b'.
        a, b, lower = _transposed(a), _transposed(b), not lower
    found = b.copy()
    size = a.shape[-1]
    for row in range(size) if lower else reversed(range(size)):
        known = slice(0, row) if lower else slice(row + 1, size)
        line = a[..., row : row + 1, known] @ found[..., known, :]
        found[..., row, :] -= line[..., 0, :]
        if attrs["unit_diagonal"] is not True:
            found[..., row, :] /= a[..., row, row, None]
    made = found if attrs["left_side"] is True else _transposed(found)
    return made.astype(x[0].dtype)


@eval_rule("cholesky")
def _cholesky(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    """Column after column; NumPy's own raises for a matrix that is not positive definite."""
    wide, lower = widened(x[0]), attrs["lower"] is True
    a = wide if lower else np.conj(_transposed(wide))
    out = np.zeros_like(a)
    for column in range(a.shape[-1]):
        before = out[..., column:, :column]
        row = np.conj(out[..., column, :column, None])
        rest = a[..., column:, column] - (before @ row)[..., 0]
        root = np.sqrt(np.real(rest[..., :1]))
        out[..., column, column] = root[..., 0]
        out[..., column + 1 :, column] = rest[..., 1:] / root
    # A root of what is not positive, wherever it was.
    broken = ~np.all(np.real(np.diagonal(out, axis1=-2, axis2=-1)) > 0, -1)
    out[broken] = np.nan
    return (out if lower else np.conj(_transposed(out))).astype(x[0].dtype)
