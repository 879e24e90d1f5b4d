"""Choose arguments for the functions of a module: from a workload's calls, or legal ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphgen.analysis import free_symbols
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, rank_index
from graphgen.exec.inputs import RandomInputs
from graphgen.exec.program_run import ranks_of
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import RANK, Dim, Function, Module, Op, Role
from graphgen.ops.control import callees
from graphgen.ops.map_reduce import SCALAR
from graphgen.passes.equiv.value_trace import ValueTrace, trace
from graphgen.passes.validate.boundary_values import Spread, draw_array, samples

Given = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class LegalArguments:
    """Arguments of one function that a call of a program gives it.

    Attributes:
        sizes: of its symbols.
        given: per rank its arguments by name.
        origin: where they come from.
    """

    sizes: Mapping[str, Dim]
    given: Given
    origin: str


def workloads(module: Module, workload: Workload) -> Iterator[tuple[Workload, str]]:
    """The workload, then one of a single call for each program that it does not run.

    With each comes its description.
    """
    yield workload, "the script"
    for function in module.programs():
        if not any(_is_call_of(call, function) for call in workload.calls):
            yield _own_call(module, function, workload), f"@{function.name} alone"


def _own_call(module: Module, function: Function, workload: Workload) -> Workload:
    """One call of a program, with filled caches."""
    names = free_symbols([function]) | free_symbols(module.functions.values())
    sample = samples(names, function.dims)[0]
    dims: dict[str, Dim] = {**sample.sizes, **workload.dims, **function.dims}
    maker, rng = RandomInputs(module, function, 1 + workload.seed), _generator(workload, 1)
    read = {value.name for value in function.args}
    inputs = {
        row.name: maker.make(row, row.logical.bind(dims))
        for row in module.entries(Role.INPUT)
        if row.name in read
    }
    states = {
        row.name: draw_array(rng, row.logical.bind(dims), Spread.ORDINARY)
        for row in module.entries(Role.STATE)
    }
    call = ProgramCall(function.phase, dims, inputs)
    return replace(workload, calls=(call,), dims=dims, states=states)


class LegalCalls:
    """Legal arguments of the functions of a module, computed when they are first needed.

    Args:
        module: as before the pass; not changed.
        workload: its calls come first; programs that none of them runs get a call of their own.
    """

    def __init__(self, module: Module, workload: Workload) -> None:
        self._module = module
        self._workload = workload
        self._found: dict[str, list[LegalArguments]] | None = None

    def takes(self, name: str) -> bool:
        """True for a name in the interface before the pass."""
        return name in self._module.interface

    def of(self, name: str) -> list[LegalArguments]:
        """Arguments of the function called ``name``; none where it is not known who runs it."""
        if self._found is None:
            self._found = {}
            self._collect(self._found)
        return self._found.get(name, [])

    def prepares(self, name: str) -> bool:
        """True for a function that no op runs: it prepares weights, packs or unpacks a state."""
        function = self._module.functions.get(name)
        return function is not None and not _is_callee(self._module, function)

    def _collect(self, found: dict[str, list[LegalArguments]]) -> None:
        for workload, origin in workloads(self._module, self._workload):
            try:
                for number, ran in enumerate(Runner(self._module, workload).calls()):
                    what = f"call {number} of {origin}"
                    added = _added(self._module, workload, ran.call)
                    given = [{**added, **one} for one in ran.given]
                    self._enter(ran.call.dims, given, ran.function.name, what, found)
            except (GraphgenError, ValueError, KeyError):
                # A function that cannot run has no known legal arguments.
                continue
        self._preparation(found)

    def _enter(
        self,
        dims: Mapping[str, Dim],
        given: Given,
        name: str,
        origin: str,
        found: dict[str, list[LegalArguments]],
    ) -> None:
        """Enter arguments of a program, and of the functions that it runs with them."""
        function = self._module.function(name)
        found.setdefault(name, []).append(LegalArguments(dims, given, origin))
        for op in function.block:
            if callees(op):
                self._enter_callees(function, dims, given, origin, found)
                return

    def _enter_callees(
        self,
        function: Function,
        dims: Mapping[str, Dim],
        given: Given,
        origin: str,
        found: dict[str, list[LegalArguments]],
    ) -> None:
        from graphgen.ir.clone import bind_function

        bound = bind_function(function, dims, dict(dims))
        values = trace(self._module, bound, given, MEANING)
        for op in bound.block:
            for name, columns in _arguments_of_callees(op, values):
                if name not in found:
                    args = self._module.function(name).args
                    ranks = [
                        {v.name or "": c[rank] for v, c in zip(args, columns, strict=True)}
                        for rank in range(len(given))
                    ]
                    self._enter(dims, ranks, name, f"{op.name} in {origin}", found)

    def _preparation(self, found: dict[str, list[LegalArguments]]) -> None:
        """Arguments of functions that prepare weights, and that pack and unpack states."""
        module, dims = self._module, self._workload.dims
        rng = _generator(self._workload, 2)
        for function in module.functions.values():
            if function.phase or function.name in found or _is_callee(module, function):
                continue
            try:
                given = [self._prepared(function, rng, rank) for rank in range(ranks_of(module))]
            except GraphgenError:
                continue
            found[function.name] = [LegalArguments(dims, given, f"weights of @{function.name}")]

    def _prepared(
        self, function: Function, rng: np.random.Generator, rank: int
    ) -> dict[str, Array]:
        """The weights that a function prepares, and arrays for what else it takes."""
        given: dict[str, Array] = {}
        for value in function.args:
            name = value.name or ""
            if name == RANK:
                given[name] = rank_index(rank)
            elif name in self._workload.weights:
                given[name] = self._workload.weights[name]
            else:
                type_ = value.type.bind(self._workload.dims)
                given[name] = draw_array(rng, type_, Spread.ORDINARY)
        return given


def _generator(workload: Workload, number: int) -> np.random.Generator:
    return np.random.default_rng([workload.seed, number])


def _is_call_of(call: ProgramCall, function: Function) -> bool:
    fits = all(call.dims.get(key) == size for key, size in function.dims.items())
    return call.phase == function.phase and fits


def _is_callee(module: Module, function: Function) -> bool:
    return any(function.name in callees(op) for f in module.functions.values() for op in f.block)


def _arguments_of_callees(
    op: Op, values: ValueTrace
) -> Iterator[tuple[str, list[Sequence[Array]]]]:
    """Each function that ``op`` runs, with the operands that it is first run on, per rank."""
    names = callees(op)
    columns = [values.parts[value] for value in op.operands]
    if op.name in SCALAR:
        if all(array.size for column in columns for array in column):
            yield names[0], _elements(op, columns)
        return
    if op.name != "conditional":
        for name in names:
            yield name, columns
        return
    takes = op.attrs.integers("takes")
    for number, name in enumerate(names):
        start = 1 + sum(takes[:number])
        yield name, columns[start : start + takes[number]]


def _elements(op: Op, columns: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
    """Operands of a function that is applied to elements: the first one, then the last, of each."""
    if op.name == "map":
        places = [(number, 0) for number in range(len(columns))]
    elif op.name == "sort_by":
        places = [(number, end) for number in range(len(columns)) for end in (0, -1)]
    else:
        places = [(number, end) for end in (0, -1) for number in range(len(columns) // 2)]
    return [[array.reshape(-1)[end].reshape(()) for array in columns[n]] for n, end in places]


def _added(module: Module, workload: Workload, call: ProgramCall) -> dict[str, Array]:
    """Weights and inputs of a call that the module does not have: a pass may add them."""
    given = {**workload.weights, **call.inputs}
    return {name: array for name, array in given.items() if name not in module.interface}
