"""Bytes and steps of a collective at each level of links, at least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
