"""What was measured of each case, as rows for JSON and as a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.comparison.agreement import Agreement
from benchmarks.comparison.interfaces import Case
from benchmarks.engines import OURS
from benchmarks.rows import Row

PHASES = ("prefill", "decode")


@dataclass(slots=True)
class Measured:
    """The best of all rounds of one case.

    Attributes:
        case: the setting.
        floor_s: seconds in which all cores read as many bytes as the weights have.
        seconds: by engine and phase: the best prefill, and the best round's median step.
        tokens: of each engine but ours, the agreement with our tokens.
    """

    case: Case
    floor_s: float = float("inf")
    seconds: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    tokens: dict[str, Agreement] = field(default_factory=dict[str, Agreement])

    def note(self, engine: str, phase: str, seconds: float) -> None:
        """Keep the best time."""
        times = self.seconds.setdefault(engine, {})
        times[phase] = min(seconds, times.get(phase, float("inf")))

    def line(self) -> str:
        """``bf16.b1.p128, ms: graphgen 78.1 and 11.2, ...``: of each engine, prefill and decode."""
        each = (
            f"{name} " + " and ".join(f"{1e3 * times[phase]:.1f}" for phase in PHASES)
            for name, times in self.seconds.items()
        )
        return f"{self.case.name}, ms: {', '.join(each)}; read {1e3 * self.floor_s:.1f}"

    def best_peer(self, phase: str) -> float | None:
        """Seconds of the fastest engine but ours."""
        times = [at[phase] for name, at in self.seconds.items() if name != OURS]
        return min(times, default=None)


# Perplexities, by kind of weights and engine.
Perplexities = Mapping[str, Mapping[str, float]]


def rows_of(
    cases: Sequence[Measured], versions: Mapping[str, str], perplexities: Perplexities
) -> list[Row]:
    """A row for each case, phase and peer.

    Args:
        cases: with our times in them.
        versions: of engines, by name.
        perplexities: of the same text under each engine.
    """
    return [row for case in cases for row in _rows(case, versions, perplexities)]


def _rows(
    measured: Measured, versions: Mapping[str, str], perplexities: Perplexities
) -> Iterator[Row]:
    ours = measured.seconds[OURS]
    known = perplexities.get(measured.case.weights, {})
    for phase in PHASES:
        for peer, times in measured.seconds.items():
            if peer == OURS:
                continue
            extra: dict[str, int | float | str] = {"engine": peer}
            extra["tokens"] = str(measured.tokens[peer])
            if phase == "decode":
                extra["floor_s"] = measured.floor_s
            if peer in known and OURS in known:
                extra |= {"perplexity": known[OURS], "peer_perplexity": known[peer]}
            name = f"{measured.case.name}.{phase}"
            yield Row(name, ours[phase], versions[peer], times[phase], extra)


def markdown(cases: Sequence[Measured], engines: Sequence[str]) -> str:
    """Milliseconds of each engine, the fastest in bold; empty where an engine has no such case."""
    lines = [["ms", *engines, "read of the weights"], ["---", *["---:"] * (len(engines) + 1)]]
    for phase in PHASES:
        for measured in cases:
            times = [measured.seconds.get(name, {}).get(phase) for name in engines]
            best = min(time for time in times if time is not None)
            cells = ["" if time is None else _cell(time, time == best) for time in times]
            floor = f"{1e3 * measured.floor_s:.1f}" if phase == "decode" else ""
            lines.append([f"{measured.case.name}.{phase}", *cells, floor])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def perplexity_lines(perplexities: Perplexities) -> list[str]:
    """``int8: graphgen 28.42, llama-cpp 28.35``, a line for each kind of weights."""
    return [
        f"perplexity, {weights}: " + ", ".join(f"{name} {of:.3f}" for name, of in values.items())
        for weights, values in perplexities.items()
        if values
    ]


def _cell(seconds: float, best: bool) -> str:
    text = f"{1e3 * seconds:.1f}"
    return f"**{text}**" if best else text
