"""Arguments and options that several commands share, as annotated types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.analysis import free_symbols
from graphgen.cli.console import note
from graphgen.cli.files import STANDARD, check_output
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, Function, Module, dtype
from graphgen.numbers import whole_number

if TYPE_CHECKING:
    from graphgen.lowering.plugin_file import LoadedPlugin
    from graphgen.passes.core import Pass


Dims = Annotated[
    str,
    typer.Option(
        "--dims", metavar="B=1,S=8", help="Sizes of the program's symbols, whatever their names."
    ),
]

Narrow = Annotated[
    str,
    typer.Option(
        "--narrow", metavar="TYPES", help="Types that numbers are to be kept in: s8,f8e4m3fn,..."
    ),
]


def narrow_types(text: str) -> list[DType]:
    """Read ``s8,f8e4m3fn``, the types of a proof that numbers are to be kept in (GG0101)."""
    return [dtype(name) for name in text.replace(" ", "").split(",") if name]


# Default sizes of programs that are run: small enough for NumPy.
DEFAULT_TOKENS, DEFAULT_SLOTS = 8, 16


def parse_sizes(text: str) -> dict[str, int]:
    """Read ``B=1,S=8`` (GG0705)."""
    sizes: dict[str, int] = {}
    for item in filter(None, text.replace(" ", "").split(",")):
        name, _, size = item.partition("=")
        try:
            number = whole_number(size, least=1)
        except ValueError:
            number = 0
        if not number or not re.fullmatch(r"[A-Za-z]\w*", name):
            what = f"--dims: '{item[:60]}' is not a symbol and a size"
            raise GraphgenError("GG0705", what, help="write e.g. B=1,S=8")
        if name in sizes:
            raise GraphgenError("GG0705", f"--dims: {name} is given twice")
        sizes[name] = number
    return sizes


def default_sizes(given: Mapping[str, int]) -> dict[str, int]:
    """Consistent sizes for the other symbols: as many cache rows as rows, room for the tokens."""
    rows = given.get("B", 1)
    tokens = given.get("S", min(DEFAULT_TOKENS, given.get("C", DEFAULT_TOKENS)))
    attended = given.get("C", given.get("M", max(tokens, DEFAULT_SLOTS)))
    return {"B": rows, "S": tokens, "R": rows, "C": attended, "M": attended, **given}


def check_sizes(module: Module, function: Function, sizes: Mapping[str, int]) -> None:
    """Refuse sizes of unknown symbols, or that contradict the program (GG0705)."""
    known = free_symbols(module.functions.values())
    fixed = dict(function.dims)
    for name, size in sizes.items():
        if name in fixed:
            if fixed[name] != size:
                raise GraphgenError(
                    "GG0705",
                    f"--dims: {name} = {size}, but @{function.name} has {name} = {fixed[name]}",
                )
        elif name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise GraphgenError(
                "GG0705", f"--dims: @{function.name} has no symbol '{name}'", help=f"it has {has}"
            )


def pipeline_sizes(module: Module, text: str) -> tuple[str, ...]:
    """``--dims`` as the option ``dims`` of pipelines; every name is a symbol (GG0705)."""
    sizes = parse_sizes(text)
    free = free_symbols(module.functions.values())
    for name in sizes.keys() - free:
        has = ", ".join(sorted(free)) or "none"
        raise GraphgenError(
            "GG0705", f"--dims: @{module.name} has no symbol '{name}'", help=f"it has {has}"
        )
    return tuple(f"{name}={size}" for name, size in sizes.items())


def check_slots(sizes: Mapping[str, Dim]) -> None:
    """Refuse C > M: C slots of M are read (GG0705)."""
    attended, slots = sizes.get("C"), sizes.get("M")
    if isinstance(attended, int) and isinstance(slots, int) and attended > slots:
        raise GraphgenError(
            "GG0705", f"--dims: C = {attended} slots are read, but the cache has M = {slots}"
        )


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
    typer.Option("--script", help="Calls of a language model; auto is adversarial."),
]
PlotFile = Annotated[
    str | None,
    typer.Option("--plot", metavar="OUT.svg|OUT.png", help="Draw it; needs matplotlib."),
]
GivenRates = Annotated[
    str | None,
    typer.Option(
        "--rates",
        metavar="FLOPS,BYTES",
        help="Bounds at operations and bytes a second, as 150e9,25e9; here measures this machine.",
    ),
]
ProfileFile = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="RECORDING", help="Measured times of it: what graphgen profile reads."
    ),
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
    """Register the passes of these files, after those of graphgen and of installed packages.

    Without files these are registered when a pipeline names one that is not known.

    Returns:
        The registrations of each file, for
        :func:`~graphgen.lowering.plugin_file.check_plugins_named`.

    Raises:
        GraphgenError: GG0705 for a file that is not there, fails, or registers nothing.
    """
    if not files:
        return []
    from graphgen.lowering.plugin_file import load_plugin
    from graphgen.passes.core.registry import all_passes

    all_passes()
    return [load_plugin(file) for file in files]


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
    from graphgen.lowering.plugin_file import check_plugins_named
    from graphgen.passes.pipelines import SMALL, parse

    passes = parse(text, replace(SMALL, dims=dims)) if small else parse(text)
    check_plugins_named(loaded, text, passes)
    if not small:
        return passes
    if not dims and [str(item) for item in passes] != [str(item) for item in parse(text)]:
        note("'default' is 'small' here: batch=[3], context=[8], tokens=[8,16] unless given")
    return passes
