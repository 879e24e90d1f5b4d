"""``graphgen inspect``: what is in a module, a checkpoint, a cache, an artifact; one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphgen.cli.console import note, write_json, write_stdout
from graphgen.cli.files import STANDARD
from graphgen.errors import GraphgenError
from graphgen.ir import Module

# A protobuf of more bytes than this is walked through, and no graph is built of it.
LARGE = 256 << 20


def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A module (.gg, StableHLO, HLO), a NEFF, a checkpoint, a compiler cache, a work "
            "folder, an artifact; - is stdin.",
        ),
    ],
    program: Annotated[
        str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="N", help="Only this output, by position or name."),
    ] = None,
    largest: Annotated[
        int, typer.Option("--largest", min=0, help="How many of the largest tensors to show.")
    ] = 5,
    summary: Annotated[
        bool,
        typer.Option("--summary", help="Walk through an HLO protobuf without building its graph."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
      graphgen inspect /var/tmp/neuron-compile-cache
      graphgen inspect model.safetensors
    """
    from graphgen.cli.inspect_files import inspected_otherwise, summarized
    from graphgen.cli.module_file import read_module

    path = Path(file)
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
    from lowering.hlo import looks_like_proto
    from lowering.open import HEAD

    with path.open("rb") as opened:
        return looks_like_proto(opened.read(HEAD))


def _show(
    module: Module, program: str | None, output: str | None, largest: int, *, as_json: bool
) -> None:
    from graphgen.analysis.overview import overview
    from graphgen.cli import inspect_program as shown

    functions = module.programs() or list(module.functions.values())
    if program is not None:
        functions = [module.function(program.removeprefix("@"))]
    looked = [overview(module, function, largest) for function in functions]
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
