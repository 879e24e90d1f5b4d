"""Rates that a device was measured at, beside the published ones."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.runtime.device_kit.rate_cases import rates
from graphgen.runtime.kit_runner.kit_types import CaseResult, Results
from graphgen.targets import accelerator


@dataclass(frozen=True, slots=True)
class Figure:
    """One rate.

    Attributes:
        name: in words, with the unit.
        published: the figure that ``graphgen cost`` uses; 0 where there is none.
        measured: the amount of work over the fastest run, less the time of an empty launch.
    """

    name: str
    published: float
    measured: float


def figures(results: Results) -> list[Figure]:
    """The rates that the results have, and the seconds of a launch with next to no work."""
    try:
        device = accelerator(results["target"], results["lnc"])
    except GraphgenError:
        return []
    launch = _launch(results)
    cases = {case["name"]: case for case in results["cases"] if _right(case)}
    found = [_figure(rate.figure, rate.published(device), rate.amount, cases[rate.name], launch)
             for rate in rates() if rate.name in cases]  # fmt: skip
    return [Figure("launch, us", 0.0, 1e6 * launch), *found] if launch else found


def _figure(name: str, published: float, amount: float, case: CaseResult, launch: float) -> Figure:
    seconds = min(case["execution"]["times_s"])
    # A launch that takes as long as the work measures nothing but itself.
    net = seconds - launch if launch < seconds / 2 else seconds
    return Figure(name, published, amount / net)


def _right(case: CaseResult) -> bool:
    execution = case["execution"]
    return bool(execution["times_s"]) and all(item["right"] for item in execution["outputs"])


def _launch(results: Results) -> float:
    """The median over single ops, whose work takes no time; 0 without any."""
    times = sorted(
        min(case["execution"]["times_s"])
        for case in results["cases"]
        if case["name"].startswith("op/") and case["execution"]["times_s"]
    )
    return times[len(times) // 2] if times else 0.0
