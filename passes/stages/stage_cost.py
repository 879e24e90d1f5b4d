"""Stages of a pipeline with the least time of the slowest one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from graphgen.analysis.stages.layer_cuts import ProgramCuts
from graphgen.analysis.work import Work, work_of
from graphgen.errors import GraphgenError
from graphgen.targets import Target
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
        intensity = device.flops.get("bf16", device.vector_flops) / device.hbm_bandwidth
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
