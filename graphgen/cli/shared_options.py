"""Arguments and options that several commands share, as annotated types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD, check_output

if TYPE_CHECKING:
    from graphgen.cli.plugin_passes import LoadedPlugin
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
    int, typer.Option("--lnc", min=0, help="Physical cores per logical core; 0 for the default.")
]
CompilerFlags = Annotated[
    str, typer.Option("--flags", metavar="TEXT", help="Flags given to the compiler.")
]
EvidenceFile = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        metavar="FILE",
        envvar="GRAPHGEN_EVIDENCE",
        help="From devices, as 'device-kit read -o' keeps it.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WrittenAsJson = Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")]
OutputFile = Annotated[
    str, typer.Option("-o", "--output", metavar="OUT.gg", help="File to write; - is stdout.")
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
FirstLayers = Annotated[
    int | None,
    typer.Option("--layers", metavar="N", min=1, help="Only the first N layers, at full width."),
]
ScriptOption = Annotated[
    Literal["short", "adversarial", "auto"],
    typer.Option("--script", help="Calls of a language model; auto: by what passes touch."),
]
PlotFile = Annotated[
    str | None,
    typer.Option("--plot", metavar="OUT.svg|OUT.png", help="Draw it; needs matplotlib."),
]
Most = Annotated[int, typer.Option("--most", min=1, help="Number of entries to show.")]


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


def check_plot(name: str | None) -> None:
    """Refuse a picture that cannot be drawn or written before any work is done (GG0704, GG0705)."""
    if name is not None:
        from graphgen.report.figure import check_picture

        check_picture(name)
        check_output(name)


def load_plugins(files: Sequence[str] | None) -> list[LoadedPlugin]:
    """Register the passes of graphgen, of installed packages, and of these files.

    Returns:
        What each file registers, for :func:`~graphgen.cli.plugin_passes.check_plugins_named`.

    Raises:
        GraphgenError: GG0705 for a file that is not there, fails, or registers nothing.
    """
    from graphgen.cli.plugin_passes import load_plugin
    from graphgen.passes.core.registry import all_passes

    all_passes()
    return [load_plugin(file) for file in files or ()]


def load_pipeline(
    text: str,
    plugins: Sequence[str] | None = None,
    *,
    small: bool = False,
    dims: tuple[str, ...] = (),
) -> list[Pass]:
    """The passes of a pipeline given as text.

    Args:
        text: as after ``-p``.
        plugins: files with further passes.
        small: ``default`` stands for ``small``, with sizes that NumPy evaluates in seconds; a note
            on standard error says so where the text leaves the sizes open.
        dims: of ``small``: sizes of symbols that the text does not give, ``("N=8",)``.

    Raises:
        GraphgenError: GG0301 and GG0302 for a pipeline that cannot be read; GG0705 for a plugin
            with passes of which the pipeline names none.
    """
    loaded = load_plugins(plugins)
    from graphgen.cli.plugin_passes import check_plugins_named
    from graphgen.passes.pipelines import SMALL, parse

    passes = parse(text, replace(SMALL, dims=dims)) if small else parse(text)
    check_plugins_named(loaded, text, passes)
    if not small:
        return passes
    if not dims and [str(item) for item in passes] != [str(item) for item in parse(text)]:
        note("'default' is 'small' here: batch=[3], context=[8], tokens=[8,16] unless given")
    return passes
