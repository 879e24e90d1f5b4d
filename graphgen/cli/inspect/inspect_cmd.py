"""``graphgen inspect``: what is in a module, a checkpoint, a cache, an artifact; one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, note, write_json, write_stdout
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.module_file import read_module
from graphgen.cli.units import size
from graphgen.errors import GraphgenError
from graphgen.ir import Module

if TYPE_CHECKING:
    from graphgen.analysis.overview import Overview

# A protobuf of more bytes than this is walked through, and no graph is built of it.
LARGE = 256 << 20


File = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A module (.gg, StableHLO, HLO), a NEFF, a checkpoint, a compiler cache, a work "
        "folder, an artifact; - is stdin.",
    ),
]
Program = Annotated[
    str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", metavar="N", help="Only this output, by position or name."),
]
Largest = Annotated[
    int, typer.Option("--largest", min=0, help="How many of the largest tensors to show.")
]
Summary = Annotated[
    bool,
    typer.Option("--summary", help="Walk through an HLO protobuf without building its graph."),
]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write one page with everything in it."),
]
ModelExplorer = Annotated[
    str | None,
    typer.Option(
        "--model-explorer", metavar="FILE", help="Write the graph for Google's Model Explorer."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def inspect(
    file: File,
    program: Program = None,
    output: Output = None,
    largest: Largest = 5,
    summary: Summary = False,
    html: Html = None,
    model_explorer: ModelExplorer = None,
    as_json: AsJson = False,
) -> None:
    """Say what a module takes, keeps, computes and exchanges; bytes are of one rank.

    The summary reads a protobuf of any size, also one with types that have no form here; above
    256 MiB it is what you get.

    \b
    Examples:
      graphgen inspect decode.pb
      graphgen inspect decode.pb --output 3
      graphgen inspect mini.gg --program decode --largest 3
      graphgen inspect step.mlir --json
      graphgen inspect huge.pb --summary
      graphgen inspect decode.pb --html decode.html --model-explorer decode.json
      graphgen inspect /var/tmp/neuron-compile-cache
      graphgen inspect model.safetensors
      graphgen inspect checkpoint/
    """
    from graphgen.cli.inspect.inspect_files import inspected_otherwise, summarized

    path = Path(file)
    if html is not None or model_explorer is not None:
        return _draw(file, program, largest, html, model_explorer, as_json=as_json)
    asked = summary or (path.is_file() and path.stat().st_size > LARGE and _is_proto(path))
    if file != STANDARD and asked:
        return summarized(path, as_json=as_json)
    if file != STANDARD and inspected_otherwise(path, largest, as_json=as_json):
        return None
    try:
        module = read_module(file)
    except GraphgenError as error:
        if error.code not in ("GG0101", "GG0103") or not (path.is_file() and _is_proto(path)):
            raise
        note(f"{error.what}: no graph can be built of this file, so it is only summarized")
        return summarized(path, as_json=as_json)
    return _show(module, program, output, largest, as_json=as_json)


def _is_proto(path: Path) -> bool:
    from graphgen.lowering.hlo import looks_like_proto
    from graphgen.lowering.open import HEAD

    with path.open("rb") as opened:
        return looks_like_proto(opened.read(HEAD))


def _looked(module: Module, program: str | None, largest: int) -> list[Overview]:
    from graphgen.analysis.overview import overview

    functions = module.programs() or list(module.functions.values())
    if program is not None:
        functions = [module.function(program.removeprefix("@"))]
    return [overview(module, function, largest) for function in functions]


def _draw(
    file: str,
    program: str | None,
    largest: int,
    html: str | None,
    model_explorer: str | None,
    *,
    as_json: bool,
) -> None:
    """Write the pages asked for."""
    from graphgen.cli.inspect.inspect_program import module_json, program_json
    from graphgen.report import dump_page
    from graphgen.report.dump_data import Places, program_data
    from graphgen.report.model_explorer import model_explorer as collection

    wanted = {name: kind for name, kind in ((html, "html"), (model_explorer, "graph")) if name}
    for name in wanted:
        check_output(name)
    module = read_module(file)
    looked = _looked(module, program, largest)
    written: list[Json] = []
    for name, kind in wanted.items():
        if kind == "html":
            places = Places()
            programs = [program_data(item, program_json(item), places) for item in looked]
            facts = {"module": module_json(module), "programs": programs, "locs": places.rows}
            text = dump_page(f"@{module.name}", facts)
        else:
            text = json.dumps(collection(module.name, looked), ensure_ascii=False)
        write_text(name, text)
        written.append({"file": name, "bytes": len(text.encode())})
        if not as_json and name != STANDARD:
            note(
                f"wrote {name}: {sum(i.function.block.size for i in looked)} ops, {size(len(text))}"
            )
    if as_json:
        write_json(written)


def _show(
    module: Module, program: str | None, output: str | None, largest: int, *, as_json: bool
) -> None:
    from graphgen.cli.inspect import inspect_program as shown

    looked = _looked(module, program, largest)
    if output is not None:
        found = [(item, shown.find_output(item, output)) for item in looked]
        if as_json:
            write_json([shown.output_json(item, one) for item, one in found])
        else:
            write_stdout("\n".join(shown.output_text(item, one) for item, one in found))
    elif as_json:
        programs = [shown.program_json(item) for item in looked]
        write_json({**shown.module_json(module), "programs": programs})
    else:
        texts = map(shown.program_text, looked)
        write_stdout("\n".join([shown.module_text(module), *texts]))
