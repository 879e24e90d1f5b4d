"""Triage: a program on several compilers beside NumPy, and the smallest program that is wrong.

NumPy evaluates every op by its specification, so a compiler that gives other numbers is wrong.
The verdict names others that give the same other numbers: they may share the code at fault, or the
rule here may be at fault. Inputs are drawn several times, as a fault may need numbers that are
usual in no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, Columns
from graphgen.eval.element_kinds import element_text
from graphgen.exec import NumpyBackend, run_program
from graphgen.exec.backend import Backend
from graphgen.exec.inputs import program_inputs
from graphgen.exec.program_run import needed
from graphgen.ir import Function, Module, Op
from graphgen.ir.clone import clone_module
from graphgen.lowering.backends.drawn_numbers import draws
from graphgen.lowering.backends.rounding_noise import LastPlaceNoise
from graphgen.lowering.cpu.isolated_run import CompilerCrashError
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.validate.minify import Minifier, Round

RIGHT, WRONG, REFUSES, CRASHES = "right", "wrong", "refuses", "crashes"
# Times that inputs are moved to see how a program reacts, and by how much more others may be apart.
_MOVES: Final = 2
_FACTOR: Final = 4
# Values of one type of the whole program that are tried in the place of a new input.
_TRIED: Final = 4


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The largest difference of an output from NumPy's.

    Attributes:
        output: its name.
        index: of the element.
        expected: NumPy's number, as text.
        found: the compiler's.
    """

    output: str
    index: tuple[int, ...]
    expected: str
    found: str

    @property
    def place(self) -> str:
        """The output with the index."""
        return f"{self.output}[{','.join(map(str, self.index))}]" if self.index else self.output


@dataclass(frozen=True, slots=True)
class CompilerVerdict:
    """The answer for one compiler.

    Attributes:
        name: of the backend.
        state: right, wrong, refuses or crashes.
        difference: of a wrong one.
        error: of one that refuses or crashes.
        inputs: what shows it, by name.
        agrees: other backends that give the same other numbers.
    """

    name: str
    state: str = RIGHT
    difference: Disagreement | None = None
    error: GraphgenError | None = None
    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array])
    agrees: tuple[str, ...] = ()


Outputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Reference:
    """NumPy's outputs, and how far others may be from them.

    Attributes:
        outputs: by name.
        bounds: by name, the largest absolute difference that is rounding; 0 for what is exact.
        unsure: by name, the elements of what is exact that rounding decides.
    """

    outputs: Outputs
    bounds: Mapping[str, float]
    unsure: Outputs

    def disagreement(self, found: Outputs) -> Disagreement | None:
        """The largest difference that is more than rounding."""
        for name, expected in self.outputs.items():
            index = _differing(expected, found[name], self.bounds[name], self.unsure[name])
            if index is not None:
                texts = [element_text(_number(array, index)) for array in (expected, found[name])]
                return Disagreement(name, tuple(map(int, index)), *texts)
        return None


def reference_of(
    module: Module, function: Function, inputs: Outputs, tolerance: float
) -> Reference:
    """NumPy's outputs, with bounds relative to the largest number of each.

    Bounds are wider where a program makes small errors large. That is seen where float inputs are
    moved by as much as the tolerance, and results that are rounded by a unit in the last place.
    """
    outputs = _outputs(module, function, inputs, NumpyBackend())
    exact = _outputs(module, function, inputs, NumpyBackend(MEANING))
    moved = [
        _outputs(
            module,
            function,
            _moved(inputs, tolerance, seed),
            NumpyBackend(MEANING, LastPlaceNoise(seed)),
        )
        for seed in range(_MOVES)
    ]
    bounds: dict[str, float] = {}
    unsure: dict[str, Array] = {}
    for name, array in outputs.items():
        unsure[name] = np.zeros(array.shape, np.bool_)
        bounds[name] = 0.0
        others = [exact[name], *[other[name] for other in moved]]
        if not _is_inexact(array):
            for other in others:
                unsure[name] |= other != array
            continue
        wide = _wide(array)
        own = _apart(wide, _wide(exact[name]))
        reach = max(_apart(_wide(exact[name]), _wide(other)) for other in others)
        finite = np.abs(wide[np.isfinite(wide)])
        largest = float(np.max(finite, initial=0.0))
        bounds[name] = max(tolerance * largest, _FACTOR * reach, _FACTOR * own)
    return Reference(outputs, bounds, unsure)


