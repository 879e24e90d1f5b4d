"""A program with the measured times of its ops beside bounds, as text and JSON.

Shared by ``graphgen profile`` and the pages of ``explore`` and ``inspect``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import Json
from graphgen.lowering.profiles.measured_ops import MeasuredOp, measured_ops
from graphgen.lowering.profiles.op_bounds import Rates, instruction_bounds, ops_by_name
from graphgen.lowering.profiles.program_times import ProgramTimes
from graphgen.lowering.profiles.recording import DeviceRates, ProfileRecording
from graphgen.report.explore_data import OpTimes
from graphgen.report.table import Report, Table
from graphgen.report.units import duration, number, short, size

# Characters of a layer in the table.
_WIDE = 48


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """A recording, the program in it that is shown, and its module.

    Attributes:
        recording: with all programs.
        times: of the program.
        others: of the other programs.
        module: of the program; ``None`` for none.
        hlo: the same as a protobuf, where there is one.
    """

    recording: ProfileRecording
    times: ProgramTimes
    others: Sequence[ProgramTimes]
    module: Module | None
    hlo: bytes | None


def choose_recorded(
    found: Sequence[ProgramTimes], name: str | None
) -> tuple[ProgramTimes, Sequence[ProgramTimes]]:
    """The program of a name or a part of it, by default the first, and the others (GG0202)."""
    fit = [one for one in found if name is None or name in one.program]
    exact = [one for one in fit if name in (one.program, one.program.partition("(")[0])]
    if not fit:
        names = ", ".join([one.program for one in found][:20])
        raise GraphgenError("GG0202", f"no program {name}", help=f"the recording has {names}")
    chosen = (exact or fit)[0]
    return chosen, [one for one in found if one is not chosen]


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """A program with measured ops, as the command shows it.

    Attributes:
        found: the recording and the program.
        rates: that the bounds are at.
        ops: by the time that they lose.
    """

    found: RecordedProgram
    rates: Rates | None
    ops: Sequence[MeasuredOp]

    @classmethod
    def of(cls, found: RecordedProgram, rates: Rates | None) -> MeasuredProgram:
        """Put the bounds of a program's instructions beside their times."""
        bounds = instruction_bounds(found.module, found.hlo, rates)
        return cls(found, rates, measured_ops(found.times, bounds))

    def facts(self) -> Json:
        """For ``--json``."""
        times = self.found.times
        return {
            "kind": self.found.recording.kind,
            "program": times.program,
            "alone": times.alone,
            "devices": times.devices,
            "runs": [*times.runs],
            "seconds": times.seconds,
            "ops_seconds": times.total,
            "rates": _rates_json(self.rates),
            "ops": [op.to_json() for op in self.ops],
            "other_programs": [
                {"program": one.program, "runs": len(one.runs), "seconds": one.seconds}
                for one in self.found.others
            ],
        }

    def heading(self) -> str:
        """The lines above the table."""
        times = self.found.times
        name = f"@{times.program}, " if times.program else ""
        spread = f" on average ({_spread(times.runs)})" if len(times.runs) > 1 else ""
        on = f" on {times.devices} devices" if times.devices > 1 else ""
        runs = f"{len(times.runs)} run{'s' * (len(times.runs) != 1)}{on}"
        head = f"{name}{self.found.recording.kind}: {runs} of {duration(times.seconds)}"
        share = f"{100 * times.total / times.seconds:.1f} %" if times.seconds else "-"
        alone = "alone, one after the other" if times.alone else "together"
        lines = [
            f"{head}{spread}\n",
            f"  ops {alone}: {duration(times.total)}, {share} of a run\n",
        ]
        if self.rates is not None:
            lines.append(f"  bounds at {_rates_text(self.rates)}\n")
        bounded = [op for op in self.ops if op.bound is not None]
        if bounded:
            lost = sum([op.lost or 0.0 for op in bounded])
            least = sum([op.bound or 0.0 for op in bounded])
            lines.append(f"  lost {duration(lost)} to the bounds, {duration(least)} together\n")
        return "".join(lines)

    def report(self, top: int) -> Report:
        """As text."""
        report: list[str | Table] = [self.heading(), self._table(top)]
        left = self.ops[top:]
        tail = ""
        around = [op for op in self.ops if op.inside]
        if around:
            shown = [f"{op.name} {duration(op.inside)}" for op in around[:8]]
            tail += f"what ran inside has rows of its own: {', '.join(shown)}\n"
        if left:
            rest = sum([op.seconds for op in left])
            tail += f"{len(left)} more ops: {duration(rest)}\n"
        if self.found.others:
            shown = [
                f"{one.program} ({len(one.runs)} x {duration(one.seconds)})"
                for one in self.found.others[:8]
            ]
            tail += f"other programs: {', '.join(shown)}; --program NAME shows one\n"
        return [*report, tail] if tail else report

    def _table(self, top: int) -> Table:
        alone = "alone" if self.found.times.alone else "measured"
        headers = ["op", "times", alone, "of a run", "bound", "reached", "lost", "bound by"]
        rows = [
            [
                op.name,
                f"{op.times:g}",
                duration(op.seconds),
                f"{100 * op.seconds / self.found.times.seconds:.1f} %"
                if self.found.times.seconds
                else "-",
                "-" if op.bound is None else duration(op.bound) if op.bound else "0",
                "-" if op.reached is None or not op.bound else f"{100 * op.reached:.1f} %",
                "-" if op.lost is None else duration(op.lost) if op.lost else "0",
                op.by or "-",
                op.opcode or "-",
                short(op.layer, _WIDE) or "-",
                op.line or "-",
            ]
            for op in self.ops[:top]
        ]
        return Table([*headers, "opcode", "layer", "at"], rows, 6)


def _spread(runs: Sequence[float]) -> str:
    return f"{duration(min(runs))} to {duration(max(runs))}"


def _rates_text(rates: Rates) -> str:
    if isinstance(rates, DeviceRates):
        flops, moved = number(round(rates.flops)), size(round(rates.bandwidth))
        return f"{flops}FLOP/s and {moved}/s ({rates.source})"
    return f"the rates of {rates.name} ({rates.core}, LNC {rates.lnc})"


def _rates_json(rates: Rates | None) -> Json:
    if isinstance(rates, DeviceRates):
        return asdict(rates)
    return None if rates is None else {"target": rates.name, "lnc": rates.lnc}


def times_of_ops(module: Module, measured: MeasuredProgram) -> OpTimes:
    """The times of the ops of a module, for the page of explore."""
    found = {op.name: op for op in measured.ops}
    ops = {
        op: (found[name].seconds, found[name].bound, found[name].times)
        for name, op in ops_by_name(module, measured.found.hlo).items()
        if name in found
    }
    times = measured.found.times
    return OpTimes(
        ops,
        times.seconds,
        times.alone,
        "; ".join([line.strip() for line in measured.heading().splitlines()]),
    )
