"""Workloads for comparing programs: the calls a serving system would make.

For a language model that is a ragged prefill with both kinds of padding, then three decode steps of
which one leaves a row idle and one crosses into the next bucket. Any other module is called once
with random inputs and states; one that was read from elsewhere with others on each rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import MAIN, Dim, Function, Module, Role, TensorType
from graphgen.ir.dims import symbols

_LANGUAGE_MODEL = {"tokens", "positions", "lengths", "seq_ids"}


@dataclass(frozen=True, slots=True)
class WorkloadSizes:
    """Sizes of the workload of a language model; the second bucket is larger than the first."""

    rows: int = 3
    active: int = 8
    first: int = 8
    second: int = 16


def make_workload(
    module: Module, seed: int = 0, sizes: WorkloadSizes | None = None, *, shuffled: bool = False
) -> Workload:
    """The workload that fits a module.

    Args:
        module: its interface says what the inputs and weights are; any level.
        seed: of weights and inputs.
        sizes: for a language model; by default small ones, or those of the module's programs.
        shuffled: whether the rows of a call are other rows of the cache. Only then does it show
            when row ids are ignored; programs specialized with ``in_place`` may ignore them.
    """
    rng = np.random.default_rng(seed)
    states: dict[str, Array] = {}
    if is_language_model(module):
        chosen = sizes or _program_sizes(module) or WorkloadSizes()
        dims: dict[str, Dim] = {"R": chosen.rows, "M": chosen.second}
        rows = np.arange(chosen.rows, dtype=np.int32)
        calls = _language_model(module, rng, chosen, dims, rows[::-1] if shuffled else rows)
    else:
        dims = _sizes(module)
        calls = tuple(_random_call(module, f, dims, rng) for f in module.programs())
        dims = dict(calls[0].dims) if len(calls) == 1 else dims
        for row in module.entries(Role.STATE):
            states[row.name] = random_array(rng, row.logical.bind(dims))
    weights = {
        row.name: random_array(rng, row.logical.bind(dims)) for row in module.entries(Role.WEIGHT)
    }
    return Workload(weights, calls, dims, states)


def is_language_model(module: Module) -> bool:
    """True for a module with the inputs and phases of a language model."""
    names = {row.name for row in module.entries(Role.INPUT)}
    return names >= _LANGUAGE_MODEL and all(f.phase != MAIN for f in module.programs())


def may_shuffle(module: Module) -> bool:
    """True if no program was promised that row b of a call is row b of the cache."""
    return module.level in ("logical", "canonical") and not any(
        op.attrs.get("rows") == "in_place" for f in module.functions.values() for op in f.block
    )


def _program_sizes(module: Module) -> WorkloadSizes | None:
    """The buckets a specialized module was made for."""
    programs = [f for f in module.programs() if isinstance(f.dims.get("B"), int)]
    attended = sorted({d for f in programs if isinstance(d := f.dims.get("C"), int)})
    if not attended:
        return None
    widths = [f.dims["S"] for f in programs if f.phase == "prefill" and "S" in f.dims]
    rows, active = programs[0].dims["B"], widths[0] if widths else attended[0]
    assert isinstance(rows, int)
    assert isinstance(active, int)
    return WorkloadSizes(rows, active, attended[0], attended[-1])


def random_array(rng: np.random.Generator, type_: TensorType) -> Array:
    """Normal numbers for floats, small ones for integers, both for pred."""
    dtype = numpy_dtype(type_.dtype)
    if type_.dtype.is_float:
        # Of the size weights have: the variance of a product of 1/fan-in would vanish in norms.
        return (rng.standard_normal(type_.dims) * 0.3).astype(dtype)
    low, high = (0, 2) if type_.dtype.name == "pred" else (0, 5)
    return rng.integers(low, high, type_.dims).astype(dtype)


def _sizes(module: Module) -> dict[str, Dim]:
    """A size for each symbol of the programs' arguments: small ones, all different.

    Of a cache there are more slots than a call has tokens.
    """
    values = [value for function in module.programs() for value in function.args]
    free = {name for value in values for name in symbols(value.type.shape)}
    slots = {name for row in module.entries(Role.STATE) for name in symbols(row.logical.shape)}
    ordered = sorted(free, key=lambda name: (name in slots and name != "B", name))
    return {name: 3 + index for index, name in enumerate(ordered)}


def _random_call(
    module: Module, function: Function, sizes: Mapping[str, Dim], rng: np.random.Generator
) -> ProgramCall:
    dims = {**sizes, **function.dims}
    rows = [r for r in module.entries(Role.INPUT) if function.arg(r.name) is not None]
    types = {row.name: row.logical.bind(dims) for row in rows}
    shared = dict[str, Array]()
    if types.keys() >= _LANGUAGE_MODEL:
        shared |= _sensible(module, rng, types)
    types = {name: type_ for name, type_ in types.items() if name not in shared}
    if function.phase == MAIN and module.ranks > 1:
        parts = {n: [random_array(rng, t) for _ in range(module.ranks)] for n, t in types.items()}
        return ProgramCall(function.phase, dims, shared, parts=parts)
    inputs = {name: random_array(rng, type_) for name, type_ in types.items()}
    return ProgramCall(function.phase, dims, {**inputs, **shared})


def _sensible(
    module: Module, rng: np.random.Generator, types: Mapping[str, TensorType]
) -> Mapping[str, Array]:
    """Inputs of an imported language model, as in the workload of ours."""
    rows, width = types["positions"].dims if types["positions"].rank == 2 else (0, 0)
    if [types[name].shape for name in ("lengths", "seq_ids")] != [(rows,)] * 2:
        return {}
    caches = [row.logical.dims for row in module.entries(Role.STATE) if row.logical.rank == 4]
    slots = caches[0][1] if caches else width
    seq_ids, vocabulary = np.arange(rows, dtype=np.int32), _vocabulary(module)
    room = slots if width == 1 else width
    lengths = np.array([max(room - 2 - 3 * row, 1) for row in range(rows)], np.int32)
    if width == 1:
        return _decode(rng, vocabulary, [*range(rows)], lengths, seq_ids, {}).inputs
    sizes = WorkloadSizes(rows, width, slots, slots)
    return _prefill(rng, vocabulary, sizes, lengths, seq_ids, {}).inputs


def _language_model(
    module: Module,
    rng: np.random.Generator,
    sizes: WorkloadSizes,
    shared: Mapping[str, Dim],
    seq_ids: Array,
) -> tuple[ProgramCall, ...]:
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
    sizes: WorkloadSizes,
    lengths: Array,
    seq_ids: Array,
    shared: Mapping[str, Dim],
) -> ProgramCall:
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
    return ProgramCall("prefill", {**shared, "B": rows, "S": width, "C": sizes.first}, inputs)


def _decode(
    rng: np.random.Generator,
    vocabulary: int,
    active: list[int],
    lengths: Array,
    seq_ids: Array,
    dims: Mapping[str, Dim],
) -> ProgramCall:
    rows = len(seq_ids)
    on = np.zeros(rows, np.bool_)
    on[active] = True
    inputs: dict[str, Array] = {
        "tokens": rng.integers(0, vocabulary, (rows, 1)).astype(np.int32),
        "positions": np.where(on, lengths - 1, -1).astype(np.int32)[:, None],
        "lengths": np.where(on, lengths, 0).astype(np.int32),
        "seq_ids": np.where(on, seq_ids, rows).astype(np.int32),
    }
    return ProgramCall("decode", {**dims, "B": rows, "S": 1}, inputs, tuple(active))