def _apart(one: Array, other: Array) -> float:
    """The largest finite difference."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(one - other)
    return float(np.max(apart[np.isfinite(apart)], initial=0.0))


def _moved(inputs: Outputs, by: float, seed: int) -> Outputs:
    """The inputs with floats moved by a part of themselves."""
    generator = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, array in inputs.items():
        made[name] = array
        if _is_inexact(array):
            share = 1 + by * generator.uniform(-1, 1, array.shape)
            with np.errstate(over="ignore", invalid="ignore"):
                made[name] = np.asarray(_wide(array) * share).astype(array.dtype)
    return made


def _outputs(module: Module, function: Function, inputs: Outputs, backend: Backend) -> Outputs:
    made = run_program(module, function, dict(inputs), backend)
    return {output.entry.name: np.asarray(output.array) for output in made}


def _is_inexact(array: Array) -> bool:
    # Narrow floats of ml_dtypes are void to NumPy, as its narrow integers are.
    return array.dtype.kind in "fc" or array.dtype.name.startswith(("bfloat", "float"))


def _number(array: Array, index: tuple[int, ...]) -> int | float | complex:
    if not _is_inexact(array):
        return int(array[index])
    wide = _wide(array)[index]
    return complex(wide) if array.dtype.kind == "c" else float(wide)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _differing(
    expected: Array, found: Array, bound: float, unsure: Array
) -> tuple[int, ...] | None:
    """The index of the largest difference beyond a bound."""
    if not _is_inexact(expected):
        places = np.argwhere((expected != found) & ~unsure)
        return tuple(map(int, places[0])) if len(places) else None
    wide, other = _wide(expected), _wide(found)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(wide - other)
    apart = np.where((wide == other) | (np.isnan(wide) & np.isnan(other)), 0.0, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    if not apart.size or float(apart.max()) <= bound:
        return None
    return tuple(map(int, np.unravel_index(int(apart.argmax()), apart.shape)))


@dataclass(slots=True)
class Triage:
    """Runs programs on compilers beside NumPy.

    Attributes:
        backends: by name.
        seed: of drawn numbers.
        tolerance: relative to the largest number of an output; ``None`` for the backend's noise.
        on_step: called with what is done next.
    """

    backends: Mapping[str, Backend]
    seed: int = 0
    tolerance: float | None = None
    on_step: Callable[[str], None] = lambda text: None

    def run(
        self, module: Module, function: Function, arrays: Mapping[str, Array]
    ) -> list[CompilerVerdict]:
        """A verdict for each backend; those that are wrong come with the inputs that show it.

        Args:
            module: with every symbol bound.
            function: the program.
            arrays: the user's inputs; the others are drawn.

        Raises:
            GraphgenError: GG0402, GG0403 where NumPy cannot run the program.
        """
        found = {name: CompilerVerdict(name) for name in self.backends}
        for number, inputs in enumerate(self.inputs_of(module, function, arrays)):
            left = [name for name in found if found[name].state == RIGHT]
            if not left:
                break
            self.on_step(f"numbers {number + 1} on numpy, {', '.join(left)}")
            results: dict[str, Outputs] = {}
            reference = self._reference(module, function, inputs)
            for name in left:
                found[name], made = self._judged(name, module, function, inputs, reference)
                results |= {} if made is None else {name: made}
            _name_others(found, results, reference)
        return list(found.values())

    def _reference(self, module: Module, function: Function, inputs: Outputs) -> Reference:
        noises = [backend.noise(module) for backend in self.backends.values()]
        tolerance = max(noises, default=0.0) if self.tolerance is None else self.tolerance
        return reference_of(module, function, inputs, tolerance)

    def _judged(
        self,
        name: str,
        module: Module,
        function: Function,
        inputs: Outputs,
        reference: Reference,
    ) -> tuple[CompilerVerdict, Outputs | None]:
        try:
            made = _outputs(module, function, inputs, self.backends[name])
        except GraphgenError as error:
            if error.code != "GG0401":
                raise
            state = CRASHES if isinstance(error, CompilerCrashError) else REFUSES
            return CompilerVerdict(name, state, error=error, inputs=inputs), None
        difference = reference.disagreement(made)
        if difference is None:
            return CompilerVerdict(name), made
        return CompilerVerdict(name, WRONG, difference, inputs=inputs), made

    def shown(
        self, module: Module, function: Function, wanted: CompilerVerdict, inputs: Outputs
    ) -> CompilerVerdict | None:
        """The verdict of one compiler on these inputs; ``None`` where it is not the wanted one.

        Raises:
            GraphgenError: where NumPy cannot run the program.
        """
        reference = self._reference(module, function, inputs)
        found, _ = self._judged(wanted.name, module, function, inputs, reference)
        return found if _is_like(found, wanted) else None

    def inputs_of(
        self, module: Module, function: Function, arrays: Mapping[str, Array]
    ) -> Iterator[Mapping[str, Array]]:
        """The inputs that a program is run on: the user's, the others drawn several times."""
        first = program_inputs(module, function, arrays, self.seed, per_rank=False).shared
        yield first
        rows = [row for row in needed(module, function) if row.name not in arrays]
        if module.meta.get("format") or function.phase == "main":
            for drawn in draws(module, rows, self.seed):
                yield {**first, **drawn}
        elif rows:
            for seed in (self.seed + 1, self.seed + 2):
                yield program_inputs(module, function, arrays, seed, per_rank=False).shared

    def minified(
        self,
        module: Module,
        function: Function,
        verdict: CompilerVerdict,
        on_round: Callable[[Round], None],
        on_check: Callable[[int, int], None],
    ) -> tuple[Module, CompilerVerdict]:
        """The smallest program for which a compiler is still wrong in the same way, and how.

        Args:
            module: of the program.
            function: the program.
            verdict: on it.
            on_round: called after each kind of edit.
            on_check: called with the ops of each candidate, and the number of those before it.

        Raises:
            GraphgenError: GG0304 where the fault does not show again.
        """
        search = self._search(module, function, verdict)
        alone = clone_module(module)
        alone.functions = {
            name: each
            for name, each in alone.functions.items()
            if not each.phase or name == function.name
        }
        smallest = Minifier(alone, search.fails, on_round, on_check).run()
        folded = clone_module(smallest)
        run_pipeline(folded, parse_pipeline("fold-constants,dce"))
        if folded.op_count() < smallest.op_count() and search.fails(folded):
            smallest = folded
        shown = search.shown(smallest)
        assert shown is not None
        return smallest, shown

    def still_fails(
        self, module: Module, function: Function, verdict: CompilerVerdict
    ) -> Callable[[Module], bool]:
        """The test of smaller modules that a compiler fails in the same way."""
        return self._search(module, function, verdict).fails

    def _search(self, module: Module, function: Function, verdict: CompilerVerdict) -> _Search:
        return _Search(self, verdict, recorded_values(module, function, verdict.inputs))


