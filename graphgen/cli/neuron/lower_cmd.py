"""``graphgen lower``: a module's programs as StableHLO text or HLO protobufs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.console import note, write_json
from graphgen.cli.files import STANDARD, check_output, make_folder, write_bytes
from graphgen.cli.module_file import choose_program, read_module
from graphgen.cli.shared_options import ModuleFile, OnlyProgram, TargetName, load_pipeline
from graphgen.errors import GraphgenError
from graphgen.exec.bind import isolate
from graphgen.ir import Function, Module
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.passes.core import Pass

# Forms of a program, and the endings of their files.
Form = Literal["stablehlo", "hlo", "hlo-text"]
SUFFIX: dict[Form, str] = {"stablehlo": ".mlir", "hlo": ".pb", "hlo-text": ".hlo"}


def lower(
    file: ModuleFile,
    to: Annotated[Form, typer.Option("--to", help="What to write.")] = "stablehlo",
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="A file, or a folder for several programs; - is stdout.",
        ),
    ] = STANDARD,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--pipeline",
            metavar="PIPELINE",
            help="Passes to run first, instead of what is left of the default pipeline.",
        ),
    ] = None,
    target: TargetName = "cpu",
    program: OnlyProgram = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON; needs -o.")
    ] = False,
) -> None:
    """Turn a module's programs into StableHLO text, HLO protobufs or HLO text.

    The protobuf is an HloModuleProto as neuronx-cc takes it; the text is for people. A module that
    is not at level 'target' first goes through what is left of the default pipeline; stderr says
    which passes. For an accelerator those write in another form what its compiler refuses; so they
    do with a module that was read from HLO or StableHLO. Symbols without a size get specialize's
    sizes. With several programs, -o names a folder, which gets one file a program.

    \b
    Examples:
      graphgen lower m.gg --to stablehlo --program prefill -o prefill.mlir
      graphgen lower dump.pb --target trn2 --to hlo -o legal.pb
      graphgen lower m.gg -p 'specialize{batch=[1],context=[64],tokens=[64]},legalize' -o programs/
    """
    if as_json and output == STANDARD:
        raise typer.BadParameter("needs -o: standard output is the program", param_hint="'--json'")
    module = read_module(file)
    function = choose_program(module, program) if program else None
    if function is not None:
        module = isolate(module, function)
    _prepare(module, pipeline, target)
    # Specialization makes one program per bucket; other functions keep their names.
    chosen = module.programs()
    if function is not None and not function.phase:
        chosen = [module.function(function.name)]
    _write(module, chosen, to, output, as_json=as_json)


def _prepare(module: Module, pipeline: str | None, target: str) -> None:
    """Bring the module to level target, in place."""
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.remaining import foreign, remaining
    from graphgen.targets import find_target

    find_target(target)
    if pipeline is not None:
        run_pipeline(module, load_pipeline(pipeline))
        return
    passes = remaining(module, target) or foreign(module, target)
    if passes:
        note(f"running {','.join(map(str, passes))}")
        _tell_sizes(passes)
        run_pipeline(module, passes)


def _tell_sizes(passes: list[Pass]) -> None:
    """Print a note on the default sizes of symbols, if there are symbols."""
    from graphgen.passes.specialize.specialize import Specialize

    for item in passes:
        if isinstance(item, Specialize):
            sizes = f"batch={[*item.batch]} context={[*item.context]} tokens={[*item.tokens]}"
            note(f"sizes by default: {sizes}; -p 'specialize{{...}},legalize' sets others")


def _write(module: Module, chosen: list[Function], to: Form, output: str, *, as_json: bool) -> None:
    from graphgen.lowering.program_file import program_bytes

    targets = _targets([function.name for function in chosen], output, SUFFIX[to])
    for function, target in zip(chosen, targets, strict=True):
        write_bytes(target, program_bytes(module, function, SUFFIX[to]))
    if as_json:
        facts: list[Json] = [
            {"program": function.name, "file": target, "ops": function.block.size}
            for function, target in zip(chosen, targets, strict=True)
        ]
        write_json({"module": module.name, "ranks": module.ranks, "programs": facts})
    elif output != STANDARD:
        note(f"wrote {', '.join(targets)}")


def _targets(names: list[str], output: str, suffix: str) -> list[str]:
    """The file of each program."""
    if not names:
        raise GraphgenError("GG0705", "the module has no program to lower")
    folder = output.endswith("/") or Path(output).is_dir()
    if output == STANDARD or (len(names) == 1 and not folder):
        if len(names) > 1:
            raise GraphgenError(
                "GG0705",
                f"standard output holds one program, the module has {', '.join(names)}",
                help=f"choose one, --program {names[0]}, or name a folder: -o FOLDER",
            )
        check_output(output)
        return [output]
    home = make_folder(output)
    return [str(home / f"{name}{suffix}") for name in names]
