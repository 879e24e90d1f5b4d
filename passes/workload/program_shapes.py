"""Collect the program sizes of a module before and after each pass of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from graphgen.exec.adapters import adapter_rows
from graphgen.exec.decode_steps import COUNT, STEPS
from graphgen.exec.speculative_step import DRAFT_PHASE
from graphgen.ir import WHOLE_PROMPTS, Dim, Entry, Function, Module, Role
from graphgen.ir.clone import clone_module
from graphgen.ir.dims import Shape
from graphgen.passes.core import Pass
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.core.settings import OFF, debug

# Rows of a cache, of a few calls and of many, and the smallest bucket, where programs leave them
# free; rows of a cache of more than LONG slots.
FEW_ROWS, MORE_ROWS, _FIRST = 3, 5, 8
LONG_ROWS, LONG = 2, 4096
# The largest window, in positions, that free sizes are chosen to pass twice.
_LARGEST_WINDOW = 64
# Levels at which programs still state that they take row b of a call for row b of the cache.
_STATES_ROWS = ("logical", "canonical")


@dataclass(frozen=True, slots=True, order=True)
class ProgramShape:
    """One program of a language model, as a caller chooses it.

    Attributes:
        phase: of the program.
        attended: C, slots that are attended to.
        active: S, tokens of a row.
        rows: B, rows of a call.
        in_place: whether row b of a call has to be row b of the cache, or idle.
        steps: N, tokens of a row that follow each other in one launch.
        whole: whether rows begin at their first token and have their padding on the right.
    """

    phase: str
    attended: int
    active: int
    rows: int
    in_place: bool = False
    steps: int = 1
    whole: bool = False

    @property
    def text(self) -> str:
        """Phase and sizes, as in ``decode B=3 S=1 C=16``."""
        several = f" N={self.steps}" if self.steps > 1 else ""
        return f"{self.phase} B={self.rows} S={self.active} C={self.attended}{several}"


@dataclass(frozen=True, slots=True)
class StagePrograms:
    """Programs and interface of a module before or after one pass, without the module.

    Attributes:
        programs: phase, bound sizes, and whether rows are in place, of each program.
        inputs: interface rows of inputs by name.
        rings: whether some cache keeps its newest positions only.
        chooses: whether the programs choose tokens.
        whole: whether programs of prompts take them from their first token on alone.
        adapters: interface rows of the tensors of adapters by name.
    """

    programs: tuple[tuple[str, Mapping[str, Dim], bool], ...]
    inputs: Mapping[str, Entry]
    rings: bool
    chooses: bool = False
    whole: bool = False
    adapters: Mapping[str, Entry] = field(default_factory=dict[str, Entry])

    def has(self, phase: str, dims: Mapping[str, Dim]) -> bool:
        """True if a program can be called with these sizes, for several steps one by one."""
        return self.called(phase, dims) >= 0

    def called(self, phase: str, dims: Mapping[str, Dim]) -> int:
        """The number of the program that is called with these sizes; -1 if there is none."""
        phase = self._called(phase)
        fits = (n for n, (p, own, _) in enumerate(self.programs) if p == phase and _fits(own, dims))
        return next(fits, -1)

    def _called(self, phase: str) -> str:
        """The phase of the programs of a call: that of one step where none makes several."""
        one = all(name != STEPS for name, _, _ in self.programs)
        return "decode" if phase == STEPS and one and self.chooses else phase

    def serves(self, phase: str, dims: Mapping[str, Dim]) -> bool:
        """True if a program can be called with these sizes, or none has the phase."""
        return self.has(phase, dims) or all(name != phase for name, _, _ in self.programs)

    def in_place(self, phase: str, dims: Mapping[str, Dim]) -> bool:
        """True if the program of these sizes takes row b of a call for row b of the cache."""
        phase = self._called(phase)
        found = (fixed for name, own, fixed in self.programs if name == phase and _fits(own, dims))
        return next(found, False)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The stages of a pipeline on a module, up to the first pass that raises.

    Attributes:
        stages: of the module as given, then after each pass.
        journal: every rewrite of the passes that ran.
    """

    stages: tuple[StagePrograms, ...]
    journal: Journal = field(default_factory=Journal)


def dry_run(module: Module, passes: Sequence[Pass]) -> DryRun:
    """Run a pipeline on a copy of a module and note the programs of each stage.

    A pass that raises ends the run silently: validation and bisection report it.
    """
    stages, journal, copy = [stage_of(module, given=True)], Journal(), clone_module(module)
    with debug(level=0, dump="", fuel="", crash=OFF):
        for item in passes:
            try:
                run_pass(item, copy, journal, None)
            except Exception:
                break
            stages.append(stage_of(copy))
    return DryRun(tuple(stages), journal)


