"""Random arrays of workloads: weights, initial states, inputs that language models do not have."""

from __future__ import annotations

import zlib
from typing import Protocol

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Entry, TensorType


class ArraySource(Protocol):
    """Draws the array of one interface entry."""

    def __call__(self, rng: np.random.Generator, row: Entry, type_: TensorType) -> Array:
        """Draw one array.

        Args:
            rng: the array's own, from :func:`own_generator`.
            row: its name and role say what the array is.
            type_: the logical type of ``row`` with all symbols bound.
        """
        ...


def own_generator(seed: int, *owner: str | int) -> np.random.Generator:
    """A generator of one array, which no other array advances.

    An array depends on the seed and on its own name: a further weight changes no other one.

    Args:
        seed: of the workload, at least 0.
        owner: the name of the array, or of a program, an input and a rank.
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in owner]
    return np.random.default_rng([seed, *words])


def normal_numbers(rng: np.random.Generator, row: Entry, type_: TensorType) -> Array:
    """Draw an array whatever it is for: see :func:`random_array`."""
    return random_array(rng, type_)


def random_array(rng: np.random.Generator, type_: TensorType) -> Array:
    """Normal numbers for floats, small ones for integers, both for pred."""
    dtype = numpy_dtype(type_.dtype)
    if type_.dtype.is_float:
        # Of the size weights have: the variance of a product of 1/fan-in would vanish in norms.
        return (rng.standard_normal(type_.dims) * 0.3).astype(dtype)
    low, high = (0, 2) if type_.dtype.name == "pred" else (0, 5)
    return rng.integers(low, high, type_.dims).astype(dtype)
