"""``graphgen inspect``: one screen about a module, a checkpoint, a cache or an artifact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from graphgen.atomic_write import open_regular
from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note, write_json
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.inspect_files import Inspection
from graphgen.cli.module_file import programs_or_functions, read_module
from graphgen.cli.shared_options import AcceleratorName, AsJson, Lnc, OnlyProgram, ProfileFile
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.read_file import is_file
from graphgen.report.table import Report, Table
from graphgen.report.units import size
from graphgen.runtime.file_kind import FileKind, kind_of_file
from graphgen.targets import DEFAULT_ACCELERATOR, accelerator

if TYPE_CHECKING:
    from graphgen.cli.inspect_files import Inspection
    from graphgen.lowering.neuron.device_profile import DeviceProfile, MeasuredTime, MeasuredTimes

COMMAND: Final = Command("inspect", "Describe a module, a checkpoint or a work folder.", order=1)

# Larger protobufs are only summarized, without building their graph.
LARGE = 256 << 20


InspectedPath = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A module (.gg, StableHLO, HLO), a NEFF, a checkpoint, a compiler cache, a work "
        "folder, an artifact, a device's profile as JSON; - is stdin.",
    ),
]
OutputName = Annotated[
    str | None,
    typer.Option("--result", metavar="N", help="Only this output, by position or name."),
]
Largest = Annotated[
    int, typer.Option("--largest", min=0, help="Number of largest tensors to show.")
]
SummaryOnly = Annotated[
    bool,
    typer.Option("--summary", help="Walk through an HLO protobuf without building its graph."),
]
OfModule = Annotated[
    str | None,
    typer.Option(
        "--module", metavar="FILE", help="Of a profile: what ran; bounds stand beside its times."
    ),
]
HtmlFile = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write one page with everything in it."),
]
ModelExplorerFile = Annotated[
    str | None,
    typer.Option(
        "--model-explorer", metavar="FILE", help="Write the graph for Google's Model Explorer."
    ),
]


def inspect(
    file: InspectedPath,
    program: OnlyProgram = None,
    output: OutputName = None,
    largest: Largest = 5,
    summary: SummaryOnly = False,
    html: HtmlFile = None,
    model_explorer: ModelExplorerFile = None,
    profile: ProfileFile = None,
    module: OfModule = None,
    target: AcceleratorName = DEFAULT_ACCELERATOR,
    lnc: Lnc = 0,
    as_json: AsJson = False,
) -> None:
    """Describe what a module takes, keeps, computes and exchanges; bytes are of one rank.

    The summary reads a protobuf of any size, also one with types that have no form here; above
    256 MiB it is what you get. Of a profile, layers and ops have their measured times, beside the
    bounds of 'graphgen cost' for --target and --lnc where --module names what ran.

    \b
    Examples:
      graphgen inspect decode.pb
      graphgen inspect decode.pb --result 3
      graphgen inspect mini.gg --program decode --largest 3
      graphgen inspect step.mlir --json
      graphgen inspect huge.pb --summary
      graphgen inspect decode.pb --html decode.html --model-explorer decode.json
      graphgen inspect /var/tmp/neuron-compile-cache
      graphgen inspect model.safetensors
      graphgen inspect checkpoint/
      graphgen inspect profile.json --module graph.hlo --target trn2
    """
    if html is not None or model_explorer is not None:
        drawn = (html, model_explorer, profile)
        return _draw(file, program, largest, drawn, as_json=as_json)
    if profile is not None:
        raise GraphgenError(
            "GG0705", "--profile has no effect without --html", help="graphgen profile prints it"
        )
    kind = FileKind.MODULE if file == STANDARD else kind_of_file(Path(file))
    if kind is FileKind.DEVICE_PROFILE:
        found = profile_inspection(Path(file), module, program, target, lnc, largest)
    elif kind is FileKind.RECORDING:
        found = _recorded(Path(file), module, program, largest)
    elif module is not None and file != STANDARD:
        raise GraphgenError("GG0705", f"--module has no effect: {file} is not a profile")
    else:
        found = _inspected(file, kind, program, output, largest, summary=summary)
    return emit(as_json, found.facts, found.report)


def _recorded(path: Path, module: str | None, program: str | None, largest: int) -> Inspection:
    """The times in a recording of XLA's profiler."""
    from graphgen.cli.inspect_files import Inspection
    from graphgen.cli.recorded_program import read_program
    from graphgen.lowering.profiles.measured_program import MeasuredProgram

    found = read_program(path, module, program)
    measured = MeasuredProgram.of(found, found.recording.rates)
    return Inspection(measured.facts, lambda: measured.report(largest))


