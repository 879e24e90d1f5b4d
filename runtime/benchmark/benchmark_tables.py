"""Tables of a benchmark report, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from graphgen.json_value import Json
from graphgen.report.table import Report, Table
from graphgen.runtime.benchmark.benchmark_report import BenchmarkReport

# Of LLMPerf's names, in its order.
_METRICS = (
    "inter_token_latency_s",
    "ttft_s",
    "end_to_end_latency_s",
    "request_output_throughput_token_per_s",
    "number_input_tokens",
    "number_output_tokens",
)


def benchmark_tables(report: BenchmarkReport) -> Report:
    """AWS's columns by sub-model, LLMPerf's distributions, and the numbers over all requests."""
    models = report.sub_models()
    columns = [name.removeprefix("latency_ms_") for name in next(iter(models.values()))]
    rows = [
        [name, *("-" if value is None else f"{value:.2f}" for value in found.values())]
        for name, found in models.items()
    ]
    found = report.request_metrics()
    blocks: list[str | Table] = [
        Table(("latency, ms", *columns[:-1], "tokens/s"), rows, len(columns)),
        _distributions(found),
        f"errored requests: {found['number_errors']}\n"
        f"overall output throughput: {found['mean_output_throughput_token_per_s']:.2f} tokens/s\n"
        f"completed requests: {found['num_completed_requests']}\n"
        f"completed requests per minute: {found['num_completed_requests_per_min']:.2f}\n",
    ]
    return [*blocks, *(f"error in a run: {error}\n" for error in report.errors)]


def _distributions(found: Mapping[str, Json]) -> Table:
    rows: list[list[str]] = []
    headers: list[str] = []
    for metric in _METRICS:
        values = cast("Mapping[str, Json]", found[metric])
        flat = {**cast("Mapping[str, Json]", values["quantiles"]), **values}
        del flat["quantiles"]
        headers = list(flat)
        rows.append([metric, *(_cell(value) for value in flat.values())])
    return Table(("request", *headers), rows, len(headers))


def _cell(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
