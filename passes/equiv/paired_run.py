"""Paired runs: two modules of one interface over one workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, Observer, numpy_dtype
from graphgen.eval.arithmetic import name_of
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.inputs import with_arrays
from graphgen.exec.session import CallResult, ProgramCall, Runner, Workload
from graphgen.ir import MAIN, Function, Module, Role, Value, dtype
from graphgen.ir.dtype import highest, lowest, pred
from graphgen.passes.core.relation import Relation
from graphgen.passes.equiv.deviation import MEANING_BUDGET
from graphgen.passes.equiv.recorded_run import common_outcomes
from graphgen.passes.equiv.relate import RankGrid, apply, meet
from graphgen.passes.programs.token_rule import KEPT, LOGITS, PARAMS, RANDOM, TOKENS
from graphgen.passes.workload.make_workload import is_language_model, workload_of_stages
from graphgen.passes.workload.program_shapes import stage_of
from graphgen.passes.workload.short_script import Script

Parts = Sequence[Array]
Given = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Options of comparing two modules.

    Attributes:
        seed: of weights and inputs.
        tolerance: largest relative difference of equal modules; ``None`` for 1e-9, or for what the
            evaluator calls its noise.
        relations: how values of the second module relate to those of the first, by the name of
            either; equal by default.
        inputs: arrays by name, instead of random ones.
        program: which, where one module has several and the other has one.
        evaluator: what runs the programs in their own types; ``None`` for NumPy in float64, which
            compares what they mean.
        second: the evaluator of the second module, where it has one of its own.
        script: the calls that language models of one interface are taken through.
        redraw: changes the calls and arrays of the module given, before ``inputs`` are put in.
        observers: of the runs of the first and of the second module, in NumPy.
        finite: infinities and NaN are not drawn, for no specification says what becomes of them.
    """

    seed: int = 0
    tolerance: float | None = None
    relations: Mapping[str, Relation] = field(default_factory=dict[str, Relation])
    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array])
    program: str | None = None
    evaluator: Backend | None = None
    second: Backend | None = None
    script: Script = "auto"
    redraw: Callable[[Module, Workload], Workload] | None = None
    observers: tuple[Observer | None, Observer | None] = (None, None)
    finite: bool = False

    @property
    def arithmetic(self) -> Arithmetic:
        """In which floats weights are prepared and programs are traced."""
        return MEANING if self.evaluator is None else NATIVE

    def run(self, side: int) -> Backend:
        """The backend of programs of the first module, 0, or of the second, 1."""
        own = self.second if side else None
        return own or self.evaluator or NumpyBackend(MEANING, self.observers[side])

    def drawn(self, module: Module, workload: Workload) -> Workload:
        """The workload of a module with the arrays that are given or drawn otherwise."""
        changed = workload if self.redraw is None else self.redraw(module, workload)
        return with_arrays(changed, module, self.inputs)

    def bound(self, left: Module, right: Module) -> float:
        """The largest relative difference of equal modules."""
        if self.tolerance is not None:
            return self.tolerance
        if self.evaluator is None:
            return MEANING_BUDGET
        return max(self.evaluator.noise(left), self.evaluator.noise(right))


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One module's part in a call.

    Attributes:
        module: what it was run from.
        function: the program, without symbols.
        given: per rank its arguments.
    """

    module: Module
    function: Function
    given: Given


@dataclass(frozen=True, slots=True)
class PairedCall:
    """One call of both modules.

    Attributes:
        number: of the call, from 0.
        left, right: what was run.
        outputs: by the name on the left, two arrays that should hold the same.
        inputs: arguments that belong together, right to left.
        results: outputs that belong together, right to left.
    """

    number: int
    left: ProgramRun
    right: ProgramRun
    outputs: Mapping[str, tuple[Array, Array]]
    inputs: Mapping[Value, Value]
    results: Mapping[Value, Value]


def same_phases(left: Module, right: Module) -> bool:
    """True if both can run one workload, each with its own weights, states and ranks.

    They can if they share a phase. The meaning of ``main``, the phase of imported programs, is
    unknown: two of those are one module at two levels if one of them has weights prepared or states
    packed out of an interface that is, in logical types, the other's.
    """
    phases = {f.phase for f in left.programs()} & {f.phase for f in right.programs()}
    if phases - {MAIN}:
        return True
    prepared = any(map(_is_prepared, (left, right)))
    return bool(phases) and prepared and _one_logical_interface(left, right)


def _is_prepared(module: Module) -> bool:
    """True if programs read weights or states in other layouts than the interface has."""
    packed = any(row.pack or row.sharding is not None for row in module.entries(Role.STATE))
    return packed or bool(module.entries(Role.PARAM))


def _one_logical_interface(left: Module, right: Module) -> bool:
    """True if names agree, and logical types as far as sizes are numbers in both."""
    if interface_difference(left, right) is not None:
        return False
    for row in left.interface.values():
        other = right.interface.get(row.name)
        if other is None or row.role is Role.PARAM:
            continue
        if row.logical.dtype != other.logical.dtype or row.logical.rank != other.logical.rank:
            return False
        for dim, size in zip(row.logical.shape, other.logical.shape, strict=True):
            if isinstance(dim, int) and isinstance(size, int) and dim != size:
                return False
    return True


def interface_difference(left: Module, right: Module) -> tuple[Role, list[str]] | None:
    """The first role with different logical names in two modules, and the names.

    Where one chooses the tokens that the scores of the other imply, the names that this takes are
    left out.
    """
    free = _of_sampling(left, right)
    for role in (Role.INPUT, Role.WEIGHT, Role.STATE, Role.OUTPUT):
        mine = {row.name for row in left.entries(role)} - free
        theirs = {row.name for row in right.entries(role)} - free
        if mine != theirs:
            return role, sorted(mine ^ theirs)
    return None


def _of_sampling(left: Module, right: Module) -> frozenset[str]:
    """Names of one module only, where one chooses tokens and the other gives the scores."""
    choosing = [module for module in (left, right) if TOKENS in module.interface]
    scoring = [module for module in (left, right) if LOGITS in module.interface]
    if len(choosing) != 1 or all(module in choosing for module in scoring):
        return frozenset()
    return frozenset((TOKENS, LOGITS, PARAMS, RANDOM, KEPT))


def by_workload(left: Module, right: Module, terms: CompareOptions) -> Iterator[PairedCall]:
    """Both modules through one workload.

    Raises:
        GraphgenError: GG0402 when the programs' sizes have nothing in common.
    """
    stages = [stage_of(module, given=True) for module in (left, right)]
    # Random calls have the sizes of the module that has the fewest symbols left.
    sized = [m for m in (left, right) if any(f.dims for f in m.programs())]
    named = left if is_language_model(left) or not sized else sized[0]
    workload = workload_of_stages(named, stages, terms.seed, terms.script)
    workload = terms.drawn(left, workload)
    mesh = mesh_of(right)
    bound = terms.bound(left, right)
    ours = Runner(left, workload, terms.run(0), terms.arithmetic)
    related = _related(workload, right, terms, mesh)
    theirs = Runner(right, related, terms.run(1), terms.arithmetic)
    for number, (a, b) in enumerate(zip(ours.calls(), theirs.calls(), strict=True)):
        first, second = common_outcomes(left, right, a.call, a.outcome, b.outcome, bound)
        b = replace(b, outcome=second)
        outputs = {
            name: _met(terms.relations.get(name), whole, b, name, mesh)
            for name, whole in first.items()
        }
        left_args = {value.name: value for value in a.function.args}
        inputs = {v: left_args[v.name] for v in b.function.args if v.name in left_args}
        made = dict(a.function.outputs)
        results = {value: made[name] for name, value in b.function.outputs if name in made}
        sides = ProgramRun(left, a.function, a.given), ProgramRun(right, b.function, b.given)
        yield PairedCall(number, *sides, outputs, inputs, results)


def mesh_of(module: Module) -> RankGrid:
    """The ranks of a module."""
    return RankGrid(module.mesh)


def _met(
    relation: Relation | None, whole: Array, ran: CallResult, name: str, mesh: RankGrid
) -> tuple[Array, Array]:
    if relation is None:
        return whole, ran.outcome[name]
    parts = [result[name] for result in ran.results]
    if ran.call.active is not None and name not in ran.states:
        parts = [part[list(ran.call.active)] for part in parts]
    return meet(relation, whole, parts, with_scales(mesh, ran.results, ran.given))


def with_scales(mesh: RankGrid, results: Given, given: Given) -> RankGrid:
    """The mesh, with what relations may name as a scale: outputs and arguments of rank 0."""

    def scale(name: str) -> Array:
        for values in (results[0], given[0]):
            if name in values:
                return values[name]
        raise GraphgenError("GG0302", f"no input or output '{name}' to scale with")

    return RankGrid(mesh.axes, scale)


def _related(workload: Workload, right: Module, terms: CompareOptions, mesh: RankGrid) -> Workload:
    """The workload as the second module takes it: weights, states and inputs through relations."""
    if not terms.relations:
        return workload
    alone = RankGrid({})

    def whole(name: str, array: Array) -> Array:
        relation = terms.relations.get(name)
        if relation is None:
            return array
        (part,) = apply(relation, array, alone)
        return stored(part, array, right, name)

    calls: list[ProgramCall] = []
    for call in workload.calls:
        related = call.inputs.keys() & terms.relations.keys()
        parts = {
            name: [
                stored(part, call.inputs[name], right, name)
                for part in apply(terms.relations[name], call.inputs[name], mesh)
            ]
            for name in related
        }
        calls.append(replace(call, parts={**call.parts, **parts}))
    return replace(
        workload,
        weights={name: whole(name, array) for name, array in workload.weights.items()},
        states={name: whole(name, array) for name, array in workload.states.items()},
        calls=tuple(calls),
    )


def stored(part: Array, original: Array, module: Module, name: str) -> Array:
    """A value after a relation in the type ``module`` holds it in: integers are rounded to."""
    row = module.interface.get(name)
    if row is None or not row.physical.dtype.is_integer or _is_whole(part):
        return part.astype(original.dtype) if part.dtype != original.dtype else part
    wanted = numpy_dtype(row.physical.dtype)
    low, high = lowest(row.physical.dtype), highest(row.physical.dtype)
    return np.clip(np.rint(part), low, high).astype(wanted)


def _is_whole(array: Array) -> bool:
    """True for integers of any width and for predicates."""
    kind = dtype(name_of(array.dtype))
    return kind.is_integer or kind is pred
