"""Coverage as data: the parts of a module that a workload ran, and the holes it left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from graphgen.passes.workload.place_coverage import PlaceCoverage

HoleKind = Literal[
    "program", "function", "branch", "loop", "place", "untried", "predicate", "unused"
]


@dataclass(frozen=True, slots=True)
class ProgramCoverage:
    """One program of a module.

    Attributes:
        name: of the program.
        phase: such as ``prefill``.
        dims: its symbols that are bound, such as B, S, C.
        calls: number of calls of the workload that ran it.
        sizes: for each symbol that is not bound, the sizes it had in those calls, ascending.
        places: the positions and rows that the calls had tokens at; ``None`` where they do not
            say.
    """

    name: str
    phase: str
    dims: Mapping[str, int]
    calls: int
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    places: PlaceCoverage | None = None

    @property
    def text(self) -> str:
        """Name, phase and dims, as ``@decode_b3_c16 (decode, B=3, C=16)``."""
        facts = [self.phase, *(f"{name}={size}" for name, size in self.dims.items())]
        return f"@{self.name} ({', '.join(facts)})"


@dataclass(frozen=True, slots=True)
class ControlCoverage:
    """One loop or choice of a function that was run.

    Attributes:
        function: the one it is in.
        op: ``while`` or ``conditional``.
        where: source line and module scope.
        runs: the condition and the body of a loop; the branches of a choice.
        executed: number of times it was run, over all ranks.
        taken: numbers of the branches taken, ascending; empty for a loop.
        trip_counts: least and most turns of the loop in one execution; ``None`` for a choice, and
            for a loop that was never reached.
    """

    function: str
    op: str
    where: str
    runs: tuple[str, ...]
    executed: int
    taken: tuple[int, ...] = ()
    trip_counts: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ElementRange:
    """Values of the results of all ops of one kind in one function, in float64.

    Attributes:
        function: the one the ops are in.
        op: name of the op.
        ops: number of ops of that name that were recorded; ops that only move data are not.
        low, high: the smallest and the largest number.
        nan, infinite: whether NaN and infinities were among them.
        beyond: number of ops with a number too large for the op's own element type.
        zero: number of ops with no result but zeros.
    """

    function: str
    op: str
    ops: int
    low: float
    high: float
    nan: bool
    infinite: bool
    beyond: int
    zero: int


@dataclass(frozen=True, slots=True)
class PredicateCoverage:
    """Outcomes of one op that chooses by element: compare, select, clamp, or a convert to integers.

    Attributes:
        function: the one it is in.
        op: name of the op.
        where: source line and module scope.
        outcomes: ``true`` and ``false``; of clamps and converts ``below``, ``inside``, ``above``:
            for each, whether an element had it.
    """

    function: str
    op: str
    where: str
    outcomes: Mapping[str, bool]

    @property
    def constant(self) -> bool:
        """True for one outcome only."""
        return sum(self.outcomes.values()) == 1


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """Integers that were given, and those there could be.

    Attributes:
        low, high: the smallest and the largest given; ids and positions of padding do not count.
        size: number of possible values, from 0; 0 where it is not known.
    """

    low: int
    high: int
    size: int


@dataclass(frozen=True, slots=True)
class StateCoverage:
    """One state of a module.

    Attributes:
        name: of the state.
        written, read: share of its slots, or of the state where it has no slots, from 0 to 1.
        initial: ``zeros``, or ``given`` where the workload has initial values.
    """

    name: str
    written: float
    read: float
    initial: Literal["zeros", "given"]


@dataclass(frozen=True, slots=True)
class InputCoverage:
    """Inputs of all calls of a workload, in logical types.

    Attributes:
        calls: number of calls of each phase.
        ids: token ids, if the calls have any.
        positions: positions of tokens, if the calls have any.
        rows: numbers of rows a call had, ascending; empty where calls have no rows.
        situations: situations of a serving system, such as ``padding on the left``, and whether the
            calls have them; empty for a module that is not a language model.
        states: the states.
        ranges: for each input with real numbers or integers, its smallest and largest value.
    """

    calls: Mapping[str, int]
    ids: IntegerRange | None
    positions: IntegerRange | None
    rows: tuple[int, ...]
    situations: Mapping[str, bool]
    states: tuple[StateCoverage, ...]
    ranges: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Hole:
    """Something in a module that no call reached.

    Attributes:
        kind: its kind; ``place`` for positions, rows or adapters of a program that was run,
            ``untried`` for those that the calls were not planned to reach, ``predicate`` for an op
            that chose the same for every element, ``unused`` for a function that nothing refers
            to.
        name: the function it is in.
        text: a description for reports.
        where: source line and module scope, empty for a function.
    """

    kind: HoleKind
    name: str
    text: str
    where: str = ""

    @property
    def blocking(self) -> bool:
        """True if the module is not covered while the hole is there: something was never run."""
        return self.kind not in ("untried", "predicate", "unused")


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of one module by one workload.

    Attributes:
        programs: in the order of the module.
        functions: those that programs run or the interface names, and whether they were run.
        unused: names of functions that neither programs nor the interface refer to.
        controls: loops and choices in functions that were run.
        ranges: by function and kind of op.
        predicates: ops that choose by element, in functions that were run.
        inputs: of the workload.
        exhaustive: whether the calls were planned to reach all places of the programs.
    """

    programs: tuple[ProgramCoverage, ...]
    functions: Mapping[str, bool]
    unused: tuple[str, ...]
    controls: tuple[ControlCoverage, ...]
    ranges: tuple[ElementRange, ...]
    predicates: tuple[PredicateCoverage, ...]
    inputs: InputCoverage
    exhaustive: bool = False

    @property
    def complete(self) -> bool:
        """True if all programs, functions, branches, loop bodies and planned places were run."""
        return not any(hole.blocking for hole in self.holes())

    def not_run(self) -> list[str]:
        """The programs and functions that no call reached, the unused functions left out."""
        programs = [program.name for program in self.programs if not program.calls]
        return programs + [name for name, reached in self.functions.items() if not reached]

    def not_everywhere(self) -> list[str]:
        """The programs that were run, but not at all places that the calls were planned for."""
        return [hole.name for hole in self._missed_places() if hole.blocking]

    def _missed_places(self) -> list[Hole]:
        """The places of each program that no call reached."""
        kind: HoleKind = "place" if self.exhaustive else "untried"
        return [
            Hole(kind, program.name, f"@{program.name} {', '.join(program.places.missed_texts)}")
            for program in self.programs
            if program.places is not None and program.places.missed_texts
        ]

    def holes(self) -> list[Hole]:
        """All that was not run, then what does not count: constant choices, unused functions."""
        found = [Hole("program", p.name, p.text) for p in self.programs if not p.calls]
        found += self._missed_places()
        explained = {name for each in self.controls for name in each.runs}
        for each in self.controls:
            found += _missed(each)
        for name, reached in self.functions.items():
            if not reached and name not in explained:
                found.append(Hole("function", name, f"@{name}, which no call reached"))
        for one in self.predicates:
            if one.constant:
                (outcome,) = [name for name, seen in one.outcomes.items() if seen]
                text = f"{one.op} in @{one.function} is {outcome} for every element"
                found.append(Hole("predicate", one.function, text, one.where))
        for name in self.unused:
            found.append(Hole("unused", name, f"@{name}, which nothing refers to"))
        return found


def _missed(control: ControlCoverage) -> list[Hole]:
    """Branches never taken, or a body that never ran."""
    if control.op == "while":
        if control.trip_counts is not None and control.trip_counts[1] > 0:
            return []
        text = f"body @{control.runs[1]} of the loop in @{control.function}, which makes 0 turns"
        return [Hole("loop", control.function, text, control.where)]
    return [
        Hole(
            "branch",
            control.function,
            f"branch {number} (@{name}) of the conditional in @{control.function}",
            control.where,
        )
        for number, name in enumerate(control.runs)
        if number not in control.taken
    ]
