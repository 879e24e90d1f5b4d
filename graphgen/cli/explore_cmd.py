"""``graphgen explore``: a module, or two side by side, as one page with a graph that unfolds."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.inspect_files import overviews
from graphgen.cli.module_file import programs_or_functions, read_module
from graphgen.cli.shared_options import (
    AsJson,
    Dims,
    GivenRates,
    ModuleFile,
    Narrow,
    OnlyProgram,
    ProfileFile,
    narrow_types,
    parse_sizes,
)
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Module, Value
from graphgen.json_value import Json
from graphgen.read_file import is_file
from graphgen.report.units import size

if TYPE_CHECKING:
    from graphgen.passes.proof.value_verdicts import ValueVerdict
    from graphgen.report.explore_data import OpTimes

COMMAND: Final = Command("inspect", "Write the graph of a module as a page that unfolds.", order=2)

SecondFile = Annotated[
    str | None, typer.Argument(metavar="[FILE2]", help="Another module, drawn beside the first.")
]
PageFile = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="PAGE", help="The page; FILE.html by default, - is stdout."
    ),
]
OpenIt = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Largest = Annotated[
    int, typer.Option("--largest", min=0, help="Number of largest tensors to list.")
]
ProveIt = Annotated[
    bool, typer.Option("--prove", help="Prove the second module from the first, value by value.")
]


def explore(
    file: ModuleFile,
    second: SecondFile = None,
    output: PageFile = None,
    program: OnlyProgram = None,
    largest: Largest = 5,
    dims: Dims = "",
    profile: ProfileFile = None,
    rates: GivenRates = None,
    prove: ProveIt = False,
    narrow: Narrow = "",
    open_it: OpenIt = False,
    as_json: AsJson = False,
) -> None:
    """Write a page with the whole graph of a module: scopes, loops, fusions and calls unfold.

    The page is one file that needs no server and fetches nothing. It colours ops by kind, flops,
    bytes, measured time, memory or sharding, searches, follows values to where they come from and
    who reads them, and has the memory over time with the buffers alive at any instant. Of two
    modules the same ops are selected and unfolded in step, and those that differ are marked. With
    --prove the second one is proved from the first: its ops are coloured by verdict, and the
    relation of each value is in words.

    \b
    Examples:
      graphgen explore step.hlo --open
      graphgen explore mini.gg -o mini.html
      graphgen explore before.hlo after.hlo -o compared.html
      graphgen explore a.gg b.gg --prove -o proved.html
      graphgen explore model.gg --dims B=4,S=512,C=1024
      graphgen explore step.hlo --profile vm.xplane.pb --rates 150e9,25e9
    """
    page = output or f"{Path(file if file != STANDARD else 'module').stem}.html"
    if page == STANDARD and open_it:
        raise GraphgenError("GG0705", "--open: the page is written to stdout", help="name it: -o")
    check_output(page)
    files = [file] if second is None else [file, second]
    if profile is None and rates is not None:
        raise GraphgenError("GG0705", "--rates has no effect without --profile")
    if second is None and prove:
        what = "--prove compares two modules, and one is given"
        raise GraphgenError("GG0705", what, help="graphgen explore a.gg b.gg --prove")
    if narrow and not prove:
        raise GraphgenError("GG0705", "--narrow has no effect without --prove")
    types = narrow_types(narrow) if prove else None
    times = None if profile is None else (profile, rates)
    text, ops = explore_text(files, program, largest, parse_sizes(dims), times, types)
    write_text(page, text)
    counted = " and ".join(map(str, ops))
    emit(
        as_json,
        lambda: {"file": page, "bytes": len(text.encode()), "ops": [*ops]},
        list,
    )
    if not as_json and page != STANDARD:
        note(f"wrote {page}: {counted} ops, {size(len(text.encode()))}")
    if open_it and page != STANDARD:
        webbrowser.open(Path(page).resolve().as_uri())


def explore_text(
    files: Sequence[str],
    program: str | None,
    largest: int,
    sizes: Mapping[str, int],
    profile: tuple[str, str | None] | None = None,
    narrow: Sequence[DType] | None = None,
) -> tuple[str, list[int]]:
    """The page of one or two files, and the number of ops of each.

    Args:
        files: of the modules.
        program: the one program to draw; ``None`` for all.
        largest: number of largest tensors to list.
        sizes: of symbols.
        profile: a recording of the first module, and the rates of its bounds.
        narrow: types that numbers are to be kept in, for a proof of the second module; ``None``
            without a proof.
    """
    from graphgen.lowering.explorer import add_module, differences
    from graphgen.passes.proof.refinement import prove_refinement
    from graphgen.report import explore_page
    from graphgen.report.explore_data import ExploreData

    data = ExploreData()
    modules = [read_module(file) for file in files]
    verdicts: dict[Value, ValueVerdict] = {}
    if narrow is not None:
        prove_refinement(modules[0], modules[1], narrow, verdicts)
    for file, module in zip(files, modules, strict=True):
        items = overviews(module, programs_or_functions(module, program), largest)
        buffers = xla_buffers(file, module, program)
        times = None
        if profile is not None and module is modules[0]:
            times = recorded_times(file, module, *profile)
        bound = counted_sizes(module, sizes)
        proved = None if narrow is None or module is modules[0] else verdicts
        add_module(data, module, items, Path(file).name, buffers, bound, times, proved)
    if len(modules) == 2:
        found = differences(modules[0], modules[1], program)
        if not found:
            note("no names of programs go together: they stand side by side without pairs")
        data.compare(found)
    title = " and ".join(f"@{module.name}" for module in modules)
    counts = [int(str(module["ops"])) for module in data.modules if isinstance(module, dict)]
    return explore_page(title, data.head(), data.blocks), counts


def recorded_times(file: str, module: Module, recording: str, rates: str | None) -> OpTimes:
    """The times of a module's ops in a recording (GG0705 where it has none of them)."""
    from graphgen.cli.recorded_program import hlo_of, measured_module, stated_rates
    from graphgen.lowering.profiles.measured_program import MeasuredProgram, times_of_ops

    found = measured_module(Path(recording), module, hlo_of(file))
    given = stated_rates(None, 0, rates) or found.recording.rates
    return times_of_ops(module, MeasuredProgram.of(found, given))


