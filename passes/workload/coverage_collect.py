"""Collection of coverage from the recorder of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from graphgen.analysis import called, function_fingerprint, inlined
from graphgen.analysis.calls import run_by_programs
from graphgen.exec.adapters import adapter_rows
from graphgen.exec.session import ProgramCall, Workload, program_of, runs_of
from graphgen.exec.weights import weight_programs
from graphgen.ir import Function, Module, Op, Role
from graphgen.ir.dims import symbols
from graphgen.ops.control import CONTROL, SCALAR, callees
from graphgen.passes.workload.coverage import (
    ControlCoverage,
    Coverage,
    ElementRange,
    InputCoverage,
    PredicateCoverage,
    ProgramCoverage,
)
from graphgen.passes.workload.coverage_recorder import ControlRecord, CoverageRecorder, RangeRecord
from graphgen.passes.workload.place_coverage import PlaceCoverage, place_coverage


def collect(
    module: Module,
    workload: Workload,
    recorder: CoverageRecorder,
    inputs: InputCoverage,
    beside: Sequence[ProgramCall] = (),
) -> Coverage:
    """The coverage of a module.

    Args:
        module: what was run.
        workload: all its calls.
        recorder: of the run.
        inputs: coverage of the inputs of the calls.
        beside: calls that the first and the last module are compared on: they count for places.
    """
    ran = list(zip(recorder.programs, _runs(module, workload), strict=True))
    reached = recorder.entered | _prepared(module)
    for program in module.programs():
        if program.name in recorder.entered:
            reached |= _inlined_into(module, program)
    referred = run_by_programs(module) | _prepared(module)
    adapters = [row for pair in adapter_rows(module).values() for row in pair]
    slots = adapters[0].logical.dims[0] if adapters else 0
    others = [(program_of(module, call).name, call) for call in beside]
    places = partial(place_coverage, whole=workload.whole, rings=workload.rings, slots=slots)
    return Coverage(
        tuple(_program(program, ran, others, places) for program in module.programs()),
        {name: name in reached for name in module.functions if name in referred},
        tuple(f.name for f in module.functions.values() if not f.phase and f.name not in referred),
        tuple(_controls(module, recorder)),
        tuple(_ranges(recorder)),
        tuple(_predicates(recorder)),
        inputs,
        workload.exhaustive,
    )


def _runs(module: Module, workload: Workload) -> Iterator[ProgramCall]:
    """The call of each run of a program, in order."""
    for call in workload.calls:
        yield from [call] * runs_of(module, call)


def uncovered_changes(before: Module, after: Module, coverage: Coverage) -> tuple[str, ...]:
    """Functions that a pass made or changed and no call reached, or not at all planned places.

    Args:
        before, after: the module around the pass.
        coverage: of ``after``.
    """
    changed: list[str] = []
    for name in (*coverage.not_run(), *dict.fromkeys(coverage.not_everywhere())):
        old, new = before.functions.get(name), after.functions[name]
        if old is None or function_fingerprint(old) != function_fingerprint(new):
            changed.append(name)
    return tuple(changed)


def _program(
    program: Function,
    ran: Iterable[tuple[str, ProgramCall]],
    beside: Iterable[tuple[str, ProgramCall]],
    places: Callable[[Iterable[ProgramCall]], PlaceCoverage | None],
) -> ProgramCoverage:
    calls = [call for name, call in ran if name == program.name]
    dims = {name: size for name, size in program.dims.items() if isinstance(size, int)}
    free = {name for value in program.args for name in symbols(value.type.shape)} - dims.keys()
    sizes = {
        name: tuple(sorted({s for call in calls if isinstance(s := call.dims.get(name), int)}))
        for name in sorted(free)
    }
    every = calls + [call for name, call in beside if name == program.name]
    return ProgramCoverage(program.name, program.phase, dims, len(calls), sizes, places(every))


def _prepared(module: Module) -> set[str]:
    """Functions run around the programs: they prepare weights, pack and unpack states.

    They are not calls of a program, and have no loops and no choices.
    """
    names = {function.name for function in weight_programs(module)}
    for row in module.interface.values():
        if row.role is not Role.INPUT:
            names |= {row.pack, row.unpack}
    return names - {""}


def _inlined_into(module: Module, program: Function) -> set[str]:
    """Functions that a program calls, transitively, not counting those in loops and branches."""
    found: set[str] = set()
    work = [program]
    while work:
        for op in work.pop().block:
            if op.name == "call":
                (name,) = callees(op)
                if name not in found:
                    found.add(name)
                    work.append(module.function(name))
    return found


def _controls(module: Module, recorder: CoverageRecorder) -> Iterator[ControlCoverage]:
    """Loops and choices in functions that were run, each once."""
    for function in _run_functions(module, recorder):
        for number, op in enumerate(function.block):
            if op.name not in CONTROL or op.name == "call" or op.name in SCALAR:
                continue
            found = recorder.controls.get((function.name, number)) or ControlRecord()
            yield ControlCoverage(
                function.name,
                op.name,
                _place(op),
                callees(op),
                found.executed,
                tuple(sorted(found.taken)),
                (found.least, found.most) if found.least >= 0 else None,
            )


def _run_functions(module: Module, recorder: CoverageRecorder) -> Iterator[Function]:
    """Programs without their calls, and the functions they run in loops and branches."""
    bodies: dict[str, Function] = {}
    for program in module.programs():
        if program.name in recorder.entered:
            yield inlined(module, program)
            bodies |= {function.name: function for function in called(module, program)}
    yield from (function for name, function in bodies.items() if name in recorder.entered)


def _place(op: Op) -> str:
    """Source line and module scope, without the passes, so that it stays the same over a run."""
    line = f"{op.loc.file}:{op.loc.line}" if op.loc.line else ""
    return f"{line} {op.loc.scope}".strip()


def _ranges(recorder: CoverageRecorder) -> Iterator[ElementRange]:
    groups: dict[tuple[str, str], list[RangeRecord]] = {}
    for site, record in recorder.values.items():
        if isinstance(record, RangeRecord) and record.filled:
            groups.setdefault((site[0], recorder.ops[site].name), []).append(record)
    for (function, op), records in groups.items():
        yield ElementRange(
            function,
            op,
            len(records),
            float(min(record.low for record in records)),
            float(max(record.high for record in records)),
            any(record.nan for record in records),
            any(record.infinite for record in records),
            len([record for record in records if record.beyond]),
            len([record for record in records if record.zero]),
        )


def _predicates(recorder: CoverageRecorder) -> Iterator[PredicateCoverage]:
    for site, record in recorder.values.items():
        if not isinstance(record, RangeRecord):
            op = recorder.ops[site]
            yield PredicateCoverage(site[0], op.name, _place(op), record.outcomes())
