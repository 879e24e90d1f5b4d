"""Running a script on a module at any level, through its interface table.

Weights go through ``@weights.global`` and ``@weights.rank``, states through their pack and unpack
functions, so what comes out is in logical types whatever passes have run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.analysis import inlined
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Arithmetic, Array, Filled, evaluate, rank_index
from graphgen.ir import MAIN, RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Entry, Function, Module, Role
from graphgen.ir.clone import Cloner
from graphgen.passes.debug.evaluator import NumpyEvaluator, Run
from graphgen.passes.debug.script import Call, Script

# Outputs and states after one call, by name, in logical types; a masked array where some elements
# of a state hold nothing that is defined.
Outcome = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Ran:
    """One call that was run.

    Attributes:
        call: what was asked.
        function: the program that did it, its symbols bound, without calls.
        given: per rank its arguments, in physical types.
        results: per rank its outputs, in physical types.
        outcome: the outputs in logical types.
        states: the names of those that are states.
    """

    call: Call
    function: Function
    given: Sequence[Mapping[str, Array]]
    results: Sequence[Mapping[str, Array]]
    outcome: Outcome
    states: frozenset[str]


class Runner:
    """Runs scripts on one module.

    Args:
        module: any level, any number of ranks.
        script: what to run.
        run: how programs are run; NumPy by default.
        arithmetic: in which weights are prepared and states packed, and programs are run in NumPy.
    """

    def __init__(
        self,
        module: Module,
        script: Script,
        run: Run | None = None,
        arithmetic: Arithmetic = MEANING,
    ) -> None:
        self.module = module
        self.script = script
        self.arithmetic = arithmetic
        self._run: Run = run or NumpyEvaluator(arithmetic)
        self._bound: dict[tuple[str, tuple[tuple[str, object], ...]], Function] = {}
        self._without_calls: dict[Function, Function] = {}
        self._weights = self._prepare_weights()
        self._filled = self._before()
        self._states = self._first_states()

    def outcomes(self) -> list[Outcome]:
        """Outputs and states after each call."""
        return [ran.outcome for ran in self.calls()]

    def calls(self) -> Iterator[Ran]:
        """Each call of the script as it is run."""
        for call in self.script.calls:
            yield self._call(call)

    def _prepare_weights(self) -> list[dict[str, Array]]:
        """Per rank, every array the programs may read besides inputs and states."""
        shared = {**self.script.weights, **self._weight_program(WEIGHTS_GLOBAL, {})}
        ranks: list[dict[str, Array]] = []
        for rank in range(self.module.ranks):
            index: dict[str, Array] = {RANK: rank_index(rank)}
            made = self._weight_program(WEIGHTS_RANK, {**shared, **index})
            ranks.append({**shared, **made, **index})
        return ranks

    def _weight_program(self, name: str, given: Mapping[str, Array]) -> dict[str, Array]:
        function = self.module.functions.get(name)
        if function is None:
            return {}
        return evaluate(function, {**self.script.weights, **given}, self.arithmetic)

    def _before(self) -> Filled | None:
        """What caches hold at the start, where some keep their newest positions only."""
        for row in self.module.entries(Role.STATE):
            if row.last:
                filled = Filled(*row.logical.bind(self.script.dims).dims[:2])
                for call in self.script.calls[:1]:
                    filled.begin(call.inputs)
                return filled
        return None

    def _first_states(self) -> list[dict[str, Array]]:
        ranks: list[dict[str, Array]] = [{} for _ in range(self.module.ranks)]
        for row in self.module.entries(Role.STATE):
            logical = row.logical.bind(self.script.dims)
            kind = self.arithmetic.dtype(logical.dtype)
            whole = self.script.states.get(row.name)
            whole = np.zeros(logical.dims, kind) if whole is None else whole.astype(kind)
            if row.last and self._filled is not None:
                whole = self._filled.wound(whole, row.last)
            for rank, states in enumerate(ranks):
                states[row.name] = self._pack(row.pack, whole, rank) if row.pack else whole
        return ranks

    def _pack(self, name: str, whole: Array, rank: int) -> Array:
        function = self._bind(self.module.function(name), self.script.dims)
        given = {"whole": whole, RANK: rank_index(rank)}
        return evaluate(function, given, self.arithmetic)["part"]

    def _call(self, call: Call) -> Ran:
        function = self._bind(self._program(call), call.dims)
        inputs = [
            {**weights, **states, **call.inputs, **{k: v[rank] for k, v in call.parts.items()}}
            for rank, (weights, states) in enumerate(zip(self._weights, self._states, strict=True))
        ]
        needed = {value.name for value in function.args}
        given = [{k: v for k, v in one.items() if k in needed} for one in inputs]
        results = self._run(self.module, function, given)
        if self._filled is not None:
            self._filled.end(call.inputs)
        outcome: Outcome = {}
        for name, _ in function.outputs:
            parts = [result[name] for result in results]
            whole = self._unpack(function, name, parts, call)
            row = self.module.interface[name]
            if row.role is Role.STATE:
                for states, part in zip(self._states, parts, strict=True):
                    states[name] = part
                outcome[name] = self._defined(row, whole)
            else:
                outcome[name] = whole if call.active is None else whole[list(call.active)]
        states = frozenset(row.name for row in self.module.entries(Role.STATE))
        return Ran(call, self._inlined(function), given, results, outcome, states)

    def _whole(self, function: Function, parts: list[Array]) -> Array:
        """An output that every rank has: of ranks that disagree, the one that does most."""
        if function.phase == MAIN and not all(_alike(part, parts[0]) for part in parts):
            # Nobody has said that they have to agree.
            return np.stack(parts)
        return max(parts, key=lambda part: _distance(part, parts[0]))

    def _unpack(self, program: Function, name: str, parts: list[Array], call: Call) -> Array:
        row = self.module.interface[name]
        if not row.unpack:
            return self._whole(program, parts)
        dims = {**self.script.dims, **call.dims}
        function = self._bind(self.module.function(row.unpack), dims)
        needed = function.args[0].type.dims[0]
        return evaluate(function, {"parts": np.stack(parts[:needed])}, self.arithmetic)["whole"]

    def _defined(self, row: Entry, whole: Array) -> Array:
        """The state, without what a ring has not kept."""
        if not row.last or self._filled is None:
            return whole
        return np.ma.masked_array(whole, self._filled.hidden(whole.shape, row.last))

    def _program(self, call: Call) -> Function:
        """The program of the call's phase and sizes."""
        for function in self.module.programs():
            fits = all(call.dims.get(key) == value for key, value in function.dims.items())
            if function.phase == call.phase and fits:
                return function
        sizes = ", ".join(f"{key}={value}" for key, value in call.dims.items())
        raise GraphgenError(
            "GG0402",
            f"no {call.phase} program for {sizes}",
            help="specialize for the sizes of the script, or let the module keep its symbols",
        )

    def _bind(self, function: Function, dims: Mapping[str, object]) -> Function:
        """The function with its symbols replaced by the call's sizes."""
        if all(value.type.static for value in function.args):
            return function
        key = (function.name, tuple(dims.items()))
        found = self._bound.get(key)
        if found is None:
            values = {name: size for name, size in dims.items() if isinstance(size, int)}
            found = self._bound[key] = Function(function.name, function.phase)
            Cloner(symbols=values).function(function, found)
        return found

    def _inlined(self, function: Function) -> Function:
        """The same function for the same program: who compares runs goes by its values."""
        found = self._without_calls.get(function)
        if found is None:
            found = self._without_calls[function] = inlined(self.module, function)
        return found


# What ranks that mean the same value may make of it, relative to the largest number.
_ALIKE = 1e-2


def _alike(a: Array, b: Array) -> bool:
    """Whether two ranks have about the same, and so mean one value."""
    largest = np.abs(np.nan_to_num(b.astype(np.float64))).max(initial=0.0)
    return _distance(a, b) <= _ALIKE * float(largest)


def _distance(a: Array, b: Array) -> float:
    """The largest difference of two arrays; what cannot be subtracted is infinitely far."""
    if a is b or a.tobytes() == b.tobytes():
        return 0.0
    gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
