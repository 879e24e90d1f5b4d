"""Bytes and steps of a collective that treats all of its ranks alike, at each level of links.

Two algorithms, with b bytes of the whole in n parts (Thakur and others: Optimization of collective
communication operations in MPICH, 2005; the first is the flat ring of
neuron-runtime/explore/internode-collective-comm.rst):

* ring: n-1 steps, in each of which every rank hands b/n on to the next one. A step waits for the
  slowest link on the way, so that all steps count at the outermost level that the ring crosses.
* mesh: one step, in which every rank sends b/n to each other one.

An all-reduce takes either twice, to combine and to spread. The least that any algorithm sends is
:func:`graphgen.analysis.links.level_traffic.level_traffic`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from graphgen.analysis.links.level_traffic import Groups, LevelTraffic, traffic_seconds, units
from graphgen.targets import LinkLevel


def flat_traffic(
    name: str, whole: float, groups: Groups, levels: Sequence[LinkLevel]
) -> list[LevelTraffic]:
    """The needs of the faster one of ring and mesh; an exchange is a mesh.

    Args:
        name: of the op; not a permutation.
        whole: bytes of its operand or its result, of the larger one.
        groups: its replica groups, all of one size.
        levels: of links, nearest first.
    """
    mesh = mesh_traffic(name, whole, groups, levels)
    if name == "all_to_all":
        return mesh
    return min(ring_traffic(name, whole, groups, levels), mesh, key=traffic_seconds)


def ring_traffic(
    name: str, whole: float, groups: Groups, levels: Sequence[LinkLevel]
) -> list[LevelTraffic]:
    """The needs of a ring in the order of each group; arguments as for :func:`flat_traffic`."""
    ranks = len(groups[0])
    steps, links = _turns(name) * (ranks - 1), _ring_links(_hashable(groups), tuple(levels))
    return _made(levels, [steps * count * whole / ranks for count in links], steps)


def mesh_traffic(
    name: str, whole: float, groups: Groups, levels: Sequence[LinkLevel]
) -> list[LevelTraffic]:
    """The needs of a mesh; arguments as for :func:`flat_traffic`."""
    ranks, turns = len(groups[0]), _turns(name)
    links = _mesh_links(_hashable(groups), tuple(levels))
    return _made(levels, [turns * n * whole / ranks for n in links], turns if ranks > 1 else 0)


def _hashable(groups: Groups) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple(group) for group in groups])


@lru_cache(64)
def _ring_links(groups: Groups, levels: Sequence[LinkLevel]) -> Sequence[int]:
    """Links of all rings that leave the busiest part of each level."""
    leaving = [Counter[int]() for _ in levels]
    for group in groups:
        for rank, target in zip(group, (*group[1:], group[0]), strict=True):
            place = level_between(rank, target, levels)
            if place is not None:
                leaving[place][rank // levels[place].part] += 1
    return [max(count.values(), default=0) for count in leaving]


@lru_cache(64)
def _mesh_links(groups: Groups, levels: Sequence[LinkLevel]) -> Sequence[int]:
    """Pairs of ranks of which one is in the busiest part of each level, and one in another."""
    found: list[int] = []
    for level in levels:
        pairs = Counter[int]()
        for members, _ in units(groups, level):
            parts = Counter([rank // level.part for rank in members])
            for part, count in parts.items():
                pairs[part] += count * (len(members) - count)
        found.append(max(pairs.values(), default=0))
    return found


def _turns(name: str) -> int:
    return 2 if name == "all_reduce" else 1


def _made(levels: Sequence[LinkLevel], sent: Sequence[float], steps: int) -> list[LevelTraffic]:
    """Steps count at the outermost level that carries something, else at the first one."""
    last = max([place for place, count in enumerate(sent) if count], default=0)
    return [
        LevelTraffic(level, ceil(count), steps if place == last else 0)
        for place, (level, count) in enumerate(zip(levels, sent, strict=True))
    ]


def level_between(rank: int, target: int, levels: Sequence[LinkLevel]) -> int | None:
    """The level of the link between two ranks; ``None`` inside of a part of the first."""
    for place, level in reversed([*enumerate(levels)]):
        if rank // level.part != target // level.part:
            return place
    return None
