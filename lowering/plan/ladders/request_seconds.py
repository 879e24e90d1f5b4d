"""The seconds of a request on a device, by the buckets of its programs and the rows of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from graphgen.bucket_ladder import SMALLEST_BUCKET, powers
from graphgen.compile_config import CompileConfig
from graphgen.lowering.plan.ladders.bucket_seconds import Seconds, bucket_seconds
from graphgen.lowering.plan.ladders.ladder_search import (
    Ladder,
    best_ladders,
    binned,
    ladder_seconds,
)
from graphgen.lowering.plan.ladders.request_lengths import RequestLengths
from graphgen.lowering.plan.measure import estimate
from graphgen.targets import Accelerator

MOST_BUCKETS = 16
# Candidates at equal distances; with the powers of two among them.
_STEPS = 16


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    """The programs of a phase that could be compiled, and the calls of one request.

    Attributes:
        sizes: candidate buckets, increasing.
        calls: that need more than the size before and at most this one.
        seconds: of a call in each bucket.
    """

    sizes: Sequence[int]
    calls: Sequence[float]
    seconds: Sequence[float]

    def best(self, most: int) -> list[Ladder]:
        """The best ladder of at most 1, 2, ... ``most`` buckets, at most 16."""
        return best_ladders(self.sizes, self.calls, self.seconds, min(most, MOST_BUCKETS))

    def time(self, buckets: Sequence[int]) -> float:
        """Seconds of the calls in these buckets."""
        return ladder_seconds(buckets, self.sizes, self.calls, self.seconds)

    def padded(self, buckets: Sequence[int]) -> float:
        """Tokens or slots of all calls, padding included."""
        return ladder_seconds(buckets, self.sizes, self.calls, self.sizes)


@dataclass(frozen=True, slots=True)
class RequestSeconds:
    """The model, the device and the requests of a search.

    Attributes:
        config: a ``config.json``; Hugging Face's names.
        target: the accelerator.
        demand: has the ranks, the slots of a cache row, and the largest bucket of each phase.
        lengths: of the requests.
        executable_bytes: that an executable takes on a core.
        period: what :func:`graphgen.lowering.plan.measure.layer_period` says of ``config``.
    """

    config: Mapping[str, object]
    target: Accelerator
    demand: CompileConfig
    lengths: RequestLengths
    executable_bytes: int
    period: int

    @property
    def prompt(self) -> int:
        """The largest context bucket."""
        return rounded(self.lengths.longest_prompt)

    def bytes(self, rows: int) -> int:
        """Of a core, without executables."""
        demand = replace(self.demand, batch=(rows,), prefill_batch=(1,))
        return estimate(self.config, demand, demand.tp, self.period).total

    def seconds(self, phase: str, sizes: tuple[int, ...], rows: int) -> Seconds:
        """Of the programs of a phase, by bucket."""
        ladders = {"context": sizes} if phase == "prefill" else {"tokens": sizes}
        demand = replace(self.demand, batch=(rows,), rows=rows, **ladders)
        return bucket_seconds(self.config, self.target, demand, phase, self.period)

    def prefill(self) -> PhaseSeconds:
        """The calls of one row that a request starts with."""
        sizes = candidates(self.prompt)
        calls = binned(self.lengths.prefills(), sizes)
        time = self.seconds("prefill", sizes, 1)
        share = [count / self.lengths.requests for count in calls]
        return PhaseSeconds(sizes, share, [time[size] for size in sizes])

    def decode(self, sizes: tuple[int, ...], rows: int) -> PhaseSeconds:
        """A request's share of the steps of ``rows`` rows."""
        time = self.seconds("decode", sizes, rows)
        steps = binned(self.lengths.steps(), sizes)
        total = sum(steps)
        fits = [(below / total) ** rows if total else 0.0 for below in accumulate(steps, initial=0)]
        each = total / self.lengths.requests / rows
        return PhaseSeconds(
            sizes, [each * (b - a) for a, b in pairwise(fits)], [time[s] for s in sizes]
        )

    def room(self, used: int) -> int:
        """Executables that fit beside ``used`` bytes."""
        return max(self.target.hbm_bytes - used, 0) // self.executable_bytes


def rounded(length: int) -> int:
    """The bucket that takes the longest call: a multiple of the smallest bucket."""
    return -(-length // SMALLEST_BUCKET) * SMALLEST_BUCKET


def candidates(largest: int) -> tuple[int, ...]:
    """Sizes at equal distances, a power of two times 128, with the powers of two among them."""
    return tuple(sorted({*range(spacing(largest), largest, spacing(largest)), *powers(largest)}))


def spacing(largest: int) -> int:
    """The distance of the candidates up to ``largest``: 128 to 2048, 256 to 4096, and so on."""
    step = SMALLEST_BUCKET
    while step * _STEPS < largest:
        step *= 2
    return step
