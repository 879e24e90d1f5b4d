"""Arguments and options that several commands share, as annotated types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.files import STANDARD, check_output

if TYPE_CHECKING:
    from graphgen.passes.core import Pass

ModuleFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A module: .gg, StableHLO, HLO; - is stdin.")
]
AcceleratorName = Annotated[
    str, typer.Option("--target", metavar="TARGET", help="inf2, trn1, trn2 or trn3.")
]
TargetName = Annotated[
    str, typer.Option("--target", metavar="TARGET", help="cpu, inf2, trn1, trn2 or trn3.")
]
Lnc = Annotated[
    int, typer.Option("--lnc", min=0, help="Cores to a logical core; 0 for the default.")
]
CompilerFlags = Annotated[
    str, typer.Option("--flags", metavar="TEXT", help="Flags given to the compiler.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WrittenAsJson = Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")]
OutputFile = Annotated[
    str, typer.Option("-o", "--output", metavar="OUT.gg", help="Where to write; - is stdout.")
]
OnlyProgram = Annotated[
    str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
]
PipelineOption = Annotated[
    str, typer.Option("-p", "--pipeline", metavar="PIPELINE", help="Passes; 'default' too.")
]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of random weights and inputs.")]
Most = Annotated[int, typer.Option("--most", min=1, help="How many entries to show.")]


def check_outputs(output: str, as_json: bool, needs: str = "-o OUT.gg") -> None:
    """Refuse an output before any work is done: unwritable (GG0704), or two things on stdout.

    Args:
        output: a file, or ``-`` for standard output.
        as_json: whether JSON goes to standard output.
        needs: the option to give instead.
    """
    if as_json and output == STANDARD:
        raise typer.BadParameter(
            f"needs {needs}: standard output is the module", param_hint="'--json'"
        )
    check_output(output)


def load_plugins(files: Sequence[str] | None) -> None:
    """Register the passes of graphgen, of installed packages, and of these files."""
    from graphgen.passes.core.registry import all_passes, load_file

    all_passes()
    for file in files or ():
        load_file(file)


def load_pipeline(
    text: str, plugins: Sequence[str] | None = None, *, small: bool = False
) -> list[Pass]:
    """The passes of a pipeline given as text.

    Args:
        text: as after ``-p``.
        plugins: files with further passes.
        small: ``default`` gets buckets that NumPy evaluates in seconds.
    """
    load_plugins(plugins)
    from graphgen.compile_config import CompileConfig
    from graphgen.passes.pipelines import parse

    sizes = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
    return parse(text, sizes) if small else parse(text)
