"""Arrays with the ranges of trained models: outliers, dead channels, ties, saturating scores.

Normal numbers of one size hide errors that only large, tiny or equal numbers show: a softmax that
does not subtract its maximum is right for scores below 88, squares fit f16 below 256, a scale of a
quantized channel is positive while the channel has a number other than 0.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from graphgen.eval import Array
from graphgen.eval.element_kinds import NumberSource, drawn, has_floats
from graphgen.ir import DType, Entry, Role, TensorType


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
    """Normal numbers for floats and parts of complex numbers, small ones for integers and pred."""

    def whole(kind: DType, dims: tuple[int, ...]) -> Array:
        return rng.integers(0, 2 if kind.name == "pred" else 5, dims)

    def floats(dims: tuple[int, ...]) -> Array:
        # Of the size weights have: the variance of a product of 1/fan-in would vanish in norms.
        numbers: Array = np.asarray(rng.standard_normal(dims))
        numbers *= 0.3
        return numbers

    return drawn(NumberSource(floats, whole), type_.dtype, type_.dims)


# Standard deviation of ordinary elements.
ORDINARY = 0.3
# Rows of an embedding have one of these forms each, from row 0 on and again from row 16 on.
_PERIOD = 16
_MASSIVE, _ZERO, _CONSTANT, _TINY, _LARGE, _EQUAL = 0, 3, 5, 7, 9, 12
# Squares are over 65,504, the largest f16.
MASSIVE = 300.0
# A normal f32 divided by this is a denormal one.
_TO_DENORMAL = 1e-39
# Products whose outputs are multiplied with one another: scores grow by the square.
_SCORED = re.compile(r"(^|[._])(q|k|qkv|query|key|query_key_value|c_attn|in_proj)([._]|$)")
_TABLE = re.compile(r"embed|lm_head|(^|\.)w[tp]e\.")
_QUANTILES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)


def boundary_ids(vocabulary: int) -> tuple[int, ...]:
    """Token ids at the ends of the vocabulary and of integers of 8 and 16 bits, in order."""
    ends = {0, 1, vocabulary - 1}
    for bits in (7, 8, 15, 16):
        ends |= {2**bits - 1, 2**bits}
    return tuple(sorted(number for number in ends if 0 <= number < vocabulary))


@dataclass(frozen=True, slots=True)
class Statistics:
    """Ranges of one tensor of a checkpoint.

    Attributes:
        mean, deviation, least, greatest: over all elements.
        values: quantiles of the elements, from the least to the greatest.
        rows: quantiles of the root mean squares of the rows, empty for tensors of rank 1.
        columns: the same of the columns.
    """

    mean: float
    deviation: float
    least: float
    greatest: float
    values: tuple[float, ...]
    rows: tuple[float, ...] = ()
    columns: tuple[float, ...] = ()


def statistics_of(array: Array) -> Statistics:
    """The ranges of an array [...] of floats, or of some of its rows."""
    x = array.astype(np.float64)
    values = _quantiles(x.ravel())
    rows, columns = (), ()
    if x.ndim >= 2:
        matrix = x.reshape(x.shape[0], -1)
        rows = _quantiles(np.sqrt(np.square(matrix).mean(axis=1)))
        columns = _quantiles(np.sqrt(np.square(matrix).mean(axis=0)))
    return Statistics(float(x.mean()), float(x.std()), values[0], values[-1], values, rows, columns)


def place_of(name: str) -> tuple[str, int]:
    """The name of a weight without its layer, and the number of the layer, 0 without one.

    ``model.layers.3.mlp.down_proj.weight`` gives ``mlp.down_proj.weight`` and 3.
    """
    found = re.match(r"(?:.*?\.)?(\d+)\.(.+)$", name)
    return (found[2], int(found[1])) if found else (name, 0)


@dataclass(frozen=True, slots=True)
class RealisticNumbers:
    """Draws arrays with the ranges that trained models have.

    - Embeddings: rows with a massive channel (300: its square exceeds f16), of zeros, constant,
      denormal, 20 times larger; in heads some rows equal another one, so that logits tie.
    - Norms: weights about 1, one of them 8, one negative, one 0.
    - Other matrices: output channels 8 to 60 times larger, one output channel and one input channel
      of zeros, some elements denormal or -0.0. The large channels of queries and keys are the
      same: their scores exceed 88, where ``exp`` of f32 overflows.
    - Biases and states: one channel 20 times larger, some elements denormal or -0.0.

    Attributes:
        statistics: of the layers of a checkpoint, by the name without its layer
            (:func:`place_of`); weights of these names are drawn with their ranges instead.
    """

    statistics: Mapping[str, Sequence[Statistics]] = field(
        default_factory=dict[str, Sequence[Statistics]]
    )

    def __call__(self, rng: np.random.Generator, row: Entry, type_: TensorType) -> Array:
        """Draw one array: see :class:`~graphgen.passes.workload.value_ranges.ArraySource`.

        Integers are as plain ones.
        """
        if not has_floats(type_.dtype):
            return random_array(rng, type_)

        def floats(dims: tuple[int, ...]) -> Array:
            if row.role is Role.WEIGHT:
                return self._weight(rng, row.name, dims)
            return _vector_channels(rng, dims)

        source = NumberSource(floats, lambda kind, dims: rng.integers(0, 2, dims))
        return drawn(source, type_.dtype, type_.dims)

    def _weight(self, rng: np.random.Generator, name: str, dims: Sequence[int]) -> Array:
        place, layer = place_of(name)
        known = self.statistics.get(place)
        if known:
            return _as_measured(rng, known[layer % len(known)], dims)
        if len(dims) == 1 and name.endswith("weight"):
            return _norm(rng, dims[0])
        if len(dims) != 2:
            return _vector_channels(rng, dims)
        if _TABLE.search(name):
            return _table(rng, name, dims[0], dims[1])
        return _matrix(rng, dims[0], dims[1], largest=8 if _SCORED.search(name) else 60)


def _norm(rng: np.random.Generator, size: int) -> Array:
    """Weights of a norm: about 1."""
    x = 1 + 0.1 * rng.standard_normal(size)
    for value, place in zip((8.0, -0.7, 0.0), rng.permutation(size), strict=False):
        x[place] = value
    return x


def _vector_channels(rng: np.random.Generator, dims: Sequence[int]) -> Array:
    """Normal numbers with one large channel in the last dimension."""
    x = np.asarray(rng.standard_normal(tuple(dims)) * ORDINARY)
    if x.size and dims:
        x[..., rng.integers(dims[-1])] *= 20
    return _with_specks(rng, x)


def _matrix(rng: np.random.Generator, rows: int, columns: int, largest: float) -> Array:
    """A product's weight, with channels along both dimensions as either may be the output."""
    x = rng.standard_normal((rows, columns)) * ORDINARY
    # In the first head of queries and of keys, whatever the generator.
    x[2 % rows] *= 8
    x[int(rng.integers(3, rows) if rows > 4 else 0)] *= largest ** rng.uniform(0.5, 1)
    x[min(5, rows - 1)] = 0
    x[:, int(rng.integers(columns))] = 0
    return _with_specks(rng, x)