def _inspected(
    file: str,
    kind: FileKind,
    program: str | None,
    output: str | None,
    largest: int,
    *,
    summary: bool,
) -> Inspection:
    from graphgen.cli.inspect_files import inspect_file, inspect_summary, programs_inspection

    path = Path(file)
    if file != STANDARD:
        large = is_file(path) and path.stat().st_size > LARGE
        if summary or (large and _is_proto(path)):
            return inspect_summary(path)
        found = inspect_file(path, kind, largest)
        if found is not None:
            return found
    try:
        module = read_module(file)
    except GraphgenError as error:
        if error.code not in ("GG0101", "GG0103") or not (is_file(path) and _is_proto(path)):
            raise
        note(f"{error.what}: no graph can be built of this file, so it is only summarized")
        return inspect_summary(path)
    functions = programs_or_functions(module, program)
    if output is not None:
        return _output(module, functions, output)
    head, more = _assigned(path)
    return programs_inspection(module, functions, largest, head, more)


def _assigned(path: Path) -> tuple[str, dict[str, Json]]:
    """The memory that XLA assigned to a module of its dumps, beside which its files are."""
    from graphgen.lowering.xla_dump.dump_files import AFTER, dump_file
    from graphgen.lowering.xla_dump.dump_folder import siblings, stated_memory

    if not is_file(path) or dump_file(path).kind != AFTER:
        return "", {}
    allocations, _, total = stated_memory(siblings(path))
    if total is None:
        return "", {}
    count = f" in {len(allocations)} allocations" if allocations else ""
    head = f"XLA assigned {size(total)}{count}; graphgen memory says to what\n\n"
    return head, {"xla_bytes": total}


def _is_proto(path: Path) -> bool:
    from graphgen.lowering.hlo_proto.proto_module import looks_like_proto
    from graphgen.lowering.open import HEAD

    with open_regular(path) as opened:
        return looks_like_proto(opened.read(HEAD))


def _output(module: Module, functions: list[Function], output: str) -> Inspection:
    """One output of each program."""
    from graphgen.cli.inspect_files import Inspection, overviews
    from graphgen.report.program_json import output_json
    from graphgen.report.program_text import find_output, output_text

    found = [(item, find_output(item, output)) for item in overviews(module, functions, 0)]
    return Inspection(
        lambda: [output_json(item, one) for item, one in found],
        lambda: [output_text(item, one) for item, one in found],
    )


def _draw(
    file: str,
    program: str | None,
    largest: int,
    drawn: tuple[str | None, str | None, str | None],
    *,
    as_json: bool,
) -> None:
    """Write one page, a graph for Model Explorer, or both.

    Args:
        file: of the module.
        program: the one to draw; ``None`` for all.
        largest: number of largest tensors to list.
        drawn: the page, the graph for Model Explorer, and a recording with times for the page.
        as_json: print what was written as JSON.
    """
    from graphgen.cli.explore_cmd import counted_sizes, recorded_times, xla_buffers
    from graphgen.cli.inspect_files import overviews
    from graphgen.lowering.explorer import add_module
    from graphgen.report import explore_page
    from graphgen.report.explore_data import ExploreData
    from graphgen.report.model_explorer import model_explorer as collection

    html, model_explorer, profile = drawn
    names = [name for name in (html, model_explorer) if name]
    for name in names:
        check_output(name)
    module = read_module(file)
    items = overviews(module, programs_or_functions(module, program), largest)
    texts: dict[str, str] = {}
    if html:
        data = ExploreData()
        buffers = xla_buffers(file, module, program)
        times = None if profile is None else recorded_times(file, module, profile, None)
        sizes = counted_sizes(module, {})
        add_module(data, module, items, Path(file).name, buffers, sizes, times)
        texts[html] = explore_page(f"@{module.name}", data.head(), data.blocks)
    if model_explorer:
        texts[model_explorer] = json.dumps(collection(module, items), ensure_ascii=False)
    written: list[Json] = []
    for name, text in texts.items():
        write_text(name, text)
        written.append({"file": name, "bytes": len(text.encode())})
        if not as_json and name != STANDARD:
            ops = sum(item.function.block.size for item in items)
            note(f"wrote {name}: {ops} ops, {size(len(text))}")
    if as_json:
        write_json(written)


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
    from graphgen.lowering.neuron.device_profile import measured_times, read_profile

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
        "layers": [item.to_json() for item in times.layers],
        "ops": [item.to_json() for item in times.ops],
        "other": dict(profile.other),
    }


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