def stage_of(module: Module, *, given: bool = False) -> StagePrograms:
    """The programs and inputs of a module.

    Args:
        module: at any level.
        given: whether it is the module before all passes. Below the canonical level it no longer
            states that rows are in place; then any program with as many rows as the cache may be.
    """
    stated = not given or module.level in _STATES_ROWS
    bodies = [f for f in module.functions.values() if not f.phase]
    shared = any(_states_in_place(f) for f in bodies)
    programs = tuple(
        (f.phase, dict(f.dims), (shared or _states_in_place(f)) if stated else _as_many_rows(f))
        for f in module.programs()
        if not f.phase.startswith(DRAFT_PHASE)
    )
    inputs = {row.name: row for row in module.entries(Role.INPUT)}
    rings = any(row.last for row in module.entries(Role.STATE))
    whole = WHOLE_PROMPTS in module.meta
    adapters = {row.name: row for pair in adapter_rows(module).values() for row in pair}
    chooses = "next_tokens" in module.interface
    return StagePrograms(programs, inputs, rings, chooses, whole, adapters)


def of_sizes(module: Module, dims: Mapping[str, int]) -> StagePrograms:
    """The programs of a module as if they had these sizes, where they state no other."""
    plain = stage_of(module, given=True)
    programs = tuple((p, {**dims, **own}, fixed) for p, own, fixed in plain.programs)
    return replace(plain, programs=programs)


def _states_in_place(function: Function) -> bool:
    return any(op.attrs.get("rows") == "in_place" for op in function.ops)


def _as_many_rows(function: Function) -> bool:
    rows = function.dims.get("R")
    return rows is None or function.dims.get("B") == rows


def _fits(own: Mapping[str, Dim], dims: Mapping[str, Dim]) -> bool:
    return all(dims.get(name) == size for name, size in own.items() if isinstance(size, int))


@dataclass(frozen=True, slots=True)
class ServingSizes:
    """Sizes of the calls of a workload.

    Attributes:
        shapes: the programs that can be called at every stage, smallest first.
        rows: R, rows of the cache.
        slots: M, positions a row has room for.
        rings: whether some cache keeps its newest positions only at some stage.
        window: largest number of positions that a layer with a sliding window attends to, or 0.
        largest: of the shapes that are the same program at every stage, those of which no other
            one has as many slots and rows.
    """

    shapes: tuple[ProgramShape, ...]
    rows: int
    slots: int
    rings: bool = False
    window: int = 0
    largest: tuple[ProgramShape, ...] = ()


def serving_sizes(
    module: Module,
    stages: Sequence[StagePrograms],
    *,
    several: bool = True,
    room: int = 0,
    free_rows: int = FEW_ROWS,
) -> ServingSizes:
    """Sizes of calls that fit every stage: its programs' sizes, small ones for free symbols.

    Args:
        module: of the first stage.
        stages: of its pipeline.
        several: whether a program with free symbols is called with several batch sizes and with
            prompts on a prefix.
        room: M where no stage states it; 0 for a few slots.
        free_rows: R and B where no stage states them.
    """
    window = _window(module)
    whole = any(stage.whole for stage in stages)
    found = [program for stage in stages for program in stage.programs]
    known = [dims for _, dims, _ in found]
    states = caches_by_length(module, module.programs())
    batch = [size for dims in known if isinstance(size := dims.get("B"), int)]
    attended = [size for dims in known if isinstance(size := dims.get("C"), int)]
    rows = _first_size(known, "R", [shape[0] for shape in states], max(batch, default=free_rows))
    last = max(attended, default=room) or _last_bucket(window if several else 0)
    slots = _first_size(known, "M", [shape[1] for shape in states], last)
    fixed = {phase for phase, dims, _ in found if _bound(dims)}
    shapes: dict[ProgramShape, tuple[int, ...]] = {}
    for phase, dims, _ in found:
        if phase in fixed and not _bound(dims):
            continue
        for active, attends, calls in _choices(dims, rows, slots, several=several):
            sizes = {**dims, "B": calls, "S": active, "C": attends, "R": rows, "M": slots}
            if all(stage.has(phase, sizes) for stage in stages):
                in_place = any(stage.in_place(phase, sizes) for stage in stages)
                if not in_place or calls == rows:
                    steps = cast(int, dims[COUNT]) if phase == STEPS else 1
                    given = ProgramShape(phase, attends, active, calls, in_place, steps)
                    given = replace(given, whole=phase == "prefill" and whole)
                    shapes[given] = tuple([stage.called(phase, sizes) for stage in stages])
    rings = any(stage.rings for stage in stages)
    return ServingSizes(tuple(sorted(shapes)), rows, slots, rings, window, _largest(shapes))


