"""Pictures of ``graphgen perplexity --plot``: schemes by size, and parts by cost."""

# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphgen.report.figure import COLORS, picture
from graphgen.runtime.quantization.comparison import SchemeScore
from graphgen.runtime.quantization.sensitivity import PartCost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More bars than this cannot be read.
_MOST_PARTS = 40


def comparison_picture(name: str, title: str, scores: Sequence[SchemeScore]) -> bytes:
    """The bytes of an SVG or a PNG: perplexity and divergence against the bytes of weights.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        title: of the picture.
        scores: a point each.
    """

    def draw(figure: Figure) -> None:
        figure.suptitle(title, fontsize=12)
        panels = figure.subplots(1, 2).ravel().tolist()
        sizes = [score.weight_bytes / 1e6 for score in scores]
        for axes, label, values in (
            (panels[0], "perplexity", [score.perplexity for score in scores]),
            (panels[1], "KL to f32, nats a token", [score.divergence for score in scores]),
        ):
            axes.scatter(sizes, values, color=COLORS["weights"])
            for score, x, y in zip(scores, sizes, values, strict=True):
                axes.annotate(score.name, (x, y), (4, 4), textcoords="offset points", fontsize=8)
            axes.set_xlabel("weights, MB")
            axes.set_ylabel(label)
            axes.set_xlim(left=0)

    return picture(name, (10.0, 4.5), draw)


def sensitivity_picture(name: str, title: str, costs: Sequence[PartCost]) -> bytes:
    """The bytes of an SVG or a PNG: a bar for each of the parts that cost most.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        title: of the picture.
        costs: largest first.
    """
    shown = list(reversed(costs[:_MOST_PARTS]))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.barh([cost.name for cost in shown], [cost.divergence for cost in shown])
        axes.set_title(title)
        axes.set_xlabel("KL to f32, nats a token, with this part alone quantized")
        axes.tick_params(axis="y", labelsize=7)

    return picture(name, (9.0, 1.5 + 0.18 * len(shown)), draw)
