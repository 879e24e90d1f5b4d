"""Values at the boundary of a window: by type, ordinary and adversarial, for several sizes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from graphgen.eval import Array, rank_index
from graphgen.eval.arithmetic import name_of
from graphgen.eval.element_kinds import NumberSource, drawn, has_floats
from graphgen.ir import RANK, Dim, DType, Function, Op, TensorType, dtype
from graphgen.ir.dtype import pred

# Sizes of the symbols of language models: a call has at most as many rows as the cache, and a
# cache at least as many slots as positions are attended to. All different, all 1, and alike.
_SIZES: tuple[Mapping[str, int], ...] = (
    {"B": 2, "S": 3, "C": 5, "R": 3, "M": 7},
    {"B": 1, "S": 1, "C": 1, "R": 1, "M": 1},
    {"B": 3, "S": 4, "C": 4, "R": 3, "M": 8},
)
_OTHERS = (4, 1, 3)
# Slots beyond the range of 8 bits, for windows whose values depend on positions.
_LONG: Mapping[str, int] = {"B": 2, "S": 3, "C": 300, "R": 3, "M": 301}

# Seeds of the samples of one seed.
_SEEDS = 10_000


class Spread(Enum):
    """Distribution of drawn values.

    ORDINARY: normal floats, small whole numbers from 0.
    ADVERSARIAL: half of the floats are zeros of both signs, ties, ones, or far from 1, and a line
    along each dimension is 0; whole numbers may be negative.
    TINY: floats near 1e-6.
    HUGE: floats near 1e6, beyond the range of f16.
    HIGH: floats near 500 that differ little.
    LOW: floats near -500; an exponential of them is 0 in f32.
    TIES: floats of three numbers, so that the greatest is there more than once.
    NOT_FINITE: a tenth of the floats are infinite or NaN, and a line along each dimension is
    negative infinity.
    ZEROS: all floats are 0; only calls have it.
    """

    ORDINARY = "ordinary"
    ADVERSARIAL = "adversarial"
    TINY = "tiny"
    HUGE = "huge"
    HIGH = "high"
    LOW = "low"
    TIES = "ties"
    NOT_FINITE = "not finite"
    ZEROS = "zeros"


# Scale and offset of the floats of a spread, drawn around 0 with a deviation of 0.5.
_SCALED: Mapping[Spread, tuple[float, float]] = {
    Spread.TINY: (1e-6, 0.0),
    Spread.HUGE: (1e6, 0.0),
    Spread.HIGH: (1.0, 500.0),
    Spread.LOW: (20.0, -500.0),
}


# Ops whose results have neither infinities nor NaN; nothing else about an operand with some holds.
_OF_FINITE = frozenset({"quantize", "quantize_rows", "rms_norm_quantize"})
_ORDERS_NO_NAN = frozenset({"AwsNeuronTopK"})
# Ops that multiply what a mask excludes by 0, which is NaN for an infinity; other forms skip it.
_MASKED = frozenset({"attention"})


def is_masked(ops: Iterable[Op]) -> bool:
    """True if ops have masks, whose other forms may leave out what the masks exclude."""
    return any(op.name in _MASKED for op in ops)


def orders_no_nan(ops: Iterable[Op]) -> bool:
    """True if a kernel of a device sorts, which does not say where NaN goes."""
    calls = (op for op in ops if op.name == "custom_call")
    return any(op.attrs.text("target") in _ORDERS_NO_NAN for op in calls)


def quantizes(ops: Iterable[Op]) -> bool:
    """True if ops quantize; what they make of infinities and NaN is not defined."""
    return any(op.name in _OF_FINITE for op in ops)


def spreads_of(ops: Iterable[Op], *, masked: bool = False) -> list[Spread]:
    """The distributions of floats that ops are compared on.

    Args:
        ops: of the window.
        masked: the rewrite may leave out what masks exclude.
    """
    ops = list(ops)
    finite = masked or quantizes(ops) or orders_no_nan(ops)
    return [spread for spread in Spread if not (finite and spread is Spread.NOT_FINITE)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of boundary values to draw.

    Attributes:
        sizes: of the symbols.
        spread: of the values.
        seed: of the generator.
    """

    sizes: Mapping[str, Dim]
    spread: Spread
    seed: int


