"""The report of a load in the text, the names and the JSON files of LLMPerf's token benchmark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.atomic_write import write_whole
from graphgen.json_value import Json
from graphgen.report.figure import COLORS, picture
from graphgen.runtime.benchmark.load_prompts import PromptSizes
from graphgen.runtime.benchmark.load_run import LoadResult
from graphgen.runtime.benchmark.openai_client import Api, RequestOutcome
from graphgen.runtime.benchmark.request_metrics import DISTRIBUTIONS, request_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The form of LLMPerf's summary that this is.
_VERSION = "2023-08-31"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A load test: its settings and its measurements.

    Attributes:
        api: the server and the model.
        sizes: of the prompts and answers.
        result: what was measured.
    """

    api: Api
    sizes: PromptSizes
    result: LoadResult

    def metrics(self) -> dict[str, Json]:
        """LLMPerf's results; those of requests leave out the ones that ended with an error."""
        good = [one.times for one in self.result.outcomes if one.error_code is None]
        failed = len(self.result.outcomes) - len(good)
        found = request_metrics(good, failed, self.result.wall)
        # As text, as LLMPerf writes it.
        return {**found, "error_code_frequency": str(self.errors()), **self._speculation()}

    def _speculation(self) -> dict[str, Json]:
        """Tokens that the server's speculation proposed; empty where it names none."""
        accepted = sum(one.accepted or 0 for one in self.result.outcomes)
        proposed = accepted + sum(one.rejected or 0 for one in self.result.outcomes)
        if not proposed:
            return {}
        return {
            "number_proposed_tokens": proposed,
            "number_accepted_tokens": accepted,
            "acceptance_rate": accepted / proposed,
        }

    def errors(self) -> dict[int | str, int]:
        """Number of errors by code, the most frequent first."""
        codes = [one.error_code for one in self.result.outcomes]
        return dict(Counter([code for code in codes if code is not None]).most_common())

    def text(self) -> str:
        """The report that LLMPerf prints."""
        found = self.metrics()
        lines = [f"Results for token benchmark for {self.api.model} queried with the openai api.\n"]
        for metric in DISTRIBUTIONS:
            values = cast("Mapping[str, Json]", found[metric])
            flat = {**cast("Mapping[str, Json]", values["quantiles"]), **values}
            del flat["quantiles"]
            lines.append(metric)
            lines += [f"    {k} = {'nan' if v is None else v}" for k, v in flat.items()]
        lines.append(f"Number Of Errored Requests: {found['number_errors']}")
        if found["number_errors"]:
            lines += ["Error Code Frequency", str(self.errors())]
        rate = found["mean_output_throughput_token_per_s"]
        lines.append(f"Overall Output Throughput: {rate}")
        lines.append(f"Number Of Completed Requests: {found['num_completed_requests']}")
        lines.append(f"Completed Requests Per Minute: {found['num_completed_requests_per_min']}")
        if "acceptance_rate" in found:
            counts = f"{found['number_accepted_tokens']} of {found['number_proposed_tokens']}"
            lines.append(f"Accepted Proposed Tokens: {counts}")
        return "\n".join(lines) + "\n"

    def summary(self) -> dict[str, Json]:
        """The sizes, the arrival process and the results, nested."""
        load, sizes = self.result.load, self.sizes
        rate: dict[str, Json] = {"request_rate": load.rate} if load.rate else {}
        return {
            "model": self.api.model,
            "mean_input_tokens": sizes.mean_input,
            "stddev_input_tokens": sizes.stddev_input,
            "mean_output_tokens": sizes.mean_output,
            "stddev_output_tokens": sizes.stddev_output,
            **(rate or {"num_concurrent_requests": load.users}),
            "additional_sampling_params": dict(self.api.sampling),
            "results": self.metrics(),
            "num_requests_unfinished": self.result.unfinished,
            "interrupted": self.result.interrupted,
        }


def file_stem(report: LoadReport, several: bool) -> str:
    """The beginning of the names of a report's files: model, input and output tokens.

    Args:
        report: of the load.
        several: whether there are reports of other loads; the load then is part of the name.
    """
    load = f"_{report.result.load}" if several else ""
    sizes = report.sizes
    name = f"{report.api.model}_{sizes.mean_input}_{sizes.mean_output}{load}"
    return re.sub(r"-{2,}", "-", re.sub(r"[^\w-]+", "-", name))


def write_report(
    report: LoadReport,
    folder: Path,
    metadata: Mapping[str, str],
    timestamp: int,
    *,
    several: bool = False,
) -> list[Path]:
    """Write ``*_summary.json`` and ``*_individual_responses.json`` as LLMPerf does.

    Args:
        report: of one load.
        folder: created where it is not there.
        metadata: further entries of the summary; they replace entries of the same name.
        timestamp: Unix time in seconds.
        several: see :func:`file_stem`.

    Returns:
        The two files.

    Raises:
        GraphgenError: GG0704 where they cannot be written.
    """
    stem = file_stem(report, several)
    named = {"version": _VERSION, "name": f"{stem}_summary"}
    summary = _flat({**named, **report.summary(), **metadata, "timestamp": timestamp})
    responses = [_response(one) for one in report.result.outcomes]
    paths = [folder / f"{stem}_{kind}.json" for kind in ("summary", "individual_responses")]
    for path, content in zip(paths, (summary, responses), strict=True):
        text = json.dumps(content, indent=4, allow_nan=False)
        write_whole(path, text.encode(), parents=True)
    return paths


def _flat(found: Mapping[str, Json], above: str = "") -> dict[str, Json]:
    """One level of keys, joined by ``_``."""
    flat: dict[str, Json] = {}
    for key, value in found.items():
        name = f"{above}_{key}" if above else key
        flat |= _flat(value, name) if isinstance(value, dict) else {name: value}
    return flat


def _response(one: RequestOutcome) -> dict[str, Json]:
    times = one.times
    return {
        "error_code": one.error_code,
        "error_msg": one.error_msg,
        "inter_token_latency_s": times.inter_token_latency,
        "ttft_s": times.ttft,
        "end_to_end_latency_s": times.end_to_end,
        "request_output_throughput_token_per_s": times.output_throughput,
        "number_total_tokens": times.input_tokens + times.output_tokens,
        "number_output_tokens": times.output_tokens,
        "number_input_tokens": times.input_tokens,
        "request_start_time_s": one.start,
    }


# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false


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
