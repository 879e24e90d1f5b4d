"""Bytes and steps of a collective at each level of links, at least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2

from graphgen.analysis.overview import algorithm
from graphgen.ir import Module, Op
from graphgen.targets import LinkLevel

Groups = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class LevelTraffic:
    """A collective at one level.

    Attributes:
        level: the level.
        bytes: that its busiest part sends to the others.
        steps: one after the other.
    """

    level: LinkLevel
    bytes: int
    steps: int


def groups_of(module: Module, op: Op) -> Groups:
    """The ranks that exchange something with each other."""
    if "source_target_pairs" in op.attrs:
        return op.attrs.groups("source_target_pairs")
    return op.attrs.groups("replica_groups") or (tuple(range(module.ranks)),)


def level_traffic(op: Op, groups: Groups, levels: Sequence[LinkLevel]) -> list[LevelTraffic]:
    """The needs of a collective at each level, where the stages of a hierarchy are ideal.

    Within a unit with c parts in a group, each part combines, or spreads, a share of 1/c: an
    all-reduce sends (c-1)/c of its bytes to where they are combined, and as much in sums; a
    reduce-scatter does the first, an all-gather the second. An exchange sends what is for other
    parts. Transfers among the ranks of one part cross no link of the level.

    Steps are those of the runtime: within a node by size (neuron-runtime/explore/
    intranode-collective-comm.rst), between nodes one for what a mesh sends, else recursive
    doubling's (internode-collective-comm.rst).
    """
    whole = max(op.operands[0].type.nbytes, op.results[0].type.nbytes)
    found: list[LevelTraffic] = []
    for place, level in enumerate(levels):
        sizes = [_members(part, level, place) for part, _ in units(groups, level)]
        most = max(sizes, default=1)
        kind = algorithm(whole)
        kind = "rdh" if place and kind == "kanga-ring" else kind
        found.append(LevelTraffic(level, ceil(_sent(op, groups, level)), _steps(kind, most)))
    return found


def traffic_seconds(traffic: Sequence[LevelTraffic]) -> float:
    """Seconds of a collective: levels work side by side, and steps follow each other."""
    longest = max([item.bytes / item.level.bandwidth for item in traffic])
    return longest + sum([item.steps * item.level.hop_seconds for item in traffic])


def _steps(kind: str, ranks: int) -> int:
    """Steps of an algorithm of the runtime: the longest of its rings has half of the ranks."""
    if ranks < 2:
        return 0
    return {"mesh": 1, "rdh": ceil(log2(ranks)), "kanga-ring": ceil(ranks / 2)}[kind]


def _members(ranks: Sequence[int], level: LinkLevel, place: int) -> int:
    """Ranks that take turns: within a node all, between nodes one of each."""
    return len({rank // level.part for rank in ranks}) if place else len(ranks)


def units(groups: Groups, level: LinkLevel) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """The members of each group in each unit, with the whole group."""
    for group in groups:
        if not level.unit:
            yield group, group
            continue
        split: dict[int, list[int]] = {}
        for rank in group:
            split.setdefault(rank // level.unit, []).append(rank)
        for ranks in split.values():
            yield ranks, group


def _sent(op: Op, groups: Groups, level: LinkLevel) -> float:
    """Bytes the busiest part of a unit sends to other parts of it, at least."""
    given, made = op.operands[0].type.nbytes, op.results[0].type.nbytes
    by_part: dict[int, float] = {}
    for ranks, group in units(groups, level):
        parts = Counter([rank // level.part for rank in ranks])
        others = (len(parts) - 1) / len(parts)
        for part, members in parts.items():
            match op.name:
                case "collective_permute":
                    sent = given if part == group[0] // level.part and len(parts) > 1 else 0
                case "all_reduce":
                    sent = 2 * given * others
                case "all_gather":
                    sent = made * others
                case "reduce_scatter":
                    sent = given * others
                case _:
                    sent = given * members * (len(ranks) - members) / len(group)
            by_part[part] = by_part.get(part, 0) + sent
    return max(by_part.values(), default=0)


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
