"""The picture of ``graphgen plan --plot``: memory of one core by degree, by program and by item."""

# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from graphgen.lowering.plan.capacity_plan import CapacityPlan, Degree
from graphgen.lowering.plan.measure import CoreUse
from graphgen.report.figure import COLORS, picture
from graphgen.report.units import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GB = 1e9
# Items with a bar of their own; the others are one.
_ITEMS = 12


def plan_picture(name: str, model: str, made: CapacityPlan) -> bytes:
    """The bytes of an SVG or a PNG.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        model: as the user names it.
        made: the plan; without a chosen degree only the degrees are drawn.
    """
    chosen = made.chosen if made.chosen is not None and made.chosen.use is not None else None

    def draw(figure: Figure) -> None:
        demand = made.demand
        figure.suptitle(
            f"{model} in {demand.dtype}, batch {demand.cache_rows}, {demand.max_len} positions "
            f"on {made.target.name} ({made.target.core})",
            fontsize=12,
        )
        if chosen is None or chosen.use is None:
            _degrees(figure.subplots(), made)
            return
        above, below = figure.subfigures(2, 1, height_ratios=[1.0, 1.1])
        left, right = above.subplots(1, 2, width_ratios=[1.3, 1.0])
        _degrees(left, made)
        _programs(right, made, chosen, chosen.use)
        _items(below.subplots(), chosen.use)

    return picture(name, (14.0, 9.0 if chosen else 5.0), draw)


def _degrees(axes: Axes, made: CapacityPlan) -> None:
    """Draw a bar for each degree of tensor parallelism that the model can be split into."""
    ticks: list[str] = []
    for place, item in enumerate(made.degrees):
        bottom = 0.0
        for kind, count in _parts(made, item).items():
            axes.bar([place], [count / _GB], bottom=[bottom], color=COLORS[kind], width=0.7)
            bottom += count / _GB
        if not item.needs:
            axes.text(place, 0, "not split", rotation=90, ha="center", va="bottom", fontsize=8)
        ticks.append(f"{item.tp}\n{'yes' if item.serves else 'no'}")
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("ranks (tp), and whether the degree serves")
    axes.set_ylabel("GB on one core")
    axes.set_title("memory by degree")
    _capacity(axes, made, along="y")
    for kind, label in (
        *(("weights", "weights"), ("caches", "KV caches"), ("temporaries", "activations")),
        ("programs", "programs"),
    ):
        axes.bar([0], [0], color=COLORS[kind], label=label)
    axes.legend(frameon=False, fontsize=8)


def _parts(made: CapacityPlan, item: Degree) -> dict[str, int]:
    """Bytes of a core by kind, as the rules of the plan count them."""
    use = item.use
    if use is None or made.rules == "aws":
        return {"weights": item.needs}
    return {
        "weights": use.weights,
        "caches": use.kv,
        "temporaries": use.activations,
        "programs": made.target.code_bytes,
    }


def _programs(axes: Axes, made: CapacityPlan, chosen: Degree, use: CoreUse) -> None:
    """Draw a bar for each program, one of each bucket."""
    for place, program in enumerate(use.programs):
        left = 0.0
        for kind, count in (
            ("weights", program.weights),
            ("caches", program.kv),
            ("temporaries", program.activations),
        ):
            axes.barh([place], [count / _GB], left=[left], color=COLORS[kind], height=0.6)
            left += count / _GB
        total = program.weights + program.kv + program.activations
        axes.text(left, place, f" {size(total)}", va="center", fontsize=8)
    names = [program.name for program in use.programs]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("GB on one core")
    axes.set_title(f"memory by program (bucket), each of {chosen.tp} ranks")
    _capacity(axes, made, along="x")


def _items(axes: Axes, use: CoreUse) -> None:
    """Draw what takes most: tensors of all layers together."""
    items = sorted(use.items, key=lambda item: -item.bytes)
    shown, rest = items[:_ITEMS], items[_ITEMS:]
    labels = [f"{item.name} x{item.count}" for item in shown]
    for place, item in enumerate(shown):
        axes.barh([place], [item.bytes / _GB], color=COLORS[item.kind], height=0.7)
        axes.text(item.bytes / _GB, place, f" {size(item.bytes)}", va="center", fontsize=8)
    if rest:
        together = sum(item.bytes for item in rest)
        axes.barh([len(shown)], [together / _GB], color=COLORS["programs"], height=0.7)
        axes.text(together / _GB, len(shown), f" {size(together)}", va="center", fontsize=8)
        labels.append(f"{len(rest)} other items")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("GB on one core")
    axes.set_title("memory by item, all layers together; # is the number of the layer")


def _capacity(axes: Axes, made: CapacityPlan, along: str) -> None:
    where, label = made.target.hbm_bytes / _GB, f"a core has {size(made.target.hbm_bytes)}"
    if along == "y":
        axes.axhline(where, color=COLORS["limit"], lw=1.2, label=label)
    else:
        axes.axvline(where, color=COLORS["limit"], lw=1.2)
        axes.set_xlim(0, 1.15 * max(where, axes.get_xlim()[1]))
