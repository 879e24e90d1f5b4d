"""The picture of ``graphgen load-test --plot``: latencies against load."""

# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from graphgen.json_value import Json
from graphgen.report.figure import COLORS, picture
from graphgen.runtime.load_test.llmperf_report import LoadReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LATENCIES = {
    "ttft_s": "time to first token, s",
    "inter_token_latency_s": "time between tokens, s",
    "end_to_end_latency_s": "whole request, s",
}
_PERCENTILES = {"p50": COLORS["compute"], "p90": COLORS["memory"], "p99": COLORS["link"]}


def load_picture(name: str, reports: Sequence[LoadReport]) -> bytes:
    """The bytes of an SVG or a PNG: three latencies and the throughput, a point for each load.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        reports: of one or several loads, all by users or all by rate.
    """
    reports = sorted(reports, key=_load)
    found = [report.metrics() for report in reports]
    loads = [_load(report) for report in reports]

    def draw(figure: Figure) -> None:
        sizes = reports[0].sizes
        figure.suptitle(
            f"{reports[0].api.model}: prompts of {sizes.mean_input} tokens, "
            f"answers of {sizes.mean_output}",
            fontsize=12,
        )
        panels = figure.subplots(2, 2).ravel().tolist()
        for axes, (metric, title) in zip(panels, _LATENCIES.items(), strict=False):
            _latencies(axes, loads, [cast("Mapping[str, Json]", one[metric]) for one in found])
            axes.set_title(title)
        _throughput(panels[-1], loads, found)
        for axes in panels:
            axes.set_xlabel("requests/s" if reports[0].result.load.rate else "requests at a time")

    return picture(name, (10.0, 7.0), draw)


def _load(report: LoadReport) -> float:
    return report.result.load.rate or report.result.load.users


def _latencies(axes: Axes, loads: Sequence[float], values: Sequence[Mapping[str, Json]]) -> None:
    """Draw a line for each percentile; a load without an answer has no point."""
    for percentile, color in _PERCENTILES.items():
        points = [
            (load, float(cast("float", quantiles[percentile])))
            for load, value in zip(loads, values, strict=True)
            if (quantiles := cast("Mapping[str, Json]", value["quantiles"]))[percentile] is not None
        ]
        x, y = [load for load, _ in points], [seconds for _, seconds in points]
        axes.plot(x, y, marker="o", color=color, label=percentile)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)


def _throughput(axes: Axes, loads: Sequence[float], found: Sequence[Mapping[str, Json]]) -> None:
    rates = [float(cast("float", one["mean_output_throughput_token_per_s"])) for one in found]
    axes.plot(loads, rates, marker="o", color=COLORS["caches"], label="tokens/s")
    errors = [100 * float(cast("float", one["error_rate"])) for one in found]
    axes.set_title("output tokens/s, and errors in % of the requests")
    if any(errors):
        twin = axes.twinx()
        twin.plot(loads, errors, marker="x", color=COLORS["limit"], label="errors")
        twin.set_ylim(0, 100)
    axes.set_ylim(bottom=0)
