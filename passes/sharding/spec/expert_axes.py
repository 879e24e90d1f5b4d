"""Groups of ranks with experts of their own: the axes of a mesh, and the rules for experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm

from graphgen.errors import GraphgenError


@dataclass(frozen=True, slots=True)
class ExpertAxes:
    """Factors of the ranks, over some of which each phase divides experts.

    With d groups in decode and p in prefill, the factors are gcd(p, d), p / gcd, d / gcd and what
    is left of the ranks. Experts lie over the first and one of the next two, their inner features
    over all others.

    Attributes:
        axes: of the mesh, in order; the last is ``tp``, those before it ``ep``, ``ep2``, ``ep3``.
        decode, prefill: the axes of experts and those of their inner features, as rules have them.
    """

    axes: Mapping[str, int]
    decode: tuple[str, str]
    prefill: tuple[str, str]


def expert_axes(tp: int, decode: int, prefill: int) -> ExpertAxes:
    """The factors of ``tp`` ranks for these numbers of groups in decode and in prefill.

    Raises:
        GraphgenError: GG0302 for groups of unequal size.
    """
    for groups in (decode, prefill):
        if groups < 1 or tp % groups:
            raise GraphgenError(
                "GG0302",
                f"shard: tp={tp} ranks are not {groups} groups of as many",
                help="ep is a divisor of tp",
            )
    both = gcd(decode, prefill)
    # Size, and whether experts lie over the factor in decode and in prefill.
    factors = [
        (both, True, True),
        (prefill // both, False, True),
        (decode // both, True, False),
        (tp // lcm(decode, prefill), False, False),
    ]
    factors = [item for item in factors if item[0] > 1] or [(tp, False, False)]
    names = [*("ep", "ep2", "ep3")[: len(factors) - 1], "tp"]
    named = list(zip(names, factors, strict=True))
    over = [
        (_product([name for name, item in named if item[phase]]),
         _product([name for name, item in named if not item[phase]]))
        for phase in (1, 2)
    ]  # fmt: skip
    return ExpertAxes({name: item[0] for name, item in named}, *over)


def _product(axes: Sequence[str]) -> str:
    """Axes as a rule has them."""
    return "*".join(axes) or "-"
