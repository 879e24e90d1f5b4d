"""The default pipelines, to be read as the story of a compilation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from passes.canonical.canonicalize import Canonicalize
from passes.cleanup.cse import CommonSubexpressions
from passes.cleanup.dce import DeadCodeElimination
from passes.core import Pass, parse_pipeline
from passes.core.order import check_order
from passes.fusion.fuse_projections import FuseProjections
from passes.legalize.cache_bits import CacheAsBits
from passes.legalize.legalize import Legalize
from passes.sharding.annotate import Shard
from passes.sharding.partition import Partition
from passes.specialize.specialize import Specialize
from passes.weights.lift import LiftWeights


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes the programs are compiled for; the fields of :class:`Specialize`."""

    batch: tuple[int, ...] = (1,)
    context: tuple[int, ...] = (128,)
    tokens: tuple[int, ...] = (128,)
    slots: int = 0


def parse(text: str, buckets: Buckets | None = None) -> list[Pass]:
    """Passes from text, where ``default`` or ``default{tp=2}`` stands for the default pipeline.

    Raises:
        GraphgenError: GG0301, GG0302, and GG0303 for an order that is right for no module.
    """

    def expand(match: re.Match[str]) -> str:
        passes = default(buckets or Buckets(), tp=int(match[1] or 1))
        return ",".join(map(str, passes))

    passes = parse_pipeline(re.sub(r"(?<![\w-])default(?:\{tp=(\d+)\})?(?![\w-])", expand, text))
    check_order(passes)
    return passes


def default(buckets: Buckets, *, tp: int = 1, target: str = "cpu", min_rows: int = 8) -> list[Pass]:
    """From the logical module to programs ready to be lowered.

    Args:
        buckets: what to compile for.
        tp: ranks the model is split over; 1 leaves out the sharding phase.
        target: what to legalize for.
        min_rows: rows a 16-bit product with a weight is padded to.
    """
    passes: list[Pass] = [
        Canonicalize(),
        Specialize(
            batch=buckets.batch,
            context=buckets.context,
            tokens=buckets.tokens,
            slots=buckets.slots,
            in_place=True,
        ),
    ]
    if tp > 1:
        passes += [Shard(tp=tp), Partition()]
    if target == "cpu":
        passes.append(CacheAsBits())
    return [
        *passes,
        CommonSubexpressions(),
        FuseProjections(),
        LiftWeights(),
        Legalize(target=target, min_rows=min_rows),
        CommonSubexpressions(),
        DeadCodeElimination(),
    ]
