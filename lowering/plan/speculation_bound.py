"""Speculation by the roofline: the least time of a step, and the acceptance that a time implies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import VERIFY
from graphgen.lowering.plan.bucket_seconds import bucket_seconds
from graphgen.lowering.plan.measure import layer_period
from graphgen.targets import Accelerator


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of the launches that decoding is made of.

    Attributes:
        decode: one token a row by the model.
        draft: one proposed token; 0 for proposals that cost nothing.
        verify: by k: the model over k tokens a row.
        baseline: one token a row by the model without quantization; 0 where that is ``decode``.
    """

    decode: float
    draft: float
    verify: Mapping[int, float]
    baseline: float = 0.0

    @property
    def plain(self) -> float:
        """Seconds of a decode step without quantization."""
        return self.baseline or self.decode

    def step(self, length: int) -> float:
        """Seconds of k - 1 proposals and their verification."""
        return (length - 1) * self.draft + self.verify[length]


def bound_seconds(
    config: Mapping[str, object],
    draft: Mapping[str, object] | None,
    device: Accelerator,
    demand: CompileConfig,
    lengths: Sequence[int],
) -> StepSeconds:
    """Lower bounds of the launches on a device, with caches of ``demand.tokens`` slots.

    Args:
        config: a ``config.json``; Hugging Face's names.
        draft: of the draft, in ``demand.dtype``, over as many ranks; ``None`` for none.
        device: the accelerator.
        demand: the batch size, the slots, the ranks and the weights of the model.
        lengths: of k.

    Raises:
        GraphgenError: GG0304 where a model cannot be split over the ranks.
    """
    slots = max(demand.tokens)
    period = layer_period(config)

    def seconds(phase: str, length: int = 0) -> float:
        wanted = replace(demand, speculation_length=length)
        return bucket_seconds(config, device, wanted, phase, period)[slots]

    proposing = 0.0
    plain = replace(demand, quantization="", kv_cache_quant=False)
    if draft is not None:
        proposing = bucket_seconds(draft, device, plain, "decode", layer_period(draft))[slots]
    verify = {length: seconds(VERIFY, length) for length in lengths}
    baseline = (
        0.0 if plain == demand else bucket_seconds(config, device, plain, "decode", period)[slots]
    )
    return StepSeconds(seconds("decode"), proposing, verify, baseline)


def expected_tokens(acceptance: float, length: int) -> float:
    """Tokens of a step of k that accepts each proposal by itself with ``acceptance`` a.

    1 + a + a² + ... + a^(k-1): a step stops at the first proposal that it does not accept.
    """
    return sum(acceptance**place for place in range(length))


def implied_acceptance(tokens: float, length: int) -> float | None:
    """The acceptance a of each proposal by itself that gives ``tokens`` a step of k tokens.

    The inverse of :func:`expected_tokens` by bisection; ``None`` below one token and above k, which
    no acceptance gives.
    """
    if not 1 <= tokens <= length:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if expected_tokens(middle, length) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2
