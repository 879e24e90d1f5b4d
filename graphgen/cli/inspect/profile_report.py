"""``graphgen inspect`` of a device's profile: measured times, beside the bounds of its program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.inspect.inspect_files import Inspection
from graphgen.cli.module_file import programs_or_functions, read_module
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.report.table import Report, Table
from graphgen.targets import accelerator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphgen.lowering.neuron.profile.device_profile import DeviceProfile
    from graphgen.lowering.neuron.profile.measured_times import MeasuredTime, MeasuredTimes

# Metrics that the report shows, if the profile has them; --json has all.
_SHOWN = (
    "total_time",
    "total_active_time",
    "tensor_engine_active_time_percent",
    "dma_active_time_percent",
    "mfu_estimated_percent",
    "mbu_estimated_percent",
    "hbm_read_bytes",
    "hbm_write_bytes",
)


def profile_inspection(
    path: Path, module: str | None, program: str | None, target: str, lnc: int, largest: int
) -> Inspection:
    """Inspect a profile.

    Args:
        path: of the JSON.
        module: the file of the module that ran; ``None`` for no bounds.
        program: the one of several that ran.
        target: the device.
        lnc: cores of a logical core; 0 for the target's own.
        largest: how many ops to show.

    Raises:
        GraphgenError: GG0705 for a file that is not read, and for a module of several programs.
    """
    from graphgen.lowering.neuron.profile.device_profile import read_profile
    from graphgen.lowering.neuron.profile.measured_times import measured_times

    profile = read_profile(path)
    if module is None:
        times = measured_times(profile)
    else:
        read = read_module(module)
        functions = programs_or_functions(read, program)
        if len(functions) > 1:
            names = ", ".join(item.name for item in functions)
            what = f"{module} has the programs {names}, and a profile is of one"
            raise GraphgenError("GG0705", what, help="choose it with --program NAME")
        times = measured_times(profile, read, functions[0], accelerator(target, lnc))
    return Inspection(lambda: _facts(profile, times), lambda: _report(profile, times, largest))


def _facts(profile: DeviceProfile, times: MeasuredTimes) -> Json:
    return {
        "kind": "profile of a Neuron device",
        "seconds": profile.seconds,
        "summary": cast(Json, dict(profile.summaries)),
        "layers": [_row_json(item) for item in times.layers],
        "ops": [_row_json(item) for item in times.ops],
        "other": dict(profile.other),
    }


def _row_json(item: MeasuredTime) -> dict[str, Json]:
    return {**asdict(item), "share": item.share}


def _report(profile: DeviceProfile, times: MeasuredTimes, largest: int) -> Report:
    report: list[str | Table] = ["profile of a Neuron device\n"]
    for name, row in profile.summaries.items():
        facts = ", ".join(f"{key} {row[key]}" for key in _SHOWN if key in row)
        report.append(f"  {name}: {facts or f'{len(row)} metrics'}\n")
    if times.layers:
        headers = ["layer", "instructions", "measured", "bound", "of the time"]
        report.append(Table(headers, [_cells(item) for item in times.layers], 1))
        headers = ["slowest ops", "layer", *headers[1:]]
        rows = [[item.name, item.layer or "-", *_cells(item)[1:]] for item in times.ops[:largest]]
        report.append(Table(headers, rows, 2))
    return report


def _cells(item: MeasuredTime) -> Sequence[str]:
    share = "-" if item.share is None else f"{100 * item.share:.1f} %"
    bound = "-" if item.bound is None else _micro(item.bound)
    return [item.name, str(item.instructions), _micro(item.seconds), bound, share]


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"
