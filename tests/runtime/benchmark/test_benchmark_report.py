"""The benchmark report: AWS's and LLMPerf's numbers, a clock that is given, errors that count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.benchmark.benchmark_report import (
    BenchmarkReport,
    latency_columns,
    run_benchmark,
)
from graphgen.runtime.benchmark.request_metrics import RequestTimes, distribution
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.session.session import Session
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

AWS_COLUMNS = [
    *(f"latency_ms_p{percent}" for percent in (50, 90, 95, 99, 100)),
    "latency_ms_avg",
    "throughput",
]


def test_awss_columns_of_1_to_20_ms():
    columns = latency_columns([ms / 1e3 for ms in range(1, 21)], max_length=128, max_batch=2)
    assert list(columns) == AWS_COLUMNS
    wanted = [10.5, 18.1, 19.05, 19.81, 20, 10.5, 20 * 128 * 2 / 0.21]
    assert list(columns.values()) == pytest.approx(wanted)


def test_llmperfs_distribution():
    found = distribution([4.0, 1.0, 3.0, 2.0])
    assert found["quantiles"] == pytest.approx(
        {"p25": 1.75, "p50": 2.5, "p75": 3.25, "p90": 3.7, "p95": 3.85, "p99": 3.97}
    )
    assert [found[key] for key in ("mean", "min", "max")] == [2.5, 1, 4]
    assert found["stddev"] == pytest.approx(np.std([1, 2, 3, 4], ddof=1))
    assert distribution([7.0])["stddev"] == 0


def test_no_run_gives_no_number():
    assert set(latency_columns([], 1, 1).values()) == {None}
    assert distribution([])["mean"] is None


def test_the_numbers_over_all_requests():
    # A run of two rows of 11 new tokens in 3 s, one of a row that ended at its first, and an error.
    requests = [RequestTimes(5, 11, 1.0, 3.0), RequestTimes(6, 1, 1.0, 3.0)]
    report = BenchmarkReport(16, 2, [3.0], {}, requests, ["GG0701: too long"], 4.0)
    found = report.request_metrics()
    latency = found["inter_token_latency_s"]
    assert isinstance(latency, dict)
    assert latency["mean"] == pytest.approx(0.2)
    assert found["number_errors"] == 2
    assert found["error_rate"] == 0.5
    assert found["num_completed_requests"] == 2
    assert found["num_completed_requests_per_min"] == 30
    assert found["mean_output_throughput_token_per_s"] == 3
    assert report.to_json()["errors"] == ["GG0701: too long"]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("mini")
    write_llama(folder)
    return open_session(folder, CompileConfig().serving(batch=2, max_len=128))


PROMPTS = [[5, 6, 7], [8, 9]]


def generated(session: Session, tokens: int) -> list[int]:
    done, _ = generate(session, PROMPTS, GenerationRequest(tokens))
    return [len(completion.tokens) for completion in done]


def test_launches_and_requests_are_measured(session: Session):
    ticks = count()
    report = run_benchmark(
        lambda: generated(session, 4), session, [3, 2], 7, runs=3, clock=lambda: float(next(ticks))
    )
    # A run reads the clock at its start and end, and twice a launch: 1 + 2 + 3 * 2 + 1.
    assert report.runs == [9.0] * 3
    assert report.launches == {
        "context_encoding_model": [1.0] * 3,
        "token_generation_model": [1.0] * 9,
    }
    assert report.requests == [RequestTimes(3, 4, 3.0, 9.0), RequestTimes(2, 4, 3.0, 9.0)] * 3
    assert report.sub_models()["e2e_model"]["throughput"] == 3 * 7 * 2 / 27
    assert session.observers == []


def test_a_single_token_has_no_inter_token_latency(session: Session):
    report = run_benchmark(lambda: generated(session, 1), session, [3, 2], 4, runs=1)
    assert report.launches["token_generation_model"] == []
    assert report.requests[0].inter_token_latency is None
    assert report.requests[0].ttft == report.requests[0].end_to_end
    json.dumps(report.to_json(), allow_nan=False)


def test_errors_are_counted_and_not_swallowed(session: Session, tmp_path: Path):
    calls: Iterator[int] = count()

    def sometimes() -> list[int]:
        if next(calls) == 2:
            raise GraphgenError("GG0701", "too long")
        return generated(session, 2)

    report = run_benchmark(sometimes, session, [3, 2], 5, runs=3)
    assert (len(report.runs), report.errors) == (2, ["GG0701: too long"])
    report.write(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert list(read) == [
        "e2e_model",
        "context_encoding_model",
        "token_generation_model",
        "results",
        "errors",
    ]
    assert read["results"]["number_errors"] == 2

    def always() -> list[int]:
        if next(calls) > 5:
            raise GraphgenError("GG0701", "too long")
        return [1, 1]

    next(calls)
    with pytest.raises(GraphgenError, match="too long"):
        run_benchmark(always, session, [3, 2], 5, runs=2)


def test_an_error_of_the_warm_up_is_raised(session: Session):
    def broken() -> list[int]:
        raise GraphgenError("GG0701", "too long")

    with pytest.raises(GraphgenError, match="too long"):
        run_benchmark(broken, session, [3, 2], 5, runs=2)
    with pytest.raises(GraphgenError, match="benchmark of 0 runs"):
        run_benchmark(lambda: [1, 1], session, [3, 2], 5, runs=0)
