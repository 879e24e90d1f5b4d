"""Sessions: run a workload on a module at any level, threading its states from call to call.

Weights go through ``@weights.global`` and ``@weights.rank``, states through their pack and unpack
functions, so what comes out is in logical types whatever passes have run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from graphgen.analysis import inlined
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Arithmetic, Array, Observer, rank_index
from graphgen.eval.element_kinds import real_parts
from graphgen.eval.float_bits import bits_of
from graphgen.exec.backend import NumpyBackend, RunOnRanks
from graphgen.exec.decode_steps import COUNT, STEP_COUNTS, STEP_TOKENS, STEPS, step_inputs
from graphgen.exec.program_run import Outcome, ProgramCall
from graphgen.exec.ring_buffer import RingOccupancy
from graphgen.exec.speculative_step import has_draft, of_draft, speculative_step
from graphgen.exec.weights import (
    default_layouts,
    pack_state,
    prepare_weights,
    unpack_state,
)
from graphgen.ir import MAIN, RANK, VERIFY, Dim, Entry, Function, Module, Role
from graphgen.ir.clone import bind_function

__all__ = [
    "CallResult",
    "Outcome",
    "ProgramCall",
    "Runner",
    "Workload",
    "goes_one_by_one",
    "program_of",
    "runs_of",
]


@dataclass(frozen=True, slots=True)
class Workload:
    """Calls of the programs of a module, in order, and the weights they read.

    Attributes:
        weights: checkpoint tensors by name, in logical types.
        calls: in order; states go from one to the next.
        dims: sizes of the symbols that hold for all calls, such as R and M.
        states: initial states by name, in logical types; zeros by default.
        layouts: by name, of modules that have such; by default those that serve any calls.
        exhaustive: whether the calls were planned to reach every place of small programs; a place
            that they miss is then a fault of the validation.
        rings: whether some cache keeps its newest positions only, so that a row goes on where it is
            or begins again.
        whole: whether prompts begin at their first token.
        seed: that the arrays were drawn with, and that further values are drawn with.
    """

    weights: Mapping[str, Array]
    calls: tuple[ProgramCall, ...]
    dims: Mapping[str, Dim] = field(default_factory=dict[str, Dim])
    states: Mapping[str, Array] = field(default_factory=dict[str, Array])
    layouts: Mapping[str, Array] = field(default_factory=dict[str, Array])
    exhaustive: bool = False
    rings: bool = False
    whole: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CallResult:
    """Arguments and results of one call.

    Attributes:
        call: the call.
        function: the program that ran, its symbols bound, without calls.
        given: per rank its arguments, in physical types.
        results: per rank its outputs, in physical types.
        outcome: the outputs in logical types.
        states: the names of those that are states.
    """

    call: ProgramCall
    function: Function
    given: Sequence[Mapping[str, Array]]
    results: Sequence[Mapping[str, Array]]
    outcome: Outcome
    states: frozenset[str]


class Runner:
    """Runs a workload on one module.

    Args:
        module: any level, any number of ranks.
        workload: the calls and their arrays.
        run: the backend of programs; NumPy by default.
        arithmetic: element types of floats when weights are prepared, states are packed, and
            programs run in NumPy.
        observer: sees every op of the programs, and may replace results; only where ``run`` is
            left out.
        last_states: whether outcomes have the states after the last call only; each call reads
            what the one before left all the same.
    """

    def __init__(
        self,
        module: Module,
        workload: Workload,
        run: RunOnRanks | None = None,
        arithmetic: Arithmetic = MEANING,
        observer: Observer | None = None,
        *,
        last_states: bool = False,
    ) -> None:
        self.module = module
        self.workload = workload
        self._last_states = last_states
        self._shows_states = True
        self.arithmetic = arithmetic
        self._run: RunOnRanks = run or NumpyBackend(arithmetic, observer)
        self._bound: dict[tuple[str, tuple[tuple[str, object], ...]], Function] = {}
        self._without_calls: dict[Function, Function] = {}
        self._weights = self._prepare_weights()
        made = default_layouts(module)
        self._layouts = {name: workload.layouts.get(name, made[name]) for name in made}
        self._filled = self._before()
        self._states = self._first_states()

    def outcomes(self) -> list[Outcome]:
        """Outputs and states after each call."""
        return [ran.outcome for ran in self.calls()]

    def calls(self) -> Iterator[CallResult]:
        """Run the calls in order, one at a time."""
        for number, call in enumerate(self.workload.calls, 1):
            last = number == len(self.workload.calls)
            self._shows_states = last or not self._last_states
            yield self._call(call)

    def _prepare_weights(self) -> list[dict[str, Array]]:
        """Per rank, every array the programs may read besides inputs and states."""
        weights = {name: self._widened(name, x) for name, x in self.workload.weights.items()}
        made = prepare_weights(self.module, weights, self.module.ranks, self.arithmetic)
        return [{**weights, **one, RANK: rank_index(rank)} for rank, one in enumerate(made)]

    def _widened(self, name: str, array: Array) -> Array:
        """A weight in the type that holds it, so that it is not converted in every call."""
        row = self.module.interface.get(name)
        if row is None or not row.logical.dtype.is_float:
            return array
        return array.astype(self.arithmetic.dtype(row.logical.dtype), copy=False)

    def _before(self) -> RingOccupancy | None:
        """Occupancy of the caches at the start, if some keep their newest positions only."""
        for row in self.module.entries(Role.STATE):
            if row.last:
                filled = RingOccupancy(*row.logical.bind(self.workload.dims).dims[:2])
                # Each row starts with what its first call finds there.
                for call in reversed(self.workload.calls):
                    filled.begin(call.inputs)
                return filled
        return None

    def _first_states(self) -> list[dict[str, Array]]:
        ranks: list[dict[str, Array]] = [{} for _ in range(self.module.ranks)]
        for row in self.module.entries(Role.STATE):
            logical = row.logical.bind(self.workload.dims)
            kind = self.arithmetic.dtype(logical.dtype)
            whole = self.workload.states.get(row.name)
            whole = np.zeros(logical.dims, kind) if whole is None else whole.astype(kind)
            if row.last and self._filled is not None:
                whole = self._filled.wound(whole, row.last)
            for rank, states in enumerate(ranks):
                states[row.name] = self._pack(row.pack, whole, rank) if row.pack else whole
        return ranks

    def _pack(self, name: str, whole: Array, rank: int) -> Array:
        function = self._bind(self.module.function(name), self.workload.dims)
        return pack_state(function, whole, rank, self.arithmetic, self._layouts)

    def _call(self, call: ProgramCall) -> CallResult:
        joined = has_draft(self.module)
        if goes_one_by_one(self.module, call):
            return self._speculative(call) if joined else self._one_by_one(call)
        if not joined or call.phase == VERIFY:
            return self._program(call)
        # A draft keeps the same tokens as its model.
        ran, beside = self._program(call), self._program(of_draft(call))
        states = {name: x for name, x in beside.outcome.items() if name in beside.states}
        return replace(ran, outcome={**ran.outcome, **states})

    def _program(self, call: ProgramCall) -> CallResult:
        """Run the program of one call."""
        function = self._bind(program_of(self.module, call), call.dims)
        donated = self._donated() if self._last_states else frozenset[str]()
        shared = {**self._layouts, **call.inputs}
        inputs = [
            {**weights, **states, **shared, **{k: v[rank] for k, v in call.parts.items()}}
            for rank, (weights, states) in enumerate(zip(self._weights, self._states, strict=True))
        ]
        needed = {value.name for value in function.args}
        given = [{k: v for k, v in one.items() if k in needed} for one in inputs]
        if donated and isinstance(self._run, NumpyBackend):
            results = self._run(self.module, function, given, donated)
        else:
            results = self._run(self.module, function, given)
        self._fill(call, results)
        outcome: Outcome = {}
        for name, value in function.outputs:
            parts = [result[name] for result in results]
            row = self.module.interface[name]
            if row.role is Role.STATE:
                for states, part in zip(self._states, parts, strict=True):
                    states[name] = part
                if self._shows_states:
                    outcome[name] = self._defined(row, self._unpack(function, name, parts, call))
            else:
                whole = bits_of(value, self._unpack(function, name, parts, call))
                shown = _of_tokens(row, whole, call)
                outcome[name] = shown if call.active is None else shown[list(call.active)]
        states = frozenset(row.name for row in self.module.entries(Role.STATE))
        return CallResult(call, self._inlined(function), given, results, outcome, states)

    def _donated(self) -> frozenset[str]:
        """States of a module of one rank that nothing but this run refers to, not even by views."""
        if len(self._states) > 1:
            return frozenset()
        states = self._states[0]
        # The dictionary, and the argument.
        return frozenset(name for name in states if sys.getrefcount(states[name]) == _OWN)

    def _one_by_one(self, call: ProgramCall) -> CallResult:
        """The steps of a call of several, each a call of the decode program."""
        count, rows = cast(int, call.dims[COUNT]), cast(int, call.dims["R"])
        chosen = np.full((len(call.inputs[STEP_COUNTS]), count), -1, np.int32)
        dims = {name: size for name, size in call.dims.items() if name != COUNT}
        ran: CallResult | None = None
        for number in range(count):
            inputs = step_inputs(call.inputs, number, chosen, rows)
            active = tuple(np.flatnonzero(inputs["lengths"] > 0).tolist())
            ran = self._call(ProgramCall("decode", dims, inputs, active))
            chosen[list(active), number] = ran.outcome["next_tokens"]
        assert ran is not None
        outcome = {name: array for name, array in ran.outcome.items() if name in ran.states}
        shown = chosen if call.active is None else chosen[list(call.active)]
        return replace(ran, outcome={STEP_TOKENS: shown, **outcome})

    def _speculative(self, call: ProgramCall) -> CallResult:
        """A call of several steps of a model and its draft, by their own programs."""
        ran: list[CallResult] = []

        def run(part: ProgramCall) -> Outcome:
            ran.append(self._program(part))
            return ran[-1].outcome

        chosen = speculative_step(self.module, call, run)
        outcome = {k: x for one in ran for k, x in one.outcome.items() if k in one.states}
        shown = chosen if call.active is None else chosen[list(call.active)]
        return replace(ran[-1], call=call, outcome={STEP_TOKENS: shown, **outcome})

    def _fill(self, call: ProgramCall, results: Sequence[Mapping[str, Array]]) -> None:
        """Note what a call has written to caches that keep the newest positions."""
        if self._filled is None:
            return
        if call.phase != STEPS:
            self._filled.end(call.inputs)
            return
        chosen, rows = results[0][STEP_TOKENS], cast(int, call.dims["R"])
        for number in range(chosen.shape[1]):
            self._filled.end(step_inputs(call.inputs, number, chosen, rows))

    def _whole(self, function: Function, parts: list[Array]) -> Array:
        """An output that every rank has: that of the rank furthest from rank 0."""
        if function.phase == MAIN and not all(_alike(part, parts[0]) for part in parts):
            # The ranks of a foreign program need not agree.
            return np.stack(parts)
        return max(parts, key=lambda part: _distance(part, parts[0]))

    def _unpack(self, program: Function, name: str, parts: list[Array], call: ProgramCall) -> Array:
        row = self.module.interface[name]
        if not row.unpack:
            return self._whole(program, parts)
        dims = {**self.workload.dims, **call.dims}
        function = self._bind(self.module.function(row.unpack), dims)
        return unpack_state(function, parts, self.arithmetic, self._layouts)

    def _defined(self, row: Entry, whole: Array) -> Array:
        """The state, masked where a ring buffer has dropped positions."""
        if not row.last or self._filled is None:
            return whole
        return np.ma.masked_array(whole, self._filled.hidden(whole.shape, row.last))

    def _bind(self, function: Function, dims: Mapping[str, object]) -> Function:
        """The function with its symbols replaced by the call's sizes."""
        if all(value.type.static for value in function.args):
            return function
        key = (function.name, tuple(dims.items()))
        found = self._bound.get(key)
        if found is None:
            values = {name: size for name, size in dims.items() if isinstance(size, int)}
            found = self._bound[key] = bind_function(function, values)
        return found

    def _inlined(self, function: Function) -> Function:
        """The function without calls, one copy per program: comparisons key by its values."""
        found = self._without_calls.get(function)
        if found is None:
            found = self._without_calls[function] = inlined(self.module, function)
        return found


