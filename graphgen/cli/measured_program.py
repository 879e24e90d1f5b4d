"""A program with the measured times of its ops: from a recording, beside bounds, as text and JSON.

Shared by ``graphgen profile`` and the pages of ``explore`` and ``inspect``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import read_module
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.read_file import is_file, is_folder
from graphgen.report.table import Report, Table
from graphgen.report.units import duration, number, short, size

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.lowering.profiles.measured_ops import MeasuredOp
    from graphgen.lowering.profiles.op_bounds import Rates
    from graphgen.lowering.profiles.program_times import ProgramTimes
    from graphgen.lowering.profiles.recording import ProfileRecording
    from graphgen.report.explore_data import OpTimes

HERE = "here"
# Characters of a layer in the table.
_WIDE = 48


def stated_rates(target: str | None, lnc: int, rates: str | None) -> Rates | None:
    """The rates that the user states (GG0705)."""
    from graphgen.lowering.profiles.recording import DeviceRates
    from graphgen.targets import accelerator

    if target is not None and rates is not None:
        raise GraphgenError("GG0705", "--rates and --target both state the rates")
    if target is not None:
        return accelerator(target, lnc)
    if rates is None:
        return None
    if rates == HERE:
        return rates_here()
    try:
        flops, bandwidth = [float(part) for part in rates.split(",")]
    except ValueError:
        flops = bandwidth = 0.0
    if not (0 < flops < 1e30 and 0 < bandwidth < 1e30):
        what = f"--rates: '{rates}' is not FLOPS,BYTES or here"
        raise GraphgenError("GG0705", what, help="write --rates 150e9,25e9: both a second")
    return DeviceRates(flops, bandwidth, "--rates")


def rates_here() -> Rates:
    """The rates of this machine, measured now."""
    from graphgen.lowering.profiles.machine_rates import machine_rates

    return machine_rates()


def is_recording(path: str) -> bool:
    """True for a recording of a profiler, or a folder that may have one."""
    from graphgen.lowering.profiles.open_profile import is_recording as is_recorded

    place = Path(path)
    return path != STANDARD and (is_folder(place) or (is_file(place) and is_recorded(place)))


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


def read_program(path: Path, module: str | None, program: str | None) -> RecordedProgram:
    """A program of a recording.

    Args:
        path: of the recording, or of the folder that it is in.
        module: the file of the module that ran; by default the one in the recording.
        program: the name of one of several, or a part of it.

    Raises:
        GraphgenError: GG0202 for an unknown program, and those of reading the files.
    """
    from graphgen.lowering.profiles.program_times import program_times

    recording = _recording(path)
    times, others = choose_recorded(program_times(recording), program)
    if module is not None:
        read, hlo = read_module(module), hlo_of(module)
        return RecordedProgram(recording, times, others, read, hlo)
    hlo = recording.modules.get(times.program)
    return RecordedProgram(recording, times, others, recorded_module(hlo, times.program), hlo)


def _recording(path: Path) -> ProfileRecording:
    """The recording in a file, or the newest in a folder."""
    from graphgen.lowering.profiles.open_profile import find_recording, read_recording

    file = find_recording(path)
    if file != path:
        note(f"the newest recording: {file}")
    return read_recording(file)


def measured_module(path: Path, module: Module, hlo: bytes | None) -> RecordedProgram:
    """The program of a recording that is this module: the one of which most ops ran.

    Args:
        path: of the recording, or of the folder that it is in.
        module: with the names of its HLO instructions.
        hlo: the same as a protobuf, where there is one.

    Raises:
        GraphgenError: GG0705 where no op of the module is in the recording.
    """
    from graphgen.lowering.profiles.op_bounds import ops_by_name
    from graphgen.lowering.profiles.program_times import program_times

    recording = _recording(path)
    names = ops_by_name(module, hlo).keys()
    found = program_times(recording)
    best = max(found, key=lambda one: len(names & {op.name for op in one.ops}))
    if not names & {op.name for op in best.ops}:
        listed = ", ".join([one.program for one in found][:20])
        what = f"no op of @{module.name} is in {path}"
        help = (
            f"it has times of {listed}; the module that ran is XLA's after its optimizations: "
            "graphgen profile --html draws the one in an xplane.pb"
        )
        raise GraphgenError("GG0705", what, help=help)
    others = [one for one in found if one is not best]
    return RecordedProgram(recording, best, others, module, hlo)


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


def recorded_module(hlo: bytes | None, name: str) -> Module | None:
    """The module that a recording has."""
    from graphgen.lowering.open import Source, open_source

    if hlo is None:
        note("no bounds and layers: the recording has no module of the program; --module names it")
        return None
    try:
        return open_source(Source(name, hlo))
    except GraphgenError as error:
        note(f"no bounds: the module in the recording is not read: {error.what}")
        return None


def hlo_of(file: str) -> bytes | None:
    """The protobuf of a file of HLO; ``None`` for another module."""
    from graphgen.lowering.xla_dump.dump_folder import hlo_source, is_xla_file

    path = Path(file)
    if file == STANDARD or not is_file(path) or not is_xla_file(path):
        return None
    return bytes(hlo_source(path)[:])


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
        from graphgen.lowering.profiles.measured_ops import measured_ops
        from graphgen.lowering.profiles.op_bounds import instruction_bounds

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
    from graphgen.lowering.profiles.recording import DeviceRates

    if isinstance(rates, DeviceRates):
        flops, moved = number(round(rates.flops)), size(round(rates.bandwidth))
        return f"{flops}FLOP/s and {moved}/s ({rates.source})"
    return f"the rates of {rates.name} ({rates.core}, LNC {rates.lnc})"


def _rates_json(rates: Rates | None) -> Json:
    from graphgen.lowering.profiles.recording import DeviceRates

    if isinstance(rates, DeviceRates):
        return asdict(rates)
    return None if rates is None else {"target": rates.name, "lnc": rates.lnc}


def times_of_ops(module: Module, measured: MeasuredProgram) -> OpTimes:
    """The times of the ops of a module, for the page of explore."""
    from graphgen.lowering.profiles.op_bounds import ops_by_name
    from graphgen.report.explore_data import OpTimes

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
