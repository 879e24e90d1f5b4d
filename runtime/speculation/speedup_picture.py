"""The picture of ``graphgen speculate --plot``: speed and tokens a step, by k."""

# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphgen.report.figure import COLORS, picture
from graphgen.runtime.speculation.speedup import Speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def speedup_picture(name: str, title: str, rows: Sequence[Speedup]) -> bytes:
    """The bytes of an SVG or a PNG.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        title: of the picture.
        rows: a point each, by k.
    """

    def draw(figure: Figure) -> None:
        figure.suptitle(title, fontsize=12)
        lengths = [row.length for row in rows]
        panels = figure.subplots(1, 2).ravel().tolist()
        for axes, label, values in (
            (panels[0], "speed beside plain decoding", [row.ratio for row in rows]),
            (panels[1], "tokens a step", [row.tokens for row in rows]),
        ):
            axes.plot(lengths, values, marker="o", color=COLORS["weights"])
            axes.set_xlabel("k, tokens that a step verifies")
            axes.set_ylabel(label)
            axes.set_xticks(lengths)
            axes.set_ylim(bottom=0)
        panels[0].axhline(1.0, color="grey", linewidth=0.8)

    return picture(name, (9.0, 4.0), draw)
