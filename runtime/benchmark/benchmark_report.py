"""Latency of a model: per sub-model and end to end, in the columns of AWS's report and of LLMPerf.

AWS's columns are percentiles of the seconds of runs, and a throughput of
``runs * max_length * max_batch / sum of seconds``. Beside them stand time to first token and
inter-token latency, with the percentiles and names of LLMPerf's token benchmark; each row of a
batch counts as a request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from graphgen.atomic_write import write_whole
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY
from graphgen.json_value import Json
from graphgen.report.table import Report, Table
from graphgen.runtime.benchmark.request_metrics import DISTRIBUTIONS, RequestTimes, request_metrics
from graphgen.runtime.session.session import Session

END_TO_END: Final = "e2e_model"
# AWS's names of the programs of each phase.
SUB_MODELS: Final[Mapping[str, str]] = {
    "prefill": "context_encoding_model",
    "decode": "token_generation_model",
    VERIFY: "speculation_model",
}
# Sub-models that every report has.
_ALWAYS: Final = ("prefill", "decode")
# Launches that come after the first token of a run.
_STEPS: Final = ("decode", VERIFY)
_PERCENTILES: Final = (50, 90, 95, 99, 100)
Clock = Callable[[], float]


def latency_columns(
    seconds: Sequence[float], max_length: int, max_batch: int
) -> dict[str, float | None]:
    """AWS's columns of the seconds of runs; ``None`` in each without a run.

    Args:
        seconds: one per run.
        max_length: tokens of a sequence, prompt included.
        max_batch: rows of a run.
    """
    names = [*(f"latency_ms_p{percent}" for percent in _PERCENTILES), "latency_ms_avg"]
    if not seconds:
        return dict.fromkeys([*names, "throughput"])
    ms = np.asarray(seconds, np.float64) * 1e3
    values = [*np.percentile(ms, _PERCENTILES).tolist(), float(ms.mean())]
    throughput = len(ms) * max_length * max_batch / float(ms.sum() / 1e3)
    return dict(zip([*names, "throughput"], [*values, throughput], strict=True))


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """The measurements of all runs but the warm-up.

    Attributes:
        max_length: tokens of a sequence, for AWS's throughput.
        max_batch: rows of a run.
        runs: seconds of each run that ended well.
        launches: seconds of each launch, by sub-model.
        requests: one per row of a run that ended well.
        errors: the text of each run's error.
        wall: seconds of all runs, those with an error included.
    """

    max_length: int
    max_batch: int
    runs: list[float]
    launches: dict[str, list[float]]
    requests: list[RequestTimes]
    errors: list[str]
    wall: float

    def sub_models(self) -> dict[str, dict[str, float | None]]:
        """AWS's columns end to end and of each sub-model."""
        named = {END_TO_END: self.runs, **self.launches}
        return {
            name: latency_columns(seconds, self.max_length, self.max_batch)
            for name, seconds in named.items()
        }

    def request_metrics(self) -> dict[str, Json]:
        """LLMPerf's results: a distribution for each metric, and the numbers over all requests."""
        return request_metrics(self.requests, len(self.errors) * self.max_batch, self.wall)

    def to_json(self) -> dict[str, Json]:
        """AWS's entries by sub-model, ``results`` as LLMPerf's, and ``errors``."""
        return {
            **self.sub_models(),
            "results": self.request_metrics(),
            "errors": list(self.errors),
        }

    def write(self, path: Path, content: Mapping[str, Json] | None = None) -> None:
        """Write :meth:`to_json`, or a part of it, to a file, whole or not at all (GG0704)."""
        text = json.dumps(content or self.to_json(), indent=4, allow_nan=False) + "\n"
        write_whole(path, text.encode())


@dataclass(slots=True)
class LaunchTimes:
    """An observer of a session that measures its launches.

    Attributes:
        clock: gives seconds.
        seconds: of each launch, by sub-model.
        first_decode: the time when the first launch after the prompts of a run started; ``None``
            before.
    """

    clock: Clock = time.perf_counter
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {SUB_MODELS[phase]: [] for phase in _ALWAYS}
    )
    first_decode: float | None = None
    _start: float = 0.0

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Start the clock."""
        self._start = self.clock()
        if self.first_decode is None and session.module.function(program).phase in _STEPS:
            self.first_decode = self._start

    def after_launch(self, session: Session, program: str) -> None:
        """Keep the seconds since :meth:`before_launch`."""
        phase = session.module.function(program).phase
        self.seconds.setdefault(SUB_MODELS[phase], []).append(self.clock() - self._start)


def run_benchmark(
    generate: Callable[[], Sequence[int]],
    session: Session,
    input_tokens: Sequence[int],
    max_length: int,
    runs: int = 20,
    clock: Clock = time.perf_counter,
) -> BenchmarkReport:
    """Run a batch again and again, after one warm-up that is not counted.

    A run that ends in an error of the user is counted as one and its text is kept; the first error
    is raised if every run ends so, and that of the warm-up always.

    Args:
        generate: runs the batch, by an engine or an application on ``session``; returns the number
            of new tokens of each row.
        session: its launches are measured.
        input_tokens: tokens of each row's prompt.
        max_length: tokens of a sequence at the end, for AWS's throughput.
        runs: measured runs, at least 1.
        clock: gives seconds.

    Raises:
        GraphgenError: GG0705 for fewer than one run.
    """
    if runs < 1:
        raise GraphgenError("GG0705", f"a benchmark of {runs} runs: at least 1 is needed")
    generate()
    times = LaunchTimes(clock)
    report = BenchmarkReport(max_length, len(input_tokens), [], times.seconds, [], [], 0.0)
    last: GraphgenError | None = None
    session.observers.append(times)
    begin = clock()
    try:
        for _ in range(runs):
            last = _measure(generate, times, input_tokens, report, clock) or last
    finally:
        session.observers.remove(times)
    if last is not None and not report.runs:
        raise last
    return BenchmarkReport(
        max_length,
        len(input_tokens),
        report.runs,
        times.seconds,
        report.requests,
        report.errors,
        clock() - begin,
    )


def _measure(
    generate: Callable[[], Sequence[int]],
    times: LaunchTimes,
    input_tokens: Sequence[int],
    report: BenchmarkReport,
    clock: Clock,
) -> GraphgenError | None:
    """Run once and add the measurements to the report; returns the run's error."""
    times.first_decode = None
    start = clock()
    try:
        outputs = generate()
    except GraphgenError as error:
        report.errors.append(f"{error.code}: {error.what}")
        return error
    end = clock()
    report.runs.append(end - start)
    first = times.first_decode
    ttft = (end if first is None else first) - start
    report.requests.extend(
        RequestTimes(given, made, ttft, end - start)
        for given, made in zip(input_tokens, outputs, strict=True)
    )
    return None


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
    for metric in DISTRIBUTIONS:
        values = cast("Mapping[str, Json]", found[metric])
        flat = {**cast("Mapping[str, Json]", values["quantiles"]), **values}
        del flat["quantiles"]
        headers = list(flat)
        rows.append([metric, *(_cell(value) for value in flat.values())])
    return Table(("request", *headers), rows, len(headers))


def _cell(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
