"""The script two programs are compared over: what a serving system would do to them.

For a language model that is a ragged prefill with both kinds of padding, then three decode steps of
which one leaves a row idle and one crosses into the next bucket. Any other module is called once
with random inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Dim, Function, Module, Role, TensorType

_LANGUAGE_MODEL = {"tokens", "positions", "lengths", "seq_ids"}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a program.

    Attributes:
        phase: of the program.
        dims: sizes of the symbols in this call.
        inputs: by name, in logical types.
        active: rows whose outputs matter, ``None`` for all.
    """

    phase: str
    dims: Mapping[str, Dim]
    inputs: Mapping[str, Array]
    active: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """Weights and calls.

    Attributes:
        weights: checkpoint tensors by name, in logical types.
        calls: in order; states go from one to the next, zeros at the start.
        dims: sizes of the symbols that hold for all calls, such as R and M.
    """

    weights: Mapping[str, Array]
    calls: tuple[Call, ...]
    dims: Mapping[str, Dim] = field(default_factory=dict[str, Dim])


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the script of a language model; the second bucket is larger than the first."""

    rows: int = 3
    active: int = 8
    first: int = 8
    second: int = 16


def script_for(
    module: Module, seed: int = 0, sizes: Sizes | None = None, *, shuffled: bool = False
) -> Script:
    """The script that fits a module.

    Args:
        module: its interface says what the inputs and weights are; any level.
        seed: of weights and inputs.
        sizes: for a language model; by default small ones, or those of the module's programs.
        shuffled: whether the rows of a call are other rows of the cache. Only then does it show
            when row ids are ignored; programs specialized with ``in_place`` may ignore them.
    """
    rng = np.random.default_rng(seed)
    names = {row.name for row in module.entries(Role.INPUT)}
    if names >= _LANGUAGE_MODEL:
        chosen = sizes or _program_sizes(module) or Sizes()
        dims: dict[str, Dim] = {"R": chosen.rows, "M": chosen.second}
        rows = np.arange(chosen.rows, dtype=np.int32)
        calls = _language_model(module, rng, chosen, dims, rows[::-1] if shuffled else rows)
    else:
        dims = {}
        calls = tuple(_random_call(module, f, rng) for f in module.programs())
    weights = {
        row.name: random_array(rng, row.logical.bind(dims)) for row in module.entries(Role.WEIGHT)
    }
    return Script(weights, calls, dims)


def _program_sizes(module: Module) -> Sizes | None:
    """The buckets a specialized module was made for."""
    contexts = [f.dims for f in module.programs() if f.phase == "prefill" and "S" in f.dims]
    tokens = sorted({d for f in module.programs() if isinstance(d := f.dims.get("C"), int)})
    if not contexts or not tokens:
        return None
    rows, active = contexts[0]["B"], contexts[0]["S"]
    assert isinstance(rows, int)
    assert isinstance(active, int)
    return Sizes(rows, active, tokens[0], tokens[-1])


def random_array(rng: np.random.Generator, type_: TensorType) -> Array:
    """Normal numbers for floats, small ones for integers, both for pred."""
    dtype = numpy_dtype(type_.dtype)
    if type_.dtype.is_float:
        # Of the size weights have: the variance of a product of 1/fan-in would vanish in norms.
        return (rng.standard_normal(type_.dims) * 0.3).astype(dtype)
    low, high = (0, 2) if type_.dtype.name == "pred" else (0, 5)
    return rng.integers(low, high, type_.dims).astype(dtype)


def _random_call(module: Module, function: Function, rng: np.random.Generator) -> Call:
    inputs = {
        row.name: random_array(rng, row.logical.bind(function.dims))
        for row in module.entries(Role.INPUT)
        if function.arg(row.name) is not None
    }
    return Call(function.phase, dict(function.dims), inputs)


def _language_model(
    module: Module,
    rng: np.random.Generator,
    sizes: Sizes,
    shared: Mapping[str, Dim],
    seq_ids: Array,
) -> tuple[Call, ...]:
    vocabulary = _vocabulary(module)
    rows = sizes.rows
    # Lengths such that two steps stay in the first bucket and the third leaves it.
    lengths = np.array([max(sizes.first - 2 - 3 * row, 1) for row in range(rows)], np.int32)
    lengths = np.minimum(lengths, sizes.active)
    calls = [_prefill(rng, vocabulary, sizes, lengths, seq_ids, shared)]
    phases = {function.phase for function in module.programs()}
    for step in range(3):
        active = [row for row in range(rows) if not (step == 1 and row == rows - 1 and rows > 1)]
        lengths = lengths.copy()
        lengths[active] += 1
        bucket = sizes.first if int(lengths.max()) <= sizes.first else sizes.second
        dims = {**shared, "C": bucket}
        calls.append(_decode(rng, vocabulary, active, lengths, seq_ids, dims))
    return tuple(call for call in calls if call.phase in phases)


def _vocabulary(module: Module) -> int:
    size = next(row.logical.shape[-1] for row in module.entries(Role.OUTPUT))
    return size if isinstance(size, int) else 2


def _prefill(
    rng: np.random.Generator,
    vocabulary: int,
    sizes: Sizes,
    lengths: Array,
    seq_ids: Array,
    shared: Mapping[str, Dim],
) -> Call:
    rows, width = sizes.rows, sizes.active
    positions = np.full((rows, width), -1, np.int32)
    for row, length in enumerate(lengths):
        # Odd rows are padded on the left.
        start = width - int(length) if row % 2 else 0
        positions[row, start : start + int(length)] = np.arange(length, dtype=np.int32)
    inputs: dict[str, Array] = {
        "tokens": rng.integers(0, vocabulary, (rows, width)).astype(np.int32),
        "positions": positions,
        "lengths": lengths.astype(np.int32),
        "seq_ids": seq_ids,
    }
    return Call("prefill", {**shared, "B": rows, "S": width, "C": sizes.first}, inputs)


def _decode(
    rng: np.random.Generator,
    vocabulary: int,
    active: list[int],
    lengths: Array,
    seq_ids: Array,
    dims: Mapping[str, Dim],
) -> Call:
    rows = len(seq_ids)
    on = np.zeros(rows, np.bool_)
    on[active] = True
    inputs: dict[str, Array] = {
        "tokens": rng.integers(0, vocabulary, (rows, 1)).astype(np.int32),
        "positions": np.where(on, lengths - 1, -1).astype(np.int32)[:, None],
        "lengths": np.where(on, lengths, 0).astype(np.int32),
        "seq_ids": np.where(on, seq_ids, rows).astype(np.int32),
    }
    return Call("decode", {**dims, "B": rows, "S": 1}, inputs, tuple(active))