def _largest(shapes: Mapping[ProgramShape, tuple[int, ...]]) -> tuple[ProgramShape, ...]:
    """Of the shapes of the same programs those of which no other has as many slots and rows."""

    def inside(one: ProgramShape, other: ProgramShape) -> bool:
        sizes = [(shape.attended, shape.rows, shape.active) for shape in (one, other)]
        fits = all(small <= large for small, large in zip(*sizes, strict=True))
        return shapes[one] == shapes[other] and sizes[0] != sizes[1] and fits

    every = sorted(shapes)
    return tuple(one for one in every if not any(inside(one, other) for other in every))


def random_sizes(
    function: Function, free: Mapping[str, Dim], stages: Sequence[StagePrograms]
) -> list[dict[str, Dim]]:
    """Sizes of the calls of one program, of any phase, that fit every stage.

    Args:
        function: the program of the first stage; its own sizes hold.
        free: a size for each symbol that no stage binds.
        stages: of its pipeline. A stage that has no program of the phase constrains nothing.

    Returns:
        One call a program that the stages make of it, in their order; what ``free`` says, where
        the sizes of two stages exclude each other.
    """
    found: list[dict[str, Dim]] = []
    for stage in stages:
        for phase, dims, _ in stage.programs:
            if phase == function.phase and _fits(dims, {**dims, **function.dims}):
                numbers = {name: size for name, size in dims.items() if isinstance(size, int)}
                sizes = {**free, **numbers, **function.dims}
                if sizes not in found and all(each.serves(phase, sizes) for each in stages):
                    found.append(sizes)
    return found or [{**free, **function.dims}]


def common_sizes(calls: Sequence[Mapping[str, Dim]]) -> dict[str, Dim]:
    """The sizes on which all calls agree."""
    first, *others = calls
    return {n: size for n, size in first.items() if all(o.get(n, size) == size for o in others)}


def caches_by_length(module: Module, programs: Sequence[Function]) -> list[Shape]:
    """Shapes of the caches [R,M,K,D] that programs write, the longest first; symbols before all.

    Rings are shorter than the sequences that they hold. A cache that is only read, as that of an
    encoder, has a length of its own; such ones are given where none is written.
    """
    rows = [row for row in module.entries(Role.STATE) if row.logical.rank == 4]
    written = [
        row
        for row in rows
        if any(f.outputs.get(row.name) is not f.arg(row.name) and _places(f) for f in programs)
    ]
    shapes = [row.logical.shape for row in written or rows]
    return sorted(shapes, key=lambda s: -s[1] if isinstance(s[1], int) else -(2**63))


def _places(function: Function) -> bool:
    return function.arg("positions") is not None


def _bound(dims: Mapping[str, Dim]) -> bool:
    return all(isinstance(dims.get(name), int) for name in ("B", "S", "C"))


def _first_size(
    known: Sequence[Mapping[str, Dim]], name: str, of_states: Sequence[Dim], other: int
) -> int:
    sizes = [*(dims.get(name) for dims in known), *of_states]
    return next((size for size in sizes if isinstance(size, int)), other)


def _last_bucket(window: int) -> int:
    """Slots such that a small window is passed twice."""
    return max(2 * _FIRST, 2 * window + 2) if window <= _LARGEST_WINDOW else 2 * _FIRST


def _window(module: Module) -> int:
    masks = [op for f in module.functions.values() for op in f.ops if op.name == "attention_mask"]
    reach = [op.attrs.integer(name) for op in masks for name in ("window", "chunk")]
    return max(reach, default=0)


def _choices(
    dims: Mapping[str, Dim], rows: int, slots: int, *, several: bool
) -> Iterator[tuple[int, int, int]]:
    """S, C and B of calls of a program; small ones for what its ``dims`` leave free."""
    active, attended, batch = (dims.get(name) for name in ("S", "C", "B"))
    first = min(_FIRST, slots)
    widths = [active] if isinstance(active, int) else [first]
    # A prompt of S tokens attends to S slots, and to more on a prefix.
    ends = sorted({max(first, widths[0]), slots})
    if isinstance(attended, int):
        ends = [attended]
    elif not isinstance(active, int) and not several:
        ends = ends[:1]
    for place, end in enumerate(ends):
        counts = [batch] if isinstance(batch, int) else [rows]
        if several and not isinstance(batch, int) and place and rows > 1:
            counts = [rows, rows - 1]
        for count in counts:
            yield min(widths[0], end), end, count
