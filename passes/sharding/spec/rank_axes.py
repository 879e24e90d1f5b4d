"""Factor the number of ranks into mesh axes, for each kind of parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.errors import GraphgenError

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
