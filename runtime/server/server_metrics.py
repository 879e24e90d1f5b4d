"""Metrics of the server, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from graphgen.runtime.serving.block_rows import BlockRows
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import TokenEvent

# Seconds; a token takes milliseconds to a second, a whole answer up to minutes.
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
# Weight of the newest answer in the mean that Retry-After follows from.
_NEWEST = 0.2


class ServerMetrics:
    """Counts and times since the start.

    Args:
        engine: whose rows and queue are counted.
    """

    def __init__(self, engine: ServingEngine) -> None:
        self._registry: Final = CollectorRegistry()
        scheduler = engine.scheduler
        self._gauge("requests_waiting", "Choices without a row.", lambda: len(scheduler.waiting))
        self._gauge("rows_taken", "Rows that answer.", lambda: len(scheduler.running))
        self._gauge("rows", "Rows of the cache.", lambda: len(scheduler.pool.rows))
        if isinstance(scheduler.pool, BlockRows):
            self._count_blocks(scheduler.pool)
        self._requests = self._counter("requests", "Requests.", "endpoint", "status")
        self._choices = self._counter("choices", "Choices that ended.", "reason")
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self._new_tokens = self._counter("new_tokens", "Tokens chosen.")
        self._proposed = self._counter("speculation_proposed_tokens", "Tokens that were proposed.")
        self._accepted = self._counter(
            "speculation_accepted_tokens", "Proposed tokens that were accepted."
        )
        self._verified = self._counter(
            "speculation_verifications", "Steps of a choice that verified proposals."
        )
        self._pool: Final = scheduler.pool
        self._prefix_queries = self._counter(
            "prefix_cache_queries", "Tokens of texts that were given a row."
        )
        self._prefix_hits = self._counter(
            "prefix_cache_hits", "Tokens of prompts that the cache held already."
        )
        self._counted = (0, 0)
        self._steps = self._counter("steps", "Steps of the engine.")
        self._step = self._histogram("step_seconds", "Duration of a step.", _SHORT)
        self._first = self._histogram(
            "time_to_first_token_seconds", "From a request to its first token.", _LONG
        )
        self._between = self._histogram(
            "inter_token_seconds", "Between two tokens of a choice.", _SHORT
        )
        self._whole = self._histogram(
            "request_seconds", "From a request to the end of its answer.", _LONG
        )
        self.answer_seconds = 1.0

    def _count_blocks(self, pool: BlockRows) -> None:
        """The blocks of a paged cache."""
        self._gauge("blocks", "Blocks of the cache.", lambda: len(pool.blocks.counts))
        self._gauge(
            "blocks_taken",
            "Blocks that rows have.",
            lambda: len(pool.blocks.counts) - pool.blocks.available,
        )
        self._gauge(
            "blocks_cached",
            "Blocks that no row has and that hold a beginning.",
            lambda: pool.blocks.cached,
        )

    def after_step(self, events: Sequence[TokenEvent], seconds: float) -> None:
        """Count the events of a step; called by the engine's thread."""
        self._steps.inc()
        self._step.observe(seconds)
        now = self._pool.wanted, self._pool.reused
        self._prefix_queries.inc(now[0] - self._counted[0])
        self._prefix_hits.inc(now[1] - self._counted[1])
        self._counted = now
        self._new_tokens.inc(sum(event.token is not None for event in events))
        self._proposed.inc(sum(event.proposed for event in events))
        self._accepted.inc(sum(event.accepted for event in events))
        self._verified.inc(sum(event.proposed > 0 for event in events))
        for event in events:
            if event.finish is not None:
                self._choices.labels(event.finish.value).inc()

    def prompt(self, tokens: int) -> None:
        """Count the tokens of accepted prompts."""
        self._prompt_tokens.inc(tokens)

    def first_token(self, seconds: float) -> None:
        """Note the time from a request to its first token."""
        self._first.observe(seconds)

    def next_token(self, seconds: float) -> None:
        """Note the time between two tokens of a choice."""
        self._between.observe(seconds)

    def answered(self, seconds: float) -> None:
        """Note the time of a whole answer."""
        self._whole.observe(seconds)
        self.answer_seconds += _NEWEST * (seconds - self.answer_seconds)

    def request(self, endpoint: str, status: int) -> None:
        """Count a request that has ended."""
        self._requests.labels(endpoint, str(status)).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        Gauge(f"graphgen_{name}", help, registry=self._registry).set_function(value)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"graphgen_{name}", help, labels, registry=self._registry)

    def _histogram(self, name: str, help: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"graphgen_{name}", help, buckets=buckets, registry=self._registry)
