"""The times of requests, and LLMPerf's columns of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphgen.json_value import Json

_QUANTILES: Final = (25, 50, 75, 90, 95, 99)
# LLMPerf's names of what has a distribution, in its order.
DISTRIBUTIONS: Final = (
    "inter_token_latency_s",
    "ttft_s",
    "end_to_end_latency_s",
    "request_output_throughput_token_per_s",
    "number_input_tokens",
    "number_output_tokens",
)


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The times of one request.

    Attributes:
        input_tokens: tokens of the prompt.
        output_tokens: new tokens.
        ttft: seconds to the first token.
        end_to_end: seconds to the end of the answer.
    """

    input_tokens: int
    output_tokens: int
    ttft: float
    end_to_end: float

    @property
    def inter_token_latency(self) -> float | None:
        """Mean seconds from one token to the next; ``None`` for a single token."""
        gaps = self.output_tokens - 1
        return (self.end_to_end - self.ttft) / gaps if gaps > 0 else None

    @property
    def output_throughput(self) -> float:
        """New tokens per second."""
        return self.output_tokens / self.end_to_end if self.end_to_end else 0.0


def distribution(values: Sequence[float]) -> dict[str, Json]:
    """LLMPerf's description of the values of requests; each ``None`` without a value.

    ``quantiles`` p25 to p99, ``mean``, ``min``, ``max`` and ``stddev``, the standard deviation of a
    sample, which is 0 for a single value.
    """
    keys = [f"p{percent}" for percent in _QUANTILES]
    if not len(values):
        empty: dict[str, Json] = dict.fromkeys(("mean", "min", "max", "stddev"))
        return {"quantiles": dict.fromkeys(keys), **empty}
    array = np.asarray(values, np.float64)
    quantiles: list[float] = np.percentile(array, _QUANTILES).tolist()
    return {
        "quantiles": dict(zip(keys, quantiles, strict=True)),
        "mean": float(array.mean()),
        # Counts of tokens stay whole numbers.
        "min": min(values),
        "max": max(values),
        "stddev": float(array.std(ddof=1)) if len(array) > 1 else 0.0,
    }


def request_metrics(requests: Sequence[RequestTimes], failed: int, wall: float) -> dict[str, Json]:
    """LLMPerf's results: a distribution for each metric, and the numbers over all requests.

    Args:
        requests: those that ended well.
        failed: how many ended with an error.
        wall: seconds from the first request to the end of the last.
    """
    gaps = [one.inter_token_latency for one in requests]
    count, started = len(requests), len(requests) + failed
    return {
        "inter_token_latency_s": distribution([gap for gap in gaps if gap is not None]),
        "ttft_s": distribution([one.ttft for one in requests]),
        "end_to_end_latency_s": distribution([one.end_to_end for one in requests]),
        "request_output_throughput_token_per_s": distribution(
            [one.output_throughput for one in requests]
        ),
        "number_input_tokens": distribution([one.input_tokens for one in requests]),
        "number_output_tokens": distribution([one.output_tokens for one in requests]),
        "num_requests_started": started,
        "number_errors": failed,
        "error_rate": failed / started if started else 0.0,
        "mean_output_throughput_token_per_s": sum(one.output_tokens for one in requests) / wall
        if wall
        else 0.0,
        "num_completed_requests": count,
        "num_completed_requests_per_min": count / wall * 60 if wall else 0.0,
    }
