"""Experts in groups, of which a token has some (arXiv 2405.04434, 2412.19437)."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import lowest, pred


@dataclass(frozen=True, slots=True)
class ExpertGroups:
    """Groups of neighboring experts, from the best of which the experts of a token are chosen.

    Attributes:
        count: groups.
        kept: groups that a token has.
        best: experts whose scores are summed to that of their group.
    """

    count: int
    kept: int
    best: int = 1


def limit_to_groups(b: Builder, scores: Value, groups: ExpertGroups) -> Value:
    """The scores f32 [...,E], those of groups that a token has not being the lowest f32.

    A zero in their place, as NxD's ``GroupLimitedRouter`` has, wins against negative scores.
    """
    *outer, experts = scores.shape
    assert isinstance(experts, int)
    last = len(outer)
    apart = b.reshape(scores, (*outer, groups.count, experts // groups.count))
    if groups.best == 1:
        of_groups = b.reduce(apart, [last + 1], "maximum")
    else:
        of_groups = b.reduce(b.top_k(apart, groups.best)[0], [last + 1], "add")
    _, kept = b.top_k(of_groups, groups.kept)
    chosen = b.one_hot(kept, groups.count, pred)
    allowed = b.broadcast_in_dim(b.reduce(chosen, [last], "or"), apart.shape, list(range(last + 1)))
    low = b.full(lowest(scores.dtype), apart.type)
    return b.reshape(b.select(allowed, apart, low), scores.shape)


def scores_at(b: Builder, scores: Value, indices: Value) -> Value:
    """The scores [...,K] of experts ``indices`` s32 [...,K], of scores [...,E]."""
    *outer, experts = scores.shape
    assert isinstance(experts, int)
    last = len(outer)
    there = b.one_hot(indices, experts, pred)
    spread = b.broadcast_in_dim(scores, there.shape, [*range(last), last + 1])
    # One number and zeros: their sum is exact.
    return b.reduce(b.select(there, spread, b.full(0, spread.type)), [last + 1], "add")
