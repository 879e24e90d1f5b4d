"""What tile instructions compute of a product, and calls of ``linear`` without anything else."""

# jax.ffi carries no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import CDLL, c_char_p
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from graphgen.lowering.cpu_kernels.build_kernels import LIBRARY

# Depths that a tile of bf16 has, and columns of a packed weight.
DEPTH, LANES = 32, 16
SMALLEST = np.float32(2.0**-126)

Floats = NDArray[np.float32]


@contextmanager
def instruction_set(name: str) -> Generator[None]:
    """Have the kernels of this process use an instruction set meanwhile."""
    library = CDLL(str(LIBRARY))
    choose, chosen = library.graphgen_use_instruction_set, library.graphgen_instruction_set
    choose.restype = chosen.restype = c_char_p
    before = chosen()
    assert choose(name.encode()) == name.encode()
    try:
        yield
    finally:
        assert choose(before) == before


def flushed(values: NDArray[np.float64]) -> Floats:
    """Doubles as floats, those that are too small after rounding as zeros with their sign."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        # Of a larger exponent: rounded as if there were smaller normal numbers.
        scaled = (values * 2.0**64).astype(np.float32)
        small = (np.abs(values) < 2.0**-125) & (np.abs(scaled) < SMALLEST * np.float32(2.0**64))
        return np.where(small, np.copysign(0.0, values), values).astype(np.float32)


def tdpbf16ps(x: Floats, weight: Floats, sums: Floats) -> Floats:
    """The instruction's operation (Intel, Software Developer's Manual), for any number of rows.

    A double holds the product of two bf16; its sum with a float is rounded to the same float as the
    exact one.

    Args:
        x: f32[M, 32], numbers of bf16.
        weight: f32[32, N], the same.
        sums: f32[M, N].
    """
    x, weight = flushed(x.astype(np.float64)), flushed(weight.astype(np.float64))
    parts = []
    for place in (0, 1):
        part = np.zeros(sums.shape, np.float32)
        for k in range(place, DEPTH, 2):
            product = np.multiply.outer(x[:, k].astype(np.float64), weight[k].astype(np.float64))
            part = flushed(product + part.astype(np.float64))
        parts.append(part.astype(np.float64))
    both = flushed(parts[0] + parts[1]).astype(np.float64)
    return flushed(flushed(sums.astype(np.float64)).astype(np.float64) + both)


def product(x: Floats, weight: Floats) -> Floats:
    """A product in tiles: x[M, K] · weight[K, N], zeros beyond K."""
    rows, depth = x.shape
    padded = -(-depth // DEPTH) * DEPTH
    left, right = (
        np.zeros((rows, padded), np.float32),
        np.zeros((padded, weight.shape[1]), np.float32),
    )
    left[:, :depth], right[:depth] = x, weight
    sums = np.zeros((rows, weight.shape[1]), np.float32)
    for k in range(0, padded, DEPTH):
        sums = tdpbf16ps(left[:, k : k + DEPTH], right[k : k + DEPTH], sums)
    return sums


def pairs(weight: NDArray[Any]) -> NDArray[Any]:
    """``[N, K]`` as ``[N / 16, K / 2, 16, 2]``, zeros beyond N and K."""
    columns, depth = weight.shape
    whole = np.zeros((-(-columns // LANES) * LANES, -(-depth // 2) * 2), weight.dtype)
    whole[:columns, :depth] = weight
    return whole.reshape(-1, LANES, whole.shape[1] // 2, 2).transpose(0, 2, 1, 3).copy()


@dataclass(frozen=True)
class Product:
    """A product without anything before or behind it.

    Attributes:
        x: bf16 or f32 [M, K].
        weight: bf16 or s8 [N, K].
        x_group: numbers of a row that share a scale, rounded to integers; 0 for none.
    """

    x: NDArray[Any]
    weight: NDArray[Any]
    x_group: int = 0

    def call(self) -> Any:
        """The kernel's result, f32[M, N], within a program of JAX."""
        shape = jax.ShapeDtypeStruct((len(self.x), len(self.weight)), np.float32)
        switches = {name: np.bool_(False) for name in SWITCHES}
        numbers = {"columns": len(self.weight), "group": 0, "x_group": self.x_group}
        return jax.ffi.ffi_call("graphgen.linear", shape)(
            jax.numpy.asarray(self.x),
            jax.numpy.asarray(pairs(self.weight)),
            epsilon=np.float32(0),
            activation="none",
            **switches,
            **{name: np.int64(value) for name, value in numbers.items()},
        )


SWITCHES = ("norm", "offset", "scale", "zero", "bias", "residual", "gated")


def computed(products: Sequence[Product]) -> list[Floats]:
    """The results of one program with a call for each product."""
    made = jax.jit(lambda: [each.call() for each in products])()
    return [np.asarray(each) for each in made]


def bf16(random: np.random.Generator, *shape: int) -> NDArray[Any]:
    """Numbers of any size up to some thousands, also zeros, and those below the normal ones."""
    exponents = random.choice(
        [0.0, -4.0, 4.0, 10.0, -63.0, -120.0], shape, p=[0.6, 0.1, 0.1, 0.1, 0.05, 0.05]
    )
    numbers = random.standard_normal(shape) * 2.0**exponents
    return np.where(random.random(shape) < 0.05, 0.0, numbers).astype(ml_dtypes.bfloat16)
