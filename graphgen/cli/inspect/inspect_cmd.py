"""``graphgen inspect``: one screen about a module, a checkpoint, a cache or an artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import emit, note, write_json
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.module_file import programs_or_functions, read_module
from graphgen.cli.shared_options import AcceleratorName, AsJson, Lnc, OnlyProgram
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.report.units import size
from graphgen.targets import DEFAULT_ACCELERATOR

if TYPE_CHECKING:
    from graphgen.cli.inspect.inspect_files import Inspection

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
        return _draw(file, program, largest, html, model_explorer, as_json=as_json)
    if file != STANDARD and (profile := _profile(file, module, program, target, lnc, largest)):
        return emit(as_json, profile.facts, profile.report)
    found = _inspected(file, program, output, largest, summary=summary)
    return emit(as_json, found.facts, found.report)


def _profile(
    file: str, module: str | None, program: str | None, target: str, lnc: int, largest: int
) -> Inspection | None:
    """The times of a profile; ``None`` for another file (GG0705 for --module beside it)."""
    from graphgen.lowering.neuron.profile.device_profile import is_profile

    path = Path(file)
    if path.is_file():
        with path.open("rb") as opened:
            head = opened.read(16)
        if is_profile(path, head):
            from graphgen.cli.inspect.profile_report import profile_inspection

            return profile_inspection(path, module, program, target, lnc, largest)
    if module is not None:
        raise GraphgenError("GG0705", f"--module has no effect: {file} is not a profile")
    return None


def _inspected(
    file: str, program: str | None, output: str | None, largest: int, *, summary: bool
) -> Inspection:
    from graphgen.cli.inspect.inspect_files import inspect_file, inspect_summary
    from graphgen.cli.inspect.programs import programs_inspection

    path = Path(file)
    if file != STANDARD:
        large = path.is_file() and path.stat().st_size > LARGE
        if summary or (large and _is_proto(path)):
            return inspect_summary(path)
        found = inspect_file(path, largest)
        if found is not None:
            return found
    try:
        module = read_module(file)
    except GraphgenError as error:
        if error.code not in ("GG0101", "GG0103") or not (path.is_file() and _is_proto(path)):
            raise
        note(f"{error.what}: no graph can be built of this file, so it is only summarized")
        return inspect_summary(path)
    functions = programs_or_functions(module, program)
    if output is not None:
        return _output(module, functions, output)
    return programs_inspection(module, functions, largest)


def _is_proto(path: Path) -> bool:
    from graphgen.lowering.hlo import looks_like_proto
    from graphgen.lowering.open import HEAD

    with path.open("rb") as opened:
        return looks_like_proto(opened.read(HEAD))


def _output(module: Module, functions: list[Function], output: str) -> Inspection:
    """One output of each program."""
    from graphgen.cli.inspect.inspect_files import Inspection
    from graphgen.cli.inspect.programs import overviews
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
    html: str | None,
    model_explorer: str | None,
    *,
    as_json: bool,
) -> None:
    """Write one page, a graph for Model Explorer, or both."""
    from graphgen.cli.inspect.page_data import page_data
    from graphgen.cli.inspect.programs import overviews
    from graphgen.report import dump_page
    from graphgen.report.model_explorer import model_explorer as collection

    names = [name for name in (html, model_explorer) if name]
    for name in names:
        check_output(name)
    module = read_module(file)
    items = overviews(module, programs_or_functions(module, program), largest)
    texts: dict[str, str] = {}
    if html:
        data = page_data(module, items)
        texts[html] = dump_page(f"@{module.name}", data.head(), data.blocks)
    if model_explorer:
        texts[model_explorer] = json.dumps(collection(module.name, items), ensure_ascii=False)
    written: list[Json] = []
    for name, text in texts.items():
        write_text(name, text)
        written.append({"file": name, "bytes": len(text.encode())})
        if not as_json and name != STANDARD:
            ops = sum(item.function.block.size for item in items)
            note(f"wrote {name}: {ops} ops, {size(len(text))}")
    if as_json:
        write_json(written)
