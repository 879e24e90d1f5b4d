"""Coverage of inputs: ids, positions, padding, rows and slots in the calls of a workload.

All of it follows from the calls in logical types, so it is the same after every pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graphgen.eval import Array
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import Entry, Module, Role
from graphgen.passes.workload.coverage import InputCoverage, IntegerRange, StateCoverage

_TOKEN_INPUTS = {"tokens", "positions", "lengths", "seq_ids"}


@dataclass(frozen=True, slots=True)
class _TokenCall:
    """A call of a language model: its rows, and the positions of their tokens.

    Attributes:
        call: the call.
        ids: s32[B,S].
        positions: s32[B,S], -1 for padding.
        lengths: s32[B], tokens of each row after the call.
        seq_ids: s32[B], rows of the cache.
    """

    call: ProgramCall
    ids: Array
    positions: Array
    lengths: Array
    seq_ids: Array

    @property
    def real(self) -> Array:
        """True for tokens, False for padding: pred[B,S]."""
        return np.greater_equal(self.positions, 0)

    @property
    def prefill(self) -> bool:
        """True for calls with a prompt."""
        return self.call.phase == "prefill"

    @property
    def busy(self) -> Array:
        """True for rows with a token: pred[B]."""
        return np.any(self.real, axis=1)


def input_coverage(module: Module, workload: Workload) -> InputCoverage:
    """The coverage of inputs by the calls of a workload.

    Args:
        module: any level; says which states there are, and how large the vocabulary is.
        workload: the calls.
    """
    calls = [found for call in workload.calls if (found := _token_call(call)) is not None]
    size = vocabulary_size(module) if calls else 0
    slots = _cache_sizes(module, workload)
    return InputCoverage(
        dict(Counter(call.phase for call in workload.calls)),
        _range((one.ids[one.real] for one in calls), size),
        _range((one.positions[one.real] for one in calls), max((m for _, m in slots), default=0)),
        tuple(sorted({len(one.positions) for one in calls})),
        _situations(calls, size, slots, workload) if calls else {},
        tuple(_states(module, workload, calls)),
        _ranges(workload.calls),
    )


def _token_call(call: ProgramCall) -> _TokenCall | None:
    if not call.inputs.keys() >= _TOKEN_INPUTS or call.inputs["positions"].ndim != 2:
        return None
    ids, positions, lengths, seq_ids = (
        np.asarray(call.inputs[name]) for name in ("tokens", "positions", "lengths", "seq_ids")
    )
    if ids.shape != positions.shape or not len(lengths) == len(seq_ids) == len(positions):
        return None
    return _TokenCall(call, ids, positions, lengths, seq_ids)


def vocabulary_size(module: Module) -> int:
    """Rows of the table that ``tokens`` are looked up in; else the width of the logits; else 0."""
    for function in module.programs():
        tokens = function.arg("tokens")
        for op in tokens.users if tokens is not None else ():
            if op.name == "embedding" and isinstance(rows := op.operands[0].shape[0], int):
                return rows
    for row in module.entries(Role.OUTPUT):
        if (
            row.logical.dtype.is_float
            and row.logical.rank
            and isinstance(row.logical.shape[-1], int)
        ):
            return row.logical.shape[-1]
    return 0


def _range(arrays: Iterable[Array], size: int) -> IntegerRange | None:
    found = [array for array in arrays if array.size]
    if not found:
        return None
    return IntegerRange(min(int(a.min()) for a in found), max(int(a.max()) for a in found), size)


def _ranges(calls: Iterable[ProgramCall]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for call in calls:
        parts = [(name, array) for name, arrays in call.parts.items() for array in arrays]
        for name, array in (*call.inputs.items(), *parts):
            if array.size and array.dtype.kind not in "bc":
                low, high = float(array.min()), float(array.max())
                old = found.get(name, (low, high))
                found[name] = min(low, old[0]), max(high, old[1])
    return found


def _cache_sizes(module: Module, workload: Workload) -> set[tuple[int, int]]:
    """Rows and slots of the caches."""
    sizes = [_cache_size(row, workload) for row in module.entries(Role.STATE)]
    return {size for size in sizes if size is not None}


def _cache_size(row: Entry, workload: Workload) -> tuple[int, int] | None:
    """Rows and slots of a state [R,M,...]; ``None`` for a state without slots."""
    shape = row.logical.bind(workload.dims).shape
    if len(shape) > 2 and isinstance(shape[0], int) and isinstance(shape[1], int):
        return shape[0], shape[1]
    return None


def _situations(
    calls: list[_TokenCall], size: int, caches: set[tuple[int, int]], workload: Workload
) -> dict[str, bool]:
    """Situations of a serving system, and whether there was one."""
    ids = np.concatenate([one.ids[one.real] for one in calls])
    prompts = [one for one in calls if one.prefill]
    last = max((slots for _, slots in caches), default=0) - 1
    return {
        "first id of the vocabulary": bool((ids == 0).any()),
        "last id of the vocabulary": bool((ids == size - 1).any()),
        "id outside of the vocabulary": bool(((ids < 0) | (ids >= size)).any()) and size > 0,
        "padding on the left": any(_left(one).any() for one in prompts),
        "padding on the right": any(_left(one, turned=True).any() for one in prompts),
        "prompt as long as its bucket": any(one.real.all(axis=1).any() for one in prompts),
        "prefill on a prefix": any(_continues(one).any() for one in prompts),
        "idle row in prefill": any(not one.busy.all() for one in prompts),
        "idle row in decode": any(not one.busy.all() for one in calls if not one.prefill),
        "last slot of a bucket": any(_edge(one) for one in calls),
        "last slot of the cache": any((one.positions == last).any() for one in calls),
        "row of the cache used again": _reused(calls),
        "rows in another order than the cache": any(_shuffled(one) for one in calls),
        "different numbers of rows": len({len(one.positions) for one in calls}) > 1,
        "initial states other than zeros": any(a.any() for a in workload.states.values()),
    }


def _left(one: _TokenCall, turned: bool = False) -> Array:
    """Rows that have tokens, and padding before the first one (or after the last): pred[B]."""
    real = one.real[:, ::-1] if turned else one.real
    return one.busy & ~real[:, 0]


def _continues(one: _TokenCall) -> Array:
    """Rows whose first token is not at position 0: pred[B]."""
    first = np.where(one.real, one.positions, np.iinfo(np.int32).max).min(axis=1)
    return one.busy & (first > 0)


def _edge(one: _TokenCall) -> bool:
    attended = one.call.dims.get("C")
    return isinstance(attended, int) and bool((one.positions == attended - 1).any())


def _shuffled(one: _TokenCall) -> bool:
    rows = np.arange(len(one.seq_ids))
    return bool((one.seq_ids != rows)[one.busy].any())


def _reused(calls: Iterable[_TokenCall]) -> bool:
    """True if a row of the cache begins at position 0 after it was written to."""
    known: set[int] = set()
    for one in calls:
        begins = {int(row) for row in one.seq_ids[(one.real & (one.positions == 0)).any(axis=1)]}
        if begins & known:
            return True
        known |= {int(row) for row in one.seq_ids[one.busy]}
    return False


def _states(module: Module, workload: Workload, calls: list[_TokenCall]) -> Iterable[StateCoverage]:
    known: dict[tuple[int, int], tuple[float, float]] = {}
    for row in module.entries(Role.STATE):
        size = _cache_size(row, workload)
        if calls and size is not None:
            shares = known.setdefault(size, _slots(size, calls))
        else:
            phases = {call.phase for call in workload.calls}
            run = [function for function in module.programs() if function.phase in phases]
            written = any(function.outputs.get(row.name) is not None for function in run)
            shares = (
                float(written),
                float(any(function.arg(row.name) is not None for function in run)),
            )
        yield StateCoverage(row.name, *shares, "given" if row.name in workload.states else "zeros")


def _slots(size: tuple[int, int], calls: Iterable[_TokenCall]) -> tuple[float, float]:
    """Shares of the slots of a cache [R,M,...] that are written, and that are read."""
    written, read = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    for one in calls:
        for row, positions, length in zip(one.seq_ids, one.positions, one.lengths, strict=True):
            if 0 <= row < size[0]:
                inside = positions[(positions >= 0) & (positions < size[1])]
                written[row, inside] = True
                read[row, : max(int(length), 0)] |= bool(inside.size)
    return float(written.mean()), float(read.mean())