def samples(
    names: Collection[str],
    dims: Mapping[str, Dim],
    *,
    whole_numbers: bool = False,
    seed: int = 0,
) -> list[Sample]:
    """The samples for a window with these symbols.

    Args:
        names: the symbols.
        dims: sizes that the program fixes.
        whole_numbers: whether integers or booleans are drawn: they choose elements, so that one
            sample shows little.
        seed: of all samples.
    """
    first = _SEEDS * seed
    fixed = {name: size for name, size in dims.items() if isinstance(size, int)}
    tables = _SIZES if set(names) - fixed.keys() else _SIZES[:1]
    out: list[Sample] = []
    for number, (table, other) in enumerate(zip(tables, _OTHERS, strict=False)):
        sizes: dict[str, Dim] = {name: fixed.get(name, table.get(name, other)) for name in names}
        ordinary = (4 if whole_numbers else 1) if number != 1 else 1
        spreads = [Spread.ORDINARY] * ordinary + [Spread.ADVERSARIAL]
        if number == 0:
            spreads += [*_SCALED, Spread.TIES, Spread.NOT_FINITE]
        out += [
            Sample(sizes, spread, first + 20 * number + at) for at, spread in enumerate(spreads)
        ]
    if "C" in names and "C" not in fixed:
        long = {**_LONG, "C": min(_LONG["C"], fixed.get("M", _LONG["M"]))}
        sizes = {name: fixed.get(name, long.get(name, 4)) for name in names}
        out += [Sample(sizes, Spread.ORDINARY, first + at) for at in (60, 61, 62)]
    return out


def draw(window: Function, sample: Sample, ranks: int) -> list[dict[str, Array]]:
    """Per rank an array for each argument of a window; ranks get different ones."""
    rng = np.random.default_rng(sample.seed)
    out: list[dict[str, Array]] = [{} for _ in range(ranks)]
    for value in window.args:
        name = value.name or ""
        for rank, given in enumerate(out):
            if name.partition(".")[2] == RANK:
                given[name] = rank_index(rank)
            else:
                given[name] = draw_array(rng, value.type, sample.spread)
    return out


_FAR = (0.0, -0.0, 1.0, -1.0, 0.25, 0.25, 1e-30, 1e3, -1e3)


def draw_array(rng: np.random.Generator, type_: TensorType, spread: Spread) -> Array:
    """Values of a static type."""

    def floats(dims: tuple[int, ...]) -> Array:
        return _floats(rng, dims, spread)

    def whole(kind: DType, dims: tuple[int, ...]) -> Array:
        if kind is pred:
            return np.asarray(rng.integers(0, 2, dims))
        return _whole_numbers(rng, type_, spread)

    return drawn(NumberSource(floats, whole), type_.dtype, type_.dims)


def _floats(rng: np.random.Generator, dims: tuple[int, ...], spread: Spread) -> Array:
    array = rng.standard_normal(dims) * 0.5
    if spread is Spread.ADVERSARIAL:
        array = _with_line(_with_far(rng, array), 0.0)
    if spread in _SCALED:
        scale, offset = _SCALED[spread]
        array = array * scale + offset
    if spread is Spread.ZEROS:
        array = np.zeros(dims)
    if spread is Spread.TIES:
        array = np.sign(np.trunc(array * 4))
    if spread is Spread.NOT_FINITE:
        odd = rng.choice((np.nan, -np.nan, np.inf, -np.inf), dims)
        array = _with_line(np.where(rng.random(dims) < 0.1, odd, array), -np.inf)
    return np.asarray(array)


def _with_line(array: Array, number: float) -> Array:
    """The array with a line of one number along each dimension that has others beside it.

    Sums, maxima and scales of such a line are what a guard is for. Later draws do not depend on it.
    """
    rng = np.random.default_rng(zlib.crc32(array.tobytes()))
    for axis in range(array.ndim):
        lines = np.moveaxis(array, axis, -1)
        others = [int(n) for n in lines.shape[:-1]]
        if lines.shape[-1] > 1 and math.prod(others) > 1:
            lines[tuple([int(rng.integers(0, n)) for n in others])] = number
    return array


def redrawn_floats(arrays: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Arrays of the same shapes and types whose floats are drawn as ``Spread.ADVERSARIAL``."""
    rng, out = np.random.default_rng([seed, 4]), dict(arrays)

    def floats(dims: tuple[int, ...]) -> Array:
        return _with_line(_with_far(rng, rng.standard_normal(dims) * 0.5), 0.0)

    source = NumberSource(floats, lambda kind, dims: np.zeros(dims, np.int64))
    for name, array in arrays.items():
        kind = dtype(name_of(array.dtype))
        if has_floats(kind):
            out[name] = drawn(source, kind, array.shape)
    return out


def _with_far(rng: np.random.Generator, array: Array) -> Array:
    """Half of the floats replaced by zeros of both signs, ties, ones, or numbers far from 1."""
    return np.where(rng.random(array.shape) < 0.5, rng.choice(_FAR, array.shape), array)


def _whole_numbers(rng: np.random.Generator, type_: TensorType, spread: Spread) -> Array:
    """Numbers as ids, positions and lengths have: in order from a start, or any small ones."""
    dims = type_.dims
    if spread is Spread.ADVERSARIAL:
        signed = type_.dtype.name.startswith("s")
        return np.asarray(rng.integers(-2 if signed else 0, 9, dims))
    way = rng.integers(0, 4)
    if way < 2 and dims:
        # Along the last dimension; as often from the last to the first.
        line = np.arange(dims[-1]) + rng.integers(0, 3, (*dims[:-1], 1))
        return np.asarray(line[..., ::-1] if rng.integers(0, 2) else line)
    return np.asarray(rng.integers(0, (3, 8)[way % 2], dims))