def _name_others(
    found: dict[str, CompilerVerdict], results: Mapping[str, Outputs], reference: Reference
) -> None:
    """Note for each wrong compiler the others that give the same wrong numbers."""
    wrong = [name for name in results if found[name].state == WRONG]
    for name in wrong:
        own = replace(reference, outputs=results[name])
        alike = [n for n in wrong if n != name and own.disagreement(results[n]) is None]
        found[name] = replace(found[name], agrees=tuple(alike))


@dataclass(slots=True)
class _Search:
    """Candidates of a minification, for which one compiler has to be wrong.

    Attributes:
        triage: runs them.
        wanted: the verdict on the whole program.
        recorded: of the whole program, values by the name of their element type.
    """

    triage: Triage
    wanted: CompilerVerdict
    recorded: Mapping[str, Sequence[Array]]

    def fails(self, module: Module) -> bool:
        """True if the compiler fails as for the whole program."""
        return self.shown(module) is not None

    def shown(self, module: Module) -> CompilerVerdict | None:
        """The verdict with the first numbers that show the fault."""
        (function,) = module.programs()
        for inputs in self._inputs(module, function):
            try:
                found = self.triage.shown(module, function, self.wanted, inputs)
            except GraphgenError:
                # NumPy cannot run a candidate on these numbers.
                continue
            if found is not None:
                return found
            if self.wanted.state in (REFUSES, CRASHES):
                # Other numbers change nothing about a compilation.
                return None
        return None

    def _inputs(self, module: Module, function: Function) -> Iterator[Outputs]:
        rows = needed(module, function)
        given = {
            row.name: _cut(array, row.logical.dims)
            for row in rows
            if (array := self.wanted.inputs.get(row.name)) is not None
            and _holds(array, row.logical.dims)
        }
        fresh = [row for row in rows if row.name not in given]
        for place in range(_TRIED if fresh else 1):
            known: dict[str, Array] = {}
            for row in fresh:
                dims = row.logical.dims
                pool = [x for x in self.recorded.get(row.logical.dtype.name, ()) if _holds(x, dims)]
                pool.sort(key=lambda array, dims=dims: array.shape != dims)
                if pool:
                    known[row.name] = _cut(pool[place % len(pool)], dims)
            arrays = {**known, **given}
            yield program_inputs(module, function, arrays, self.triage.seed, per_rank=False).shared
        yield from self.triage.inputs_of(module, function, given)


