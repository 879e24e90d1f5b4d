"""Pipeline parallelism: each program becomes a chain of calls, one a stage of layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, cast

from graphgen.analysis.calls import inlined
from graphgen.analysis.layer_cuts import ProgramCuts, cut_program, layer_scopes
from graphgen.analysis.stage_chain import STAGES, edge_name, part_of, stage_name, stage_outputs
from graphgen.analysis.work import Work, work_of
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.loc import UNKNOWN
from graphgen.ops import make_attrs
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import EQUAL
from graphgen.targets import Target, find_target, target_names
from graphgen.targets.accelerator import accelerator

# Operations a second for each byte a second: of two CPU cores, a guess for other targets.
_INTENSITY = 10.0


def place_costs(programs: Sequence[ProgramCuts], places: int, target: Target) -> list[float]:
    """The cost of each place of the cuts for all programs.

    Args:
        programs: cut at the same places.
        places: number of the places.
        target: the device, which says how many operations take as long as a byte.
    """
    return shared_costs([program_costs(program, places, target) for program in programs])


def program_costs(program: ProgramCuts, places: int, target: Target) -> list[float]:
    """Bytes of each place, or operations by the bytes that take as long: the slower of the two.

    Arguments as for :func:`place_costs`.
    """
    intensity = _INTENSITY
    if target.is_accelerator:
        device = accelerator(target.name)
        intensity = device.matrix_flops("bf16") / device.hbm_bandwidth
    sizes = [(cast(int, w.bytes), cast(int, w.flops)) for w in _work(program, places)]
    return [max(moved, flops / intensity) for moved, flops in sizes]


def shared_costs(costs: Sequence[Sequence[float]]) -> list[float]:
    """The costs of places for all programs, of which each counts as much as any other.

    Decoding reads weights, prompts compute.
    """
    total = [0.0] * len(costs[0])
    for each in costs:
        whole = sum(each) or 1
        total = [one + cost / whole for one, cost in zip(total, each, strict=True)]
    return total


def _work(program: ProgramCuts, places: int) -> list[Work]:
    """The work of each stage; what belongs to none is small, and each makes its own."""
    found = [Work()] * places
    for op in program.function.block:
        place = program.stages.get(op.results[0]) if op.results else None
        if place is not None:
            found[place] += work_of(op)
    return found


def balanced_cuts(costs: Sequence[float], cuts: Collection[int], stages: int) -> list[int]:
    """The cuts with the least largest sum of costs between two of them.

    Args:
        costs: of each place.
        cuts: places after which a program can be cut.
        stages: number of sums, one more than cuts.

    Returns:
        The places, ascending; of equals the earliest.

    Raises:
        GraphgenError: GG0302 for fewer cuts than needed.
    """
    possible = sorted(place for place in cuts if place < len(costs) - 1)
    if len(possible) < stages - 1:
        raise GraphgenError(
            "GG0302",
            f"pipeline-stages: {stages} stages, and the programs can be cut at {len(possible)} "
            f"place{'s' * (len(possible) != 1)}",
            help=f"give at most {len(possible) + 1} stages",
        )
    before = [0.0]
    for cost in costs:
        before.append(before[-1] + cost)
    # Place of the last cut -> the largest sum before it, and the cuts.
    best: Mapping[int, tuple[float, list[int]]] = {
        place: (before[place + 1], [place]) for place in possible
    }
    for _ in range(stages - 2):
        best = {
            place: min(
                (max(most, before[place + 1] - before[last + 1]), [*chosen, place])
                for last, (most, chosen) in best.items()
                if last < place
            )
            for place in possible
            if any(last < place for last in best)
        }
    ends = [
        (max(most, before[-1] - before[last + 1]), chosen) for last, (most, chosen) in best.items()
    ]
    return min(ends)[1]


@register
@dataclass(frozen=True)
class PipelineStages(Pass):
    """Divide programs between layers into pipeline stages, each with its weights and states.

    A stage is a function of the program's arguments that it reads, by their names, and of the one
    value that the stage before it hands on; all programs are divided at the same layers. Values
    that depend on inputs alone, such as masks, are computed in each stage that reads them. The
    cuts are those with which the slowest stage takes the least time. To be run last.

    Options:
        stages: how many.
        target: the device that the time is about.

    Given:
        module @m level=target {
          input %x : f32[4]
          weight %v : f32[4]
          weight %w : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %v : f32[4]
          arg %w : f32[4]
          %a = negate(%x) : f32[4]
          %b = multiply(%x, %v) : f32[4]  # m.py:1 layers.0
          %c = multiply(%b, %w) : f32[4]  # m.py:1 layers.1
          %y = add(%c, %a) : f32[4]  # m.py:2 layers.1
          return y = %y
        }

    Result:
        module @m level=target {
          meta pipeline_stages = "2"
          input %x : f32[4]
          weight %v : f32[4]
          weight %w : f32[4]
          output %y : f32[4]
        }

        func @f.stage0 {
          arg %x : f32[4]
          arg %v : f32[4]
          %b = multiply(%x, %v) : f32[4]
          return stage.edge0 = %b
        }

        func @f.stage1 {
          arg %stage.edge0 : f32[4]
          arg %x : f32[4]
          arg %w : f32[4]
          %a = negate(%x) : f32[4]
          %c = multiply(%stage.edge0, %w) : f32[4]
          %y = add(%c, %a) : f32[4]
          return y = %y
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %v : f32[4]
          arg %w : f32[4]
          %b = call(%x, %v) to_apply=f.stage0 results=[f32[4]] : f32[4]
          %y = call(%b, %x, %w) to_apply=f.stage1 results=[f32[4]] : f32[4]
          return y = %y
        }
    """

    name: ClassVar[str] = "pipeline-stages"
    input_stages: ClassVar[tuple[str, ...]] = ("target",)
    stages: int = 2
    target: str = "cpu"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Divide every program.

        Raises:
            GraphgenError: GG0302 for fewer than two stages, for programs without layers, and for
                more stages than places to cut at.
        """
        if self.stages < 2:
            raise GraphgenError(
                "GG0302", f"pipeline-stages: stages={self.stages} must be 2 or more"
            )
        if STAGES in module.meta or rewriter.exhausted:
            return
        flat = [inlined(module, function) for function in module.programs()]
        scopes = layer_scopes(flat[0]) if flat else []
        if not scopes:
            raise GraphgenError(
                "GG0302",
                f"pipeline-stages: @{module.name} has no layers to divide",
                help="the scopes of its ops have no numbers",
            )
        programs = [cut_program(module, function, scopes) for function in flat]
        common = [cut for cut in programs[0].cuts if all(cut in p.cuts for p in programs)]
        target = find_target(self.target) if self.target in target_names() else Target(self.target)
        costs = place_costs(programs, len(scopes) + 2, target)
        ends = balanced_cuts(costs, common, self.stages)
        made = [self._divide(module, program, ends, rewriter) for program in programs]
        module.meta[STAGES] = str(self.stages)
        parts = {function.name: function for functions in made for function in functions}
        chains = {function.name: function for function in module.programs()}
        others = {n: f for n, f in module.functions.items() if n not in chains}
        # A function stands before those that call it.
        module.functions = {**others, **parts, **chains}

    def _divide(
        self, module: Module, program: ProgramCuts, ends: Sequence[int], rewriter: Rewriter
    ) -> list[Function]:
        """Replace a program by the calls of its stages; their functions."""
        whole = module.function(program.function.name)
        bounds = [-1, *ends, max(program.stages.values(), default=0) + 1]
        chain = Function(whole.name, whole.phase, dict(whole.dims))
        chain.annotations = whole.annotations
        now = Cloner()
        for value in program.function.args:
            now.argument(value, chain)
        stages: list[Function] = []
        for number, (first, last) in enumerate(pairwise(bounds)):
            begin, outputs = program.cuts.get(first), stage_outputs(program, number, first, last)
            stage = part_of(
                program.function,
                stage_name(whole.name, number),
                outputs,
                begin,
                edge_name(number - 1),
            )
            _call(chain, stage, [value for _, value in outputs], begin, now)
            stages.append(stage)
        chain.outputs = [(name, now.mapping[value]) for name, value in program.function.outputs]
        pairs = [
            (old, now.mapping[new], EQUAL)
            for (_, old), (_, new) in zip(whole.outputs, program.function.outputs, strict=True)
        ]
        calls = list(chain.block)
        rewriter.note(whole, "divide", whole.block.first, calls, tuple(pairs))
        module.functions[whole.name] = chain
        return stages


def _call(
    chain: Function, stage: Function, outputs: Sequence[Value], begin: Value | None, now: Cloner
) -> Op:
    """Append the call of a stage; what it gives is known to ``now``."""
    known = {value.name: value for value in chain.args}
    # A value without an argument of the program is the edge of the stage before.
    operands = [
        known[value.name] if value.name in known or begin is None else now.mapping[begin]
        for value in stage.args
    ]
    types = tuple([value.type for value in outputs])
    first = stage.block.first
    call = Op(
        "call",
        tuple(operands),
        types,
        make_attrs("call", {"to_apply": stage.name, "results": types}),
        first.loc.through(PipelineStages.name) if first is not None else UNKNOWN,
        [value.name for value in outputs],
    )
    chain.block.append(call)
    for value, result in zip(outputs, call.results, strict=True):
        result.sharding = value.sharding
        now.mapping[value] = result
    return call
