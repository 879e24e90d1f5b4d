"""The picture of ``graphgen cost --plot``: roofline, time by op, and live memory of programs."""

# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import TYPE_CHECKING

from graphgen.ir import Function, Module
from graphgen.lowering.cost.roofline import MATRIX_OPS, OpGroup, Roofline, op_groups
from graphgen.report.figure import COLORS, picture
from graphgen.report.live_memory import draw_curve, draw_peak, draw_whole, program_memory
from graphgen.report.units import milliseconds
from graphgen.targets import Accelerator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Groups with a bar of their own; the others are one bar, and points without a number.
_BARS = 12
_WIDTH, _HEIGHT = 14.0, 10.0


def cost_picture(
    name: str, module: Module, lines: Sequence[Roofline], device: Accelerator
) -> bytes:
    """The bytes of an SVG or a PNG.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        module: the module.
        lines: the rooflines of its programs.
        device: the accelerator.
    """

    def draw(figure: Figure) -> None:
        figure.suptitle(
            f"@{module.name} on {device.name} ({device.core}, LNC {device.lnc}), "
            f"{module.ranks} ranks: bounds from published figures, one rank",
            fontsize=12,
        )
        rows = figure.subfigures(max(len(lines), 1), 1, squeeze=False)[:, 0]
        for part, line in zip(rows, lines, strict=False):
            _program(part, module, line, device)

    return picture(name, (_WIDTH, _HEIGHT * max(len(lines), 1)), draw)


def _program(part: SubFigure, module: Module, line: Roofline, device: Accelerator) -> None:
    function: Function = line.function
    title = f"@{function.name}: at least {milliseconds(line.seconds)}"
    part.suptitle(title, fontsize=11, weight="bold")
    groups = op_groups(module, function, device)
    memory = program_memory(module, function)
    top, bottom = part.subfigures(2, 1, height_ratios=[1.15, 1.0])
    left, right = top.subplots(1, 2, width_ratios=[1.0, 0.75])
    _roofline(left, groups, device)
    _bars(right, groups)
    below = bottom.subplot_mosaic(
        [["curve", "peak"], ["whole", "peak"]],
        width_ratios=[1.0, 0.9],
        height_ratios=[5.0, 0.8],
    )
    draw_curve(below["curve"], memory)
    draw_whole(below["whole"], memory, device.hbm_bytes)
    draw_peak(below["peak"], memory)


def _roofline(axes: Axes, groups: Sequence[OpGroup], device: Accelerator) -> None:
    """Draw attainable FLOP/s over FLOP for each byte, and the groups that compute."""
    shown = [group for group in groups if group.cost.flops and group.seconds]
    finite = [group.intensity for group in shown if group.cost.bytes]
    roofs = _roofs(shown, device)
    ridge = max(roofs.values()) / device.hbm_bandwidth
    low = min([0.1, *finite]) / 2
    high = max([10 * ridge, *finite]) * 2
    for label, rate in roofs.items():
        start = rate / device.hbm_bandwidth
        axes.plot([start, high], [rate, rate], color="black", lw=1.0)
        axes.text(high, rate * 1.12, label, ha="right", va="bottom", fontsize=8)
    bandwidth = device.hbm_bandwidth
    axes.plot([low, ridge], [low * bandwidth, ridge * bandwidth], color="black", lw=1.0)
    middle = low**0.8 * ridge**0.2
    text = f"  device memory, {bandwidth / 1e9:.0f} GB/s"
    axes.text(middle, middle * bandwidth * 0.8, text, fontsize=8, va="top")
    axes.set_xscale("log")
    axes.set_yscale("log")
    total = sum(group.seconds for group in groups) or 1.0
    points: list[tuple[float, float, int]] = []
    for index, group in enumerate(groups):
        if not group.cost.flops or not group.seconds:
            continue
        x = min(group.intensity, high / 4)
        mark = "o" if group.cost.bytes else ">"
        area = 15 + 500 * group.seconds / total
        axes.scatter(
            [x], [group.rate], s=area, marker=mark, color=COLORS[group.bound], alpha=0.7,
            edgecolors="white", linewidths=0.5, zorder=3,
        )  # fmt: skip
        if index < _BARS:
            points.append((x, group.rate, index + 1))
    for x, y, numbers in _together(points):
        # Left of the slope, and below the flat roofs, there is nothing else.
        sloped = y >= 0.9 * x * bandwidth
        axes.annotate(
            numbers, (x, y), xytext=(-12, 8) if sloped else (0, -14), textcoords="offset points",
            fontsize=8, ha="right" if sloped else "center", va="bottom" if sloped else "top",
        )  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_xlabel("operations for each byte of device memory (FLOP/byte); triangles: no traffic")
    axes.set_ylabel("FLOP/s")
    axes.set_title("roofline; numbers as at the right, area of a point: share of time")
    axes.grid(alpha=0.2, which="both")


def _together(points: Sequence[tuple[float, float, int]]) -> list[tuple[float, float, str]]:
    """One label for points that are closer than a label is wide: place and numbers."""
    found: list[tuple[float, float, list[int]]] = []
    for x, y, number in points:
        for left, low, numbers in found:
            if abs(log10(x / left)) < 0.6 and abs(log10(y / low)) < 0.25:
                numbers.append(number)
                break
        else:
            found.append((x, y, [number]))
    return [(x, y, ", ".join(map(str, numbers))) for x, y, numbers in found]


def _roofs(groups: Sequence[OpGroup], device: Accelerator) -> dict[str, float]:
    """The flat roofs: of the element types that products have, and of the other unit."""
    kinds = dict.fromkeys(group.dtype for group in groups if group.op in MATRIX_OPS)
    roofs = {
        f"matrix unit, {kind}: {device.matrix_flops(kind) / 1e12:.3g} TFLOP/s": (
            device.matrix_flops(kind)
        )
        for kind in kinds
    }
    vector = device.vector_flops
    return {**roofs, f"vector unit: {vector / 1e12:.3g} TFLOP/s": vector}


def _bars(axes: Axes, groups: Sequence[OpGroup]) -> None:
    """Draw what takes longest: compute, memory and links of each group beside each other."""
    top, rest = list(groups[:_BARS]), groups[_BARS:]
    unit, name = next(
        ((u, n) for u, n in ((1.0, "s"), (1e-3, "ms")) if top and top[0].seconds >= u),
        (1e-6, "us"),
    )
    labels: list[str] = []
    for row, group in enumerate(top):
        parts = (
            ("compute", group.cost.compute_s),
            ("memory", group.cost.memory_s),
            ("link", group.cost.link_s),
        )
        for offset, (kind, seconds) in zip((-0.27, 0.0, 0.27), parts, strict=True):
            axes.barh([row + offset], [seconds / unit], height=0.25, color=COLORS[kind])
        labels.append(f"{row + 1}  {_label(group)}")
    if rest:
        seconds = sum(group.seconds for group in rest)
        axes.barh([len(top)], [seconds / unit], height=0.6, color=COLORS["programs"])
        labels.append(f"{len(rest)} other groups")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{name} of one run of the program")
    axes.set_title("time by op, all layers together")
    for kind, label in (("compute", "arithmetic"), ("memory", "device memory"), ("link", "links")):
        axes.barh([0], [0], color=COLORS[kind], label=label)
    axes.legend(loc="lower right", frameon=False, fontsize=8)


def _label(group: OpGroup) -> str:
    scope = ".".join(group.scope.split(".")[-2:])
    place = f" in {scope}" if scope else ""
    text = f"{group.op}{place}"
    return f"{text if len(text) <= 46 else f'{text[:43]}...'} x{group.count}"
