"""Write the page of a run of passes, for ``trace`` and for ``--trace`` of other commands."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD, write_text

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.passes.core import Pass


def page_link(page: str, **place: str | int) -> str:
    """The address of a place in a page.

    Args:
        page: path of the file.
        place: ``op``, ``layer``, ``program`` or ``search`` of a page of ``inspect --html``;
            ``pass`` (as ``pass_``), ``rewrite``, ``op`` or ``view`` of one of ``trace``.
    """
    parts = [f"{key.rstrip('_')}={_escaped(str(value))}" for key, value in place.items()]
    return f"{page}#{'&'.join(parts)}"


def op_name(text: str) -> str:
    """The name of the first result in the text of an op, without the ``%``."""
    return text.strip().lstrip("%").partition(" ")[0].rstrip(",")


def _escaped(text: str) -> str:
    """Names stay readable: only what would end a parameter, or the word, is escaped."""
    return re.sub(r"[%&#+\s'\"`$\\<>(){}|;*?!]", lambda found: quote(found[0]), text)


TraceFile = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE.html",
        help="Also write the page of the passes, and print the addresses of places in it.",
    ),
]


def write_trace_page(
    output: str,
    name: str,
    module: Module,
    passes: Sequence[Pass],
    guilty: Mapping[str, Collection[int]] | None = None,
) -> None:
    """Run passes and write everything they did as one page.

    Args:
        output: path of the HTML file, ``-`` for standard output.
        name: of the module's file, for the title.
        module: changed in place.
        passes: the pipeline.
        guilty: numbers of the rewrites at fault, by the label of their pass; they are marked.

    Raises:
        GraphgenError: GG0704 if the file cannot be written.
    """
    from graphgen.lowering.stablehlo import stablehlo_places
    from graphgen.passes.inspect.recording import record
    from graphgen.passes.inspect.report import report
    from graphgen.report import trace_page

    recording = record(module, passes)
    data = report(recording, stablehlo_places(recording.module), guilty or {})
    text = trace_page(f"graphgen trace {Path(name).name}", data)
    write_text(output, text)
    if output != STANDARD:
        made = sum(stage.report.applications for stage in recording.stages)
        note(f"wrote {output}: {len(passes)} passes, {made} rewrites, {len(text) / 1e6:.1f} MB")
