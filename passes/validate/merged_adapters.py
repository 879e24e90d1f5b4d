"""The reference of the pass that adds adapters: each row by the model with its adapter merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphgen.eval import Arithmetic, Array
from graphgen.exec.backend import Backend
from graphgen.exec.session import Outcome, ProgramCall, Workload
from graphgen.ir import ADAPTER_IDS, Entry, Module, Role
from graphgen.passes.equiv.recorded_run import RecordedRun, ScoreRecord, record
from graphgen.passes.lora.merged_weights import merged_module, merged_weights


def adds_adapters(before: Module, after: Module) -> bool:
    """True if the programs take adapters that they did not take before."""
    return ADAPTER_IDS in after.interface and ADAPTER_IDS not in before.interface


def without_adapters(workload: Workload) -> Workload:
    """The workload with no adapter for any row."""
    calls = [
        replace(
            call,
            inputs={**call.inputs, ADAPTER_IDS: np.full_like(call.inputs[ADAPTER_IDS], -1)},
        )
        for call in workload.calls
    ]
    return replace(workload, calls=tuple(calls))


def merged_run(
    before: Module,
    after: Module,
    workload: Workload,
    arithmetic: Arithmetic,
    run: Backend | None = None,
) -> RecordedRun:
    """Runs of the merged model, one for each adapter, with the rows that have it.

    Args:
        before: without adapters.
        after: with them.
        workload: every row of the cache has one adapter in all calls.
        arithmetic, run: as of :func:`record`.
    """
    merged = merged_module(before, after)
    ids = [call.inputs[ADAPTER_IDS] for call in workload.calls]
    slots = sorted({-1, *np.concatenate(ids).tolist()})
    runs = {slot: record(merged, _merged(workload, after, slot), arithmetic, run) for slot in slots}
    owners = _owners(workload)
    outcomes: list[Outcome] = []
    for number, call in enumerate(workload.calls):
        parts = {slot: made.outcomes[number] for slot, made in runs.items()}
        outcomes.append(
            {
                name: _of_rows(
                    {slot: part[name] for slot, part in parts.items()},
                    before.interface.get(name),
                    owners,
                    call,
                )
                for name in parts[-1]
            }
        )
    return RecordedRun(outcomes, records=_records(runs, workload))


def _merged(workload: Workload, after: Module, slot: int) -> Workload:
    return replace(
        workload, weights={**workload.weights, **merged_weights(after, workload.weights, slot)}
    )


def _owners(workload: Workload) -> Array:
    """The adapter of each row of the cache, -1 for rows that no call uses."""
    used = np.concatenate([call.inputs["seq_ids"] for call in workload.calls if _rows_given(call)])
    owners = np.full(int(used.max(initial=0)) + 1, -1, np.int32)
    for call in workload.calls:
        if _rows_given(call):
            owners[call.inputs["seq_ids"]] = call.inputs[ADAPTER_IDS]
    return owners


def _rows_given(call: ProgramCall) -> bool:
    return "seq_ids" in call.inputs


def _of_rows(
    parts: Mapping[int, Array], row: Entry | None, owners: Array, call: ProgramCall
) -> Array:
    """Each row of an output or a state from the run with its adapter."""
    first = parts[-1]
    if row is not None and row.role is Role.STATE:
        axis, ids = 0, owners[: first.shape[0]]
    else:
        ids = call.inputs[ADAPTER_IDS]
        ids = ids if call.active is None else ids[list(call.active)]
        axis = _row_axis(row)
        # Values of the tokens of all rows, one after the other.
        ids = np.repeat(ids, first.shape[axis] // len(ids)) if len(ids) else ids
    out = np.moveaxis(first.copy(), axis, 0)
    for slot, part in parts.items():
        rows = np.flatnonzero(ids == slot)
        out[rows] = np.moveaxis(part, axis, 0)[rows]
    return np.moveaxis(out, 0, axis)


def _row_axis(row: Entry | None) -> int:
    """The dimension of an output that has the rows of the call."""
    names = [str(dim) for dim in row.logical.shape] if row is not None else []
    return next((axis for axis, name in enumerate(names) if "B" in name.split("*")), 0)


def _records(runs: Mapping[int, RecordedRun], workload: Workload) -> dict[str, ScoreRecord]:
    """The scores of choices, each row's from the run with its adapter."""
    found: dict[str, ScoreRecord] = {}
    for name, kept in runs[-1].records.items():
        scores = tuple(
            _of_rows(
                {s: made.records[name].scores[n] for s, made in runs.items()},
                None,
                np.zeros(0),
                call,
            )
            for n, call in enumerate(workload.calls)
        )
        found[name] = replace(kept, scores=scores)
    return found
