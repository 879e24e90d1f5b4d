"""Recording of a pipeline: the module before and after each pass, and every rewrite.

Modules are kept as snapshots of their ops, not as copies: passes change ops in place, and whether
an op is the same one before and after a pass is what histories and diffs are read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.work import Work, sum_bytes, total
from graphgen.ir import Dim, Function, Module, Value
from graphgen.ops import OPS
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.fuel import labels
from graphgen.passes.core.instrument import PassInstrument, PassReport, PipelineStep
from graphgen.passes.core.journal import Journal, MatchFailure, OpSnapshot, Rewrite, see
from graphgen.passes.inspect.stable_names import StableNames
from graphgen.text.printer import op_text, print_interface


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """Work and traffic of one call of a program on one rank.

    Attributes:
        work: of all its ops.
        collectives: how many there are.
        sent: bytes of their operands.
    """

    work: Work
    collectives: int
    sent: Dim


def cost_of(function: Function) -> ProgramCost:
    """The cost of a program as it is now."""
    spoken = [op for op in function.block if OPS[op.name].collective]
    sent = sum_bytes(value.type for op in spoken for value in op.operands)
    return ProgramCost(total(function.block), len(spoken), sent)


@dataclass(frozen=True, slots=True)
class ModuleSnapshot:
    """A module at one moment.

    Attributes:
        level: of the module.
        ops: of each function, in program order.
        args: of each function.
        outputs: of each function.
        names: ``%name`` of each value, the same as before the pass where it was there.
        head: the module's head and interface, as lines.
        costs: of each program.
    """

    level: str
    ops: Mapping[str, Sequence[OpSnapshot]]
    args: Mapping[str, Sequence[Value]]
    outputs: Mapping[str, Sequence[tuple[str, Value]]]
    names: Mapping[Value, str]
    head: Sequence[str]
    costs: Mapping[str, ProgramCost]

    def places(self) -> dict[Value, tuple[str, OpSnapshot | None]]:
        """For each value, its function, and the picture of its op; ``None`` for an argument."""
        found: dict[Value, tuple[str, OpSnapshot | None]] = {}
        for function, args in self.args.items():
            found.update(dict.fromkeys(args, (function, None)))
        for function, ops in self.ops.items():
            found.update({value: (function, item) for item in ops for value in item.op.results})
        return found


def picture(module: Module, names: StableNames) -> ModuleSnapshot:
    """Snapshot of a module."""
    named: dict[Value, str] = {}
    for function in module.functions.values():
        named.update(names.of(function))
    functions = module.functions.items()
    return ModuleSnapshot(
        module.level,
        {name: [see(op) for op in function.block] for name, function in functions},
        {name: tuple(function.args) for name, function in functions},
        {name: tuple(function.outputs) for name, function in functions},
        named,
        [line for line in print_interface(module).splitlines() if not line.startswith("  meta ")],
        {function.name: cost_of(function) for function in module.programs()},
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """One pass that has run.

    Attributes:
        label: the pass as pipelines name it, ``cse#2`` for the second of a name.
        report: what it did, in numbers.
        applications, misses: what it did, and what its rules declined.
        copies: values before and their copies, in rebuilt functions.
        before, after: the module.
    """

    label: str
    report: PassReport
    applications: Sequence[Rewrite]
    misses: Sequence[MatchFailure]
    copies: Sequence[tuple[Value, Value]]
    before: ModuleSnapshot
    after: ModuleSnapshot

    def names(self) -> StageNames:
        """Names of all values there were while the pass ran."""
        return StageNames(self.before.names, self.after.names)


class StageNames(dict[Value, str]):
    """Names of the values around one pass; what only lived inside it is called ``%~1``, ``%~2``.

    Args:
        before, after: names of those that were there before and after it.
    """

    def __init__(self, before: Mapping[Value, str], after: Mapping[Value, str]) -> None:
        super().__init__()
        self._known = after, before
        self._inside = 0

    def __missing__(self, value: Value) -> str:
        for names in self._known:
            found = names.get(value)
            if found is not None:
                break
        else:
            self._inside += 1
            found = f"%~{self._inside}"
        self[value] = found
        return found


def text_of(item: OpSnapshot, names: Mapping[Value, str]) -> str:
    """The line of an op as it was."""
    return op_text(item.op, names, item.operands, item.types)


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of a pipeline.

    Attributes:
        start: the module as it was given.
        stages: the passes that ran.
        module: as it is at the end.
    """

    start: ModuleSnapshot
    stages: Sequence[Stage]
    module: Module

    @property
    def end(self) -> ModuleSnapshot:
        """The module after the last pass."""
        return self.stages[-1].after if self.stages else self.start


def record(module: Module, passes: Sequence[Pass]) -> Recording:
    """Run a pipeline and keep everything about it.

    Args:
        module: changed in place.
        passes: the pipeline.

    Raises:
        GraphgenError: what :func:`run_pipeline` raises.
    """
    journal = Journal()
    recorder = _Recorder(labels(passes), journal, picture(module, names := StableNames()), names)
    run_pipeline(module, passes, journal=journal, instruments=[recorder])
    return Recording(recorder.start, recorder.stages, module)


@dataclass(slots=True)
class _Recorder(PassInstrument):
    labels: Sequence[str]
    journal_: Journal
    start: ModuleSnapshot
    names: StableNames
    stages: list[Stage] = field(default_factory=list[Stage])
    copied: int = 0

    def after(
        self,
        step: PipelineStep,
        report: PassReport,
        applications: Sequence[Rewrite],
        misses: Sequence[MatchFailure],
    ) -> None:
        before = self.stages[-1].after if self.stages else self.start
        after = picture(step.module, self.names)
        copies = self.journal_.copies[self.copied :]
        self.copied = len(self.journal_.copies)
        label = self.labels[step.number - 1]
        self.stages.append(Stage(label, report, applications, misses, copies, before, after))
