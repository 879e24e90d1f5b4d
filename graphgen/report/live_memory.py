"""The live memory of a program and its arguments, as data and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphgen.analysis.liveness import LiveMemory, live_memory
from graphgen.analysis.overview import argument_groups
from graphgen.ir import Function, Module, Op, Value
from graphgen.json_value import Json
from graphgen.report.figure import COLORS
from graphgen.report.units import short, size
from graphgen.text.printer import value_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """All memory of a program on one rank.

    Attributes:
        arguments: bytes of weights, caches and inputs, which stay for the whole program.
        live: intermediate values, op by op.
    """

    arguments: dict[str, int]
    live: LiveMemory

    @property
    def total(self) -> int:
        """Arguments, and intermediate values at the peak."""
        return sum(self.arguments.values()) + self.live.peak.bytes


def program_memory(module: Module, function: Function) -> ProgramMemory:
    """The memory of a program; needs static shapes (GG0106)."""
    live = live_memory(module, function)
    arguments = {
        group.kind: sum(value.type.nbytes for value in group.values)
        for group in argument_groups(module, live.function)
    }
    return ProgramMemory(arguments, live)


def memory_json(memory: ProgramMemory) -> Json:
    """The curve, and when each intermediate value is alive: positions of ops, counted from 0."""
    live, names = memory.live, value_names(memory.live.function)
    peak = live.peak
    return {
        "arguments": dict[str, Json](memory.arguments),
        "ops": len(live.ops),
        "bytes": list(live.bytes),
        "lifetimes": [
            {
                "name": names[item.value][1:],
                "type": item.value.type.text,
                "bytes": item.value.type.nbytes,
                "first": item.first,
                "last": item.last,
            }
            for item in live.lifetimes
        ],
        "peak": {
            "bytes": peak.bytes,
            "op": live.worst if live.ops else None,
            "alive": [names[value][1:] for value in peak.alive],
        },
    }


# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false


# Most points of a drawn curve; each is the largest value of the ops it stands for.
_POINTS = 800
# Most rows of the table of values at the peak.
_ROWS = 8
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def draw_curve(axes: Axes, memory: ProgramMemory) -> None:
    """Draw the bytes of intermediate values over the ops of a program."""
    live = memory.live
    axes.set_xlabel("op, in program order")
    unit, name = _unit(live.peak.bytes)
    axes.set_ylabel(f"live temporaries ({name})")
    if not live.ops:
        axes.set_title("no ops")
        return
    places, heights = _largest(live.bytes)
    scaled = [height / unit for height in heights]
    axes.fill_between(places, scaled, step="post", color=COLORS["temporaries"], alpha=0.6, lw=0)
    axes.step(places, scaled, where="post", color=COLORS["temporaries"], lw=0.8)
    axes.set_xlim(0, max(len(live.ops), 1))
    axes.set_ylim(0, 1.15 * max(max(scaled), 1e-9))
    worst = live.worst
    axes.plot([worst], [live.bytes[worst] / unit], "v", color=COLORS["limit"], ms=6)
    axes.set_title(f"peak {size(live.bytes[worst])} at op {worst}: {_place(live.ops[worst])}")


def draw_peak(axes: Axes, memory: ProgramMemory) -> None:
    """Write a table of the largest values that are alive at the peak."""
    axes.set_axis_off()
    live = memory.live
    names, alive = value_names(live.function), live.peak.alive
    axes.set_title("alive at the peak, largest first")
    rows = [_row(value, names[value]) for value in alive[:_ROWS]]
    if len(alive) > _ROWS:
        rest = sum(value.type.nbytes for value in alive[_ROWS:])
        rows.append([f"{len(alive) - _ROWS} more", "", "", size(rest)])
    inside = live.inside[live.worst] if live.ops else 0
    if inside:
        rows.append(["inside of the op", "", "", size(inside)])
    if not rows:
        return
    table = axes.table(
        rows,
        colLabels=["value", "type", "made by", "size"],
        colWidths=[0.2, 0.26, 0.4, 0.14],
        cellLoc="left",
        loc="upper center",
        edges="horizontal",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for cell in table.get_celld().values():
        cell.set_edgecolor("#cccccc")


def draw_whole(axes: Axes, memory: ProgramMemory, capacity: int) -> None:
    """Draw one bar of everything that a core holds, beside what it has."""
    parts = {**memory.arguments, "temporaries": memory.live.peak.bytes}
    unit, name = _unit(capacity)
    left = 0.0
    for kind, count in parts.items():
        label = f"{kind} {size(count)}"
        axes.barh([0], [count / unit], left=[left], color=COLORS[kind], label=label, height=0.8)
        left += count / unit
    axes.axvline(capacity / unit, color=COLORS["limit"], lw=1.5, label=f"capacity {size(capacity)}")
    axes.set_xlim(0, 1.05 * max(left, capacity / unit))
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(f"{{x:g}} {name}")
    axes.set_title(f"one core at the peak: {size(memory.total)} of {size(capacity)}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.7), ncols=3, frameon=False, fontsize=8)


def _unit(most: float) -> tuple[float, str]:
    return next((row for row in _UNITS if most >= row[0]), _UNITS[-1])


def _largest(heights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Positions and heights of a curve of few points, none of whose peaks is lost."""
    step = max(1, -(-len(heights) // _POINTS))
    places = list(range(0, len(heights), step))
    most = [max(heights[place : place + step]) for place in places]
    return [*places, len(heights)], [*most, most[-1]]


def _place(op: Op) -> str:
    scope = op.loc.scope
    return f"{op.name} in {_tail(scope, 30)}" if scope else op.name


def _row(value: Value, name: str) -> list[str]:
    made = _place(value.op) if value.op else ""
    return [_tail(name, 20), short(value.type.text, 26), short(made, 40), size(value.type.nbytes)]


def _tail(text: str, width: int) -> str:
    """The text, or three dots and its end."""
    return text if len(text) <= width else f"...{text[3 - width :]}"
