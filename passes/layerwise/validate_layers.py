"""Validation of real models layer by layer, in memory that does not depend on the model.

The passes run on the whole module, as they would be for a compilation; only the numbers are taken
layer by layer. Before the first pass the calls are run once through the layers of the original
module, and the residual stream between them is kept. After each pass every layer is cut out of
the module before and the module after, both get the recorded stream and the layer's own weights,
and all they give is compared: the stream after the layer and the layer's states, in float64 for
the meaning and in the program's own types for the rounding.

A layer that a pass leaves as it is, or whose text before and after equals, up to the layer's
number, that of one already compared in this pass, is not run again. Weights are streamed: see
``streamed_array``. Where the program after a pass cannot be cut (see
``graphgen.analysis.layer_cuts``) its layers are compared together, and the verdict says
which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, numpy_dtype
from graphgen.exec.session import Outcome, Workload, program_of
from graphgen.ir import Module, TensorType, Value
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass
from graphgen.passes.core.order import check_order
from graphgen.passes.equiv.deviation import (
    MEANING_BUDGET,
    NONE,
    Deviation,
    RoundingNoise,
    compare,
    first_beyond,
    worse,
)
from graphgen.passes.layerwise.layer_segments import SEGMENT_OUTPUT, LayeredModule, Segment
from graphgen.passes.layerwise.segment_run import RECORDING, SegmentRunner
from graphgen.passes.validate.blame import blame
from graphgen.passes.validate.checked_run import (
    RUN_AFTER,
    CheckedRun,
    attempt,
    check_each,
    no_progress,
    run_checked,
)
from graphgen.passes.validate.narrow_rounding import rounding_budget, unit_of_modules
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.verdict import LayerResult, LayerResults, RaisedError, Verdict

# First and last stage of a segment.
StageRange = tuple[int, int]


@dataclass(slots=True)
class _SegmentOutcomes:
    """Outcomes of one segment, computed when first needed."""

    runner: SegmentRunner
    segment: Segment
    inputs: Sequence[Array] | None
    made: dict[Arithmetic, list[Outcome]] = field(default_factory=dict[Arithmetic, list[Outcome]])

    @property
    def module(self) -> Module:
        """The programs of the segment."""
        return self.segment.module

    def of(self, arithmetic: Arithmetic) -> list[Outcome]:
        """Outputs and states after each call."""
        if arithmetic not in self.made:
            self.made[arithmetic] = self.runner.outcomes(self.segment, self.inputs, arithmetic)
        return self.made[arithmetic]


def validate_layers(
    module: Module,
    passes: Sequence[Pass],
    runner: SegmentRunner,
    on_verdict: Callable[[Verdict], None] | None = None,
    on_step: Callable[[str], None] | None = None,
    alone: Workload | None = None,
) -> list[Verdict]:
    """Run a pipeline on a copy of ``module`` and check each pass layer by layer.

    Args:
        module: where to start, with the scopes its layers were written in; unchanged.
        passes: the pipeline.
        runner: has the calls and the weights.
        on_verdict: called after each pass.
        on_step: called before each step with its description, for progress.
        alone: the workload, with weights, over which each rewrite is also checked alone; ``None``
            for a module whose weights are too large for that.

    Returns:
        A verdict for each pass that ran, as :func:`graphgen.passes.validate.validate` gives them,
        whose ``layers`` say which were compared.

    Raises:
        GraphgenError: GG0705 for a module without layers, GG0303 for passes in a wrong order; what
            a run of ``module`` itself raises.
    """
    check_order(passes, module)
    begin = on_step or no_progress
    validation = _LayerwiseValidation(clone_module(module), runner, begin, alone)
    validation.record()
    return check_each(passes, validation.verdict, on_verdict)


def layered(
    module: Module, workload: Workload, scopes: Sequence[str] | None = None
) -> LayeredModule:
    """A copy of a module, divided into stages over the programs that a workload calls.

    Args:
        module: any level.
        workload: the calls.
        scopes: of the layers; by default those of its first program.
    """
    copy = clone_module(module)
    names = dict.fromkeys(program_of(copy, call).name for call in workload.calls)
    return LayeredModule(copy, list(names), scopes)


class _LayerwiseValidation:
    """A module on its way through a pipeline, with the residual stream of its beginning.

    Args:
        module: changed in place.
        runner: of segments.
        begin: called before each step.
        alone: what each rewrite is checked over, if it is.
    """

    def __init__(
        self,
        module: Module,
        runner: SegmentRunner,
        begin: Callable[[str], None],
        alone: Workload | None = None,
    ) -> None:
        self.module = module
        self.alone = alone
        self.runner = runner
        self.begin = begin
        self.original = layered(module, runner.workload)
        self.previous = self.original
        cuts = self.original.cuts()
        self._types = {stage: self._bound(self.original, cuts[stage]) for stage in cuts}
        self._streams: dict[int, list[Array]] = {}
        self._known: dict[StageRange, _SegmentOutcomes] = {}

    def record(self) -> None:
        """Run the original's layers in order and keep the residual stream between them."""
        ranges, cuts = _ranges(self.original, self._types), self.original.cuts()
        for number, (first, last) in enumerate(ranges, 1):
            if last not in self._types:
                # Nothing is made from the outputs of the model.
                continue
            label = self.original.label(first, last)
            self.begin(f"inputs of layers, {number} of {len(ranges) - 1}: {label}")
            segment, given = self.original.segment(first, last), self._streams.get(first - 1)
            made = self.runner.outcomes(segment, given, RECORDING, idle=True)
            kind = numpy_dtype(cuts[last][0].dtype)
            self._streams[last] = [outcome[SEGMENT_OUTPUT].astype(kind) for outcome in made]

    def verdict(self, item: Pass, step: str) -> Verdict:
        """Run the next pass and check it."""
        self.begin(step)
        ran = attempt(lambda: run_checked(self.module, item), "the pass")
        if isinstance(ran, RaisedError):
            return Verdict(str(item), raised=ran)
        results = attempt(lambda: self._results(item, ran, step), RUN_AFTER)
        if isinstance(results, RaisedError):
            return Verdict(str(item), raised=results, varies=ran.varies)
        verdict = replace(_summary(item, results), varies=ran.varies, silent=ran.silent)
        if self.alone is None or not ran.rewrites or ran.varies is not None:
            return verdict
        checked = check_rewrites(ran.before, item, self.alone)
        guilty = verdict.guilty or (checked.wrong.rewrite if checked.wrong is not None else None)
        return replace(verdict, rewrites=checked, guilty=guilty)

    def _results(self, item: Pass, ran: CheckedRun, step: str) -> LayerResults:
        left = self.previous
        if not ran.changed:
            names = [left.label(*at) for at in _ranges(left, self._common(left, left))]
            return LayerResults(unchanged=tuple(names))
        right = layered(self.module, self.runner.workload, self.original.scopes)
        compared: dict[tuple[str, str], LayerResult] = {}
        results: list[LayerResult] = []
        unchanged: list[str] = []
        known, self._known = self._known, {}
        for at in _ranges(right, self._common(left, right)):
            keys, label = (left.segment(*at).key, right.segment(*at).key), right.label(*at)
            if keys[0] == keys[1]:
                unchanged.append(label)
                if at in known:
                    self._known[at] = known[at]
                continue
            twin = compared.get(keys)
            if twin is not None:
                results.append(replace(twin, label=label, same_as=twin.label))
                continue
            self.begin(f"{step}: {label}")
            reference = known.get(at) or self._outcomes(left, at)
            compared[keys] = self._compared(
                item, ran.before, reference, self._outcomes(right, at), at
            )
            results.append(compared[keys])
        self.previous = right
        return LayerResults(tuple(results), tuple(unchanged))

    def _outcomes(self, module: LayeredModule, at: StageRange) -> _SegmentOutcomes:
        return _SegmentOutcomes(self.runner, module.segment(*at), self._streams.get(at[0] - 1))

    def _compared(
        self,
        item: Pass,
        before: Module,
        reference: _SegmentOutcomes,
        other: _SegmentOutcomes,
        at: StageRange,
    ) -> LayerResult:
        """Compare one segment before and after a pass; blame a rewrite where it differs."""
        self._known[at] = other
        segment = other.segment
        meaning = compare(reference.of(MEANING), other.of(MEANING))
        noise = RoundingNoise(unit_of_modules(before, self.module), reference.of(MEANING))
        rounding = compare(reference.of(NATIVE), other.of(NATIVE), noise)
        kept, budget = meaning.within(MEANING_BUDGET), rounding_budget(item, reference.module)
        ok = kept and rounding.within(budget)
        named = _named(meaning, segment), _named(rounding, segment)
        made = LayerResult(segment.label, *named, ok, budget)
        if ok:
            return made
        how, limit = (NATIVE, budget) if kept else (MEANING, MEANING_BUDGET)
        known = noise if kept else None
        first = first_beyond(reference.of(how), other.of(how), limit, known)

        def wrong(module: Module) -> bool:
            cut = layered(module, self.runner.workload, self.original.scopes)
            if at not in _ranges(cut, self._common(cut, cut)):
                raise GraphgenError("GG0304", f"{segment.label} is not there half-way")
            moved = compare(reference.of(how), self._outcomes(cut, at).of(how), known)
            return not moved.within(limit)

        found = blame(before, item, wrong)
        shown = _named(first, segment) if first is not None else None
        if found is None:
            return replace(made, first=shown)
        return replace(made, first=shown, guilty=found.guilty, together=found.together)

    def _common(self, left: LayeredModule, right: LayeredModule) -> list[int]:
        """Stages after which the original and both modules have a cut of the same shape."""
        one, other = left.cuts(), right.cuts()
        return [
            stage
            for stage, types in self._types.items()
            if stage in one
            and stage in other
            and _shapes(self._bound(left, one[stage])) == _shapes(types)
            and _shapes(self._bound(right, other[stage])) == _shapes(types)
        ]

    def _bound(self, module: LayeredModule, values: Sequence[Value]) -> list[TensorType]:
        """The type of a cut in each call."""
        by_program = {
            program.function.name: value
            for program, value in zip(module.programs, values, strict=True)
        }
        return [
            by_program[program_of(module.module, call).name].type.bind(call.dims)
            for call in self.runner.workload.calls
        ]


