"""The times of all engines as bars, written as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison.measured import PHASES, Measured
from graphgen.atomic_write import write_whole

TITLES = {"prefill": "first token", "decode": "a decode step (one token for each row)"}


def write_pictures(
    cases: Sequence[Measured], engines: Sequence[str], title: str, path: Path
) -> list[Path]:
    """Write ``path`` with the suffixes ``.png`` and ``.svg``; milliseconds on a logarithmic axis.

    Args:
        cases: measured.
        engines: in the order of the bars.
        title: of the picture, such as the date and the machine.
        path: without a suffix.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # SVG files of the same numbers are the same bytes.
    with mpl.rc_context({"svg.hashsalt": "graphgen", "font.size": 9}):
        width = max(7.0, 1.1 * len(cases))
        figure: Any = Figure(figsize=(width, 6.5), layout="constrained")
        figure.suptitle(title, fontsize=10)
        for axes, phase in zip(figure.subplots(len(PHASES), 1), PHASES, strict=True):
            _bars(axes, cases, engines, phase)
        handles, labels = figure.axes[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return [_write(figure, path.with_suffix(suffix)) for suffix in (".png", ".svg")]


def _bars(axes: Any, cases: Sequence[Measured], engines: Sequence[str], phase: str) -> None:
    wide = 0.8 / len(engines)
    for index, engine in enumerate(engines):
        drawn = [
            (at, 1e3 * measured.seconds[engine][phase])
            for at, measured in enumerate(cases)
            if engine in measured.seconds
        ]
        left = -0.4 + (index + 0.5) * wide
        axes.bar([at + left for at, _ in drawn], [y for _, y in drawn], wide, label=engine)
    if phase == "decode":
        for at, measured in enumerate(cases):
            label = "read of the weights" if at == 0 else None
            floor = 1e3 * measured.floor_s
            axes.plot([at - 0.45, at + 0.45], [floor, floor], "k--", linewidth=1, label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), [measured.case.name for measured in cases])
    axes.set_ylabel("ms")
    axes.set_title(TITLES[phase], fontsize=9)
    axes.grid(axis="y", which="both", alpha=0.3)
    axes.set_axisbelow(True)


def _write(figure: Any, path: Path) -> Path:
    buffer = io.BytesIO()
    kind = path.suffix[1:]
    # The time of writing says nothing about the numbers.
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(buffer, format=kind, dpi=110, metadata=metadata)
    content = buffer.getvalue()
    if kind == "svg":
        content = b"\n".join(line.rstrip() for line in content.split(b"\n"))
    write_whole(path, content, parents=True)
    return path