# References to an array that only a dictionary holds, while they are counted.
_OWN = 2


def goes_one_by_one(module: Module, call: ProgramCall) -> bool:
    """True for a call of several steps of a module that has programs of one step only.

    It is as many calls of the decode program.
    """
    return call.phase == STEPS and all(f.phase != STEPS for f in module.programs())


def runs_of(module: Module, call: ProgramCall) -> int:
    """Number of programs that a call of a module runs, one after the other."""
    if not goes_one_by_one(module, call):
        return 2 if has_draft(module) and call.phase != VERIFY else 1
    steps = cast(int, call.dims[COUNT])
    return steps + 1 if has_draft(module) else steps


def program_of(module: Module, call: ProgramCall) -> Function:
    """The program of the call's phase and sizes (GG0402 if the module has none)."""
    for function in module.programs():
        fits = all(call.dims.get(key) == value for key, value in function.dims.items())
        if function.phase == call.phase and fits:
            return function
    sizes = ", ".join(f"{key}={value}" for key, value in call.dims.items())
    own = [f.dims for f in module.programs() if f.phase == call.phase]
    known = "; ".join(",".join(f"{key}={value}" for key, value in dims.items()) for dims in own)
    raise GraphgenError(
        "GG0402",
        f"no {call.phase} program for {sizes}",
        help=f"its programs have {known}" if known else f"no program has the phase {call.phase}",
    )


def _of_tokens(row: Entry, whole: Array, call: ProgramCall) -> Array:
    """An output with a row for each token, masked at padding: what is there is not defined."""
    positions = call.inputs.get("positions")
    per_token = [str(dim) for dim in row.logical.shape[:2]] == ["B", "S"]
    if positions is None or not per_token or whole.shape[:2] != positions.shape:
        return whole
    padding = (positions < 0).reshape(*positions.shape, *[1] * (whole.ndim - 2))
    if not padding.any():
        return whole
    return np.ma.masked_array(whole, np.broadcast_to(padding, whole.shape))


# Largest difference between ranks of one value, relative to its largest number.
_ALIKE = 1e-2


def _alike(a: Array, b: Array) -> bool:
    """True where two ranks hold one value up to rounding."""
    largest = np.abs(np.nan_to_num(real_parts(b).astype(np.float64))).max(initial=0.0)
    return _distance(a, b) <= _ALIKE * float(largest)


def _distance(a: Array, b: Array) -> float:
    """The largest difference of two arrays; infinite where one is NaN."""
    if a is b or a.tobytes() == b.tobytes():
        return 0.0
    gap = np.abs(real_parts(a).astype(np.float64) - real_parts(b).astype(np.float64))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