def _table(rng: np.random.Generator, name: str, rows: int, columns: int) -> Array:
    """A row for each token."""
    x = rng.standard_normal((rows, columns)) * ORDINARY
    massive, kind = int(rng.integers(columns)), np.arange(rows) % _PERIOD
    head = not re.search(r"embed(?!_out)|(^|\.)w[tp]e\.", name)
    if head:
        # Ties of neighbours, and of rows that several ranks hold.
        equal = np.flatnonzero((kind == _EQUAL) & (np.arange(rows) + 1 < rows))
        x[equal + 1] = x[equal]
        equal = np.flatnonzero((kind == _EQUAL + 2) & (np.arange(rows) + rows // 2 < rows))
        x[equal + rows // 2] = x[equal]
        # The largest logits of about half of all tokens: of the first id, the last and another.
        x[0] *= 3
        x[rows - 1] = x[_LARGE % rows] = x[0]
        return x
    x[kind == _MASSIVE, massive] = MASSIVE
    x[kind == _ZERO] = 0
    x[kind == _CONSTANT] = ORDINARY
    x[kind == _TINY] *= _TO_DENORMAL
    x[kind == _LARGE] *= 20
    x[rows - 1, massive] = -MASSIVE
    return x


def _with_specks(rng: np.random.Generator, x: Array) -> Array:
    """One element in 32 is denormal, and one is -0.0."""
    dots = rng.random(x.shape)
    x[dots < 1 / 32] *= _TO_DENORMAL
    x[dots > 31 / 32] = -0.0
    return x


def _as_measured(rng: np.random.Generator, found: Statistics, dims: Sequence[int]) -> Array:
    """An array with the ranges of a tensor."""
    places = np.array(_QUANTILES)
    if len(dims) < 2 or not found.rows:
        return np.interp(rng.random(tuple(dims)), places, found.values)
    rows = np.interp(_spread(rng, dims[0]), places, found.rows)
    width = int(np.prod(dims[1:]))
    columns = np.interp(_spread(rng, width), places, found.columns)
    size = np.sqrt(np.square(columns).mean()) or 1.0
    x = rng.standard_normal((dims[0], width)) * rows[:, None] * (columns / size)
    return np.clip(x, found.least, found.greatest).reshape(tuple(dims))


def _spread(rng: np.random.Generator, count: int) -> Array:
    """Places of ``count`` channels among quantiles, both ends among them, in random order."""
    return rng.permutation(np.linspace(0, 1, count))


def _quantiles(x: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(x, _QUANTILES))
