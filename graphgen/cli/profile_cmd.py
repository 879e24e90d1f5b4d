"""``graphgen profile``: measured times of a program's ops beside their bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import file_for, note_compiled, program_files
from graphgen.cli.console import emit, note
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.module_file import open_module_file, programs_or_functions
from graphgen.cli.recorded_program import (
    is_recording,
    rates_here,
    read_program,
    recorded_module,
    stated_rates,
)
from graphgen.cli.shared_options import AsJson, Dims, GivenRates, Lnc, Seed
from graphgen.errors import GraphgenError
from graphgen.report.units import size

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.lowering.profiles.measured_program import MeasuredProgram, RecordedProgram

COMMAND: Final = Command("inspect", "Show measured times of ops beside their bounds.")

XLA, NUMPY = "xla", "numpy"

ProfilePath = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="xplane.pb, trace.json(.gz), the folder of jax.profiler, a Neuron profile; or a "
        "module, which is run and measured.",
    ),
]
RanModule = Annotated[
    str | None,
    typer.Option("--module", metavar="FILE", help="The module that ran; xplane.pb has its own."),
]
OneProgram = Annotated[
    str | None,
    typer.Option("--program", metavar="NAME", help="Of several; by default the one of most time."),
]
TargetRates = Annotated[
    str | None,
    typer.Option("--target", metavar="TARGET", help="Bounds of inf2, trn1, trn2 or trn3."),
]
RunOn = Annotated[
    Literal["xla", "numpy"],
    typer.Option("--on", help="Of a module: XLA's thunks, or each op alone in NumPy."),
]
Repeats = Annotated[
    int, typer.Option("--repeats", min=1, max=1000, help="Runs of a module that are measured.")
]
TopOps = Annotated[int, typer.Option("--top", min=0, help="Number of ops to show.")]
HtmlPage = Annotated[
    str | None,
    typer.Option("--html", metavar="PAGE", help="Write the page of explore, coloured by time."),
]


def profile(
    path: ProfilePath,
    module: RanModule = None,
    program: OneProgram = None,
    target: TargetRates = None,
    lnc: Lnc = 0,
    rates: GivenRates = None,
    on: RunOn = XLA,
    repeats: Repeats = 5,
    dims: Dims = "",
    seed: Seed = 0,
    top: TopOps = 12,
    html: HtmlPage = None,
    as_json: AsJson = False,
) -> None:
    """Show what each op of a program took, what it takes at least, and where time is lost.

    A recording of jax.profiler has the times of XLA's instructions by their names; xplane.pb has
    the programs too. A module is compiled and run here, on random inputs, from the bytes of its
    file where XLA takes them; a note says so. XLA's profiler gives the times, or --on numpy those
    of each op alone, which say nothing of fusions. The bound of an op is its operations or its
    bytes at the rates of the device, whichever takes longer: those that the recording states, those
    of --target, --rates or, for a run here, of this machine. Ops are sorted by the time that they
    lose to their bound.

    \b
    Examples:
      graphgen profile jax-trace/ --rates here
      graphgen profile vm.xplane.pb --rates 150e9,25e9 --html profile.html
      graphgen profile vm.trace.json.gz --module step.hlo --json
      graphgen profile step.hlo
      graphgen profile mini.gg --program decode --on numpy --repeats 3
      graphgen profile profile.json --module graph.hlo --target trn2
    """
    from graphgen.lowering.profiles.measured_program import MeasuredProgram

    if html is not None:
        check_output(html)
    given = stated_rates(target, lnc, rates)
    if is_recording(path):
        found = read_program(Path(path), module, program)
    elif module is not None:
        raise GraphgenError("GG0705", f"--module has no effect: {path} is not a recording")
    else:
        found = _run(path, program, dims, seed, on, repeats)
        given = given or rates_here()
    measured = MeasuredProgram.of(found, given or found.recording.rates)
    if measured.rates is None:
        note("no bounds: the recording states no rates; --rates or --target gives them")
    if html is not None:
        _write_page(html, measured, as_json)
    emit(as_json, measured.facts, lambda: measured.report(top))


def _run(
    path: str, program: str | None, dims: str, seed: int, on: str, repeats: int
) -> RecordedProgram:
    """Run a module and measure it."""
    from graphgen.cli.open_sizes import with_sizes
    from graphgen.cli.run_cmd import bound_program
    from graphgen.exec import run_program
    from graphgen.exec.inputs import program_inputs
    from graphgen.lowering.profiles.measured_program import RecordedProgram, choose_recorded
    from graphgen.lowering.profiles.own_run import NumpyRecorder, XlaRecorder
    from graphgen.lowering.profiles.program_times import program_times
    from graphgen.lowering.runnable import runnable

    source, read, _ = open_module_file(path)
    origin = file_for(on, source, read)
    module = runnable(read)
    sized = with_sizes(module, program, dims, default=True)
    fixed = sized is not module
    module, function = bound_program(sized, None if fixed else program, "" if fixed else dims)
    inputs = program_inputs(module, function, {}, seed, per_rank=False)
    files = program_files(origin, module, function, changed=fixed)
    recorder = NumpyRecorder(repeats) if on == NUMPY else XlaRecorder(repeats, files)
    run_program(module, function, inputs.shared, recorder, inputs.per_rank)
    note_compiled(recorder)
    recording = recorder.recording
    assert recording is not None
    if not recording.events:
        raise GraphgenError("GG0402", f"@{function.name} has no op that takes time")
    times, others = choose_recorded(program_times(recording), None)
    if isinstance(recorder, NumpyRecorder):
        return RecordedProgram(recording, times, others, recorder.flat, None)
    hlo = recording.modules.get(times.program)
    ran = recorded_module(hlo, times.program)
    if ran is not None:
        _name_file(ran, path)
    return RecordedProgram(recording, times, others, ran, hlo)


def _name_file(module: Module, path: str) -> None:
    """Give ops the name of the file that MLIR has read as a text without a name."""
    from graphgen.ir.loc import loc

    for op in [op for function in module.functions.values() for op in function.block]:
        if op.loc.file == "-":
            op.loc = loc(path, op.loc.line, op.loc.scope, op.loc.via)


def _write_page(name: str, measured: MeasuredProgram, as_json: bool) -> None:
    """Write the page of the module that ran, with its times (GG0705 without a module)."""
    from graphgen.cli.explore_cmd import counted_sizes
    from graphgen.cli.inspect_files import overviews
    from graphgen.lowering.explorer import add_module
    from graphgen.lowering.profiles.measured_program import times_of_ops
    from graphgen.report import explore_page
    from graphgen.report.explore_data import ExploreData

    module = measured.found.module
    if module is None:
        what = "--html needs the module that ran"
        raise GraphgenError("GG0705", what, help="name it: --module FILE")
    data = ExploreData()
    items = overviews(module, programs_or_functions(module), 5)
    title = measured.found.times.program or module.name
    sizes = counted_sizes(module, {})
    add_module(data, module, items, title, None, sizes, times_of_ops(module, measured))
    text = explore_page(f"@{title}", data.head(), data.blocks)
    write_text(name, text)
    if not as_json and name != STANDARD:
        note(f"wrote {name}: {size(len(text.encode()))}")