def _shapes(types: Sequence[TensorType]) -> list[object]:
    return [type_.shape for type_ in types]


def _ranges(module: LayeredModule, cuts: Mapping[int, object] | Sequence[int]) -> list[StageRange]:
    """First and last stage of each segment between neighboring cuts."""
    ends = [*sorted(cuts), module.stages - 1]
    starts = [0, *[end + 1 for end in ends[:-1]]]
    return list(zip(starts, ends, strict=True))


def _named(found: Deviation, segment: Segment) -> Deviation:
    """The difference under the names of the whole module."""
    if found.name == SEGMENT_OUTPUT:
        return replace(found, name=f"the output of {segment.label}")
    return replace(found, name=segment.names.get(found.name, found.name))


def _summary(item: Pass, results: LayerResults) -> Verdict:
    """The verdict of a pass: its worst differences, and the first layer at fault."""
    meaning = rounding = NONE
    for result in results.changed:
        meaning, rounding = worse(meaning, result.meaning), worse(rounding, result.rounding)
    wrong = results.wrong
    return Verdict(
        str(item),
        meaning,
        rounding,
        max((result.budget for result in results.changed), default=item.budget),
        guilty=wrong[0].guilty if wrong else None,
        together=wrong[0].together if wrong else (),
        first=wrong[0].first if wrong else None,
        layers=results,
    )
