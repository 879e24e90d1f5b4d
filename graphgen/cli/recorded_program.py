"""The program that a command shows the measured times of: from a recording, with its module.

Shared by ``graphgen profile`` and the pages of ``explore`` and ``inspect``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import read_module
from graphgen.errors import GraphgenError
from graphgen.read_file import is_file, is_folder

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.lowering.profiles.measured_program import RecordedProgram
    from graphgen.lowering.profiles.op_bounds import Rates
    from graphgen.lowering.profiles.recording import ProfileRecording

HERE = "here"


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


def read_program(path: Path, module: str | None, program: str | None) -> RecordedProgram:
    """A program of a recording.

    Args:
        path: of the recording, or of the folder that it is in.
        module: the file of the module that ran; by default the one in the recording.
        program: the name of one of several, or a part of it.

    Raises:
        GraphgenError: GG0202 for an unknown program, and those of reading the files.
    """
    from graphgen.lowering.profiles.measured_program import RecordedProgram, choose_recorded
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
    from graphgen.lowering.profiles.measured_program import RecordedProgram
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
