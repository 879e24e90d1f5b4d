"""Factor the number of ranks into mesh axes, for each kind of parallelism."""

from __future__ import annotations

import math
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


TP, CP, DP = "tp", "cp", "dp"
# The layout in a rule of an axis that is not divided.
WHOLE = "-"


@dataclass(frozen=True, slots=True)
class RankAxes:
    """The factors of a number of ranks.

    Neighbors in number share a prompt or have other rows: ``tp`` is the outermost axis beside
    ``cp`` and ``dp``, so that the heads of a rank are among those that its neighbors have together.

    Attributes:
        ranks: in all.
        prompt: ranks that share the tokens of a prompt, each with the heads of all of them.
        rows: groups of ranks with attention for rows of their own.
    """

    ranks: int
    prompt: int = 1
    rows: int = 1

    @property
    def mesh(self) -> Mapping[str, int]:
        """The axes that divide something, with their sizes (GG0302 for factors that cannot be)."""
        shared = math.lcm(self.prompt, self.rows)
        _factor("cp", self.prompt, self.ranks)
        _factor("dp", self.rows, self.ranks)
        if self.prompt > 1 and self.prompt % self.rows:
            raise GraphgenError(
                "GG0302",
                f"shard: cp={self.prompt} ranks with the tokens of a prompt are not dp={self.rows} "
                "groups of as many",
                help="dp is a divisor of cp, or cp is 1",
            )
        found = {TP: self.ranks // shared, CP: shared // self.rows, DP: self.rows}
        return {axis: size for axis, size in found.items() if size > 1} or {TP: 1}

    @property
    def every(self) -> str:
        """All axes, as rules write them: neighbors along the product are neighbors."""
        return "*".join(self.mesh)

    @property
    def of_heads(self) -> str:
        """The axes of heads and caches, all but those of rows; ``-`` for none."""
        return "*".join([axis for axis in self.mesh if axis != DP]) or WHOLE

    @property
    def of_prompt_heads(self) -> str:
        """The axis of heads where ranks share a prompt; ``-`` where all of them do."""
        return TP if TP in self.mesh else WHOLE

    @property
    def of_tokens(self) -> str:
        """The axes of the tokens of a prompt; empty without."""
        return "*".join([axis for axis in (CP, DP) if axis in self.mesh]) if self.prompt > 1 else ""

    @property
    def every_token(self) -> str:
        """All axes, those of the tokens of a prompt first: sequence parallelism over all ranks."""
        first = self.of_tokens.split("*") if self.of_tokens else []
        return "*".join([*first, *[axis for axis in self.mesh if axis not in first]])


def _factor(name: str, size: int, ranks: int) -> None:
    """Require a number of ranks to be groups of equal size (GG0302)."""
    if size < 1 or ranks % size:
        raise GraphgenError(
            "GG0302",
            f"shard: tp={ranks} ranks are not {size} groups of as many",
            help=f"{name} is a divisor of tp",
        )
