"""Undo what llama.cpp's converter does to the values of a tensor.

Each takes the values as the file holds them, one head or model size, and gives them as Hugging Face
does; ``shape`` says which shape that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.checkpoint.interfaces import Array

Shape = tuple[int, ...]


def _same(shape: Shape) -> Shape:
    return shape


@dataclass(frozen=True)
class Restore:
    """One way back.

    Attributes:
        values: (what is stored, heads) -> what Hugging Face has; the heads are those of
            :attr:`heads`, 1 where that is empty.
        heads: the configuration's key for the number of heads that rows belong to, or empty.
        parts: rows of a head come in so many equal parts.
        shape: of the result, from that of what is stored.
    """

    values: Callable[[Array, int], Array]
    heads: str = ""
    parts: int = 1
    shape: Callable[[Shape], Shape] = _same


def halves_of_heads(values: Array, heads: int) -> Array:
    """Rows of each head from interleaved pairs to two halves, as Hugging Face rotates them.

    The inverse of ``w.reshape(heads, 2, d // 2, in).swapaxes(1, 2)``.
    """
    pairs = values.reshape(heads, len(values) // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def head_by_head(values: Array, heads: int) -> Array:
    """Rows of all of q, all of k, all of v to those of q, k and v of each head.

    The inverse of ``w.reshape(heads, 3, d, in).swapaxes(0, 1)``.
    """
    parts = values.reshape(3, heads, len(values) // heads // 3, *values.shape[1:])
    return parts.swapaxes(0, 1).reshape(values.shape)


def transposed(values: Array, heads: int) -> Array:
    """[out, in] to [in, out], in which ``Conv1D`` keeps its weight."""
    return np.ascontiguousarray(values.T)


def one_less(values: Array, heads: int) -> Array:
    """What a norm multiplies with to the weight that Gemma adds 1 to."""
    weight = cast("npt.NDArray[np.floating]", values)
    return weight - np.ones((), weight.dtype)


def rotary_rows(heads: str) -> Restore:
    """Rows of q or k, whose heads the configuration counts under this key."""
    return Restore(halves_of_heads, heads, parts=2)


def fused_rows(heads: str) -> Restore:
    """Rows of q, k and v in one tensor."""
    return Restore(head_by_head, heads, parts=3)


TRANSPOSED = Restore(transposed, shape=lambda shape: shape[::-1])
ONE_LESS = Restore(one_less)
