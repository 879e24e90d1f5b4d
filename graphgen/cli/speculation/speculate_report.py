"""Reports of ``graphgen speculate``: the speed of each k, or its bounds on an accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from graphgen.json_value import Json
from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.runtime.speculation.measure_speedup import MeasuredSpeculation
    from graphgen.runtime.speculation.speedup import Speedup


def speed_report(found: MeasuredSpeculation, rows: Sequence[Speedup]) -> list[str | Table]:
    """The table of a measurement."""
    shares = ", ".join(f"{share:.0%}" for share in found.accepted)
    times = found.seconds
    lines = [
        f"accepted more than 0, 1, ... proposals: {shares} of {found.counts.rows} steps",
        f"a decode step takes {times.decode * 1e3:.2f} ms, a proposed token "
        f"{times.draft * 1e3:.2f} ms",
        "",
    ]
    cells = [
        (
            str(r.length),
            f"{r.tokens:.2f}",
            f"{r.step_s * 1e3:.2f}",
            f"{r.token_s * 1e3:.2f}",
            f"{r.ratio:.2f}",
        )
        for r in rows
    ]
    return [*lines, Table(("k", "tokens a step", "step ms", "token ms", "speed"), cells, 4)]


def speed_json(found: MeasuredSpeculation, rows: Sequence[Speedup]) -> Json:
    """A measurement as JSON."""
    times = found.seconds
    return {
        "accepted": list(found.accepted),
        "steps": found.counts.rows,
        "decode_s": times.decode,
        "draft_s": times.draft,
        "lengths": [
            {
                "speculation_length": r.length,
                "tokens_per_step": r.tokens,
                "step_s": r.step_s,
                "token_s": r.token_s,
                "ratio": r.ratio,
            }
            for r in rows
        ],
    }


@dataclass(frozen=True, slots=True)
class StepBound:
    """Lower bounds of a step, and what a time a token implies.

    Attributes:
        length: k.
        decode_s, draft_s, verify_s: seconds of the launches.
        step_s: of k - 1 proposals and their verification.
        tokens: a step, that the time a token implies; ``None`` where none is given.
        acceptance: of each proposal by itself, that gives as many.
    """

    length: int
    decode_s: float
    draft_s: float
    verify_s: float
    step_s: float
    tokens: float | None
    acceptance: float | None


def bound_report(model: str, target: str, made: Sequence[StepBound]) -> list[str | Table]:
    """The table of bounds."""
    first = made[0]
    lines = [
        f"{model} on {target}, lower bounds: a decode step {first.decode_s * 1e3:.2f} ms, a "
        f"proposed token {first.draft_s * 1e3:.2f} ms",
        "",
    ]
    headers = ("k", "verify ms", "step ms", "token ms at best")
    cells = [
        (
            str(b.length),
            f"{b.verify_s * 1e3:.2f}",
            f"{b.step_s * 1e3:.2f}",
            f"{b.step_s * 1e3 / b.length:.2f}",
        )
        for b in made
    ]
    if first.tokens is not None:
        headers = (*headers, "tokens a step implied", "acceptance implied")
        more = [(f"{b.tokens:.2f}", f"{b.acceptance:.0%}") for b in made]
        cells = [(*row, *two) for row, two in zip(cells, more, strict=True)]
    return [*lines, Table(headers, cells, len(headers) - 1)]


def bound_json(made: Sequence[StepBound]) -> Json:
    """Bounds as JSON."""
    return [asdict(b) for b in made]
