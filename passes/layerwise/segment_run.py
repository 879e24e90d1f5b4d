"""Runs of single segments: the calls of a workload, each with its recorded residual stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.eval import Arithmetic, Array, rank_index
from graphgen.exec.session import Outcome, ProgramCall, Runner, Workload
from graphgen.ir import RANK, Entry, Module, Role, TensorType
from graphgen.passes.layerwise.layer_segments import SEGMENT_INPUT, SEGMENT_OUTPUT, Segment
from graphgen.passes.layerwise.streamed_array import MemoryMeter, Streamed
from graphgen.passes.layerwise.streamed_run import StreamedBackend, run_streamed
from graphgen.passes.layerwise.weight_sources import WeightSource
from graphgen.passes.workload.make_workload import make_workload
from graphgen.passes.workload.value_ranges import normal_numbers

# The numbers that are only inputs of what is compared: small and fast.
RECORDING = Arithmetic(np.dtype(np.float32))


def calls_without_weights(module: Module, seed: int, *, shuffled: bool = False) -> Workload:
    """The calls that fit a module, as :func:`make_workload` makes them, without its weights."""

    def drawn(rng: np.random.Generator, row: Entry, type_: TensorType) -> Array:
        return np.empty(0) if row.role is Role.WEIGHT else normal_numbers(rng, row, type_)

    return replace(make_workload(module, seed, shuffled=shuffled, source=drawn), weights={})


@dataclass(slots=True)
class SegmentRunner:
    """Runs segments over one workload.

    Attributes:
        workload: the calls, of the whole module; without weights.
        source: gives the weights.
        meter: counts what is made and read.
        runs: labels of the segments that were run, in order.
    """

    workload: Workload
    source: WeightSource
    meter: MemoryMeter = field(default_factory=MemoryMeter)
    runs: list[str] = field(default_factory=list[str])

    def outcomes(
        self,
        segment: Segment,
        inputs: Sequence[Array] | None,
        arithmetic: Arithmetic,
        *,
        idle: bool = False,
    ) -> list[Outcome]:
        """Outputs and states of a segment after each call, by their names in the segment.

        Args:
            segment: of a module at any level, on any number of ranks.
            inputs: the residual stream at its beginning, one array a call; ``None`` where it
                begins with the inputs of the program.
            arithmetic: in which floats to compute.
            idle: whether rows and tokens that mean nothing are given too. By default tokens at
                negative positions are masked and idle rows left out.
        """
        self.runs.append(segment.label)
        summed = segment.addends & {SEGMENT_OUTPUT}
        prepared = self._prepared(segment, arithmetic)
        backend = StreamedBackend(prepared, arithmetic, self.meter, summed)
        calls = [
            _call(call, None if inputs is None else inputs[number], segment, idle=idle)
            for number, call in enumerate(self.workload.calls)
        ]
        states = {
            short: self.workload.states[name]
            for short, name in segment.names.items()
            if name in self.workload.states
        }
        workload = Workload({}, tuple(calls), self.workload.dims, states)
        made = Runner(segment.module, workload, backend, arithmetic).outcomes()
        if idle:
            return made
        return [_shown(outcome, call) for outcome, call in zip(made, calls, strict=True)]

    def _prepared(self, segment: Segment, arithmetic: Arithmetic) -> list[Mapping[str, Streamed]]:
        """Per rank, the weights of a segment and what is prepared of them."""
        raw = {name: self.source(row) for name, row in segment.weights.items()}
        ranks: list[Mapping[str, Streamed]] = []
        for rank in range(segment.module.ranks):
            values: dict[str, Streamed] = {**raw, RANK: rank_index(rank)}
            for function in segment.prepare:
                values |= run_streamed(function, [values], arithmetic, self.meter)[0]
            ranks.append(values)
        return ranks


def _call(call: ProgramCall, given: Array | None, segment: Segment, *, idle: bool) -> ProgramCall:
    """The call of a segment: with its part of the residual stream on every rank."""
    active = None if idle else call.active
    if given is None:
        return replace(call, active=active)
    if SEGMENT_INPUT in segment.addends:
        ranks = segment.module.ranks
        addend = given.astype(np.float64) / ranks
        parts = {**call.parts, SEGMENT_INPUT: [addend] * ranks}
        return replace(call, parts=parts, active=active)
    return replace(call, inputs={**call.inputs, SEGMENT_INPUT: given}, active=active)


def _shown(outcome: Outcome, call: ProgramCall) -> Outcome:
    """The outcome with the residual stream masked where a token is padding."""
    stream, positions = outcome.get(SEGMENT_OUTPUT), call.inputs.get("positions")
    if stream is None or positions is None:
        return outcome
    if call.active is not None:
        positions = positions[list(call.active)]
    if stream.shape[: positions.ndim] != positions.shape:
        return outcome
    hidden = (positions < 0).reshape(*positions.shape, *[1] * (stream.ndim - positions.ndim))
    masked = np.ma.masked_array(stream, np.broadcast_to(hidden, stream.shape))
    return {**outcome, SEGMENT_OUTPUT: masked}