def counted_sizes(module: Module, given: Mapping[str, int]) -> dict[str, int]:
    """The sizes of all symbols of a module; a note says which are not the user's."""
    from graphgen.lowering.explorer import default_sizes

    sizes = default_sizes(module, given)
    if sizes.keys() - given.keys():
        shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
        note(f"work is counted for {shown}; graphgen explore --dims sets other sizes")
    return sizes


# The assignment of buffers takes a sixth of a millisecond for each.
_MOST_SCHEDULED = 50_000


def xla_buffers(file: str, module: Module, program: str | None) -> Json:
    """The memory of a module of XLA that states its schedule; ``None`` for another file."""
    from graphgen.lowering.xla_dump.dump_folder import dumped_memory, is_scheduled

    path = Path(file)
    if program is not None or file == STANDARD or not is_file(path) or not is_scheduled(path):
        return None
    if module.op_count() > _MOST_SCHEDULED:
        note(f"memory over time op by op: XLA's schedule has over {_MOST_SCHEDULED} instructions")
        return None
    try:
        found = dumped_memory(path)
    except GraphgenError as error:
        note(f"no memory by XLA's schedule: {error.what}")
        return None
    if not found.scheduled:
        return None
    return {
        "total": found.total,
        "stated": found.stated,
        "live": [*found.live],
        "instructions": [*found.instructions],
        "buffers": [
            [
                *(item.name, item.shape, item.nbytes, item.padding, item.kind, item.layer),
                [time for pair in item.times for time in pair],
            ]
            for item in found.buffers
        ],
    }