def _holds(array: Array, dims: tuple[int, ...]) -> bool:
    """True for an array of which the first elements have these sizes."""
    return array.ndim == len(dims) and all(
        size <= own for size, own in zip(dims, array.shape, strict=True)
    )


def _cut(array: Array, dims: tuple[int, ...]) -> Array:
    """The first elements of an array, of these sizes."""
    return array[tuple([slice(size) for size in dims])]


def _is_like(found: CompilerVerdict, wanted: CompilerVerdict) -> bool:
    """True for a failure of the same kind; refusals have the same reason, too."""
    if wanted.state == WRONG:
        return found.state == WRONG
    if found.state != wanted.state or found.error is None or wanted.error is None:
        return False
    return found.state == CRASHES or _reason(found.error) == _reason(wanted.error)


def _reason(error: GraphgenError) -> str:
    """The message of an error without numbers and names of values."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[@%][\w.]+|\d+|<[^>]*>", "_", error.what)


class _Recorder:
    """An observer that keeps values by the name of their element type."""

    def __init__(self) -> None:
        self.values: dict[str, list[Array]] = {}

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """Keep nothing."""

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """Keep the results of rank 0."""
        for value, column in zip(op.results, results, strict=True):
            self.values.setdefault(value.dtype.name, []).append(np.array(column[0]))
        return results

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """Keep nothing."""

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """Keep nothing."""


def recorded_values(
    module: Module, function: Function, inputs: Outputs
) -> Mapping[str, Sequence[Array]]:
    """The values that NumPy makes in a program, the last ones first, by element type."""
    recorder = _Recorder()
    run_program(module, function, dict(inputs), NumpyBackend(observer=recorder))
    return {name: values[::-1] for name, values in recorder.values.items()}
