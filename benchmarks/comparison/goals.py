"""The goals of graphgen's times beside those of peers, and beside a read of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.comparison.measured import PHASES, Measured, Perplexities
from benchmarks.engines import OURS

BEST, FLOOR = "best peer", "read of the weights"


@dataclass(frozen=True, slots=True)
class Goal:
    """Our time is at most so much of another one.

    Attributes:
        cases: the names it holds for, as a pattern of ``fnmatch``.
        beside: the name of an engine, :data:`BEST` or :data:`FLOOR`.
        most: our time divided by that one.
    """

    cases: str
    beside: str
    most: float


GOALS = (
    Goal("bf16.b1.*.decode", "llama-cpp", 0.95),
    Goal("bf16.b1.*.decode", FLOOR, 1.35),
    Goal("bf16.b8.*.decode", BEST, 0.7),
    Goal("bf16.b1.*.prefill", BEST, 0.9),
    Goal("f32.b1.*.decode", FLOOR, 1.15),
    Goal("int8.b1.*.decode", "llama-cpp", 0.9),
    Goal("int4.b1.*.decode", "llama-cpp", 0.9),
)


def goal_lines(cases: Sequence[Measured], perplexities: Perplexities) -> list[str]:
    """A table in Markdown: each goal and case with the measured share."""
    lines = ["| case | beside | at most | measured | |", "|---|---|---|---|---|"]
    for goal in GOALS:
        for measured in cases:
            for phase in PHASES:
                name = f"{measured.case.name}.{phase}"
                share = _share(goal, measured, phase) if fnmatchcase(name, goal.cases) else None
                if share is not None:
                    lines.append(_line(name, goal.beside, goal.most, share, "2f"))
    for weights in ("int8", "int4"):
        found = perplexities.get(weights, {})
        if OURS in found and "llama-cpp" in found:
            share = found[OURS] / found["llama-cpp"]
            lines.append(_line(f"{weights} perplexity", "llama-cpp", 1.0, share, "4f"))
    return lines


def _line(case: str, beside: str, most: float, share: float, digits: str) -> str:
    verdict = "met" if share <= most else "**not met**"
    return f"| {case} | {beside} | {most} | {share:.{digits}} | {verdict} |"


def _share(goal: Goal, measured: Measured, phase: str) -> float | None:
    """Our time divided by the other one; ``None`` where one was not measured."""
    ours = measured.seconds.get(OURS, {}).get(phase)
    if goal.beside == FLOOR:
        other = measured.floor_s
    elif goal.beside == BEST:
        other = measured.best_peer(phase)
    else:
        other = measured.seconds.get(goal.beside, {}).get(phase)
    return None if ours is None or other is None else ours / other
